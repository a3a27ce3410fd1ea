"""A robot's true transition for compiled planners, through a callback into the simulator.

    (q, v) from s,    s' = observe(f^k(q, v; a))

An observation contains a robot's positions and velocities, except its position on the ground, on which nothing depends.
So a step can start from any observed state, with the precision of 32-bit floats. All rows of a batch are stepped
together by MuJoCo's threads.
"""

from functools import lru_cache

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.tasks.mujoco.robot import Robot
from pcmlp.tasks.mujoco.simulator import BatchSimulator, Simulator
from pcmlp.types import Action, State


class SimulatedTransition(eqx.Module):
    """The transition of a robot; NaN where the simulation diverges."""

    robot: Robot = eqx.field(static=True)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> Float[Array, " s"]:
        shape = jax.ShapeDtypeStruct(state.shape, state.dtype)
        return jax.pure_callback(self.step, shape, state, action, vmap_method="broadcast_all")

    def step(self, states: Array | np.ndarray, actions: Array | np.ndarray) -> np.ndarray:
        """Step any batch of states, [..., s]."""
        states, actions = (
            np.asarray(states),
            np.asarray(actions),
        )  # their type depends on the backend
        flat = states.reshape(-1, states.shape[-1]).astype(np.float64)
        after = _stepper(self.robot)(flat, actions.reshape(-1, actions.shape[-1]).astype(np.float64))
        return after.reshape(states.shape).astype(states.dtype)


class _Stepper:
    """The simulators of one robot."""

    def __init__(self, robot: Robot):
        self.robot, self.single = robot, Simulator(robot)
        self.batch = BatchSimulator(robot, self.single.model)

    def __call__(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the observations one step after the observed `states`."""
        before = self.recover(states)
        low, high = self.single.model.actuator_ctrlrange.T
        # A plan may contain NaN or infinity: step a placeholder, the robot at rest, in its place.
        finite = np.all(np.isfinite(np.concatenate([before, actions], axis=1)), axis=1)
        before[~finite], actions[~finite] = self.single.state, 0.0
        observed, _, diverged = self.batch.step(before, np.clip(actions, low, high), self.single)
        observed[~finite | diverged] = np.nan
        return observed

    def recover(self, states: np.ndarray) -> np.ndarray:
        """Return MuJoCo's states (time, positions and velocities) for observed states."""
        model, hidden, count = self.single.model, self.robot.hidden, len(states)
        if self.robot.recover is not None:
            positions, velocities = self.robot.recover(states)
        else:
            place = np.broadcast_to(model.qpos0[:hidden], (count, hidden))
            positions = np.concatenate([place, states[:, : model.nq - hidden]], axis=1)
            velocities = states[:, model.nq - hidden : model.nq - hidden + model.nv]
        return np.concatenate([np.zeros((count, 1)), positions, velocities], axis=1)


_stepper = lru_cache(maxsize=4)(_Stepper)

__all__ = ["SimulatedTransition"]
