"""An MDP for tests of parts that need nothing but its spaces."""

from pcmlp.imagine import Unknown
from pcmlp.spaces import Space
from pcmlp.types import MDP


def spaces_only(states: Space, actions: Space, horizon: int = 10) -> MDP:
    """Return an MDP whose functions raise when they are called."""
    return MDP(Unknown(), Unknown(), Unknown(), Unknown(), states, actions, horizon)
