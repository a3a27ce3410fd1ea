"""The cross-entropy method (Botev et al. 2013): sample plans, keep the best, fit a Gaussian to them, repeat.

plans ~ N(mean, diag(variance)),  elites = the best `elites` of `num_plans`,  mean, variance <- those of the elites

PETS (Chua et al. 2018) has two things more, which hold a search back from the bounds of the actions: `truncated` noise,
and `smoothing` of what the elites say.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.planners.shooting import AbstractShooter, Plan, correlation_factor, plan_returns
from pcmlp.types import MDP, Box, State


class CEM(AbstractShooter):
    actions: Box
    num_plans: int = eqx.field(static=True, default=200)
    plan_length: int = eqx.field(static=True, default=20)
    iterations: int = eqx.field(static=True, default=4)
    elites: int = eqx.field(static=True, default=20)
    noise_std: float = 1.0  # of the first sample, in units of half the action range
    # paper: independent noise (MPPI) / here: independent noise averages out over a plan,
    # correlated noise holds a direction long enough to get somewhere.
    correlation: float = 0.8  # of the noise at two consecutive steps, in [0, 1)
    particles: int = eqx.field(static=True, default=1)
    truncated: bool = eqx.field(static=True, default=False)  # within two std, the nearer bound being no nearer
    smoothing: float = eqx.field(static=True, default=0.0)  # the share of the last mean and variance in the next

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        def update(carry, update_key):
            mean, variance = carry
            sample_key, return_key = jr.split(update_key)
            # sample plans; the mean itself is one of them, so that an update never forgets it
            noise = self.noise(sample_key, (self.num_plans, *plan.shape)).at[0].set(0.0)
            std = self.spread(mean, variance)
            plans = jax.vmap(lambda e: mean + std * e)(noise)
            returns = plan_returns(return_key, mdp, state, plans, self.actions, self.particles)
            # elite plans
            value, best = jax.lax.top_k(returns, self.elites)
            elite = plans[best]
            kept = jnp.where(jnp.isfinite(value[0]), self.smoothing, 1.0)
            means, variances = jnp.mean(elite, axis=0), jnp.var(elite, axis=0)
            return (kept * mean + (1.0 - kept) * means, kept * variance + (1.0 - kept) * variances), None

        (mean, _), _ = jax.lax.scan(update, (plan, self.first_variance()), jr.split(key, self.iterations))
        return jax.vmap(self.actions.clip)(mean)

    def random_plan(self, key: Key[Array, ""]) -> Plan:
        plan = self.idle()
        return plan + self.spread(plan, self.first_variance()) * self.noise(key, plan.shape)

    def first_variance(self) -> Plan:
        half_range = 0.5 * (self.actions.high - self.actions.low)
        return jnp.broadcast_to((self.noise_std * half_range) ** 2, (self.plan_length, self.actions.size))

    def spread(self, mean: Plan, variance: Plan) -> Plan:
        """The std of plans about a mean."""
        std = jnp.sqrt(variance)
        if not self.truncated:
            return std
        room = jax.vmap(lambda action: jnp.minimum(action - self.actions.low, self.actions.high - action))(mean)
        return jnp.minimum(std, 0.5 * jnp.maximum(room, 0.0))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*plans length action"]:
        """In units of the spread."""
        if self.truncated:
            return jr.truncated_normal(key, -2.0, 2.0, shape)
        mix = correlation_factor(self.plan_length, self.correlation)
        return jnp.einsum("ts,...sa->...ta", mix, jr.normal(key, shape))
