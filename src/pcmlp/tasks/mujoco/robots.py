"""Robots in MuJoCo as tasks: the nine of the dense tasks (paper: section 7.2); pendulum is in `classic`.

    s' = observe(f^k(q, v; a))

where q, v are the positions and velocities of the joints, f is one step of MuJoCo, k is the frame skip, and the action
is held. The tasks follow the benchmark of Wang et al. (2019): the reward takes the velocity and the height from the
state *before* the step, so that it can be computed from (s, a, s') without the simulator and is the same in a model.
Starts are Gymnasium's.

    half-cheetah        x. - 0.1 |a|^2
    hopper-et, walker2d-et, ant    x. - 0.1 |a|^2 - 3 (z - z_0)^2 + 1
    humanoid-et         (0.25 / 0.015) x. - 0.1 |a|^2 - min(5e-7 |f|^2, 10) + 5;   slim-humanoid-et without f
    swimmer, swimmer-v0            u - 1e-4 |a|^2
    reacher             -|p - g| - |a|^2

where x. is the forward velocity, z the height of the torso and f the contact forces on all bodies, and a is clipped to
the range of the motors. "ET" tasks end when the robot has fallen in the next state. The observation has all positions
except the position along the ground, then all velocities, unless a class says otherwise.

MuJoCo is an optional dependency, so it is imported only when a task is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.settings import setting
from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.registered import SteppedTask
from pcmlp.types import Action, Problem, State, never

Number = Float[Array, ""]
Truth = Bool[Array, ""]
Start = Callable[[np.random.Generator, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Wall(NamedTuple):
    """A box on the ground, given by two opposite corners."""

    low: tuple[float, float]
    high: tuple[float, float]
    height: float


@dataclass(frozen=True)
class Robot:
    """A robot and its reward. Its functions are at the top level of a module, so that a robot can be sent to
    the processes that step it."""

    xml: str  # one of Gymnasium's models
    timestep: float  # seconds of one step of MuJoCo
    frame_skip: int  # steps of MuJoCo in a step of the task
    start: Start  # random numbers, positions at rest, number of velocities -> positions, velocities
    observe: Callable[[Any], np.ndarray]  # an MjData, or positions and velocities of several robots -> observation
    reward: Callable  # s, a, s' -> r
    terminal: Callable = never  # s, a, s' -> bool
    derived: bool = False  # whether observations contain more than positions and velocities
    hidden: int = 1  # number of first positions that are not observed: the position on the ground
    # states [n, s] -> positions and velocities; None: an observation begins with them, without the hidden ones
    recover: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    walls: tuple[Wall, ...] = ()  # added to the model
    ranges: tuple[tuple[float, float], ...] = ()  # hard limits of the first coordinates of an observation

    @property
    def dt(self) -> float:
        """Seconds of a step of the task."""
        return self.timestep * self.frame_skip


class RobotTask(SteppedTask):
    """A task with one of our robots."""

    kind: ClassVar[str] = "robot"
    robot: ClassVar[Robot]

    def build(self) -> Problem:
        """Return the task's world."""
        import_mujoco()
        from pcmlp.tasks.mujoco.simulator import SimulatedTransition, Simulator

        robot = self.robot
        make, transition = partial(Simulator, robot), SimulatedTransition(robot)
        return Problem(self.host_world(make, robot.reward, robot.terminal, transition))


def after_hidden(data: Any, hidden: int) -> np.ndarray:
    """Return the positions without the first ones, and all velocities."""
    return np.concatenate([data.qpos[..., hidden:], data.qvel], axis=-1)


