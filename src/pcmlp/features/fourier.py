"""Random Fourier features of the RBF kernel (Rahimi & Recht 2008; paper: section 6).

    phi(x) = sqrt(2/d) [cos(w_j x), sin(w_j x)]_{j <= d/2},    w_j ~ N(0, I / bandwidth^2),   x = (s, a) / units

The cosine-sine pairs give |phi| = 1 exactly, everywhere: cos^2 + sin^2 = 1.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.features.subset import Boxes, draw_over
from pcmlp.replay import Transitions
from pcmlp.settings import SettingError, setting
from pcmlp.spaces import Box, Vectors
from pcmlp.types import MDP, FeatureMap, Features

_POINTS = 500  # number of points that the units and the bandwidth are estimated from


class FourierFeatures(eqx.Module):
    """phi with given frequencies and units."""

    frequencies: Float[Array, "half n"]
    units: Float[Array, " n"]

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        x = jnp.concatenate([state, action]) / self.units
        half = self.frequencies.shape[0]
        angle = jnp.matmul(jnp.concatenate([self.frequencies, self.frequencies]), x, precision="highest")
        return cosine(angle, jnp.arange(2 * half) // half) / jnp.sqrt(float(half))  # sin(y) = cos(y - pi/2)


class Fourier(FeatureMap):
    """Random Fourier features of the RBF kernel."""

    dim: int = setting(100, "number of features, which must be even", least=2, tiny=10)
    bandwidth: float | None = setting(None, "bandwidth of the kernel; none: the median distance of two points", above=0)
    action_weight: float = setting(1.0, "weight of actions relative to states", above=0)
    dims: tuple[int, ...] | None = setting(None, "coordinates of the state that phi uses; none: all", least=0)
    distinct: bool = setting(False, "leave out copies and goals, where the task declares them and dims is none")

    def check(self) -> None:
        """Raise if settings contradict each other."""
        if self.dim % 2:
            raise SettingError("dim", self.dim, "Fourier features come in pairs; give an even number")

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> Features:
        """Draw frequencies, in the units of the spaces if all bounds are finite, else of the samples."""
        return draw_over(self.dims, self.distinct, self._draw, key, mdp, samples)

    def _draw(self, key: Key[Array, ""], boxes: Boxes | None, samples: Transitions) -> FourierFeatures:
        point_key, frequency_key = jr.split(key)
        if boxes is not None:
            points = jax.vmap(lambda k: _sample_pair(k, *boxes))(jr.split(point_key, _POINTS))
        else:
            weight = samples.valid.astype(jnp.float32)
            chances = weight / jnp.maximum(jnp.sum(weight), 1.0)
            rows = jr.choice(point_key, samples.state.shape[0], (_POINTS,), p=chances)
            points = jnp.concatenate([samples.state[rows], samples.action[rows]], axis=1)
        weight = jnp.ones(points.shape[1]).at[samples.state.shape[1] :].set(self.action_weight)
        return draw_fourier(frequency_key, points, self.dim, self.bandwidth, weight)


def _sample_pair(key: Key[Array, ""], states: Box, actions: Vectors) -> Float[Array, " n"]:
    state_key, action_key = jr.split(key)
    return jnp.concatenate([states.sample(state_key), actions.sample(action_key)])


def draw_fourier(
    key: Key[Array, ""],
    points: Float[Array, "m n"],
    dim: int,
    bandwidth: float | Float[Array, ""] | None = None,
    weight: Float[Array, " n"] | None = None,
) -> FourierFeatures:
    """Draw features for inputs like `points`, which set the units and, if none is given, the bandwidth. A coordinate
    with `weight` w counts w times as much as the others."""
    std = jnp.std(points, axis=0)
    # A coordinate that does not vary gets the unit 1; a tiny unit would turn its first change into noise.
    units = jnp.where(std > 1e-6 * (1.0 + jnp.abs(jnp.mean(points, axis=0))), std, 1.0)
    units = units if weight is None else units / weight
    width = median_distance(points / units[None, :]) if bandwidth is None else jnp.asarray(bandwidth)
    width = jnp.where(width > 0, width, 1.0)  # the median distance is 0 if most points are equal
    return FourierFeatures(jr.normal(key, (dim // 2, points.shape[1])) / width, units)


def median_distance(x: Float[Array, "n m"]) -> Float[Array, ""]:
    """Return the median distance between two different rows (the median heuristic)."""
    distance = jnp.sqrt(jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1))
    return jnp.median(distance[jnp.triu_indices(x.shape[0], 1)])


# cos(x - k pi/2) is +-sin r or +-cos r, r = x - n pi/2 in [-pi/4, pi/4]; (n - k) mod 4 says which of the four.
# sin r = r + r z p(z) and cos r = 1 - z/2 + z^2 q(z) with z = r^2: Chebyshev interpolation over [0, (pi/4)^2]
_SINE = (-1.95879499e-04, 8.33274863e-03, -1.66666647e-01)
_COSINE = (2.45479913e-05, -1.38883033e-03, 4.16666647e-02)
_QUARTER = (1.5703125, 4.837512969970703e-4, 7.54978995489188e-8)  # pi/2; n times the first two is exact


def cosine(x: Float[Array, " n"], quarters: Int[Array, " n"]) -> Float[Array, " n"]:
    """Return cos(x - quarters pi/2).

    XLA's own cosine calls the C library for one number at a time on a CPU, ten times slower than this: it took half of
    the time of an MPPI step with Fourier features. The error is 1.2e-7 for |x| up to 1000.
    """
    n = jnp.round(x * (2 / math.pi))
    r = x
    for part in _QUARTER:
        r = r - n * part
    z = r**2
    odd = r + r * z * _polynomial(_SINE, z)
    even = 1.0 - 0.5 * z + z**2 * _polynomial(_COSINE, z)
    turned = n.astype(int) - quarters
    size = jnp.where(turned & 1 == 1, odd, even)
    return jnp.where((turned + 1) & 2 == 2, -size, size)


def _polynomial(coefficients: tuple[float, ...], z: Float[Array, " n"]) -> Float[Array, " n"]:
    total = jnp.zeros_like(z)
    for coefficient in coefficients:
        total = total * z + coefficient
    return total
