"""A robot's true transition for compiled planners: out of the program, into the simulator and back.

    (q, v) from s,    s' = observe(f^k(q, v; a))

What is observed of a robot tells its positions and velocities, but for where it is along the ground, on which nothing
depends. So a state is enough to go on from, as precisely as its 32 bits are. All rows of a batch are stepped together,
by threads of MuJoCo's own.
"""

from functools import lru_cache

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.tasks.mujoco.robot import Robot
from pcmlp.tasks.mujoco.simulator import Flock, Simulator
from pcmlp.types import Action, State


class SimulatedTransition(eqx.Module):
    robot: Robot = eqx.field(static=True)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> Float[Array, " s"]:
        shape = jax.ShapeDtypeStruct(state.shape, state.dtype)
        return jax.pure_callback(self.stepped, shape, state, action, vmap_method="broadcast_all")

    def stepped(self, states: Array | np.ndarray, actions: Array | np.ndarray) -> np.ndarray:
        """Of any batch of states, [..., s]."""
        states, actions = np.asarray(states), np.asarray(actions)  # what a callback is given depends on the backend
        flat = states.reshape(-1, states.shape[-1]).astype(np.float64)
        after = _stepper(self.robot)(flat, actions.reshape(-1, actions.shape[-1]).astype(np.float64))
        return after.reshape(states.shape).astype(states.dtype)


class _Stepper:
    """The simulators of one robot, made once."""

    def __init__(self, robot: Robot):
        self.robot, self.alone = robot, Simulator(robot)  # which begins at rest
        self.flock = Flock(robot, self.alone.model)

    def __call__(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        before = self.located(states)
        low, high = self.alone.model.actuator_ctrlrange.T
        # A plan may have gone astray: nothing is known of where that leads.
        known = np.all(np.isfinite(np.concatenate([before, actions], axis=1)), axis=1)
        before[~known], actions[~known] = self.alone.state, 0.0
        observed, whole = self.flock.observed_after(before, np.clip(actions, low, high), self.alone)
        observed[~(known & whole)] = np.nan
        return observed

    def located(self, states: np.ndarray) -> np.ndarray:
        """As MuJoCo writes where a robot is: the time, its positions, its velocities."""
        model, hidden, count = self.alone.model, self.robot.hidden, len(states)
        if self.robot.recover is not None:
            positions, velocities = self.robot.recover(states)
        else:
            place = np.broadcast_to(model.qpos0[:hidden], (count, hidden))
            positions = np.concatenate([place, states[:, : model.nq - hidden]], axis=1)
            velocities = states[:, model.nq - hidden : model.nq - hidden + model.nv]
        return np.concatenate([np.zeros((count, 1)), positions, velocities], axis=1)


_stepper = lru_cache(maxsize=4)(_Stepper)

__all__ = ["SimulatedTransition"]
