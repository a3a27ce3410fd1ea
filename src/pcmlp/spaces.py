"""The spaces that states and actions lie in. They are facts about a task, known when a program is compiled.

In a finite MDP an action is an integer. Elsewhere it is a vector, between bounds (`Box`) or one-hot (`Choices`).

`Range` is a box whose bounds are arrays, for bounds that are computed while a program runs.
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.boundary import Layout
from pcmlp.choices import Choices
from pcmlp.errors import ConfigError


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

    @property
    def is_empty(self) -> Bool[Array, ""]:
        """Whether no vector lies between the bounds, which holds until a first vector is seen."""
        return jnp.any(self.low > self.high)

    def clip(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the nearest vector within the bounds."""
        return jnp.clip(x, self.low, self.high)


@dataclass(frozen=True)
class Body:
    """A rigid body in a state. Each kind of number is named by the first of its coordinates."""

    name: str  # of its columns in metrics.csv
    place: int  # of 3: its position, in metres
    rotation: int  # of 4: its rotation, a unit quaternion with the real part first
    spin: int  # of 3: its angular velocity in its own frame, in radians per second
    axis: int | None = None  # 0 to 2: an axis of its own about which it is symmetric

    @property
    def dims(self) -> tuple[int, ...]:
        """All coordinates of the body."""
        return tuple(
            first + i for first, count in ((self.place, 3), (self.rotation, 4), (self.spin, 3)) for i in range(count)
        )


@dataclass(frozen=True)
class Coordinates:
    """The facts that a task declares about the coordinates of its states; by default none."""

    bodies: tuple[Body, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()  # (i, j): i always has the value of j
    goals: tuple[tuple[int, int], ...] = ()  # (i, j): i stays as it is during an episode, in which j should reach it

    @property
    def repeated(self) -> frozenset[int]:
        """The coordinates that say nothing of what happens in an episode: copies and goals."""
        return frozenset(i for i, _ in (*self.copies, *self.goals))

    def check(self, size: int) -> None:
        """Raise unless these are coordinates of a state with `size` numbers, each with one meaning."""
        bodies = [dim for body in self.bodies for dim in body.dims]
        described = [*bodies, *(i for i, _ in self.copies), *(i for i, _ in self.goals)]
        for dim in (*described, *(j for _, j in (*self.copies, *self.goals))):
            if not 0 <= dim < size:
                raise ConfigError(f"coordinates: {dim} is not one of a state with {size} numbers; give 0 to {size - 1}")
        for dim in described:
            if described.count(dim) > 1:
                raise ConfigError(f"coordinates: {dim} is declared twice; let it be of one body, a copy or a goal")
        if twice := {j for _, j in (*self.copies, *self.goals)} & self.repeated:
            raise ConfigError(f"coordinates: {min(twice)} is a copy or a goal; name the coordinate that it belongs to")


NOTHING_DECLARED = Coordinates()


def _as_bounds(bound: object) -> tuple[float, ...]:
    return tuple(np.asarray(bound, np.float32).tolist())


class Box(eqx.Module):
    """Vectors between two bounds, each finite or infinite."""

    lower: tuple[float, ...] = eqx.field(static=True, converter=_as_bounds)
    upper: tuple[float, ...] = eqx.field(static=True, converter=_as_bounds)
    coordinates: Coordinates = eqx.field(static=True, default=NOTHING_DECLARED)
    layout: Layout | None = eqx.field(static=True, default=None)  # the parts of the observation in the vector

    def __check_init__(self) -> None:
        self.coordinates.check(len(self.lower))

    @staticmethod
    def of(bound: float, size: int) -> "Box":
        """Return the box [-bound, bound]^size."""
        return Box((-bound,) * size, (bound,) * size)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.lower)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each coordinate; none if they have no names."""
        return () if self.layout is None else self.layout.names

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


Vectors = Box | Choices  # the spaces of actions that are vectors
Space = Finite | Vectors
