"""The tasks by name."""

from pcmlp.tasks.cart_pole import CartPole
from pcmlp.tasks.classic import Acrobot, MountainCar, Pendulum
from pcmlp.tasks.finite import CombinationLock, LowRank
from pcmlp.tasks.knr import DoubleWell, LinearSystem
from pcmlp.tasks.mujoco import (
    Ant,
    AntUMaze,
    HalfCheetah,
    HandEgg,
    Hopper,
    Humanoid,
    Reacher,
    SlimHumanoid,
    Swimmer,
    SwimmerV0,
    Walker2d,
)
from pcmlp.tasks.point_umaze import PointUMaze
from pcmlp.types import Task

TASKS: dict[str, type[Task]] = {
    "combination-lock": CombinationLock,
    "low-rank": LowRank,
    "knr-lds": LinearSystem,
    "knr-poly": DoubleWell,
    "mountain-car": MountainCar,
    "acrobot": Acrobot,
    "pendulum": Pendulum,
    "cart-pole": CartPole,
    "point-umaze": PointUMaze,
    "half-cheetah": HalfCheetah,
    "hopper-et": Hopper,
    "walker2d-et": Walker2d,
    "reacher": Reacher,
    "ant": Ant,
    "humanoid-et": Humanoid,
    "slim-humanoid-et": SlimHumanoid,
    "swimmer": Swimmer,
    "swimmer-v0": SwimmerV0,
    "ant-umaze": AntUMaze,
    "hand-egg": HandEgg,
}
