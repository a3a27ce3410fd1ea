"""Uniform random actions, as a substitution: Algorithm 1 with a planner that ignores the MDP it is given.

`RandomFirst` is a planner whose first policy is that: PETS (Chua et al. 2018) begins with an episode of random play.
For several seeds together a condition computes both of its sides, the search as well: so whoever has the policies of
all seeds asks `decided` first.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from pcmlp.types import MDP, AbstractPlanner, AbstractPolicy, Action, Carry, Metrics, Space, State


class UniformPolicy(AbstractPolicy):
    actions: Space

    def init(self) -> Carry:
        return None

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return carry, self.actions.sample(key)

    def deterministic(self) -> "UniformPolicy":
        return self  # without its randomness nothing is left of it


class UniformPlanner(AbstractPlanner):
    actions: Space

    def init(self, key: Key[Array, ""], mdp: MDP) -> UniformPolicy:
        return UniformPolicy(self.actions)

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[AbstractPolicy, Metrics]:
        return policy, {}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""] | None:
        return None


class RandomFirstPolicy(AbstractPolicy):
    policy: AbstractPolicy
    actions: Space
    random: Bool[Array, ""]  # whether nothing was planned yet
    searches: ClassVar[bool] = True

    def init(self) -> Carry:
        return self.policy.init()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        return jax.lax.cond(
            self.random, lambda: (carry, self.actions.sample(key)), lambda: self.policy(key, carry, state)
        )

    def deterministic(self) -> "RandomFirstPolicy":
        return RandomFirstPolicy(self.policy.deterministic(), self.actions, self.random)


def decided(policies: AbstractPolicy) -> AbstractPolicy:
    """The policies of all seeds, as random ones where nothing was planned yet; not to be traced."""
    if isinstance(policies, RandomFirstPolicy) and bool(jnp.all(policies.random)):
        return UniformPolicy(policies.actions)
    return policies


class RandomFirst(AbstractPlanner):
    """Around a planner that searches at every step."""

    planner: AbstractPlanner
    actions: Space

    def init(self, key: Key[Array, ""], mdp: MDP) -> RandomFirstPolicy:
        return RandomFirstPolicy(self.planner.init(key, mdp), self.actions, jnp.array(True))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[RandomFirstPolicy, Metrics]:
        assert isinstance(policy, RandomFirstPolicy)
        planned, metrics = self.planner.plan(key, mdp, policy.policy)
        return RandomFirstPolicy(planned, self.actions, jnp.array(False)), metrics

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""] | None:
        return self.planner.promise(key, mdp, policy)
