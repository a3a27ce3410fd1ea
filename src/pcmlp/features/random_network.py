"""The last hidden layer of a random network (paper: section 6, after Burda et al. 2018).

    phi(s, a) = scale * relu(W_2 relu(W_1 x + b_1) + b_2),    x = (s, a) normalised,    W, b drawn once

The network has the shape of the model and is never trained. Biases keep phi from being positively homogeneous: without
them phi(t x) = t phi(x), so phi has the same direction at all points of a ray, and data near the origin would lower the
bonus at its far end. phi is scaled by one constant, which keeps the geometry of the network. The normaliser is frozen:
otherwise moments of different phi would be added into one covariance.

The norm is at most `norm` over the boxes or, where these have no bounds, over the first data with a margin. Elsewhere
it grows at most linearly, |phi(x) - phi(y)| <= scale |W_1| |W_2| |x - y|. The ridge must be chosen for this norm:
phi / 10 with ridge lambda has the bonus of phi with ridge 100 lambda, which hardly depends on the visited states.

paper: the layer of a randomly initialised network, without its scale or inputs / here: as described above.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.features.subset import Boxes, draw_over
from pcmlp.nets import MLP, Normaliser
from pcmlp.replay import Transitions
from pcmlp.settings import setting
from pcmlp.spaces import Box, Vectors
from pcmlp.types import MDP, FeatureMap, Features

Number = float | Float[Array, ""]

_POINTS = 512
_ASCENTS = 8
_SLACK = 1.02  # factor for safety, because the search for the largest norm over a box is not exact
_MARGIN = 2.0  # over this multiple of the first data's range, |phi| is at most `norm`


class NetworkFeatures(eqx.Module):
    """phi as the scaled last hidden layer of a network."""

    net: MLP
    normaliser: Normaliser
    scale: Float[Array, ""]

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        x = self.normaliser(jnp.concatenate([state, action]))
        return self.scale * self.net.hidden(x, precision="highest")

    def scale_to(self, largest: Float[Array, ""], norm: Number) -> "NetworkFeatures":
        """Return the features rescaled so that the norm `largest` becomes `norm`."""
        return NetworkFeatures(self.net, self.normaliser, norm / jnp.where(largest > 0, largest, 1.0))


class RandomNetwork(FeatureMap):
    """The last hidden layer of a random network."""

    sizes: tuple[int, ...] = setting((500, 500), "hidden layers; phi is the last one", least=1, tiny=(16, 16))
    norm: float = setting(1.0, "largest |phi| over the task's states", above=0, most=1, tune="0.1:1:log")
    action_weight: float = setting(0.2, "weight of actions relative to states", above=0)
    dims: tuple[int, ...] | None = setting(None, "coordinates of the state that phi uses; none: all", least=0)
    distinct: bool = setting(False, "leave out copies and goals, where the task declares them and dims is none")

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> Features:
        """Draw a network, in the units of the spaces if all bounds are finite, else of the samples."""
        return draw_over(self.dims, self.distinct, self._draw, key, mdp, samples)

    def _draw(self, key: Key[Array, ""], boxes: Boxes | None, samples: Transitions) -> NetworkFeatures:
        return self.over_samples(key, samples) if boxes is None else self.over_boxes(key, *boxes)

    def over_boxes(self, key: Key[Array, ""], states: Box, actions: Vectors) -> NetworkFeatures:
        """Draw phi in units of the std of the boxes, with `norm` as its largest norm over them."""
        low, high = jnp.concatenate([states.low, actions.low]), jnp.concatenate([states.high, actions.high])
        units = jnp.where(high > low, (high - low) / math.sqrt(12.0), 1.0)  # the std of a uniform variable
        units = units.at[states.size :].divide(self.action_weight)
        net_key, point_key = jr.split(key)
        phi = self._unscaled(net_key, Normaliser(0.5 * (low + high), units))
        return phi.scale_to(_SLACK * largest_norm(point_key, phi, low, high), self.norm)

    def over_samples(self, key: Key[Array, ""], samples: Transitions) -> NetworkFeatures:
        """Draw phi in units of the first data, with `norm` / 2 as its largest norm over them.

        States further out than twice the data have norms above `norm`, in proportion to their distance (1.3 to 3.3
        over all of mountain-car's states, after 400 steps of noise). Beyond all kinks of the network phi is nearly
        homogeneous, so the bonus tells far states apart less well than over bounded boxes.
        """
        units = Normaliser.fit(jnp.concatenate([samples.state, samples.action], axis=1), samples.valid)
        units = Normaliser(units.mean, units.std.at[samples.state.shape[1] :].divide(self.action_weight))
        phi = self._unscaled(key, units)
        norms = jnp.linalg.norm(jax.vmap(phi)(samples.state, samples.action), axis=1)
        return phi.scale_to(_MARGIN * jnp.max(jnp.where(samples.valid, norms, 0.0)), self.norm)

    def _unscaled(self, key: Key[Array, ""], normaliser: Normaliser) -> NetworkFeatures:
        # Weights of unit gain and biases of std 1: the kinks of the first layer lie within about one std of the mean.
        net = MLP.of(key, (normaliser.mean.shape[0], *self.sizes, 1), "relu", bias=1.0)
        return NetworkFeatures(net, normaliser, jnp.ones(()))


def largest_norm(
    key: Key[Array, ""], phi: NetworkFeatures, low: Float[Array, " n"], high: Float[Array, " n"]
) -> Float[Array, ""]:
    """Search for the largest norm over a box: at random points and at the corners that their gradients point to.

    |phi| is nearly convex in (s, a), and a convex function grows from a point to the corner its gradient points at.
    """

    def norm(x):
        return jnp.linalg.norm(phi.net.hidden(phi.normaliser(x), precision="highest"))

    def climb(x, _):
        value, gradient = jax.vmap(jax.value_and_grad(norm))(x)
        return jnp.where(gradient > 0, high[None, :], low[None, :]), jnp.max(value)

    x = jr.uniform(key, (_POINTS, low.shape[0]), minval=low, maxval=high)
    return jnp.max(jax.lax.scan(climb, x, None, length=_ASCENTS)[1])
