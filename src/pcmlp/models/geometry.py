"""States with rigid bodies in them, described so that a network can learn how they move.

A task may declare what the coordinates of its states are (`spaces.Coordinates`). A chart describes such a state s by

    levels(s)          every coordinate that is neither a rotation, a copy nor a goal; spins in the world's frame
    encode(s)          the levels, and for each body its axis of symmetry, or two columns of its rotation matrix
    change(s, s')      levels(s') - levels(s), and for each body the rotation vector of q' q^-1, in the world's frame
    apply(s, d)        the s' with change(s, s') = d: rotations stay rotations, copies are copied, goals stay

Without a chart, a network that predicts the difference of two quaternions has to learn that they have length 1, and
that the same turn changes different quaternions by different vectors. Charts are not in the paper. Quaternions have
their real part first:

    q = (cos(angle / 2), sin(angle / 2) axis);      q and -q are the same rotation

Without declared coordinates, levels(s) = encode(s) = s, and the change is s' - s.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from pcmlp.spaces import NOTHING_DECLARED, Body, Coordinates

Vector = Float[Array, " 3"]
Quaternion = Float[Array, " 4"]
_SMALL = 1e-6  # squares of half an angle below which sin(x) / x is a polynomial in single precision


@dataclass(frozen=True)
class Chart:
    """A way to describe states. It is known when a program is compiled."""

    size: int
    coordinates: Coordinates

    @staticmethod
    def plain(size: int) -> "Chart":
        """Return the chart of states as they are."""
        return Chart(size, NOTHING_DECLARED)

    @property
    def is_plain(self) -> bool:
        """Whether states are described as they are."""
        return self.coordinates == NOTHING_DECLARED

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The lengths of levels, encoded states and changes."""
        bodies = self.coordinates.bodies
        levels = len(self._plain_dims()) + 3 * len(bodies)
        return levels, levels + sum(6 if body.axis is None else 3 for body in bodies), levels + 3 * len(bodies)

    def levels(self, state: Float[Array, " s"]) -> Float[Array, " l"]:
        """Return the numbers whose change is a difference."""
        if self.is_plain:
            return state
        spins = [rotate(rotation(body, state), part(state, body.spin, 3)) for body in self.coordinates.bodies]
        return jnp.concatenate([state[jnp.array(self._plain_dims(), int)], *spins])

    def encode(self, state: Float[Array, " s"]) -> Float[Array, " e"]:
        """Return the levels and the directions of the bodies."""
        if self.is_plain:
            return state
        axes = [
            rotate(rotation(body, state), jnp.eye(3)[i])
            for body in self.coordinates.bodies
            for i in ((0, 1) if body.axis is None else (body.axis,))
        ]
        return jnp.concatenate([self.levels(state), *axes])

    def change(self, state: Float[Array, " s"], next_state: Float[Array, " s"]) -> Float[Array, " c"]:
        """Return what leads from one state to the other."""
        moved = self.levels(next_state) - self.levels(state)
        if self.is_plain:
            return moved
        turned = [
            rotation_vector(multiply(rotation(body, next_state), conjugate(rotation(body, state))))
            for body in self.coordinates.bodies
        ]
        return jnp.concatenate([moved, *turned])

    def apply(self, state: Float[Array, " s"], change: Float[Array, " c"], clip: Callable) -> Float[Array, " s"]:
        """Return the state that a change leads to; `clip` limits the levels."""
        count = self.sizes[0]
        levels = clip(self.levels(state) + change[:count])
        if self.is_plain:
            return levels
        bodies, plain = self.coordinates.bodies, len(self._plain_dims())
        # The product with a small turn has the sign of q: a reward may tell q from -q.
        turned = [
            unit(multiply(quaternion(part(change, count + 3 * i, 3)), rotation(body, state)))
            for i, body in enumerate(bodies)
        ]
        spins = [rotate(conjugate(q), part(levels, plain + 3 * i, 3)) for i, q in enumerate(turned)]
        return jnp.concatenate([state, levels[:plain], *turned, *spins])[jnp.array(self._sources())]

    def _sources(self) -> list[int]:
        """Return which number of (s, new levels, new rotations, new spins) each coordinate of s' is."""
        bodies = self.coordinates.bodies
        moved = [
            *self._plain_dims(),
            *(body.rotation + i for body in bodies for i in range(4)),
            *(body.spin + i for body in bodies for i in range(3)),
        ]
        sources = list(range(self.size))  # goals stay
        for number, dim in enumerate(moved, self.size):
            sources[dim] = number
        for copy, original in self.coordinates.copies:
            sources[copy] = sources[original]
        return sources

    def _plain_dims(self) -> tuple[int, ...]:
        """Return the coordinates that are predicted as they are."""
        known = set(self.coordinates.repeated)
        for body in self.coordinates.bodies:
            known |= {body.rotation + i for i in range(4)} | {body.spin + i for i in range(3)}
        return tuple(i for i in range(self.size) if i not in known)


def part(x: Float[Array, " n"], first: int, count: int) -> Float[Array, " m"]:
    """Return `count` numbers from the first one on."""
    return x[first : first + count]


def rotation(body: Body, state: Float[Array, " s"]) -> Quaternion:
    """Return the rotation of a body, with length 1."""
    return unit(part(state, body.rotation, 4))


def unit(q: Quaternion) -> Quaternion:
    """Return q divided by its length."""
    return q / jnp.sqrt(jnp.maximum(jnp.sum(q**2), 1e-12))


def conjugate(q: Quaternion) -> Quaternion:
    """Return the inverse of a rotation."""
    return q.at[1:].multiply(-1.0)


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Return the rotation that turns by q, then by p."""
    real = p[0] * q[0] - jnp.sum(p[1:] * q[1:])
    return jnp.concatenate([real[None], p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])])


def rotate(q: Quaternion, x: Vector) -> Vector:
    """Return x turned by q."""
    twice = 2.0 * jnp.cross(q[1:], x)
    return x + q[0] * twice + jnp.cross(q[1:], twice)


def quaternion(vector: Vector) -> Quaternion:
    """Return the rotation about the direction of the vector, by an angle that is the length of the vector."""
    half = 0.5 * vector
    square = jnp.sum(half**2)
    angle = jnp.sqrt(jnp.maximum(square, _SMALL))  # the gradient of the root is infinite at 0
    ratio = jnp.where(square < _SMALL, 1.0 - square / 6.0, jnp.sin(angle) / angle)
    real = jnp.where(square < _SMALL, 1.0 - 0.5 * square, jnp.cos(angle))
    return jnp.concatenate([real[None], ratio * half])


def rotation_vector(q: Quaternion) -> Vector:
    """Return the rotation vector of q: its axis, with the angle, which is from 0 to pi, as the length."""
    q = jnp.where(q[0] < 0, -q, q)
    square = jnp.sum(q[1:] ** 2)
    sine = jnp.sqrt(jnp.maximum(square, _SMALL))
    return q[1:] * jnp.where(square < _SMALL, 2.0 / jnp.maximum(q[0], 0.5), 2.0 * jnp.arctan2(sine, q[0]) / sine)


def pose_error(
    body: Body, predicted: Float[Array, " s"], actual: Float[Array, " s"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return how far apart a body is in two states, and the angle between its rotations."""
    apart = jnp.linalg.norm(part(predicted, body.place, 3) - part(actual, body.place, 3))
    turn = multiply(rotation(body, predicted), conjugate(rotation(body, actual)))
    return apart, jnp.linalg.norm(rotation_vector(turn))
