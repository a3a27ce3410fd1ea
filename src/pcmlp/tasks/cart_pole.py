"""A pole on a cart, in pure JAX: a task that the rivals are known to solve."""

import math
from typing import ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from pcmlp.spaces import Box
from pcmlp.types import MDP, Problem, Task
from pcmlp.world import JaxWorld

_FALLEN = 12.0 / 180.0 * math.pi


class CartPole(Task):
    """A pole on a cart that is pushed, paid for every step until it falls or the cart leaves the track.

    The state is (x, x., t, t.), t = 0 upright. With the force F = 10 a for a in [-1, 1], a cart of mass 1, a pole of
    mass 0.1 and half-length 0.5 and g = 9.8, the dynamics are those of Barto, Sutton & Anderson (1983):

        u = (F + 0.05 t.^2 sin t) / 1.1,    t.. = (g sin t - u cos t) / (0.5 (4/3 - 0.1 cos^2(t) / 1.1)),
        x.. = u - 0.05 t.. cos(t) / 1.1

    with an Euler step of 0.02. All four coordinates start in U(-0.05, 0.05); |x'| > 2.4 or |t'| > 12 degrees ends an
    episode.

    Gymnasium's CartPole-v1: two forces, -10 and 10, and 500 steps / here: any force between them, and 200 steps, of
    which 195 are a success, as in CartPole-v0.
    """

    kind: ClassVar[str] = "small"

    def build(self) -> Problem:
        """Return the task's world."""
        high = np.array([4.8, np.inf, 2 * _FALLEN, np.inf])
        mdp = MDP(
            initial=cart_pole_initial,
            transition=cart_pole,
            reward=cart_pole_reward,
            terminal=cart_pole_falls,
            states=Box(-high, high),
            actions=Box.of(1.0, 1),
            horizon=self.horizon,
        )
        return Problem(JaxWorld(mdp), success_return=0.975 * self.horizon)


def cart_pole_initial(key: Key[Array, ""]) -> Float[Array, "4"]:
    """Draw the start: nearly upright and still."""
    return jr.uniform(key, (4,), minval=-0.05, maxval=0.05)


def cart_pole(key: Key[Array, ""], state: Float[Array, "4"], action: Float[Array, "1"]) -> Float[Array, "4"]:
    """Return the next state, by one Euler step."""
    x, speed, t, rate = state
    force = 10.0 * jnp.clip(action[0], -1.0, 1.0)
    u = (force + 0.05 * rate**2 * jnp.sin(t)) / 1.1
    turning = (9.8 * jnp.sin(t) - u * jnp.cos(t)) / (0.5 * (4.0 / 3.0 - 0.1 * jnp.cos(t) ** 2 / 1.1))
    moving = u - 0.05 * turning * jnp.cos(t) / 1.1
    return state + 0.02 * jnp.stack([speed, moving, rate, turning])


def cart_pole_falls(
    state: Float[Array, "4"], action: Float[Array, "1"], next_state: Float[Array, "4"]
) -> Bool[Array, ""]:
    """Return whether the pole fell or the cart left the track."""
    return (jnp.abs(next_state[0]) > 2.4) | (jnp.abs(next_state[2]) > _FALLEN)


def cart_pole_reward(
    state: Float[Array, "4"], action: Float[Array, "1"], next_state: Float[Array, "4"]
) -> Float[Array, ""]:
    """Return 1."""
    return jnp.ones(())
