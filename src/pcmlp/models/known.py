"""Models that are given by the world or the task.

With the world's own transition in place of a model, P = P*, nothing is learned (paper: PETS-GT, section 7.1). This
shows what planning alone achieves, and so how much a better model could gain.
"""

from collections.abc import Callable

import jax
import jax.random as jr
from jaxtyping import Array, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Replay
from pcmlp.types import MDP, Action, Features, FittedModel, Metrics, Model, Problem, State


class KnownTransition(FittedModel):
    """P* as a model."""

    transition: Callable

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.transition(key, state, action)


class Known(Model):
    """The world's own transition: nothing is learned."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> KnownTransition:
        """Return P*."""
        return KnownTransition(mdp.transition)

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Return the model unchanged."""
        return model, {}


def check_transition(mdp: MDP) -> None:
    """Raise if the transition of the world cannot be computed from a state; nothing is compiled for it."""
    try:
        jax.eval_shape(lambda key: mdp.transition(key, mdp.states.sample(key), mdp.actions.sample(key)), jr.key(0))
    except ConfigError as error:
        raise ConfigError(
            "plans in the true dynamics, but this simulator cannot be set to a given state; "
            "leave out task.simulator, choose another task, or give algo=pets"
        ) from error


class TaskModel(Model):
    """The task's own class: counts, linear MDPs, or regulators."""

    def bind(self, problem: Problem, phi: Features) -> Model:
        """Return the task's own class, or raise if it has none."""
        if problem.model is None:
            raise ConfigError("model.name=task: the task has no class of models of its own; give another algorithm")
        return problem.model

    def init(self, key: Key[Array, ""], mdp: MDP) -> FittedModel:
        """Raise: only Algorithm 1 takes the class from the problem."""
        raise ConfigError("model.name=task: only Algorithm 1 uses a task's own class of models; give neural")

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Raise, as `init` does."""
        return self.init(key, mdp), {}
