"""Robots in MuJoCo: nine of the ten dense tasks of section 7.2, which pay at every step (pendulum is in `classic`), the
hand of section 7.1 and the maze of section 7.3."""

from pcmlp.tasks.mujoco.ant_umaze import ANT_UMAZE, AntUMaze
from pcmlp.tasks.mujoco.hand_egg import HandEgg
from pcmlp.tasks.mujoco.humanoids import HUMANOID, SLIM_HUMANOID, Humanoid, SlimHumanoid
from pcmlp.tasks.mujoco.reacher import REACHER, Reacher
from pcmlp.tasks.mujoco.robot import Robot
from pcmlp.tasks.mujoco.runners import ANT, HALF_CHEETAH, HOPPER, WALKER2D, Ant, HalfCheetah, Hopper, Walker2d
from pcmlp.tasks.mujoco.swimmers import SWIMMER, SWIMMER_V0, Swimmer, SwimmerV0

DENSE_TASKS = {
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
MUJOCO_TASKS = {**DENSE_TASKS, "ant-umaze": AntUMaze, "hand-egg": HandEgg}
ROBOTS: dict[str, Robot] = {  # those that our own simulator steps
    "half-cheetah": HALF_CHEETAH,
    "hopper-et": HOPPER,
    "walker2d-et": WALKER2D,
    "reacher": REACHER,
    "ant": ANT,
    "humanoid-et": HUMANOID,
    "slim-humanoid-et": SLIM_HUMANOID,
    "swimmer": SWIMMER,
    "swimmer-v0": SWIMMER_V0,
    "ant-umaze": ANT_UMAZE,
}

__all__ = ["DENSE_TASKS", "MUJOCO_TASKS", "ROBOTS"]
