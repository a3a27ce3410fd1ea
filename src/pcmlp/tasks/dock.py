"""A double integrator that must dock: it has to arrive at a place, and be slow when it does, in pure JAX.

The state is position and velocity in the plane, (x, y, u, v); the action a in [-1, 1]^2 is the acceleration:

    u' = u + 0.1 a   in [-1.5, 1.5],       x' = x + 0.1 u'   in [-4, 4],

the same for each axis, and u' = 0 where x' is at a wall. It starts at rest near (0, 0). It has docked when it is within
0.5 of (3, 3) and slower than 0.5; that ends the episode:

    r(s, a, s') = goal_reward [docked]

Nothing else is paid. A method that does not depend on the scale of rewards learns equally well for any goal_reward
above 0. Like that of most robots, the observation space has no bounds.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from pcmlp.settings import setting
from pcmlp.spaces import Box
from pcmlp.types import MDP, Action, Problem, State, Task
from pcmlp.world import JaxWorld

STEP, FASTEST, WALL = 0.1, 1.5, 4.0
DOCK, NEAR, SLOW = 3.0, 0.5, 0.5


class Dock(Task):
    """A double integrator that must arrive at a place and be slow there: only that pays."""

    kind: ClassVar[str] = "small"
    horizon: int = setting(100, "steps of an episode", least=1, tiny=20)
    goal_reward: float = setting(1.0, "reward for docking", above=0, most=1e9)

    def build(self) -> Problem:
        """Return the task's world."""
        spaces = Box.of(np.inf, 4), Box.of(1.0, 2)
        mdp = MDP(initial, drift, DockReward(jnp.float32(self.goal_reward)), has_docked, *spaces, self.horizon)
        return Problem(JaxWorld(mdp), success_return=0.5 * self.goal_reward, goal_ends=True)


def initial(key: Key[Array, ""]) -> State:
    """Draw the start: at rest near (0, 0)."""
    return jnp.concatenate([jr.uniform(key, (2,), minval=-0.1, maxval=0.1), jnp.zeros(2)])


def drift(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state."""
    place, speed = state[:2], state[2:]
    speed = jnp.clip(speed + STEP * jnp.clip(action, -1.0, 1.0), -FASTEST, FASTEST)
    moved = place + STEP * speed
    stopped = jnp.abs(moved) >= WALL
    return jnp.concatenate([jnp.clip(moved, -WALL, WALL), jnp.where(stopped, 0.0, speed)])


def has_docked(state: State, action: Action, next_state: State) -> Bool[Array, ""]:
    """Return whether the next state is at the dock, and slow."""
    away, speed = jnp.linalg.norm(next_state[:2] - DOCK), jnp.linalg.norm(next_state[2:])
    return (away <= NEAR) & (speed < SLOW)


class DockReward(eqx.Module):
    """The reward for docking."""

    amount: Float[Array, ""]

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        return jnp.where(has_docked(state, action, next_state), self.amount, 0.0)
