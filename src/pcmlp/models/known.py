"""The world's own transition in place of a model: P = P*, and nothing to learn.

(paper: PETS-GT, section 7.1.) It shows what planning alone achieves: all that a better model could add.
"""

from collections.abc import Callable

from jaxtyping import Array, Key

from pcmlp.replay import Replay
from pcmlp.types import MDP, Action, FittedModel, Metrics, Model, State


class KnownTransition(FittedModel):
    """P* as a model."""

    transition: Callable

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        """Draw the next state."""
        return self.transition(key, state, action)


class Known(Model):
    """The world's own transition: nothing is learned."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> KnownTransition:
        """Return P*."""
        return KnownTransition(mdp.transition)

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Return the model unchanged."""
        return model, {}
