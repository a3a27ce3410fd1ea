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
from matplotlib.patches import Rectangle

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
        centre = np.array([self.pose(states)[0], 0.0])
        return self._marks(axes, float(centre[0])) + _lines(axes, ends[..., self.across] - centre, widths)

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
        return _capsules(model, data, model.geom_bodyid > 0)

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


class Maze:
    """A robot among walls, from above, with the way it has come."""

    def __init__(self, task: str, low: float, high: float):
        """The ground between `low` and `high` along both axes is in the picture."""
        self.robot = Drawing(task, high - low, top=True)
        self.low, self.high = low, high

    def setting(self, axes: Axes) -> None:
        for wall in self.robot.robot.walls:
            axes.add_patch(Rectangle(wall.low, *np.subtract(wall.high, wall.low), color=_GREY))
        axes.set(xlim=(self.low, self.high), ylim=(self.low, self.high), aspect="equal")

    def pose(self, states: np.ndarray) -> np.ndarray:
        return self.robot.pose(states)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        ends, widths = self.robot.limbs(states)
        x, y = states[:, :2].T
        return [*axes.plot(x, y, color=_BLUE, alpha=0.4, linewidth=1), *_lines(axes, ends[..., :2], widths, least=1.0)]


class HandEgg:
    """A hand, the egg and its goal, without perspective, from above the thumb."""

    # right and up in the picture, in the coordinates of the simulator
    view = np.array([[0.5, -0.866, 0.0], [0.366, 0.211, 0.906]])
    centre = np.array([1.0, 0.9, 0.16])

    @cached_property
    def physics(self) -> tuple[Any, Any]:
        from pcmlp.tasks.mujoco.hand import EggInHand

        hand = EggInHand()
        return hand.model, hand.data

    def setting(self, axes: Axes) -> None:
        axes.set(xlim=(-0.2, 0.2), ylim=(-0.15, 0.15), aspect="equal")

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        from pcmlp.tasks.mujoco.simulator import mujoco

        model, data = self.physics
        data.qpos[:] = np.concatenate([states[-1, :24], states[-1, 61:75]])  # joints, egg, goal
        mujoco.mj_kinematics(model, data)
        fingers = (model.geom_type == int(mujoco.mjtGeom.mjGEOM_CAPSULE)) & (model.geom_bodyid > 0)
        ends, widths = _capsules(model, data, fingers)
        names = [f"robot0:{name}" for name in ("wrist", "ffknuckle", "mfknuckle", "rfknuckle", "lfknuckle", "wrist")]
        palm = np.stack([data.body(name).xpos for name in names])
        return [
            *axes.plot(*self._seen(palm).T, color=_GREY, linewidth=4),
            *_lines(axes, self._seen(ends), widths),
            *axes.plot(*self._outline(model, data, "target"), color=_GREEN, linewidth=2),
            *axes.plot(*self._outline(model, data, "object"), color="#D55E00", linewidth=2),
        ]

    def _seen(self, places: np.ndarray) -> np.ndarray:
        return (places - self.centre) @ self.view.T

    def _outline(self, model: Any, data: Any, name: str) -> np.ndarray:
        """The ellipse that an ellipsoid is seen as, and its long axis: [2, points]."""
        axes = data.geom(name).xmat.reshape(3, 3) * model.geom(name).size  # half of them, as columns
        round_it = np.linspace(0, 2 * np.pi, 40)
        ellipse = np.linalg.cholesky(self.view @ axes @ axes.T @ self.view.T) @ [np.cos(round_it), np.sin(round_it)]
        long = self.view @ np.stack([axes[:, 2], -axes[:, 2]], axis=1)
        gap = np.full((2, 1), np.nan)
        return self._seen(data.geom(name).xpos)[:, None] + np.concatenate([ellipse, gap, long], axis=1)


def _capsules(model: Any, data: Any, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the axes of the chosen geoms, [geoms, 2, 3], and how thick they are."""
    radius, length = model.geom_size[chosen, :2].T
    length = np.maximum(length, _DOT)  # a sphere has none
    axis = data.geom_xmat[chosen].reshape(-1, 3, 3)[:, :, 2] * length[:, None]
    return np.stack([data.geom_xpos[chosen] - axis, data.geom_xpos[chosen] + axis], 1), 2 * radius


def _lines(axes: Axes, ends: np.ndarray, widths: np.ndarray, least: float = _INK) -> list[Artist]:
    """Between ends, [lines, 2, 2], as thick as they are, but at least so many points."""
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height / axes.figure.dpi * 72 / (high - low)  # of a metre
    drawn: list[Artist] = []
    for (x, y), width in zip(ends.transpose(0, 2, 1), widths, strict=True):
        line = {"color": _BLUE, "linewidth": max(least, width * points), "solid_capstyle": "round"}
        drawn += axes.plot(x, y, alpha=0.8, **line)
    return drawn


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
    "ant-umaze": Maze("ant-umaze", -5.0, 21.0),
    "hand-egg": HandEgg(),
}

__all__ = ["ROBOT_SCENES"]
