"""Line drawings of observed states, for films: a scene for each task that can be drawn.

Matplotlib also draws robots: MuJoCo's own renderer needs an OpenGL driver, which many machines lack. The pose of a
robot is taken from the observation, and MuJoCo's kinematics give the places of its capsules and spheres. If the
position along the ground is not observed, it is computed as the sum of the velocities.
"""

import abc
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle

from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco.robot import RobotTask

_BLUE, _ORANGE, _GREEN, _GREY, _BLACK = "#0072B2", "#D55E00", "#009E73", "#bbbbbb", "#333333"


class Scene(abc.ABC):
    """A drawing of the states of a task, between limits along x and y."""

    limits: tuple[tuple[float, float], tuple[float, float]]
    aspect = "equal"

    def draw_background(self, axes: Axes) -> None:  # noqa: B027
        """Draw what does not move, if there is anything."""

    @abc.abstractmethod
    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves, given the states so far and the first coordinate of the next action."""


class MountainCar(Scene):
    """A car in a valley, the flag, and an arrow for its push."""

    limits = ((-1.3, 0.7), (-1.25, 1.5))
    aspect = "auto"

    def draw_background(self, axes: Axes) -> None:
        """Draw what does not move."""
        x = np.linspace(-1.2, 0.6, 200)
        axes.plot(x, np.sin(3 * x), color=_BLACK, linewidth=1.5)
        axes.plot([0.45, 0.45], [np.sin(1.35), np.sin(1.35) + 0.3], color=_GREEN)
        axes.plot([0.45, 0.53, 0.45], np.sin(1.35) + np.array([0.3, 0.24, 0.18]), color=_GREEN)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        x = states[-1, 0]
        slope = 3 * np.cos(3 * x)
        along = np.array([1.0, slope]) / np.hypot(1.0, slope)
        centre = np.array([x, np.sin(3 * x)]) + 0.08 * np.array([-along[1], along[0]])
        look = {"arrowstyle": "-|>", "color": _ORANGE, "linewidth": 2}
        push = axes.annotate("", xy=tuple(centre + 0.3 * action * along), xytext=tuple(centre), arrowprops=look)
        return [*axes.plot(*centre, "o", color=_BLUE, markersize=13), push]


class Acrobot(Scene):
    """Two links that hang, and the line that their tip should reach."""

    limits = ((-2.3, 2.3), (-2.3, 2.3))

    def draw_background(self, axes: Axes) -> None:
        """Draw what does not move."""
        axes.axhline(1.0, color=_GREEN, linestyle="--", linewidth=1)
        axes.plot(0, 0, "s", color=_BLACK, markersize=8)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        first = np.arctan2(states[-1, 1], states[-1, 0])
        second = first + np.arctan2(states[-1, 3], states[-1, 2])
        elbow = np.array([np.sin(first), -np.cos(first)])
        tip = elbow + np.array([np.sin(second), -np.cos(second)])
        return [*_draw_rod(axes, np.stack([np.zeros(2), elbow, tip])), *_draw_motor(axes, elbow, action)]


class Pendulum(Scene):
    """A rod that turns around its end."""

    limits = ((-1.4, 1.4), (-1.4, 1.4))

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        cosine, sine = states[-1, :2]
        rod = np.array([[0.0, 0.0], [-sine, cosine]])
        return [*_draw_rod(axes, rod), *_draw_motor(axes, rod[0], action / 2)]


class PointUMaze(Scene):
    """A point in a maze, its path and the goal."""

    limits = ((-0.1, 3.1), (-0.1, 3.1))

    def draw_background(self, axes: Axes) -> None:
        """Draw what does not move."""
        axes.add_patch(Rectangle((0, 1), 2, 1, color=_GREY))
        axes.add_patch(Rectangle((0, 0), 3, 3, fill=False, color=_BLACK))
        axes.add_patch(Circle((0.5, 2.5), 0.4, color=_GREEN, alpha=0.4))

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        path = axes.plot(states[:, 0], states[:, 1], color=_BLUE, alpha=0.4, linewidth=1.5)
        return [*path, *axes.plot(*states[-1], "o", color=_BLUE, markersize=9)]


class Robot(Scene):
    """One of MuJoCo's robots, from the side or, with `top`, from above.

    `height` metres are in the picture, with `middle` halfway up. The camera follows the robot, and marks on the ground
    show the metres; among walls the camera stands still, and the path is shown.
    """

    def __init__(self, task: str, height: float, middle: float = 0.0, *, top: bool = False):
        made = TASKS[task]
        assert issubclass(made, RobotTask)
        self.robot = made.robot
        self.height, self.top = height, top
        across, wide = (middle, height / 2) if self.robot.walls else (0.0, height * 2 / 3)
        self.limits = ((across - wide, across + wide), (middle - height / 2, middle + height / 2))

    @cached_property
    def physics(self) -> tuple[Any, Any]:
        """The robot's MjModel and MjData."""
        from pcmlp.tasks.mujoco.simulator import load_model, mujoco

        model = load_model(self.robot)
        return model, mujoco.MjData(model)

    def draw_background(self, axes: Axes) -> None:
        """Draw what does not move."""
        for wall in self.robot.walls:
            axes.add_patch(Rectangle(wall.low, *np.subtract(wall.high, wall.low), color=_GREY))
        if not self.top:
            axes.axhline(0.0, color=_GREY, linewidth=2)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        from pcmlp.tasks.mujoco.simulator import mujoco

        model, data = self.physics
        data.qpos[:] = self.pose(states)
        mujoco.mj_kinematics(model, data)
        ends, widths = _find_limbs(model, data, model.geom_bodyid > 0)
        flat = ends[..., [0, 1] if self.top else [0, 2]]
        if self.robot.walls:
            path = axes.plot(*states[:, :2].T, color=_BLUE, alpha=0.4, linewidth=1)
            return [*path, *_draw_limbs(axes, flat, widths, thinnest=1.0)]
        centre = np.array([data.qpos[0], 0.0])
        return self._draw_metres(axes, float(centre[0])) + _draw_limbs(axes, flat - centre, widths)

    def pose(self, states: np.ndarray) -> np.ndarray:
        """Return the positions of the joints in the last state."""
        hidden, rest = self.robot.hidden, self.physics[0].nq - self.robot.hidden
        moved = self.robot.dt * states[:-1, rest : rest + hidden].sum(axis=0)
        return np.concatenate([moved, states[-1, :rest]])

    def _draw_metres(self, axes: Axes, centre: float) -> list[Artist]:
        (left, right), mark = self.limits[0], 0.05 * self.height
        metres = np.arange(np.ceil(centre + left), centre + right) - centre
        low = self.limits[1][0] if self.top else -mark  # at the edge, or below the ground
        return [axes.vlines(metres, low, low + mark, color=_GREY, linewidth=2)] if metres.size else []


