"""Feature maps phi(s, a) with norm at most 1 over a task's states, scaled by one constant and never point by point."""

from pcmlp.features.checks import check_norm, feature_dim
from pcmlp.features.chosen import Chosen, DrawChosen, chosen_box
from pcmlp.features.fourier import DrawFourier, Fourier, median_bandwidth
from pcmlp.features.one_hot import OneHot, Table
from pcmlp.features.polynomial import Polynomial
from pcmlp.features.random_network import DrawRandomNetwork, RandomNetwork

__all__ = [
    "Chosen",
    "DrawChosen",
    "DrawFourier",
    "DrawRandomNetwork",
    "Fourier",
    "OneHot",
    "Polynomial",
    "RandomNetwork",
    "Table",
    "check_norm",
    "chosen_box",
    "feature_dim",
    "median_bandwidth",
]
