"""Ornstein-Uhlenbeck noise on the actions of real samples (Lillicrap et al. 2016; used by SLBO, Luo et al. 2018).

    n_0 = 0,    n_{t+1} = (1 - theta) n_t + sigma N(0, I),    the action is that of the policy + half its range * n_t

Consecutive n_t have correlation 1 - theta, so a push lasts for some steps, which independent noise never does. Its
stationary std is sigma / sqrt(1 - (1 - theta)^2). Only samples have it: planning, evaluation and what is deployed are
of the policy itself.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.types import AbstractPolicy, Action, Box, Carry, State

Number = float | Float[Array, ""]


class NoisyPolicy(AbstractPolicy):
    """A policy that does not search, with noise on its actions that it remembers beside what the policy does."""

    policy: AbstractPolicy
    actions: Box
    theta: Float[Array, ""]
    sigma: Float[Array, ""]

    def init(self) -> Carry:
        return self.policy.init(), jnp.zeros_like(self.actions.low)

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        policy_key, noise_key = jr.split(key)
        memory, noise = carry
        memory, action = self.policy(policy_key, memory, state)
        noise = (1.0 - self.theta) * noise + self.sigma * jr.normal(noise_key, noise.shape)
        return (memory, noise), action + 0.5 * (self.actions.high - self.actions.low) * noise

    def deterministic(self) -> AbstractPolicy:
        return self.policy.deterministic()


class OrnsteinUhlenbeck(eqx.Module):
    """The policies of all seeds -> the same with noise."""

    actions: Box
    sigma: Number = 0.3  # of each step, in units of half the action range
    theta: Number = 0.15

    def __call__(self, policies: AbstractPolicy) -> NoisyPolicy:
        return _with_noise(self, policies)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, eqx.if_array(0)))
def _with_noise(noise: OrnsteinUhlenbeck, policy: AbstractPolicy) -> NoisyPolicy:
    return NoisyPolicy(policy, noise.actions, jnp.asarray(noise.theta), jnp.asarray(noise.sigma))
