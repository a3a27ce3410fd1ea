"""Robots in MuJoCo, paid at every step: nine of the ten dense tasks of section 7.2; pendulum is in `classic`."""

from pcmlp.tasks.mujoco.humanoids import HUMANOID, SLIM_HUMANOID, Humanoid, SlimHumanoid
from pcmlp.tasks.mujoco.reacher import REACHER, Reacher
from pcmlp.tasks.mujoco.robot import Robot
from pcmlp.tasks.mujoco.runners import ANT, HALF_CHEETAH, HOPPER, WALKER2D, Ant, HalfCheetah, Hopper, Walker2d
from pcmlp.tasks.mujoco.swimmers import SWIMMER, SWIMMER_V0, Swimmer, SwimmerV0

MUJOCO_TASKS = {
    "half-cheetah": HalfCheetah,
    "hopper-et": Hopper,
    "walker2d-et": Walker2d,
    "reacher": Reacher,
    "ant": Ant,
    "humanoid-et": Humanoid,
    "slim-humanoid-et": SlimHumanoid,
    "swimmer": Swimmer,
    "swimmer-v0": SwimmerV0,
}
ROBOTS: dict[str, Robot] = {
    "half-cheetah": HALF_CHEETAH,
    "hopper-et": HOPPER,
    "walker2d-et": WALKER2D,
    "reacher": REACHER,
    "ant": ANT,
    "humanoid-et": HUMANOID,
    "slim-humanoid-et": SLIM_HUMANOID,
    "swimmer": SWIMMER,
    "swimmer-v0": SWIMMER_V0,
}

__all__ = ["MUJOCO_TASKS", "ROBOTS"]
