"""MuJoCo's physics as a Gymnasium environment: a robot that is stepped and observed, and nothing more.

Reward and end are the task's, as functions of what is observed here; so this pays nothing and never ends.

A step is a function of positions, velocities and controls alone: contact forces are found by iteration, which begins at
zero at every step and not at the last forces. So a step does not depend on who takes it, or on what was done before.
"""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.mujoco.robot import Robot
from pcmlp.tasks.steppers import most_workers

mujoco = import_mujoco()  # its types are not known to type checkers
from mujoco.rollout import Rollout  # noqa: E402

MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

_STATE = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)
_DIVERGED = "the simulation diverged"
_BAD = [
    int(getattr(mujoco.mjtWarning, name))
    for name in ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC", "mjWARN_BADCTRL")
]


def load_model(robot: Robot) -> Any:
    """An MjModel."""
    model = mujoco.MjModel.from_xml_path(str(MODELS / robot.xml))
    model.opt.timestep = robot.timestep
    return model


class Simulator(gymnasium.Env):
    def __init__(self, robot: Robot):
        self.robot = robot
        self.model = load_model(robot)
        self.data = mujoco.MjData(self.model)
        low, high = self.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = Box(low, high)
        self.observation_space = Box(-np.inf, np.inf, self._observed().shape, np.float64)

    def __str__(self) -> str:
        return self.robot.xml

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        start = self.robot.start(self.np_random, self.model.qpos0, self.model.nv)
        self.data.qpos[:], self.data.qvel[:] = start
        return self._observed(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.data.ctrl[:] = action
        self.data.qacc_warmstart[:] = 0.0
        mujoco.mj_step(self.model, self.data, self.robot.frame_skip)
        # MuJoCo then begins again at rest, as if nothing had happened: no transition of the robot's.
        if any(self.data.warning[kind].number for kind in _BAD):
            raise RuntimeError(_DIVERGED)
        return self._observed(), 0.0, False, False, {}

    def moved(self, action: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """What a step returns that was taken elsewhere and led to this state of MuJoCo's."""
        self.data.ctrl[:] = action
        mujoco.mj_setState(self.model, self.data, state, _STATE)
        return self._observed(), 0.0, False, False, {}

    def together(self) -> "Flock":
        """What steps several of its kind at once."""
        return Flock(self.robot, self.model)

    def _observed(self) -> np.ndarray:
        if self.robot.derived:
            # A step leaves them as they were within it, and contact forces are only computed when asked for.
            self.data.qacc_warmstart[:] = 0.0
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_rnePostConstraint(self.model, self.data)
        return self.robot.observe(self.data)


class Flock:
    """Steps simulators of one robot on all cores, by threads of MuJoCo's own; each as it would step alone."""

    def __init__(self, robot: Robot, model: Any):
        alone = multiprocessing.parent_process() is not None  # a worker has its core, and others have theirs
        threads = 0 if alone else most_workers()
        self.robot, self.model = robot, model
        self.pool = Rollout(nthread=threads)
        self.data = [mujoco.MjData(model) for _ in range(max(1, threads))]
        self.size = mujoco.mj_stateSize(model, _STATE)

    def __call__(self, simulators: Sequence[Simulator], actions: Sequence[np.ndarray]) -> list[Any]:
        """What the step of each returns, or the exception that it raises."""
        count, skip = len(simulators), self.robot.frame_skip
        before, after = np.zeros((count, self.size)), np.zeros((count, skip, self.size))
        for simulator, state in zip(simulators, before, strict=True):
            mujoco.mj_getState(self.model, simulator.data, state, _STATE)
        self.pool.rollout(
            [self.model] * count,
            self.data,
            before,
            np.repeat(np.asarray(actions, np.float64)[:, None], skip, axis=1),
            skip_checks=True,  # they take as long as a step
            nstep=skip,
            initial_warmstart=np.zeros((count, self.model.nv)),
            state=after,
            sensordata=np.zeros((count, skip, self.model.nsensordata)),
        )
        # Where it diverges, the clock stops or begins again.
        whole = np.abs(after[:, -1, 0] - before[:, 0] - self.robot.dt) < 0.5 * self.robot.timestep
        return [
            simulator.moved(action, state) if good else RuntimeError(_DIVERGED)
            for simulator, action, state, good in zip(simulators, actions, after[:, -1], whole, strict=True)
        ]


__all__ = ["MODELS", "Flock", "Simulator", "load_model"]
