"""The world's own transition in the place of a model: P = P*, and nothing to learn.

(paper: PETS-GT, section 7.1.) What a planner makes of the true dynamics is all that a better model could give it.
"""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Key

from pcmlp.replay import Replay
from pcmlp.types import AbstractModel, Action, Metrics, State, Transitions


class Known(AbstractModel):
    transition: Callable

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.transition(key, state, action)

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Known", Metrics]:
        return self, {}

    def train(self, key: Key[Array, ""], replay: Replay, steps: int | None = None) -> tuple["Known", Metrics]:
        return self, {}


class DrawKnown(eqx.Module):
    """key -> the transition, whatever the key."""

    transition: Callable

    def __call__(self, key: Key[Array, ""]) -> Known:
        return Known(self.transition)
