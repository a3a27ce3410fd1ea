"""Classes P of transitions and how each is fitted (Algorithm 1, line 7)."""

from pcmlp.models.knr import KNR
from pcmlp.models.linear_mdp import LinearMDP
from pcmlp.models.tabular import Tabular

__all__ = ["KNR", "LinearMDP", "Tabular"]
