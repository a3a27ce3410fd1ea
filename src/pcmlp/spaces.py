"""The spaces that states and actions lie in. They are facts about a task, known when a program is compiled.

`Range` is a box whose bounds are arrays, for bounds that are computed while a program runs.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key


class Finite(eqx.Module):
    """The integers 0 ... size - 1."""

    size: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draw an integer uniformly."""
        return jr.randint(key, (), 0, self.size)


class Range(eqx.Module):
    """Vectors between two bounds that a program computes."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]

    def clip(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the nearest vector within the bounds."""
        return jnp.clip(x, self.low, self.high)


def _as_bounds(bound: object) -> tuple[float, ...]:
    return tuple(np.asarray(bound, np.float32).tolist())


class Box(eqx.Module):
    """Vectors between two bounds, each finite or infinite."""

    lower: tuple[float, ...] = eqx.field(static=True, converter=_as_bounds)
    upper: tuple[float, ...] = eqx.field(static=True, converter=_as_bounds)

    @staticmethod
    def of(bound: float, size: int) -> "Box":
        """Return the box [-bound, bound]^size."""
        return Box((-bound,) * size, (bound,) * size)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.lower)

    @property
    def low(self) -> Float[Array, " n"]:
        """The lower bounds."""
        return jnp.array(self.lower, jnp.float32)

    @property
    def high(self) -> Float[Array, " n"]:
        """The upper bounds."""
        return jnp.array(self.upper, jnp.float32)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Both bounds as NumPy arrays."""
        return np.array(self.lower, np.float32), np.array(self.upper, np.float32)

    @property
    def middle(self) -> Float[Array, " n"]:
        """The centre of the box."""
        return 0.5 * (self.low + self.high)

    @property
    def half(self) -> Float[Array, " n"]:
        """Half of the range of each coordinate."""
        return 0.5 * (self.high - self.low)

    def is_bounded(self) -> bool:
        """Return whether all ranges are finite; a range that overflows a float is not."""
        with np.errstate(over="ignore"):
            low, high = self.bounds
            return bool(np.isfinite(high - low).all())

    def choose(self, dims: tuple[int, ...]) -> "Box":
        """Return the box of some of the coordinates."""
        return Box([self.lower[i] for i in dims], [self.upper[i] for i in dims])

    def sample(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Draw a vector uniformly."""
        return jr.uniform(key, (self.size,), minval=self.low, maxval=self.high)

    def clip(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the nearest vector in the box."""
        return jnp.clip(x, self.low, self.high)

    def from_unit(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """Map [-1, 1]^n onto the box."""
        return self.middle + self.half * u

    def to_unit(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Map the box onto [-1, 1]^n."""
        return (x - self.middle) / self.half


Space = Finite | Box
