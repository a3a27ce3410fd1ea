"""Humanoids: humanoid-et and slim-humanoid-et (paper: section 7.2, after Wang et al. 2019).

    r(s, a, s') = (0.25 / 0.015) x. - 0.1 |a|^2 - min(5e-7 |f|^2, 10) + 5

with x. the forward velocity and f the contact forces on all bodies before the step, a clipped to [-0.4, 0.4]; 0.015 s
is a step. The slim one has no impact term, and observes positions and velocities only. For the other to be known from
what is observed, the forces are observed: 376 numbers, of which 331 are inertias, velocities and forces of the bodies.
Both end where the torso leaves [1, 2].
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.tasks.mujoco.robot import Robot, RobotTask, after_hidden, effort, uniform_start
from pcmlp.types import Task

_STANDING = partial(uniform_start, bound=0.01)
_FORCES = 14 * 6  # a torque and a force for each body; the last of what is observed


def observe_all(data: Any) -> np.ndarray:
    bodies = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
    return np.concatenate([after_hidden(data, 2), *map(np.ravel, bodies)])


HUMANOID = Robot("humanoid.xml", 0.003, 5, _STANDING, observe_all, derived=True, hidden=2)
SLIM_HUMANOID = Robot("humanoid.xml", 0.003, 5, _STANDING, partial(after_hidden, hidden=2), hidden=2)


@dataclass(frozen=True)
class Humanoid(RobotTask):
    """A humanoid in MuJoCo, paid for running upright and soft landing; a fall ends the episode. It sees forces too."""

    def build(self) -> Task:
        return self.built(HUMANOID, humanoid_reward, humanoid_falls)


@dataclass(frozen=True)
class SlimHumanoid(RobotTask):
    """A humanoid in MuJoCo, paid for running upright; a fall ends the episode."""

    def build(self) -> Task:
        return self.built(SLIM_HUMANOID, slim_humanoid_reward, humanoid_falls)


def slim_humanoid_reward(
    state: Float[Array, " n"], action: Float[Array, "17"], next_state: Float[Array, " n"]
) -> Float[Array, ""]:
    return (0.25 / 0.015) * state[22] - 0.1 * effort(action, 0.4) + 5.0


def humanoid_reward(
    state: Float[Array, "376"], action: Float[Array, "17"], next_state: Float[Array, "376"]
) -> Float[Array, ""]:
    impact = jnp.minimum(5e-7 * jnp.sum(state[-_FORCES:] ** 2), 10.0)
    return slim_humanoid_reward(state, action, next_state) - impact


def humanoid_falls(
    state: Float[Array, " n"], action: Float[Array, "17"], next_state: Float[Array, " n"]
) -> Bool[Array, ""]:
    return (next_state[0] < 1.0) | (next_state[0] > 2.0)


__all__ = ["HUMANOID", "SLIM_HUMANOID", "Humanoid", "SlimHumanoid"]
