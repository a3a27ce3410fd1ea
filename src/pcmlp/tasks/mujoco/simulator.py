"""MuJoCo's physics as a Gymnasium environment that only steps and observes a robot.

Reward and end belong to the task, as functions of the observations; the simulator gives no reward and never ends an
episode.

A step is a function of positions, velocities and controls only: contact forces are found by iteration, which starts
from zero at every step and not from the last forces. So a step depends neither on the simulator that takes it nor on
earlier steps.
"""

import contextlib
import operator
import os
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Float, Key

from pcmlp.observed import Fault, Observed
from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.mujoco.robots import Robot
from pcmlp.types import Action, State

mujoco = import_mujoco()  # type checkers do not know its types
from mujoco.rollout import Rollout  # noqa: E402

MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

_STATE = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)  # time, positions, velocities and actuator activations
_DIVERGED = "the simulation diverged"
_MAX_THREADS = 16
_warning_lock = threading.Lock()
_DIVERGENCE_WARNINGS = [
    int(getattr(mujoco.mjtWarning, name))
    for name in ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC", "mjWARN_BADCTRL")
]


@lru_cache(maxsize=16)  # loading takes milliseconds, and all simulators of a robot can read the same model
def load_model(robot: Robot) -> Any:
    """Return the robot's MjModel, with its walls, which have the friction of the floor of Gymnasium's ant."""
    spec = mujoco.MjSpec.from_file(str(MODELS / robot.xml))
    contact = {"contype": 1, "conaffinity": 1, "condim": 3, "friction": [1.0, 0.5, 0.5], "margin": 0.01}
    for wall in robot.walls:
        low, high = np.array([*wall.low, 0.0]), np.array([*wall.high, wall.height])
        box = {"type": mujoco.mjtGeom.mjGEOM_BOX, "pos": (low + high) / 2, "size": (high - low) / 2}
        spec.worldbody.add_geom(**box, **contact)
    model = spec.compile()
    model.opt.timestep = robot.timestep
    return model


@contextlib.contextmanager
def _silence_warnings() -> Iterator[None]:
    """Keep MuJoCo from printing and logging a line for each step that diverges: a search may try thousands.

    The handler belongs to the process, so threads take turns; otherwise one thread could restore the handler that
    another has set.
    """
    with _warning_lock:
        before = mujoco.get_mju_user_warning()
        try:
            mujoco.set_mju_user_warning(_ignore)
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _ignore(text: str) -> None: ...


def check_divergence(data: Any) -> None:
    """Raise if the simulation diverged: MuJoCo then resets to rest, which is not a transition of the robot."""
    if any(data.warning[kind].number for kind in _DIVERGENCE_WARNINGS):
        raise RuntimeError(_DIVERGED)


class Simulator(gymnasium.Env):
    """A robot in MuJoCo."""

    def __init__(self, robot: Robot):
        self.robot = robot
        self.model = load_model(robot)
        self.data = mujoco.MjData(self.model)  # scratch memory for steps of this simulator alone
        self.state = self._read_state()  # the state of the robot, in MuJoCo's format
        low, high = self.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = Box(low, high)
        bounds = np.full((*self._observe().shape, 2), (-np.inf, np.inf))
        bounds[: len(robot.ranges)] = np.reshape(robot.ranges, (-1, 2))
        self.observation_space = Box(*bounds.T, dtype=np.float64)

    def __str__(self) -> str:
        return self.robot.xml

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode at a random start."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        start = self.robot.start(self.np_random, self.model.qpos0, self.model.nv)
        self.data.qpos[:], self.data.qvel[:] = start
        self.state = self._read_state()
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one step of the task."""
        self.set_state(self.state, action)
        mujoco.mj_step(self.model, self.data, self.robot.frame_skip)
        check_divergence(self.data)
        self.state = self._read_state()
        return self._observe(), 0.0, False, False, {}

    def batch_simulator(self) -> "BatchSimulator":
        """Return the object that steps several simulators of this robot at once."""
        return BatchSimulator(self.robot, self.model)

    def set_state(self, state: np.ndarray, action: np.ndarray) -> None:
        """Write a state and an action into the data."""
        mujoco.mj_setState(self.model, self.data, state, _STATE)
        self.data.ctrl[:] = action
        self.data.qacc_warmstart[:] = 0.0

    def observe_at(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Return the observation at `state`, to which `action` has led."""
        self.set_state(state, action)
        return self._observe()

    def _read_state(self) -> np.ndarray:
        state = np.zeros(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, state, _STATE)
        return state

    def _observe(self) -> np.ndarray:
        if self.robot.derived:
            # Derived values are those of the last substep, and contact forces are computed only on request.
            self.data.qacc_warmstart[:] = 0.0
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_rnePostConstraint(self.model, self.data)
        return self.robot.observe(self.data)


