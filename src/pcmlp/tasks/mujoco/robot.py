"""A robot in MuJoCo as a task: its simulator, its reward and its end.

    s' = observe(f^k(q, v; a))

where q, v are the positions and velocities of the joints, f is one step of MuJoCo, k is the frame skip, and the action
is held. Most tasks are those of section 7.2 of the paper, which follows the benchmark of Wang et al. (2019): the reward
takes the velocity and the height from the state *before* the step, so that it can be computed from (s, a, s') without
the simulator and is the same in a model. Starts are Gymnasium's.

MuJoCo is an optional dependency, so it is imported only when a task is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcmlp.settings import setting
from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Problem, Task, never

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


class SteppedTask(Task):
    """A task that a simulator on the host steps."""

    kind: ClassVar[str] = "robot"
    horizon: int = setting(1000, "steps of an episode", least=1, tiny=20)
    workers: int = setting(0, "processes that step robots; 0: threads of this one", least=0)
    timeout: float = setting(60.0, "seconds that a step may take in a worker process", above=0)
    max_faults: int = setting(100, "faults, such as divergences, that a run survives", least=0)

    def host_world(
        self, make: Callable[[], Any], reward: Callable, terminal: Callable, transition: Callable | None = None
    ) -> GymnasiumWorld:
        """Return the world made of the environments that `make` creates."""
        return GymnasiumWorld.of(
            make,
            reward=reward,
            terminal=terminal,
            transition=transition,
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
        )


class RobotTask(SteppedTask):
    """A task with one of our robots."""

    robot: ClassVar[Robot]

    def build(self) -> Problem:
        """Return the task's world."""
        import_mujoco()
        from pcmlp.tasks.mujoco.simulator import Simulator
        from pcmlp.tasks.mujoco.transition import SimulatedTransition

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


def effort(action: Float[Array, " a"], most: float = 1.0) -> Float[Array, ""]:
    """Return the sum of a^2 of the clipped action."""
    return jnp.sum(jnp.clip(action, -most, most) ** 2)