class Reacher(Scene):
    """An arm and its goal, from above."""

    limits = ((-0.3, 0.3), (-0.225, 0.225))

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        cosines, sines, goal = states[-1, :2], states[-1, 2:4], states[-1, 4:6]
        angles = np.cumsum(np.arctan2(sines, cosines))
        links = np.array([[0.1], [0.11]]) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        arm = np.concatenate([np.zeros((1, 2)), np.cumsum(links, axis=0)])
        return [*axes.plot(*goal, "o", color=_GREEN, markersize=10), *_draw_rod(axes, arm, marker="o")]


class HandEgg(Scene):
    """A hand, the egg and its goal, without perspective, from above the thumb."""

    limits = ((-0.2, 0.2), (-0.15, 0.15))
    view = np.array([[0.5, -0.866, 0.0], [0.366, 0.211, 0.906]])  # right and up in the picture
    centre = np.array([1.0, 0.9, 0.16])

    @cached_property
    def physics(self) -> tuple[Any, Any]:
        """The hand's MjModel and MjData."""
        from pcmlp.tasks.mujoco.hand import EggInHand

        hand = EggInHand()
        return hand.model, hand.data

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """Draw what moves."""
        from pcmlp.tasks.mujoco.simulator import mujoco

        model, data = self.physics
        data.qpos[:] = np.concatenate([states[-1, :24], states[-1, 61:75]])  # joints, egg, goal
        mujoco.mj_kinematics(model, data)
        fingers = (model.geom_type == int(mujoco.mjtGeom.mjGEOM_CAPSULE)) & (model.geom_bodyid > 0)
        ends, widths = _find_limbs(model, data, fingers)
        corners = ("wrist", "ffknuckle", "mfknuckle", "rfknuckle", "lfknuckle", "wrist")
        palm = np.stack([data.body(f"robot0:{name}").xpos for name in corners])
        return [
            *axes.plot(*self._project(palm).T, color=_GREY, linewidth=4),
            *_draw_limbs(axes, self._project(ends), widths),
            *axes.plot(*self._outline(model, data, "target"), color=_GREEN, linewidth=2),
            *axes.plot(*self._outline(model, data, "object"), color=_ORANGE, linewidth=2),
        ]

    def _project(self, places: np.ndarray) -> np.ndarray:
        return (places - self.centre) @ self.view.T

    def _outline(self, model: Any, data: Any, name: str) -> np.ndarray:
        """Return the outline of an ellipsoid and its long axis, [2, points]."""
        axes = data.geom(name).xmat.reshape(3, 3) * model.geom(name).size  # columns are half axes
        turn = np.linspace(0, 2 * np.pi, 40)
        ellipse = np.linalg.cholesky(self.view @ axes @ axes.T @ self.view.T) @ [np.cos(turn), np.sin(turn)]
        long = self.view @ np.stack([axes[:, 2], -axes[:, 2]], axis=1)
        gap = np.full((2, 1), np.nan)
        return self._project(data.geom(name).xpos)[:, None] + np.concatenate([ellipse, gap, long], axis=1)


