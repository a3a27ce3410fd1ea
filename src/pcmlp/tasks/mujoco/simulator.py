"""MuJoCo's physics as a Gymnasium environment: a robot that is stepped and observed, and nothing more.

Reward and end are the task's, as functions of what is observed here; so this pays nothing and never ends.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from pcmlp.tasks.checks import import_mujoco
from pcmlp.tasks.mujoco.robot import Robot, Wall

mujoco = import_mujoco()  # its types are not known to type checkers

MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

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


def check_divergence(data: Any) -> None:
    """MuJoCo then begins again at rest, as if nothing had happened: no transition of the robot's."""
    if any(data.warning[kind].number for kind in _BAD):
        raise RuntimeError("the simulation diverged")


class Simulator(gymnasium.Env):
    def __init__(self, robot: Robot):
        self.robot = robot
        self.model = load_model(robot)
        self.data = mujoco.MjData(self.model)
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
        return self._observed(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, self.robot.frame_skip)
        check_divergence(self.data)
        return self._observed(), 0.0, False, False, {}

    def _observed(self) -> np.ndarray:
        if self.robot.derived:
            # A step leaves them as they were within it, and contact forces are only computed when asked for.
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_rnePostConstraint(self.model, self.data)
        return self.robot.observe(self.data)


__all__ = ["MODELS", "Simulator", "check_divergence", "load_model"]
