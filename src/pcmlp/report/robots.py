"""MuJoCo's robots as line drawings, from what the agent observes: nothing here needs a graphics card or its drivers.

A robot is posed by its observed positions, and the place along the ground that is not among them is the sum of its
velocities. MuJoCo's kinematics then tell where its capsules and spheres are, which are drawn from the side or from
above, as thick as they are.
"""

from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from pcmlp.tasks.mujoco import ROBOTS

_BLUE, _GREEN, _GREY = "#0072B2", "#009E73", "#bbbbbb"
_INK = 3.0  # points of the thinnest line
_DOT = 1e-3  # metres: a line without any length is not drawn


class Drawing:
    """A robot, followed by the camera: seen from the side, or from above with `top`."""

    def __init__(self, task: str, height: float, *, middle: float = 0.0, top: bool = False):
        """`height` metres are in the picture, with `middle` halfway up."""
        self.robot = ROBOTS[task]
        self.height, self.middle = height, middle
        self.across = [0, 1] if top else [0, 2]  # of the coordinates of a place

    @cached_property
    def physics(self) -> tuple[Any, Any]:
        from pcmlp.tasks.mujoco.simulator import load_model, mujoco

        model = load_model(self.robot)
        return model, mujoco.MjData(model)

    def setting(self, axes: Axes) -> None:
        half = np.array([4 / 3, 1.0]) * self.height / 2
        axes.set(xlim=(-half[0], half[0]), ylim=(self.middle - half[1], self.middle + half[1]), aspect="equal")
        if self.across == [0, 2]:
            axes.axhline(0.0, color=_GREY, linewidth=2)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        ends, widths = self.limbs(states)
        centre = float(self.pose(states)[0])
        points = axes.get_window_extent().height / axes.figure.dpi * 72 / self.height  # of a metre
        drawn = self._marks(axes, centre)
        for end, width in zip(ends, widths, strict=True):
            x, y = end[:, self.across].T
            line = {"color": _BLUE, "linewidth": max(_INK, width * points), "solid_capstyle": "round"}
            drawn += axes.plot(x - centre, y, alpha=0.8, **line)
        return drawn

    def pose(self, states: np.ndarray) -> np.ndarray:
        """The positions of the joints at the last of the states."""
        hidden, rest = self.robot.hidden, self.physics[0].nq - self.robot.hidden
        walked = self.robot.dt * states[:-1, rest : rest + hidden].sum(axis=0)
        return np.concatenate([walked, states[-1, :rest]])

    def limbs(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of each limb's axis, [limbs, 2, 3], and how thick it is."""
        from pcmlp.tasks.mujoco.simulator import mujoco

        model, data = self.physics
        data.qpos[:] = self.pose(states)
        mujoco.mj_kinematics(model, data)
        moving = model.geom_bodyid > 0
        radius, length = model.geom_size[moving, :2].T
        length = np.maximum(length, _DOT)  # a sphere has none
        axis = data.geom_xmat[moving].reshape(-1, 3, 3)[:, :, 2] * length[:, None]
        return np.stack([data.geom_xpos[moving] - axis, data.geom_xpos[moving] + axis], 1), 2 * radius

    def _marks(self, axes: Axes, centre: float) -> list[Artist]:
        """One for each metre, so that a walk is seen to move."""
        half = 2 / 3 * self.height
        metres = np.arange(np.ceil(centre - half), centre + half) - centre
        mark = 0.05 * self.height
        low = -mark if self.across == [0, 2] else self.middle - self.height / 2  # below the ground, or at the edge
        return [axes.vlines(metres, low, low + mark, color=_GREY, linewidth=2)] if metres.size else []


class Reacher:
    """An arm and its goal, from above."""

    def setting(self, axes: Axes) -> None:
        axes.set(xlim=(-0.3, 0.3), ylim=(-0.225, 0.225), aspect="equal")

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        cosines, sines, goal = states[-1, :2], states[-1, 2:4], states[-1, 4:6]
        first, second = np.cumsum(np.arctan2(sines, cosines))
        elbow = 0.1 * np.array([np.cos(first), np.sin(first)])
        tip = elbow + 0.11 * np.array([np.cos(second), np.sin(second)])
        arm = np.stack([np.zeros(2), elbow, tip])
        return [
            *axes.plot(*goal, "o", color=_GREEN, markersize=10),
            *axes.plot(*arm.T, "-o", color=_BLUE, linewidth=6, solid_capstyle="round"),
        ]


ROBOT_SCENES = {
    "half-cheetah": Drawing("half-cheetah", 2.0, middle=0.6),
    "hopper-et": Drawing("hopper-et", 2.4, middle=0.9),
    "walker2d-et": Drawing("walker2d-et", 2.4, middle=0.9),
    "reacher": Reacher(),
    "ant": Drawing("ant", 2.4, middle=0.7),
    "humanoid-et": Drawing("humanoid-et", 2.6, middle=1.0),
    "slim-humanoid-et": Drawing("slim-humanoid-et", 2.6, middle=1.0),
    "swimmer": Drawing("swimmer", 4.0, top=True),
    "swimmer-v0": Drawing("swimmer-v0", 4.0, top=True),
}

__all__ = ["ROBOT_SCENES"]
