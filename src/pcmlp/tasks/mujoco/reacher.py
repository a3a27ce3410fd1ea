"""An arm of two links that is to reach a goal: reacher (paper: section 7.2, after Wang et al. 2019).

    r(s, a, s') = -|p - g| - |a|^2

with p the tip and g the goal before the step, a clipped to [-1, 1]. Observed are the cosines and sines of both angles,
the goal, the rates of the angles, and p - g: 11 numbers. Every episode has a new goal, from U(-0.2, 0.2)^2: also from
the corners, which the arm, 0.21 long, does not reach.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcmlp.tasks.mujoco.robot import Robot, RobotTask, effort
from pcmlp.types import Task, never


def start(rng: np.random.Generator, rest: np.ndarray, speeds: int) -> tuple[np.ndarray, np.ndarray]:
    arm = rest[:2] + rng.uniform(-0.1, 0.1, 2)
    goal = rng.uniform(-0.2, 0.2, 2)
    return np.concatenate([arm, goal]), np.concatenate([rng.uniform(-0.005, 0.005, 2), np.zeros(2)])


def observe(data: Any) -> np.ndarray:
    angles, goal = data.qpos[:2], data.qpos[2:]
    offset = data.body("fingertip").xpos - data.body("target").xpos
    return np.concatenate([np.cos(angles), np.sin(angles), goal, data.qvel[:2], offset])


def recover(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angles, which are known but for whole turns, and the goal, which does not move."""
    angles = np.arctan2(states[:, 2:4], states[:, 0:2])
    return np.concatenate([angles, states[:, 4:6]], axis=1), np.pad(states[:, 6:8], ((0, 0), (0, 2)))


REACHER = Robot("reacher.xml", 0.01, 2, start, observe, derived=True, hidden=0, recover=recover)


@dataclass(frozen=True)
class Reacher(RobotTask):
    """An arm of two links in MuJoCo, paid for having its tip close to a goal."""

    horizon: int = 50

    def build(self) -> Task:
        return self.built(REACHER, reacher_reward, never)


def reacher_reward(
    state: Float[Array, "11"], action: Float[Array, "2"], next_state: Float[Array, "11"]
) -> Float[Array, ""]:
    return -jnp.linalg.norm(state[8:11]) - effort(action)


__all__ = ["REACHER", "Reacher"]
