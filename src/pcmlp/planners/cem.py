"""The cross-entropy method (Botev et al. 2013): sample plans, keep the best, fit a Gaussian to them, repeat.

plans ~ N(mean, diag(std^2)),  elites = the best `elites` of `num_plans`,  mean, std <- those of the elites
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

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

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        half_range = 0.5 * (self.actions.high - self.actions.low)
        std = jnp.broadcast_to(self.noise_std * half_range, plan.shape)
        mix = correlation_factor(self.plan_length, self.correlation)

        def update(carry, update_key):
            mean, std = carry
            sample_key, return_key = jr.split(update_key)
            # sample plans; the mean itself is one of them, so that an update never forgets it
            noise = jr.normal(sample_key, (self.num_plans, *mean.shape)).at[0].set(0.0)
            noise = jnp.einsum("ts,nsa->nta", mix, noise)
            plans = jax.vmap(lambda e: mean + std * e)(noise)
            returns = plan_returns(return_key, mdp, state, plans, self.actions, self.particles)
            # elite plans
            value, best = jax.lax.top_k(returns, self.elites)
            elite = plans[best]
            known = jnp.isfinite(value[0])
            mean = jnp.where(known, jnp.mean(elite, axis=0), mean)
            return (mean, jnp.where(known, jnp.std(elite, axis=0), std)), None

        (mean, _), _ = jax.lax.scan(update, (plan, std), jr.split(key, self.iterations))
        return jax.vmap(self.actions.clip)(mean)

    def random_plan(self, key: Key[Array, ""]) -> Plan:
        noise = jr.normal(key, (self.plan_length, self.actions.size))
        half_range = jnp.broadcast_to(0.5 * (self.actions.high - self.actions.low), noise.shape)
        return self.noise_std * half_range * (correlation_factor(self.plan_length, self.correlation) @ noise)
