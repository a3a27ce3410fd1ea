"""An ant in a U-shaped maze: ant-umaze (paper: section 7.3, after Trott et al. 2019).

The free ground is seven squares of side 8, in three rows, with walls around them and between the rows

    .      .    .            y in 12 ... 20
    #####  ##   .            y in  4 ... 12, solid for x < 12
    start  .    .            y in -4 ...  4

and the ant starts in the middle of the first square, at (0, 0). It is paid for moving, wherever it moves:

    r(s, a, s') = 0.01 (|v| - 1e-4 |a|^2)

where v is the velocity of the torso along the ground before the step, and a is clipped to [-1, 1]. So running in a
circle at the start pays as much as going anywhere, and exploration is measured by the map: the share of the 448 free
squares of 1 m^2 that the torso has entered. The observation has all positions, including the position in the maze, and
all velocities.
"""

import dataclasses
from functools import partial
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pcmlp.maps import Map
from pcmlp.tasks.mujoco.robots import Robot, RobotTask, Wall, after_hidden, effort, pushed_start
from pcmlp.types import Action, Problem, State

_SIDE = 8.0  # side of each of the seven squares. paper: only a picture / here: as in the authors' release
_LOW, _HIGH = -0.5 * _SIDE, 2.5 * _SIDE
_HEIGHT = 20.0  # height of the walls: full torque can throw the ant 5 m up
_WALLS = (
    Wall((_LOW - _SIDE, _LOW - _SIDE), (_LOW, _HIGH + _SIDE), _HEIGHT),
    Wall((_HIGH, _LOW - _SIDE), (_HIGH + _SIDE, _HIGH + _SIDE), _HEIGHT),
    Wall((_LOW, _LOW - _SIDE), (_HIGH, _LOW), _HEIGHT),
    Wall((_LOW, _HIGH), (_HIGH, _HIGH + _SIDE), _HEIGHT),
    Wall((_LOW, 0.5 * _SIDE), (1.5 * _SIDE, 1.5 * _SIDE), _HEIGHT),
)


def ant_umaze_reward(state: State, action: Action, next_state: State) -> Float[Array, ""]:
    """Return the reward for moving, wherever that leads."""
    return 0.01 * (jnp.linalg.norm(state[15:17]) - 1e-4 * effort(action))


def is_free(x: Float[Array, "*n"], y: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """Return whether there is no wall at (x, y)."""
    square = (x > _LOW) & (x < _HIGH) & (y > _LOW) & (y < _HIGH)
    return square & ~((x < 1.5 * _SIDE) & (y > 0.5 * _SIDE) & (y < 1.5 * _SIDE))


def ant_umaze_map() -> Map:
    """Return the map of squares of 1 m^2, of which 448 are free."""
    return Map.of((_LOW, _LOW), (_HIGH, _HIGH), 1.0, is_free)


class AntUMaze(RobotTask):
    """An ant in a U-shaped maze in MuJoCo, paid for moving anywhere; its map shows what was explored."""

    robot: ClassVar[Robot] = Robot(
        "ant.xml",
        0.02,
        5,
        pushed_start,
        partial(after_hidden, hidden=0),
        ant_umaze_reward,
        hidden=0,
        walls=_WALLS,
        ranges=((_LOW, _HIGH), (_LOW, _HIGH)),  # imagined states stay inside
    )

    def build(self) -> Problem:
        """Return the task's world and map."""
        return dataclasses.replace(super().build(), map=ant_umaze_map(), pays_for_moving=True)
