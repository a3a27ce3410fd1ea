"""Classes P of transitions and how each is fitted (Algorithm 1, line 7; Algorithm 2, line 9)."""

from pcmlp.models.ensemble import DrawNeural, Ensemble
from pcmlp.models.known import DrawKnown, Known
from pcmlp.models.knr import KNR
from pcmlp.models.linear_mdp import LinearMDP
from pcmlp.models.neural import Fitting, Neural
from pcmlp.models.outcome import DrawWithOutcome
from pcmlp.models.probabilistic import DrawProbabilistic, Probabilistic
from pcmlp.models.tabular import Tabular
from pcmlp.models.thompson import DrawThompson, Thompson

__all__ = [
    "KNR",
    "DrawKnown",
    "DrawNeural",
    "DrawProbabilistic",
    "DrawThompson",
    "DrawWithOutcome",
    "Ensemble",
    "Fitting",
    "Known",
    "LinearMDP",
    "Neural",
    "Probabilistic",
    "Tabular",
    "Thompson",
]
