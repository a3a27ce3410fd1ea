"""Uniform random actions, as a substitution: Algorithm 1 with a planner that ignores the MDP it is given."""

from jaxtyping import Array, Float, Key

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
