"""Uniform random actions."""

from jaxtyping import Array, Key

from pcmlp.spaces import Space
from pcmlp.types import Action, Carry, Policy, State


class UniformPolicy(Policy):
    """Uniform random play, whatever the state."""

    actions: Space

    def init(self) -> Carry:
        """Return an empty memory."""
        return None

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Draw an action."""
        return carry, self.actions.sample(key)

    def deterministic(self) -> "UniformPolicy":
        """Return the policy itself: without noise nothing would be left."""
        return self
