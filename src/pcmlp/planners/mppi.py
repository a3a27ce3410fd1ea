"""Model-predictive path integral control (Williams et al. 2017; paper: appendix D.1).

    S_k = sum_t [ -r(s_t, a_t + e_t^k) + lambda a_t^T Sigma^-1 e_t^k ],   w_k = softmax(-S_k / lambda),
    a_t <- a_t + sum_k w_k e_t^k

paper: the update stands inside the loop over k and its indices are off by one / here: once, after all K plans.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.planners.shooting import AbstractShooter, Plan, correlation_factor, plan_returns, whitened
from pcmlp.types import MDP, Box, State


class MPPI(AbstractShooter):
    actions: Box
    num_plans: int = eqx.field(static=True, default=200)  # K
    plan_length: int = eqx.field(static=True, default=30)  # H
    temperature: float = 0.2  # lambda
    noise_cov: float = 0.3  # Sigma = noise_cov I, in units of half the action range
    # paper: independent noise / here: correlated in time if asked, so that a plan can be pushed one way for a while
    correlation: float = 0.0  # of the noise at two consecutive steps, in [0, 1)
    # paper: as much noise in every plan / here: from `least_noise` of it to all of it, in equal ratios, if asked. What
    # mends a good plan where the model was a little wrong is small; what finds one is large.
    least_noise: float = 1.0
    particles: int = eqx.field(static=True, default=1)

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        noise_key, return_key = jr.split(key)
        white = jax.vmap(jnp.multiply)(self.scales(), jr.normal(noise_key, (self.num_plans, *plan.shape)))
        noise = jax.vmap(self.coloured)(white)
        plans = jax.vmap(jax.vmap(self.actions.clip))(jax.vmap(lambda e: plan + e)(noise))
        returns = plan_returns(return_key, mdp, state, plans, self.actions, self.particles)
        # a^T Sigma^-1 e, with both whitened
        cost = -returns + self.temperature * jnp.einsum("ta,nta->n", self.whitened(plan), white)
        weight = jax.nn.softmax(-cost / self.temperature)
        # paper: a_t + sum_k w_k e_t^k / here: of what the noise does, not of what it asks of an actuator
        better = jnp.einsum("n,nta->ta", weight, plans)
        return jnp.where(jnp.isfinite(jnp.sum(weight)), better, plan)

    def random_plan(self, key: Key[Array, ""]) -> Plan:
        return self.idle() + self.coloured(jr.normal(key, (self.plan_length, self.actions.size)))

    def scales(self) -> Float[Array, " n"]:
        """Of each plan's noise."""
        return self.least_noise ** jnp.linspace(1.0, 0.0, self.num_plans)

    def coloured(self, white: Plan) -> Plan:
        """Independent unit noise into noise of covariance Sigma, correlated in time."""
        return self.std() * (correlation_factor(self.plan_length, self.correlation) @ white)

    def whitened(self, plan: Plan) -> Plan:
        """The noise that `coloured` would make a plan of."""
        return whitened(plan / self.std(), self.correlation)

    def std(self) -> Plan:
        half_range = 0.5 * (self.actions.high - self.actions.low)
        return jnp.broadcast_to(jnp.sqrt(self.noise_cov) * half_range, (self.plan_length, self.actions.size))