def _draw_rod(axes: Axes, points: np.ndarray, marker: str = "") -> list[Artist]:
    return [*axes.plot(*points.T, color=_BLUE, linewidth=6, solid_capstyle="round", marker=marker)]


def _draw_motor(axes: Axes, place: np.ndarray, torque: float) -> list[Artist]:
    """Draw a joint, larger and coloured while it pushes."""
    size = 7 + 6 * min(1.0, abs(torque))
    return [*axes.plot(*place, "o", color=_ORANGE if abs(torque) > 0.05 else _BLACK, markersize=size, zorder=3)]


def _find_limbs(model: Any, data: Any, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of the axes of the chosen geoms, [geoms, 2, 3], and their widths."""
    radius, length = model.geom_size[chosen, :2].T
    length = np.maximum(length, 1e-3)  # metres; a sphere has length 0, and a line of length 0 is not drawn
    axis = data.geom_xmat[chosen].reshape(-1, 3, 3)[:, :, 2] * length[:, None]
    return np.stack([data.geom_xpos[chosen] - axis, data.geom_xpos[chosen] + axis], 1), 2 * radius


def _draw_limbs(axes: Axes, ends: np.ndarray, widths: np.ndarray, thinnest: float = 3.0) -> list[Artist]:
    """Draw lines between ends, [lines, 2, 2], to scale but at least `thinnest` points wide."""
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height / axes.figure.dpi * 72 / (high - low)  # points per metre
    drawn: list[Artist] = []
    for (x, y), width in zip(ends.transpose(0, 2, 1), widths, strict=True):
        width = max(thinnest, width * points)
        drawn += axes.plot(x, y, color=_BLUE, linewidth=width, solid_capstyle="round", alpha=0.8)
    return drawn


SCENES: dict[str, Scene] = {
    "mountain-car": MountainCar(),
    "acrobot": Acrobot(),
    "pendulum": Pendulum(),
    "point-umaze": PointUMaze(),
    "half-cheetah": Robot("half-cheetah", 2.0, 0.6),
    "hopper-et": Robot("hopper-et", 2.4, 0.9),
    "walker2d-et": Robot("walker2d-et", 2.4, 0.9),
    "reacher": Reacher(),
    "ant": Robot("ant", 2.4, 0.7),
    "humanoid-et": Robot("humanoid-et", 2.6, 1.0),
    "slim-humanoid-et": Robot("slim-humanoid-et", 2.6, 1.0),
    "swimmer": Robot("swimmer", 4.0, top=True),
    "swimmer-v0": Robot("swimmer-v0", 4.0, top=True),
    "ant-umaze": Robot("ant-umaze", 26.0, 8.0, top=True),
    "hand-egg": HandEgg(),
}
