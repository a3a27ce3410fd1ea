"""Swimmers of three links: swimmer and swimmer-v0 (paper: section 7.2, after Wang et al. 2019).

    r(s, a, s') = u - 1e-4 |a|^2

with u a velocity along x before the step, a clipped to [-1, 1]. In swimmer-v0 it is that of the point that the model's
positions are counted from, 0.5 behind the first link, about which the robot turns. In swimmer it is that of the tip of
the first link, 1.5 before that point:

    u = d/dt (x + 1.5 cos t) = x. - 1.5 t. sin t

It is observed as well, though the angle t and the rates tell it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from pcmlp.tasks.mujoco.robot import Robot, RobotTask, after_hidden, effort, uniform_start
from pcmlp.types import Task, never

_START = partial(uniform_start, bound=0.1)
_TIP = 1.5  # from the point to the tip, in Gymnasium's model


def observe_tip(data: Any) -> np.ndarray:
    angle, speed, rate = data.qpos[..., 2:3], data.qvel[..., 0:1], data.qvel[..., 2:3]
    return np.concatenate([after_hidden(data, 2), speed - _TIP * rate * np.sin(angle)], axis=-1)


SWIMMER = Robot("swimmer.xml", 0.01, 4, _START, observe_tip, hidden=2)
SWIMMER_V0 = Robot("swimmer.xml", 0.01, 4, _START, partial(after_hidden, hidden=2), hidden=2)


@dataclass(frozen=True)
class Swimmer(RobotTask):
    """Three links in a viscous fluid in MuJoCo, paid for the velocity of their tip."""

    def build(self) -> Task:
        return self.built(SWIMMER, swimmer_reward, never)


def swimmer_reward(
    state: Float[Array, "9"], action: Float[Array, "2"], next_state: Float[Array, "9"]
) -> Float[Array, ""]:
    return state[8] - 1e-4 * effort(action)


@dataclass(frozen=True)
class SwimmerV0(RobotTask):
    """Three links in a viscous fluid in MuJoCo, paid for the velocity of a point behind the first."""

    def build(self) -> Task:
        return self.built(SWIMMER_V0, swimmer_v0_reward, never)


def swimmer_v0_reward(
    state: Float[Array, "8"], action: Float[Array, "2"], next_state: Float[Array, "8"]
) -> Float[Array, ""]:
    return state[3] - 1e-4 * effort(action)


__all__ = ["SWIMMER", "SWIMMER_V0", "Swimmer", "SwimmerV0"]
