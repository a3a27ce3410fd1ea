"""The class of models that is defined by the task."""

from jaxtyping import Array, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Replay
from pcmlp.types import MDP, FittedModel, Metrics, Model


class TaskModel(Model):
    """The task's own class: counts, a finite class with maximum likelihood, or regulators."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> FittedModel:
        """Raise: Algorithm 1 takes the class from the problem (`PCMLP.bind`)."""
        raise ConfigError("model.name=task: only Algorithm 1 uses a task's own class of models; give neural")

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Raise, as `init` does."""
        raise ConfigError("model.name=task: only Algorithm 1 uses a task's own class of models; give neural")
