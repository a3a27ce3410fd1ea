"""MuJoCo's physics as a Gymnasium environment: a robot that is stepped and observed, and nothing more.

Reward and end are the task's, as functions of what is observed here; so this pays nothing and never ends.

A step is a function of positions, velocities and controls alone: contact forces are found by iteration, which begins at
zero at every step and not at the last forces. So a step does not depend on who takes it, or on what was done before.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.mujoco.robot import Robot, Wall
from pcmlp.tasks.steppers import most_workers
from pcmlp.workers import RAISED, Answer, Rows

mujoco = import_mujoco()  # its types are not known to type checkers
from mujoco.rollout import Rollout  # noqa: E402

MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

_STATE = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)  # the time, positions, velocities, and what actuators remember
_DIVERGED = "the simulation diverged"
_telling = threading.Lock()
_BAD = [
    int(getattr(mujoco.mjtWarning, name))
    for name in ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC", "mjWARN_BADCTRL")
]


def load_model(robot: Robot) -> Any:
    """An MjModel."""
    spec = mujoco.MjSpec.from_file(str(MODELS / robot.xml))
    for wall in robot.walls:
        _build(spec, wall)
    model = spec.compile()
    model.opt.timestep = robot.timestep
    return model


def _build(spec: Any, wall: Wall) -> None:
    """As rough as the floor of Gymnasium's ant."""
    low, high = np.array([*wall.low, 0.0]), np.array([*wall.high, wall.height])
    contact = {"contype": 1, "conaffinity": 1, "condim": 3, "friction": [1.0, 0.5, 0.5], "margin": 0.01}
    box = mujoco.mjtGeom.mjGEOM_BOX
    spec.worldbody.add_geom(type=box, pos=(low + high) / 2, size=(high - low) / 2, **contact)


@contextlib.contextmanager
def _unreported() -> Iterator[None]:
    """MuJoCo writes a line, and adds to a file, for each step that diverges; a search may try thousands of those.

    Who is told is the process's, not a thread's: one at a time, or the last would put back the silence of another."""
    with _telling:
        before = mujoco.get_mju_user_warning()
        try:
            mujoco.set_mju_user_warning(_silent)
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _silent(text: str) -> None: ...


def check_divergence(data: Any) -> None:
    """MuJoCo then begins again at rest, as if nothing had happened: no transition of the robot's."""
    if any(data.warning[kind].number for kind in _BAD):
        raise RuntimeError(_DIVERGED)


class Simulator(gymnasium.Env):
    def __init__(self, robot: Robot):
        self.robot = robot
        self.model = load_model(robot)
        self.data = mujoco.MjData(self.model)  # to work with: of the last step that it took alone
        self.state = self._state()  # where it is, as MuJoCo writes it
        low, high = self.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = Box(low, high)
        bounds = np.full((*self._observed().shape, 2), (-np.inf, np.inf))
        bounds[: len(robot.ranges)] = np.reshape(robot.ranges, (-1, 2))
        self.observation_space = Box(*bounds.T, dtype=np.float64)

    def __str__(self) -> str:
        return self.robot.xml

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        start = self.robot.start(self.np_random, self.model.qpos0, self.model.nv)
        self.data.qpos[:], self.data.qvel[:] = start
        self.state = self._state()
        return self._observed(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.goes_on(self.state, action)
        mujoco.mj_step(self.model, self.data, self.robot.frame_skip)
        check_divergence(self.data)
        self.state = self._state()
        return self._observed(), 0.0, False, False, {}

    def together(self) -> "Flock":
        """What steps several of its kind at once."""
        return Flock(self.robot, self.model)

    def goes_on(self, state: np.ndarray, action: np.ndarray) -> None:
        """Its data are in `state` and do `action`."""
        mujoco.mj_setState(self.model, self.data, state, _STATE)
        self.data.ctrl[:] = action
        self.data.qacc_warmstart[:] = 0.0

    def observed_after(self, action: np.ndarray) -> np.ndarray:
        """What is seen where `action` has led."""
        self.goes_on(self.state, action)
        return self._observed()

    def _state(self) -> np.ndarray:
        state = np.zeros(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, state, _STATE)
        return state

    def _observed(self) -> np.ndarray:
        if self.robot.derived:
            # A step leaves them as they were within it, and contact forces are only computed when asked for.
            self.data.qacc_warmstart[:] = 0.0
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_rnePostConstraint(self.model, self.data)
        return self.robot.observe(self.data)


class Moved(NamedTuple):
    """What can be observed of several robots at once, with the names that an MjData has for one."""

    qpos: np.ndarray  # [n, ...]
    qvel: np.ndarray


class Flock:
    """Steps simulators of one robot on all cores, by threads of MuJoCo's own; each as it would step alone."""

    def __init__(self, robot: Robot, model: Any):
        threads = most_workers()
        self.robot, self.model = robot, model
        self.pool = Rollout(nthread=threads)
        self.data = [mujoco.MjData(model) for _ in range(threads)]

    def __call__(self, simulators: Sequence[Simulator], actions: np.ndarray) -> Rows:
        before = np.stack([simulator.state for simulator in simulators])
        after, whole = self._after(before, actions)
        for simulator, state in zip(simulators, after, strict=True):
            simulator.state = state
        if self.robot.derived:
            observed = np.stack([s.observed_after(action) for s, action in zip(simulators, actions, strict=True)])
        else:
            observed = self._observed(after)
        diverged = Answer(fault=RAISED, said=f"step raised RuntimeError: {_DIVERGED}")
        return Rows.of(observed, {int(i): diverged for i in np.flatnonzero(~whole)})

    def observed_after(
        self, before: np.ndarray, actions: np.ndarray, alone: Simulator
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is seen a step after the states `before`, and which steps were whole; `alone` looks at one by one."""
        after, whole = self._after(before, actions)
        if not self.robot.derived:
            return self._observed(after), whole
        seen = []
        for alone.state, action in zip(after, actions, strict=True):
            seen.append(alone.observed_after(action))
        return np.stack(seen), whole

    def close(self) -> None:
        self.pool.close()

    def _observed(self, after: np.ndarray) -> np.ndarray:
        end = 1 + self.model.nq + self.model.nv
        return self.robot.observe(Moved(after[:, 1 : 1 + self.model.nq], after[:, 1 + self.model.nq : end]))

    def _after(self, before: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The states that a step leads to from those `before`, and whether it is whole."""
        count, skip, size = len(before), self.robot.frame_skip, before.shape[1]
        after = np.zeros((count, skip, size))
        with _unreported():  # what diverged is told of below
            self.pool.rollout(
                [self.model] * count,
                self.data,
                before,
                np.repeat(actions.astype(np.float64)[:, None], skip, axis=1),
                skip_checks=True,  # they take as long as a step
                nstep=skip,
                initial_warmstart=np.zeros((count, self.model.nv)),
                state=after,
                sensordata=np.zeros((count, skip, self.model.nsensordata)),
            )
        # Where it diverges, the clock stops or begins again.
        whole = np.abs(after[:, -1, 0] - before[:, 0] - self.robot.dt) < 0.5 * self.robot.timestep
        return after[:, -1], whole


__all__ = ["MODELS", "Flock", "Simulator", "check_divergence", "load_model"]
