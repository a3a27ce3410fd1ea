"""Feature maps: ways to draw phi(s, a), with norm at most 1 over a task's states and scaled by one constant."""

from pcmlp.features.checks import check_draw, check_norm, feature_dim
from pcmlp.features.fourier import Fourier, FourierFeatures
from pcmlp.features.given import NoFeatures, OneHot, OneHotFeatures, TableFeatures, TaskFeatures
from pcmlp.features.polynomial import Polynomial, PolynomialFeatures
from pcmlp.features.random_network import NetworkFeatures, RandomNetwork
from pcmlp.features.subset import SubsetFeatures
from pcmlp.types import FeatureMap

FEATURES: dict[str, type[FeatureMap]] = {
    "random-network": RandomNetwork,
    "fourier": Fourier,
    "polynomial": Polynomial,
    "one-hot": OneHot,
    "task": TaskFeatures,
    "none": NoFeatures,
}