class BatchSimulator:
    """A stepper of many simulators of one robot on all cores; results equal those of single steps."""

    def __init__(self, robot: Robot, model: Any):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = min(cores, _MAX_THREADS)
        self.robot, self.model = robot, model
        self.pool = Rollout(nthread=threads)
        self.data = [mujoco.MjData(model) for _ in range(threads)]
        self._after, self._rows = np.zeros((0, 0)), list[np.ndarray]()  # the last states, and each of them

    def __call__(self, environments: Sequence[Simulator], actions: np.ndarray) -> Observed:
        """Step each simulator once."""
        observation, after, diverged = self.step(self._gather(environments), actions, environments[0])
        self._after, self._rows = after, list(after)
        for simulator, state in zip(environments, self._rows, strict=True):
            simulator.state = state
        observed = Observed.blank(len(after), observation.shape[1:])
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is checked later
            observed.observation[:] = observation
        for row in np.flatnonzero(diverged).tolist():
            observed.fail(row, Fault.RAISED, f"step raised RuntimeError: {_DIVERGED}")
        return observed

    def _gather(self, environments: Sequence[Simulator]) -> np.ndarray:
        """Return the states of the simulators: those after the last step, unless one has been reset since."""
        rows = [simulator.state for simulator in environments]
        same = len(rows) == len(self._rows) and all(map(operator.is_, rows, self._rows))
        return self._after if same else np.stack(rows)  # to stack them takes longer than all else here

    def step(
        self, before: np.ndarray, actions: np.ndarray, observer: Simulator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return observations and states one step after `before`, and which steps diverged; `observer` computes the
        observations that need more than positions and velocities."""
        after, diverged = self._roll_out(before, actions)
        if self.robot.derived:
            rows = zip(after, actions, strict=True)
            return np.stack([observer.observe_at(state, action) for state, action in rows]), after, diverged
        end = 1 + self.model.nq  # the first number is the time
        moving = SimpleNamespace(qpos=after[:, 1:end], qvel=after[:, end : end + self.model.nv])
        return self.robot.observe(moving), after, diverged

    def _roll_out(self, before: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count, skip, size = len(before), self.robot.frame_skip, before.shape[1]
        after = np.zeros((count, skip, size))
        with _silence_warnings():
            self.pool.rollout(
                [self.model] * count,
                self.data,
                before,
                np.repeat(actions.astype(np.float64)[:, None], skip, axis=1),
                skip_checks=True,  # the checks take as long as a step
                nstep=skip,
                initial_warmstart=np.zeros((count, self.model.nv)),
                state=after,
                sensordata=np.zeros((count, skip, self.model.nsensordata)),
            )
        # The clock of a simulation that diverges stops or restarts.
        in_time = np.abs(after[:, -1, 0] - before[:, 0] - self.robot.dt) < 0.5 * self.robot.timestep
        return np.ascontiguousarray(after[:, -1]), ~in_time


class SimulatedTransition(eqx.Module):
    """A robot's true transition for compiled planners, through a callback; NaN where the simulation diverges.

        (q, v) from s,    s' = observe(f^k(q, v; a))

    An observation contains a robot's positions and velocities, except its position on the ground, on which nothing
    depends. So a step can start from any observed state, with the precision of 32-bit floats. All rows of a batch are
    stepped together by MuJoCo's threads.
    """

    robot: Robot = eqx.field(static=True)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> Float[Array, " s"]:
        shape = jax.ShapeDtypeStruct(state.shape, state.dtype)
        return jax.pure_callback(self.step, shape, state, action, vmap_method="broadcast_all")

    def step(self, states: Array | np.ndarray, actions: Array | np.ndarray) -> np.ndarray:
        """Step any batch of states, [..., s]."""
        states, actions = np.asarray(states), np.asarray(actions)  # their type depends on the backend
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
