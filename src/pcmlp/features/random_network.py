"""The last hidden layer of a random network (paper: section 6, after Burda et al. 2018).

    phi(s, a) = scale * relu(W_2 relu(W_1 x + b_1) + b_2),    x = (s, a) normalised,    W, b drawn once

The network has the shape of the model and is never trained. Biases keep phi from being positively homogeneous: without
them phi(t x) = t phi(x), and all points of a ray have one direction of phi, so that data near the middle would pay for
its far end. One constant scales phi, so its geometry is that of the network. The normaliser stays as it was made: a
moving one would add moments of different phi into one covariance.

The norm is at most `norm` over the boxes (`of`), or over the first data with a margin (`fitted`). Elsewhere it grows at
most linearly, |phi(x) - phi(y)| <= scale |W_1| |W_2| |x - y|. The ridge is to be seen against it: phi / 10 with ridge
lambda has the bonus of phi with ridge 100 lambda, where nothing that was visited matters.

paper: the layer of a randomly initialised network, nothing on its scale or inputs / here: as above.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.nets import MLP, Normaliser
from pcmlp.types import Box, ConfigError, Transitions

_POINTS = 512
_ASCENTS = 8
_SLACK = 1.02  # the search for the largest norm over a box is not exact


class RandomNetwork(eqx.Module):
    net: MLP
    normaliser: Normaliser
    scale: Float[Array, ""]

    @staticmethod
    def of(
        key: Key[Array, ""],
        states: Box,
        actions: Box,
        *,
        sizes: tuple[int, ...] = (500, 500),
        norm: float = 1.0,
        action_weight: float = 1.0,
    ) -> "RandomNetwork":
        """In units of the boxes' own spread, with the largest norm over them `norm`; an action counts `action_weight`
        times as much as a state."""
        low, high = jnp.concatenate([states.low, actions.low]), jnp.concatenate([states.high, actions.high])
        units = jnp.where(high > low, (high - low) / math.sqrt(12.0), 1.0)  # the std of a uniform variable
        units = units.at[states.size :].divide(action_weight)
        normaliser = Normaliser(0.5 * (low + high), units)
        net_key, point_key = jr.split(key)
        phi = _unscaled(net_key, normaliser, sizes, norm)
        return phi._with_norm(_SLACK * largest_norm(point_key, phi, low, high), norm)

    @staticmethod
    def fitted(
        key: Key[Array, ""],
        data: Transitions,
        *,
        sizes: tuple[int, ...] = (500, 500),
        norm: float = 1.0,
        action_weight: float = 1.0,
        margin: float = 2.0,
    ) -> "RandomNetwork":
        """In units of the first data, with the largest norm over them `norm` / `margin`: for states without bounds.

        States further out than `margin` times the data have norms above `norm`, in proportion to their distance (1.3 to
        3.3 over all of mountain-car's states, after 400 steps of noise). Out there all kinks of the network are behind
        and phi is nearly homogeneous, so the bonus tells far states apart less well than that of `of`.
        """
        if not margin >= 1:
            raise ConfigError(f"features.margin={margin}: give 1 or more")
        units = Normaliser.fit(jnp.concatenate([data.state, data.action], axis=1), data.valid)
        units = Normaliser(units.mean, units.std.at[data.state.shape[1] :].divide(action_weight))
        phi = _unscaled(key, units, sizes, norm)
        norms = jnp.linalg.norm(jax.vmap(phi)(data.state, data.action), axis=1)
        return phi._with_norm(margin * jnp.max(jnp.where(data.valid, norms, 0.0)), norm)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        return self.scale * self.net.hidden(self.inputs(state, action), precision="highest")

    def inputs(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " n"]:
        """What the network sees: (s, a) normalised."""
        return self.normaliser(jnp.concatenate([state, action]))

    def _with_norm(self, largest: Float[Array, ""], norm: float) -> "RandomNetwork":
        return RandomNetwork(self.net, self.normaliser, norm / jnp.where(largest > 0, largest, 1.0))


class DrawRandomNetwork(eqx.Module):
    """key, first samples -> phi; in the boxes' units if all of them are bounded, else in those of the samples."""

    states: Box
    actions: Box
    sizes: tuple[int, ...] = eqx.field(static=True)
    norm: float
    action_weight: float
    bounded: bool = eqx.field(static=True)

    @staticmethod
    def of(
        states: Box,
        actions: Box,
        *,
        sizes: tuple[int, ...] = (500, 500),
        norm: float = 1.0,
        action_weight: float = 1.0,
    ) -> "DrawRandomNetwork":
        return DrawRandomNetwork(states, actions, sizes, norm, action_weight, states.bounded() and actions.bounded())

    def __call__(self, key: Key[Array, ""], data: Transitions) -> RandomNetwork:
        how = {"sizes": self.sizes, "norm": self.norm, "action_weight": self.action_weight}
        if self.bounded:
            return RandomNetwork.of(key, self.states, self.actions, **how)
        return RandomNetwork.fitted(key, data, **how)


def _unscaled(key: Key[Array, ""], normaliser: Normaliser, sizes: tuple[int, ...], norm: float) -> RandomNetwork:
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"features.sizes={sizes}: give at least one hidden layer")
    if not 0 < norm <= 1:
        raise ConfigError(f"features.norm={norm}: give a number above 0 and at most 1")
    # Weights of unit gain and biases of std 1: the kinks of the first layer lie within a std or so of the mean.
    net = MLP.of(key, (normaliser.mean.shape[0], *sizes, 1), "relu", bias=1.0)
    return RandomNetwork(net, normaliser, jnp.ones(()))


def largest_norm(
    key: Key[Array, ""], phi: RandomNetwork, low: Float[Array, " n"], high: Float[Array, " n"]
) -> Float[Array, ""]:
    """Over random points of the box and the corners that their gradients lead to.

    |phi| is nearly convex in (s, a), and a convex function grows from a point to the corner its gradient points at.
    """

    def norm(x):
        return jnp.linalg.norm(phi.net.hidden(phi.normaliser(x), precision="highest"))

    def climb(x, _):
        value, gradient = jax.vmap(jax.value_and_grad(norm))(x)
        return jnp.where(gradient > 0, high[None, :], low[None, :]), jnp.max(value)

    x = jr.uniform(key, (_POINTS, low.shape[0]), minval=low, maxval=high)
    return jnp.max(jax.lax.scan(climb, x, None, length=_ASCENTS)[1])
