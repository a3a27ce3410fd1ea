"""Robots in MuJoCo: nine of the ten dense tasks of section 7.2, the hand of section 7.1 and the maze of section 7.3."""

from pcmlp.tasks.mujoco.ant_umaze import AntUMaze
from pcmlp.tasks.mujoco.hand_egg import HandEgg
from pcmlp.tasks.mujoco.robots import (
    Ant,
    HalfCheetah,
    Hopper,
    Humanoid,
    Reacher,
    SlimHumanoid,
    Swimmer,
    SwimmerV0,
    Walker2d,
)

__all__ = [
    "Ant",
    "AntUMaze",
    "HalfCheetah",
    "HandEgg",
    "Hopper",
    "Humanoid",
    "Reacher",
    "SlimHumanoid",
    "Swimmer",
    "SwimmerV0",
    "Walker2d",
]
