"""The cross-entropy method (Botev et al. 2013): sample plans, keep the best, fit a distribution to them, repeat.

plans ~ N(mean, diag(variance)),  elites = the best `elites` of `num_plans`,  mean, variance <- those of the elites

For choices, the distribution is categorical, and its mean is the probabilities of the options. In the first sample,
some choices of the plan are drawn again. In later samples, all choices are drawn with the shares of the elites.

PETS (Chua et al. 2018) adds two things that keep a search away from the bounds of the actions: `truncated` noise, and
`smoothing` of mean and variance.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.choices import Choices, share_redrawn
from pcmlp.planners.shooting import Plan, Shooting, correlation_factor, plan_returns
from pcmlp.settings import SettingError, setting
from pcmlp.spaces import Vectors
from pcmlp.types import MDP, State


class CEM(Shooting):
    """The cross-entropy method, which replans at every step."""

    iterations: int = setting(4, "updates of mean and variance in one refinement", least=1, tiny=1)
    elites: int = setting(20, "best plans that the next distribution is fitted to", least=1, tiny=2)
    noise_std: float = setting(1.0, "std of the first sample, in half action ranges", above=0, tune="0.2:1:log")
    # paper: independent noise (MPPI) / here: correlated noise, which keeps a direction for several steps; independent
    # noise averages out over a plan.
    correlation: float = setting(0.8, "correlation of the noise at consecutive steps", least=0, below=1)
    truncated: bool = setting(False, "independent noise within two std, which reach at most the nearer bound")
    smoothing: float = setting(0.0, "share of the last mean and variance in the next", least=0, below=1)

    def check(self) -> None:
        """Raise if settings contradict each other."""
        if self.elites > self.num_plans:
            raise SettingError("elites", self.elites, f"give 1 to {{num_plans}}={self.num_plans}")
        if self.truncated and isinstance(self.correlation, float) and self.correlation != 0:
            remedy = "truncated noise is independent; give 0, or {truncated}=false"
            raise SettingError("correlation", self.correlation, remedy)

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        """Fit the distribution `iterations` times and return its mean."""
        _, actions = mdp.boxes

        def update(carry, update_key):
            mean, variance = carry
            sample_key, return_key = jr.split(update_key)
            # sample plans; one of them is the mean itself, so that an update cannot lose it
            noise = self.noise(sample_key, (self.num_plans, *plan.shape), actions).at[0].set(0.0)
            plans = jax.vmap(lambda e: self.add_noise(mean, variance, e, actions))(noise)
            returns = plan_returns(return_key, mdp, state, plans, self.particles)
            # elite plans
            value, best = jax.lax.top_k(returns, self.elites)
            elite = plans[best]
            kept = jnp.where(jnp.isfinite(value[0]), self.smoothing, 1.0)
            means, variances = jnp.mean(elite, axis=0), jnp.var(elite, axis=0)
            return (kept * mean + (1.0 - kept) * means, kept * variance + (1.0 - kept) * variances), None

        first = self.first_mean(plan, actions), self.first_variance(plan, actions)
        (mean, _), _ = jax.lax.scan(update, first, jr.split(key, self.iterations))
        return jax.vmap(actions.clip)(mean)

    def random_plan(self, key: Key[Array, ""], mdp: MDP) -> Plan:
        """Draw a plan: doing nothing, plus noise."""
        plan, (_, actions) = self.idle_plan(mdp), mdp.boxes
        first = self.first_mean(plan, actions), self.first_variance(plan, actions)
        return self.add_noise(*first, self.noise(key, plan.shape, actions), actions)

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        action, plan = super().imagined_steps(horizon)
        return self.iterations * action, self.iterations * plan

    def add_noise(self, mean: Plan, variance: Plan, noise: Plan, actions: Vectors) -> Plan:
        """Return the plan for noise with unit std."""
        if isinstance(actions, Choices):
            return jax.vmap(lambda shares, z: actions.redraw(shares, 0.0, z))(mean, noise)
        return mean + self.spread(mean, variance, actions) * noise

    def first_mean(self, plan: Plan, actions: Vectors) -> Plan:
        """Return the mean at the start of a refinement: the plan; for choices, mixed with equal shares of options."""
        if not isinstance(actions, Choices):
            return plan
        new = share_redrawn(self.noise_std)
        return (1.0 - new) * plan + new * actions.middle[None]

    def first_variance(self, plan: Plan, actions: Vectors) -> Plan:
        """Return the variance that a refinement begins with."""
        return jnp.broadcast_to((self.noise_std * actions.half) ** 2, plan.shape)

    def spread(self, mean: Plan, variance: Plan, actions: Vectors) -> Plan:
        """Return the std of plans around a mean."""
        std = jnp.sqrt(variance)
        if not self.truncated:
            return std
        room = jax.vmap(lambda action: jnp.minimum(action - actions.low, actions.high - action))(mean)
        return jnp.minimum(std, 0.5 * jnp.maximum(room, 0.0))

    def noise(
        self, key: Key[Array, ""], shape: tuple[int, ...], actions: Vectors
    ) -> Float[Array, "*plans length action"]:
        """Draw noise with unit std. That of choices is never truncated, because rare options come from its tails."""
        if self.truncated and not isinstance(actions, Choices):
            return jr.truncated_normal(key, -2.0, 2.0, shape)
        mix = correlation_factor(shape[-2], self.correlation)
        return jnp.einsum("ts,...sa->...ta", mix, jr.normal(key, shape))
