"""Ornstein-Uhlenbeck noise on the actions of real samples (Lillicrap et al. 2016; used by SLBO, Luo et al. 2018).

    n_0 = 0,    n_{t+1} = (1 - theta) n_t + sigma N(0, I),    action = the policy's action + half the action range * n_t

Consecutive n_t have correlation 1 - theta, so the noise keeps its direction for some steps; independent noise does
not. The stationary std is sigma / sqrt(1 - (1 - theta)^2). The noise is added only when samples are collected:
planning, evaluation and deployment use the policy itself.

For choices, no noise is added. Each choice is drawn again with the probability that planners use for noise of this std
(`choices.share_redrawn`). The correlation of n_t makes redrawn options stay the same for some steps.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.choices import Choices
from pcmlp.programs import program
from pcmlp.spaces import Vectors
from pcmlp.types import MDP, Action, Carry, Policy, State

_THETA = 0.15
_STATIONARY = 1.0 / math.sqrt(1.0 - (1.0 - _THETA) ** 2)  # the std of the noise after many steps, for sigma = 1


class NoisyPolicy(Policy):
    """A policy that does not search, with noise on its actions; the noise is part of its memory."""

    policy: Policy
    sigma: Float[Array, ""]
    actions: Vectors

    def init(self) -> Carry:
        """Return the memory of the policy, and noise 0."""
        return self.policy.init(), jnp.zeros(self.actions.size)

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the policy's action with the next noise."""
        policy_key, noise_key = jr.split(key)
        memory, noise = carry
        memory, action = self.policy(policy_key, memory, state)
        noise = (1.0 - _THETA) * noise + self.sigma * jr.normal(noise_key, noise.shape)
        if isinstance(self.actions, Choices):
            std = _STATIONARY * self.sigma
            return (memory, noise), self.actions.disturb(action, std, noise / std)
        return (memory, noise), action + self.actions.half * noise

    def deterministic(self) -> Policy:
        """Return the policy without any noise."""
        return self.policy.deterministic()


def add_noise(policies: Policy, sigma: float, mdp: MDP) -> Policy:
    """Return the policies of all seeds with noise of this std on their actions; unchanged where it is 0."""
    if sigma == 0:
        return policies
    _, actions = mdp.boxes
    return _with_noise(policies, jnp.float32(sigma), actions)


@program
@eqx.filter_vmap(in_axes=(eqx.if_array(0), None, None))
def _with_noise(policy: Policy, sigma: Float[Array, ""], actions: Vectors) -> NoisyPolicy:
    return NoisyPolicy(policy, sigma, actions)
