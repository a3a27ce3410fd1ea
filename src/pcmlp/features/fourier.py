"""Random Fourier features of the RBF kernel (Rahimi & Recht 2008; paper: section 6).

    phi(x) = sqrt(2/d) [cos(w_j x), sin(w_j x)]_{j <= d/2},    w_j ~ N(0, I / bandwidth^2),   x = (s, a) / units

The cosine-sine pairs give |phi| = 1 exactly, everywhere: cos^2 + sin^2 = 1.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.features.cosine import cosine
from pcmlp.types import Box, ConfigError, Transitions

_POINTS = 500  # what the units and the bandwidth are read from


def median_bandwidth(x: Float[Array, "n m"]) -> Float[Array, ""]:
    """The median heuristic: the median distance between two different rows."""
    distance = jnp.sqrt(jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1))
    return jnp.median(distance[jnp.triu_indices(x.shape[0], 1)])


class Fourier(eqx.Module):
    frequencies: Float[Array, "half n"]
    units: Float[Array, " n"]

    @staticmethod
    def of(
        key: Key[Array, ""],
        x: Float[Array, "m n"],
        *,
        dim: int,
        bandwidth: float | None = None,
        weight: Float[Array, " n"] | None = None,
    ) -> "Fourier":
        """Features for inputs like the rows of `x`, which set the units and, if it is not given, the bandwidth.

        A coordinate with `weight` w counts w times as much as the others.
        """
        if dim < 2 or dim % 2:
            raise ConfigError(f"features.dim={dim}: Fourier features come in pairs; give an even number of at least 2")
        if bandwidth is not None and not bandwidth > 0:
            raise ConfigError(f"features.bandwidth={bandwidth}: give a positive number, or leave it out")
        std = jnp.std(x, axis=0)
        # A coordinate that does not vary in `x` has no unit; a tiny one would make noise of its first change.
        units = jnp.where(std > 1e-6 * (1.0 + jnp.abs(jnp.mean(x, axis=0))), std, 1.0)
        units = units if weight is None else units / weight
        width = median_bandwidth(x / units[None, :]) if bandwidth is None else jnp.asarray(bandwidth)
        width = jnp.where(width > 0, width, 1.0)  # most rows of `x` are the same
        return Fourier(jr.normal(key, (dim // 2, x.shape[1])) / width, units)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        x = jnp.concatenate([state, action]) / self.units
        half = self.frequencies.shape[0]
        angle = jnp.matmul(jnp.concatenate([self.frequencies, self.frequencies]), x, precision="highest")
        return cosine(angle, jnp.arange(2 * half) // half) / jnp.sqrt(float(half))  # sin(y) = cos(y - pi/2)


class DrawFourier(eqx.Module):
    """key, first samples -> phi; over the boxes if all of them are bounded, else over the samples."""

    states: Box
    actions: Box
    dim: int = eqx.field(static=True)
    bandwidth: float | None
    action_weight: float
    bounded: bool = eqx.field(static=True)

    @staticmethod
    def of(
        states: Box, actions: Box, *, dim: int = 100, bandwidth: float | None = None, action_weight: float = 1.0
    ) -> "DrawFourier":
        return DrawFourier(states, actions, dim, bandwidth, action_weight, states.bounded() and actions.bounded())

    def __call__(self, key: Key[Array, ""], data: Transitions) -> Fourier:
        if self.bounded:
            return self.over_boxes(key)
        point_key, frequency_key = jr.split(key)
        weight = data.valid.astype(jnp.float32)
        rows = jr.choice(point_key, data.state.shape[0], (_POINTS,), p=weight / jnp.maximum(jnp.sum(weight), 1.0))
        return self.over(frequency_key, jnp.concatenate([data.state[rows], data.action[rows]], axis=1))

    def over_boxes(self, key: Key[Array, ""]) -> Fourier:
        point_key, frequency_key = jr.split(key)

        def point(key: Key[Array, ""]) -> Float[Array, " n"]:
            state_key, action_key = jr.split(key)
            return jnp.concatenate([self.states.sample(state_key), self.actions.sample(action_key)])

        return self.over(frequency_key, jax.vmap(point)(jr.split(point_key, _POINTS)))

    def over(self, key: Key[Array, ""], x: Float[Array, "m n"]) -> Fourier:
        weight = jnp.ones(x.shape[1]).at[self.states.size :].set(self.action_weight)
        return Fourier.of(key, x, dim=self.dim, bandwidth=self.bandwidth, weight=weight)
