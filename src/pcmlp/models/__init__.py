"""Classes P of transitions and how each is fitted (Algorithm 1, line 7; Algorithm 2, line 9)."""

from pcmlp.models.ball import Ball, ConfidenceBall, PosteriorDraw
from pcmlp.models.finite import LinearMDP, Tabular
from pcmlp.models.known import Known, TaskModel
from pcmlp.models.knr import KNR, KNRTransition, nearest_member
from pcmlp.models.linear_core import LinearCore
from pcmlp.models.neural import Neural, NeuralEnsemble, NeuralModel
from pcmlp.models.outcome import OutcomeNet
from pcmlp.models.probabilistic import Probabilistic
from pcmlp.models.thompson import Thompson
from pcmlp.types import Model

MODELS: dict[str, type[Model]] = {
    "neural": Neural,
    "probabilistic": Probabilistic,
    "thompson": Thompson,
    "world": Known,
    "task": TaskModel,
    "knr": KNR,
    "knr-ball": ConfidenceBall,
    "knr-draw": PosteriorDraw,
    "core": LinearCore,
}
