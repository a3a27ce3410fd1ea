"""What runs: half-cheetah, hopper-et, walker2d-et and ant (paper: section 7.2, after Wang et al. 2019).

    r(s, a, s') = x. - 0.1 |a|^2 [ - 3 (z - z_0)^2 + 1 ]

with x. the forward velocity and z the height of the torso before the step, a clipped to [-1, 1], and the bracket for
all but the cheetah. "ET" tasks end early, where the robot falls: known from the next state. Observed are all positions
but the place along the ground, then all velocities.
"""

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pcmlp.tasks.mujoco.robot import Robot, RobotTask, after_hidden, effort, pushed_start, uniform_start
from pcmlp.types import Task, never

_PLANAR = partial(after_hidden, hidden=1)
_STANDING = partial(uniform_start, bound=0.005)

HALF_CHEETAH = Robot("half_cheetah.xml", 0.01, 5, pushed_start, _PLANAR)
HOPPER = Robot("hopper.xml", 0.002, 4, _STANDING, _PLANAR)
WALKER2D = Robot("walker2d.xml", 0.002, 4, _STANDING, _PLANAR)
ANT = Robot("ant.xml", 0.01, 5, pushed_start, partial(after_hidden, hidden=2), hidden=2)


@dataclass(frozen=True)
class HalfCheetah(RobotTask):
    """A planar cheetah of two legs in MuJoCo, paid for running."""

    def build(self) -> Task:
        return self.built(HALF_CHEETAH, half_cheetah_reward, never)


def half_cheetah_reward(
    state: Float[Array, "17"], action: Float[Array, "6"], next_state: Float[Array, "17"]
) -> Float[Array, ""]:
    return state[8] - 0.1 * effort(action)


@dataclass(frozen=True)
class Hopper(RobotTask):
    """A planar leg in MuJoCo, paid for hopping forward; a fall ends the episode."""

    def build(self) -> Task:
        return self.built(HOPPER, hopper_reward, hopper_falls)


def hopper_reward(
    state: Float[Array, "11"], action: Float[Array, "3"], next_state: Float[Array, "11"]
) -> Float[Array, ""]:
    return state[5] - 0.1 * effort(action) - 3.0 * (state[0] - 1.3) ** 2 + 1.0


def hopper_falls(
    state: Float[Array, "11"], action: Float[Array, "3"], next_state: Float[Array, "11"]
) -> Bool[Array, ""]:
    z, angle = next_state[:2]
    return (z <= 0.7) | (jnp.abs(angle) >= 0.2)


@dataclass(frozen=True)
class Walker2d(RobotTask):
    """Two planar legs in MuJoCo, paid for walking forward; a fall ends the episode."""

    def build(self) -> Task:
        return self.built(WALKER2D, walker2d_reward, walker2d_falls)


def walker2d_reward(
    state: Float[Array, "17"], action: Float[Array, "6"], next_state: Float[Array, "17"]
) -> Float[Array, ""]:
    return state[8] - 0.1 * effort(action) - 3.0 * (state[0] - 1.3) ** 2 + 1.0


def walker2d_falls(
    state: Float[Array, "17"], action: Float[Array, "6"], next_state: Float[Array, "17"]
) -> Bool[Array, ""]:
    z, angle = next_state[:2]
    return (z <= 0.8) | (z >= 2.0) | (jnp.abs(angle) >= 1.0)


@dataclass(frozen=True)
class Ant(RobotTask):
    """A body on four legs in MuJoCo, paid for running."""

    def build(self) -> Task:
        return self.built(ANT, ant_reward, never)


def ant_reward(
    state: Float[Array, "27"], action: Float[Array, "8"], next_state: Float[Array, "27"]
) -> Float[Array, ""]:
    return state[13] - 0.1 * effort(action) - 3.0 * (state[0] - 0.57) ** 2 + 1.0


__all__ = ["ANT", "HALF_CHEETAH", "HOPPER", "WALKER2D", "Ant", "HalfCheetah", "Hopper", "Walker2d"]
