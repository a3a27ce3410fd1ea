"""The tasks by name: each is a record of options whose `build` gives the task."""

from pcmlp.tasks.classic import Acrobot, CartPole, MountainCar, Pendulum
from pcmlp.tasks.finite import CombinationLock, LowRank
from pcmlp.tasks.knr import DoubleWell, LinearSystem
from pcmlp.tasks.mujoco import MUJOCO_TASKS
from pcmlp.tasks.point_umaze import PointUMaze

TASKS = {
    "combination-lock": CombinationLock,
    "low-rank": LowRank,
    "knr-lds": LinearSystem,
    "knr-poly": DoubleWell,
    "mountain-car": MountainCar,
    "acrobot": Acrobot,
    "pendulum": Pendulum,
    "cart-pole": CartPole,
    "point-umaze": PointUMaze,
    **MUJOCO_TASKS,
}

__all__ = [
    "TASKS",
    "Acrobot",
    "CartPole",
    "CombinationLock",
    "DoubleWell",
    "LinearSystem",
    "LowRank",
    "MountainCar",
    "Pendulum",
    "PointUMaze",
]
