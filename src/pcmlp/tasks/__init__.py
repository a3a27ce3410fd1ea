"""The tasks by name."""

from pcmlp.tasks.classic import Acrobot, CartPole, MountainCar, Pendulum
from pcmlp.tasks.dock import Dock
from pcmlp.tasks.finite import CombinationLock, CoreMDP, LowRank
from pcmlp.tasks.knr import DoubleWell, KernelPendulum, LinearSystem, RegulatedPendulum
from pcmlp.tasks.mujoco import robots
from pcmlp.tasks.mujoco.ant_umaze import AntUMaze
from pcmlp.tasks.mujoco.hand_egg import HandEgg
from pcmlp.tasks.point_umaze import DeceptiveUMaze, PointUMaze
from pcmlp.types import Task

TASKS: dict[str, type[Task]] = {
    "combination-lock": CombinationLock,
    "low-rank": LowRank,
    "linear-core": CoreMDP,
    "knr-lds": LinearSystem,
    "knr-poly": DoubleWell,
    "knr-pendulum": RegulatedPendulum,
    "knr-rbf": KernelPendulum,
    "mountain-car": MountainCar,
    "acrobot": Acrobot,
    "pendulum": Pendulum,
    "cart-pole": CartPole,
    "point-umaze": PointUMaze,
    "deceptive-umaze": DeceptiveUMaze,
    "dock": Dock,
    "half-cheetah": robots.HalfCheetah,
    "hopper-et": robots.Hopper,
    "walker2d-et": robots.Walker2d,
    "reacher": robots.Reacher,
    "ant": robots.Ant,
    "humanoid-et": robots.Humanoid,
    "slim-humanoid-et": robots.SlimHumanoid,
    "swimmer": robots.Swimmer,
    "swimmer-v0": robots.SwimmerV0,
    "ant-umaze": AntUMaze,
    "hand-egg": HandEgg,
}
