"""Rotations of rigid bodies, as unit quaternions with the real part first.

q = (cos(angle / 2), sin(angle / 2) axis);      q and -q are the same rotation
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from pcmlp.spaces import Body


def unit(q: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """Return q divided by its length."""
    return q / jnp.maximum(jnp.linalg.norm(q), 1e-6)


def angle_between(p: Float[Array, " 4"], q: Float[Array, " 4"]) -> Float[Array, ""]:
    """Return the angle from one rotation to another, 0 to pi, whatever the lengths and signs of the quaternions."""
    p, q = unit(p), unit(q)
    apart, together = jnp.linalg.norm(p - q), jnp.linalg.norm(p + q)  # precise for small angles, unlike arccos
    return 4.0 * jnp.arctan2(jnp.minimum(apart, together), jnp.maximum(apart, together))


def pose_error(
    body: Body, predicted: Float[Array, " s"], actual: Float[Array, " s"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return how far apart a body is in two states, and the angle between its rotations."""
    place, rotation = slice(body.place, body.place + 3), slice(body.rotation, body.rotation + 4)
    apart = jnp.linalg.norm(predicted[place] - actual[place])
    return apart, angle_between(predicted[rotation], actual[rotation])
