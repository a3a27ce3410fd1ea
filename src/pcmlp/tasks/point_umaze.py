"""A point in a U-shaped maze, in pure JAX: the goal is close to the start, but the way to it first leads away.

The square [0, 3]^2 has a solid block between the start, below, and the goal, above; the free squares of side 1 are

    goal   .    .            y in 2 ... 3
    #####  ##   .            y in 1 ... 2, solid for x < 2
    start  .    .            y in 0 ... 1

An action (a_x, a_y) in [-1, 1]^2 moves the point by 0.1 a, first along x, then along y. A move along an axis that
would end in the block or outside the square is not made: that coordinate stays unchanged, and the other one moves if it
can. Because the second move starts where the first has ended, the point cannot cut a corner; and a step of 0.1 cannot
jump over a block of 2 x 1. The edges y = 1, y = 2 and x = 2 of the block are free, so that the point may slide along
them, but the edge x = 0 is not: otherwise there would be a way through along the outer wall. The outer walls belong to
the square.

    r(s, a, s') = 100 [|s' - (0.5, 2.5)| <= 0.4] - 0.01 |a|^2

and the goal ends the episode. Without it an episode of H steps returns at most 0, with it at least 100 - 0.02 H: any
positive return is a success.

`DeceptiveUMaze` pays minus the straight-line distance to the goal at every step, and nothing ends an episode:

    r(s, a, s') = -|s' - (0.5, 2.5)|

Below the block the goal is never nearer than 1.5, so an episode there returns at most -1.5 H. The nearest point is the
block's lower edge above the start, and a policy that follows the reward stays there. To reach the goal, a policy must
leave this point, although each step away from it is paid less. A return of more than -1.5 H is a success.

Both are small versions of the maze of section 7.3 of the paper, in which every state can be counted. Unlike
mountain-car, they are not solved by going far, so they need a cover and not only a bonus.
"""

from typing import ClassVar

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from pcmlp.maps import Map
from pcmlp.settings import setting
from pcmlp.spaces import Box
from pcmlp.types import MDP, Action, Problem, State, Task, never
from pcmlp.world import JaxWorld

_SIDE = 3.0
_STEP = 0.1


GOAL = (0.5, 2.5)


class PointUMaze(Task):
    """A point in a U-shaped maze: the goal is close, but the way to it leads around a block."""

    kind: ClassVar[str] = "small"
    horizon: int = setting(100, "steps of an episode", least=1, tiny=20)

    def build(self) -> Problem:
        """Return the task's world and map."""
        spaces = Box((0.0, 0.0), (_SIDE, _SIDE)), Box.of(1.0, 2)
        mdp = MDP(initial, move, reward, at_goal, *spaces, self.horizon)
        # A success returns at least 100 - 0.02 H, which is more than 1 for horizons up to 4,950.
        return Problem(JaxWorld(mdp), success_return=1.0, map=maze_map(), goal_ends=True)


class DeceptiveUMaze(Task):
    """The same maze with a misleading reward: minus the distance to the goal, through the block."""

    kind: ClassVar[str] = "small"

    def build(self) -> Problem:
        """Return the task's world and map."""
        spaces = Box((0.0, 0.0), (_SIDE, _SIDE)), Box.of(1.0, 2)
        mdp = MDP(initial, move, nearness, never, *spaces, self.horizon)
        return Problem(JaxWorld(mdp), success_return=-1.5 * self.horizon, map=maze_map())


def is_free(x: Float[Array, "*n"], y: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """Return whether a point may be at (x, y): in the square and not in the block."""
    square = (x >= 0.0) & (x <= _SIDE) & (y >= 0.0) & (y <= _SIDE)
    block = (x < 2.0) & (y > 1.0) & (y < 2.0)
    return square & ~block


def initial(key: Key[Array, ""]) -> State:
    """Draw the start, around (0.5, 0.5)."""
    return jr.uniform(key, (2,), minval=0.45, maxval=0.55)


def move(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state."""
    x, y = state
    to_x, to_y = state + _STEP * jnp.clip(action, -1.0, 1.0)
    x = jnp.where(is_free(to_x, y), to_x, x)
    y = jnp.where(is_free(x, to_y), to_y, y)
    return jnp.stack([x, y])


def at_goal(state: State, action: Action, next_state: State) -> Bool[Array, ""]:
    """Return whether the point is within 0.4 of the goal."""
    return jnp.sum((next_state - jnp.array(GOAL)) ** 2) <= 0.4**2


def nearness(state: State, action: Action, next_state: State) -> Float[Array, ""]:
    """Return minus the straight-line distance to the goal."""
    return -jnp.linalg.norm(next_state - jnp.array(GOAL))


def reward(state: State, action: Action, next_state: State) -> Float[Array, ""]:
    """Return 100 at the goal, less the cost of the action."""
    cost = 0.01 * jnp.sum(jnp.clip(action, -1.0, 1.0) ** 2)
    return jnp.where(at_goal(state, action, next_state), 100.0, 0.0) - cost


def maze_map(per_unit: int = 10) -> Map:
    """Return the map of squares of side 1 / per_unit, of which 7 per_unit^2 are free."""
    return Map.of((0.0, 0.0), (_SIDE, _SIDE), 1.0 / per_unit, is_free)
