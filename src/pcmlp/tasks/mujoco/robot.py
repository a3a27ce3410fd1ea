"""A robot in MuJoCo as a task: its simulator, its reward and its end.

    s' = observe(f^k(q, v; a))

with q, v the positions and velocities of the joints, f one step of MuJoCo, k the frame skip, and the action held. Most
tasks are those of section 7.2 of the paper, which follows the benchmark of Wang et al. (2019): the reward takes the
velocity and the height from the state *before* the step, so that it is known from (s, a, s') without the simulator and
the imagination can pay what the world does. Starts are Gymnasium's.

Nothing here imports MuJoCo before a task is built: it is an extra.
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
    """A box on the ground, from one corner to the other."""

    low: tuple[float, float]
    high: tuple[float, float]
    height: float


@dataclass(frozen=True)
class Robot:
    """A robot and what it is paid for. Its functions are at the top level of a module, so that a robot can be sent to
    the processes that step it."""

    xml: str  # one of Gymnasium's models
    timestep: float  # seconds of one step of MuJoCo
    frame_skip: int  # steps of MuJoCo in a step of the task
    start: Start  # random numbers, positions at rest, number of velocities -> positions, velocities
    observe: Callable[[Any], np.ndarray]  # an MjData, or positions and velocities of several robots -> observation
    reward: Callable  # s, a, s' -> r
    terminal: Callable = never  # s, a, s' -> bool
    derived: bool = False  # whether more than positions and velocities is observed
    hidden: int = 1  # how many of the first positions are not observed: the place along the ground
    # states [n, s] -> positions and velocities; none: they are the first of what is observed, but for hidden ones
    recover: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    walls: tuple[Wall, ...] = ()  # beside what the model has
    ranges: tuple[tuple[float, float], ...] = ()  # of the first numbers observed, which nothing can leave

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
        """Return the world of the environments that `make` creates."""
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
    """Draw positions and velocities within `bound` of standing still."""
    return rest + rng.uniform(-bound, bound, rest.size), rng.uniform(-bound, bound, speeds)


def pushed_start(rng: np.random.Generator, rest: np.ndarray, speeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw positions within 0.1 of rest, and velocities of standard deviation 0.1."""
    return rest + rng.uniform(-0.1, 0.1, rest.size), 0.1 * rng.standard_normal(speeds)


def effort(action: Float[Array, " a"], most: float = 1.0) -> Float[Array, ""]:
    """Return the sum of a^2 of the action that the motors get."""
    return jnp.sum(jnp.clip(action, -most, most) ** 2)
