"""Model-predictive path integral control (Williams et al. 2017; paper: appendix D.1).

    S_k = sum_t [ -r(s_t, a_t + e_t^k) + lambda a_t^T Sigma^-1 e_t^k ],   w_k = softmax(-S_k / lambda),
    a_t <- a_t + sum_k w_k e_t^k

paper: the update is inside the loop over k, and its indices are off by one / here: one update, after all K plans.

For choices, a plan is drawn with the shares of the last plan, and some of its choices are drawn again uniformly. The
new shares are the weighted mean of these plans. The term with Sigma is left out: it comes from a prior that does
nothing, and here the prior is the last plan.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.choices import Choices, Number
from pcmlp.planners.shooting import Plan, Shooting, correlation_factor, plan_returns, whiten
from pcmlp.settings import setting
from pcmlp.spaces import Vectors
from pcmlp.types import MDP, State


class MPPI(Shooting):
    """Model-predictive path integral control, which replans at every step."""

    temperature: float = setting(0.2, "lambda of the weights", above=0, tune="0.05:1:log")
    noise_cov: float = setting(0.3, "Sigma = noise_cov I, in half action ranges", above=0, tune="0.05:1:log")
    # paper: independent noise / here: optionally correlated in time, so that noise keeps a direction for several steps
    correlation: float = setting(0.0, "correlation of the noise at consecutive steps", least=0, below=1)
    # paper: the same amount of noise in every plan / here: optionally a geometric range, from `least_noise` times the
    # full noise up to the full noise. Small noise corrects a good plan where the model was slightly wrong; large noise
    # finds a new one.
    least_noise: float = setting(1.0, "smallest noise of a plan, as a share of the largest", above=0, most=1)

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        """Return the weighted mean of noisy plans."""
        _, actions = mdp.boxes
        noise_key, return_key = jr.split(key)
        plans, change = self.draw_plans(noise_key, plan, actions)
        cost = -plan_returns(return_key, mdp, state, plans, self.particles) + self.temperature * change
        weight = jax.nn.softmax(-cost / self.temperature)
        # paper: a_t + sum_k w_k e_t^k / here: the mean of the clipped actions, which are the ones executed
        better = jnp.einsum("n,nta->ta", weight, plans)
        return jnp.where(jnp.isfinite(jnp.sum(weight)), better, plan)

    def draw_plans(
        self, key: Key[Array, ""], plan: Plan, actions: Vectors
    ) -> tuple[Float[Array, "n length action"], Float[Array, " n"]]:
        """Return noisy plans, and a^T Sigma^-1 e of each (0 for choices)."""
        white = jr.normal(key, (self.num_plans, *plan.shape))
        if isinstance(actions, Choices):
            plans = jax.vmap(lambda scale, e: self.redraw(actions, plan, scale, e))(self.scales(), white)
            return plans, jnp.zeros(self.num_plans)
        white = jax.vmap(jnp.multiply)(self.scales(), white)
        noise = jax.vmap(lambda e: self.colour(e, actions))(white)
        plans = jax.vmap(jax.vmap(actions.clip))(jax.vmap(lambda e: plan + e)(noise))
        whitened = whiten(plan / self.std(actions), self.correlation)
        return plans, jnp.einsum("ta,nta->n", whitened, white)

    def random_plan(self, key: Key[Array, ""], mdp: MDP) -> Plan:
        """Draw a plan: doing nothing, plus noise."""
        plan, (_, actions) = self.idle_plan(mdp), mdp.boxes
        white = jr.normal(key, plan.shape)
        if isinstance(actions, Choices):
            return self.redraw(actions, plan, 1.0, white)
        return plan + self.colour(white, actions)

    def scales(self) -> Float[Array, " n"]:
        """Return the scale of each plan's noise."""
        return self.least_noise ** jnp.linspace(1.0, 0.0, self.num_plans)

    def redraw(self, choices: Choices, plan: Plan, scale: Number, white: Plan) -> Plan:
        """Return the plan with some choices drawn again, by noise of this scale that is correlated in time."""
        noise = correlation_factor(white.shape[0], self.correlation) @ white
        std = scale * jnp.sqrt(self.noise_cov)
        return jax.vmap(lambda shares, e: choices.disturb(shares, std, e))(plan, noise)

    def colour(self, white: Plan, actions: Vectors) -> Plan:
        """Turn independent unit noise into noise of covariance Sigma, correlated in time."""
        return self.std(actions) * (correlation_factor(white.shape[0], self.correlation) @ white)

    def std(self, actions: Vectors) -> Float[Array, "1 a"]:
        """Return the std of the noise."""
        return (jnp.sqrt(self.noise_cov) * actions.half)[None, :]
