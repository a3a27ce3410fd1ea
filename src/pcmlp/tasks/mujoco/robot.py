"""A robot in MuJoCo as a task: what its simulator is told, and the world that is made of it.

    s' = observe(f^k(q, v; a))

with q, v the positions and velocities of the joints, f one step of MuJoCo, k the frame skip, and the action held. Most
tasks are those of section 7.2 of the paper, which follows the benchmark of Wang et al. (2019): with the velocity and
the height of the state *before* the step in the reward, so that r is known from (s, a, s') without the simulator, and
the imagination can pay what the world does. Starts are Gymnasium's.

Nothing here needs MuJoCo before a task is built: it is an extra.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.maps import Map
from pcmlp.types import Task

Start = Callable[[np.random.Generator, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Wall(NamedTuple):
    """A box on the ground, from one corner to the other."""

    low: tuple[float, float]
    high: tuple[float, float]
    height: float


@dataclass(frozen=True)
class Robot:
    """Its functions are of the top level of a module: a robot is sent to the processes that step it."""

    xml: str  # one of Gymnasium's models
    timestep: float  # seconds of one step of MuJoCo
    frame_skip: int  # of them in a step of the task
    start: Start  # random numbers, positions at rest, number of velocities -> positions, velocities
    observe: Callable[[Any], np.ndarray]  # of an MjData, or of positions and velocities of several robots
    derived: bool = False  # whether that is of more than positions and velocities
    hidden: int = 1  # how many of the first positions are not observed: where it is along the ground
    # positions and velocities of states, [n, s]; none: they are the first of what is observed, but for what is hidden
    recover: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    walls: tuple[Wall, ...] = ()  # beside what the model has
    ranges: tuple[tuple[float, float], ...] = ()  # of the first numbers observed, which nothing can leave

    @property
    def dt(self) -> float:
        """Seconds of a step of the task."""
        return self.timestep * self.frame_skip


@dataclass(frozen=True)
class RobotTask(abc.ABC):
    """What every task with a robot can be told."""

    horizon: int = 1000
    workers: int | None = 0  # processes that step robots; 0: threads of this one; none: whichever is faster
    timeout: float = 60.0  # seconds that a step may take in a worker
    max_faults: int = 100  # such as divergences, that a run may survive

    @abc.abstractmethod
    def build(self) -> Task: ...

    def built(self, robot: Robot, reward: Callable, terminal: Callable, map: Map | None = None) -> Task:
        import_mujoco()
        from pcmlp.tasks.mujoco.simulator import Simulator

        return Task(self.stepped(partial(Simulator, robot), reward, terminal), map=map)

    def stepped(self, make: Callable[[], Any], reward: Callable, terminal: Callable) -> GymnasiumWorld:
        """The world of what `make` makes."""
        return GymnasiumWorld.of(
            make,
            reward=reward,
            terminal=terminal,
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
        )


def after_hidden(data: Any, hidden: int) -> np.ndarray:
    """Positions without the first ones, and all velocities."""
    return np.concatenate([data.qpos[..., hidden:], data.qvel], axis=-1)


def uniform_start(
    rng: np.random.Generator, rest: np.ndarray, speeds: int, *, bound: float
) -> tuple[np.ndarray, np.ndarray]:
    """Everything within `bound` of standing still."""
    return rest + rng.uniform(-bound, bound, rest.size), rng.uniform(-bound, bound, speeds)


def pushed_start(rng: np.random.Generator, rest: np.ndarray, speeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions within 0.1 of rest, velocities of standard deviation 0.1."""
    return rest + rng.uniform(-0.1, 0.1, rest.size), 0.1 * rng.standard_normal(speeds)


def effort(action: Float[Array, " a"], most: float = 1.0) -> Float[Array, ""]:
    """The sum of a^2, of the action that the motors get."""
    return jnp.sum(jnp.clip(action, -most, most) ** 2)


__all__ = ["Robot", "RobotTask", "Wall", "after_hidden", "effort", "pushed_start", "uniform_start"]