def uniform_start(
    rng: np.random.Generator, rest: np.ndarray, speeds: int, *, bound: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw positions and velocities within `bound` of rest."""
    return rest + rng.uniform(-bound, bound, rest.size), rng.uniform(-bound, bound, speeds)


def pushed_start(rng: np.random.Generator, rest: np.ndarray, speeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw positions within 0.1 of rest, and velocities of standard deviation 0.1."""
    return rest + rng.uniform(-0.1, 0.1, rest.size), 0.1 * rng.standard_normal(speeds)


def effort(action: Action, most: float = 1.0) -> Number:
    """Return the sum of a^2 of the clipped action."""
    return jnp.sum(jnp.clip(action, -most, most) ** 2)


_PLANAR = partial(after_hidden, hidden=1)
_SPATIAL = partial(after_hidden, hidden=2)


def half_cheetah_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the reward for running."""
    return state[8] - 0.1 * effort(action)


def upright_reward(state: State, action: Action, next_state: State, *, speed: int, height: float) -> Number:
    """Return the reward for moving with the torso at a height; `speed` is the coordinate of the forward velocity."""
    return state[speed] - 0.1 * effort(action) - 3.0 * (state[0] - height) ** 2 + 1.0


def hopper_falls(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the hopper has fallen."""
    z, angle = next_state[:2]
    return (z <= 0.7) | (jnp.abs(angle) >= 0.2)


def walker2d_falls(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the walker has fallen."""
    z, angle = next_state[:2]
    return (z <= 0.8) | (z >= 2.0) | (jnp.abs(angle) >= 1.0)


class HalfCheetah(RobotTask):
    """A planar cheetah of two legs in MuJoCo, paid for running."""

    robot: ClassVar[Robot] = Robot("half_cheetah.xml", 0.01, 5, pushed_start, _PLANAR, half_cheetah_reward)


_STANDING = partial(uniform_start, bound=0.005)


class Hopper(RobotTask):
    """A planar leg in MuJoCo, paid for hopping forward; a fall ends the episode."""

    robot: ClassVar[Robot] = Robot(
        "hopper.xml", 0.002, 4, _STANDING, _PLANAR, partial(upright_reward, speed=5, height=1.3), hopper_falls
    )


class Walker2d(RobotTask):
    """Two planar legs in MuJoCo, paid for walking forward; a fall ends the episode."""

    robot: ClassVar[Robot] = Robot(
        "walker2d.xml", 0.002, 4, _STANDING, _PLANAR, partial(upright_reward, speed=8, height=1.3), walker2d_falls
    )


class Ant(RobotTask):
    """A body on four legs in MuJoCo, paid for running."""

    robot: ClassVar[Robot] = Robot(
        "ant.xml", 0.01, 5, pushed_start, _SPATIAL, partial(upright_reward, speed=13, height=0.57), hidden=2
    )


_UPRIGHT = partial(uniform_start, bound=0.01)
_FORCES = 14 * 6  # a torque and a force for each body, at the end of the observation


def observe_bodies(data: Any) -> np.ndarray:
    """Return positions and velocities, then inertias, velocities and forces of the bodies: 376 numbers. The forces are
    observed so that the impact term of the reward can be computed."""
    bodies = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
    return np.concatenate([after_hidden(data, 2), *map(np.ravel, bodies)])


def slim_humanoid_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the reward for running upright; a step is 0.015 s."""
    return (0.25 / 0.015) * state[22] - 0.1 * effort(action, 0.4) + 5.0


def humanoid_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the reward for running upright and landing softly."""
    impact = jnp.minimum(5e-7 * jnp.sum(state[-_FORCES:] ** 2), 10.0)
    return slim_humanoid_reward(state, action, next_state) - impact


def humanoid_falls(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the height of the torso is outside 1 to 2."""
    return (next_state[0] < 1.0) | (next_state[0] > 2.0)


class Humanoid(RobotTask):
    """A humanoid in MuJoCo, paid for running upright and soft landing; a fall ends the episode.

    Forces are observed.
    """

    robot: ClassVar[Robot] = Robot(
        "humanoid.xml", 0.003, 5, _UPRIGHT, observe_bodies, humanoid_reward, humanoid_falls, derived=True, hidden=2
    )


class SlimHumanoid(RobotTask):
    """A humanoid in MuJoCo, paid for running upright; a fall ends the episode."""

    robot: ClassVar[Robot] = Robot(
        "humanoid.xml", 0.003, 5, _UPRIGHT, _SPATIAL, slim_humanoid_reward, humanoid_falls, hidden=2
    )


_FLOATING = partial(uniform_start, bound=0.1)
_TIP = 1.5  # distance from the point of reference for positions to the tip, in Gymnasium's model


def observe_tip(data: Any) -> np.ndarray:
    """Return positions, velocities, and the tip's velocity along x: d/dt (x + 1.5 cos t) = x. - 1.5 t. sin t."""
    angle, speed, rate = data.qpos[..., 2:3], data.qvel[..., 0:1], data.qvel[..., 2:3]
    return np.concatenate([after_hidden(data, 2), speed - _TIP * rate * np.sin(angle)], axis=-1)


def swimmer_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the velocity of the tip, less the cost of the action."""
    return state[8] - 1e-4 * effort(action)


def swimmer_v0_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the velocity of a point 0.5 behind the first link, less the cost of the action."""
    return state[3] - 1e-4 * effort(action)


class Swimmer(RobotTask):
    """Three links in a viscous fluid in MuJoCo, paid for the velocity of their tip."""

    robot: ClassVar[Robot] = Robot("swimmer.xml", 0.01, 4, _FLOATING, observe_tip, swimmer_reward, hidden=2)


class SwimmerV0(RobotTask):
    """Three links in a viscous fluid in MuJoCo, paid for the velocity of a point behind the first link."""

    robot: ClassVar[Robot] = Robot("swimmer.xml", 0.01, 4, _FLOATING, _SPATIAL, swimmer_v0_reward, hidden=2)


def start_reaching(rng: np.random.Generator, rest: np.ndarray, speeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the arm near rest and a goal from U(-0.2, 0.2)^2; the arm, 0.21 long, cannot reach its corners."""
    arm = rest[:2] + rng.uniform(-0.1, 0.1, 2)
    goal = rng.uniform(-0.2, 0.2, 2)
    return np.concatenate([arm, goal]), np.concatenate([rng.uniform(-0.005, 0.005, 2), np.zeros(2)])


def observe_reaching(data: Any) -> np.ndarray:
    """Return cosines and sines of both angles, the goal, the rates of the angles, and the tip minus the goal."""
    angles, goal = data.qpos[:2], data.qpos[2:]
    offset = data.body("fingertip").xpos - data.body("target").xpos
    return np.concatenate([np.cos(angles), np.sin(angles), goal, data.qvel[:2], offset])


def recover_reaching(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the angles (up to whole turns) and the goal, and their velocities; the goal does not move."""
    angles = np.arctan2(states[:, 2:4], states[:, 0:2])
    return np.concatenate([angles, states[:, 4:6]], axis=1), np.pad(states[:, 6:8], ((0, 0), (0, 2)))


def reacher_reward(state: State, action: Action, next_state: State) -> Number:
    """Return minus the distance of the tip from the goal, less the cost of the action."""
    return -jnp.linalg.norm(state[8:11]) - effort(action)


class Reacher(RobotTask):
    """An arm of two links in MuJoCo, paid for having its tip close to a goal."""

    horizon: int = setting(50, "steps of an episode", least=1, tiny=20)
    robot: ClassVar[Robot] = Robot(
        "reacher.xml",
        0.01,
        2,
        start_reaching,
        observe_reaching,
        reacher_reward,
        derived=True,
        hidden=0,
        recover=recover_reaching,
    )
