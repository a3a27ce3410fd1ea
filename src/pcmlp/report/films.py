"""Films of episodes (`pcmlp eval --video`): a line drawing of every observed state, encoded as mp4.

Matplotlib also draws robots: MuJoCo's own renderer needs an OpenGL driver, which many machines lack. The pose of a
robot is taken from the observation, and MuJoCo's kinematics give the places of its capsules and spheres. If the
position along the ground is not observed, it is computed as the sum of the velocities.
"""

import importlib.util
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from pcmlp.errors import ConfigError
from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco.robots import RobotTask

_ROBOTS = {name: made.robot for name, made in TASKS.items() if issubclass(made, RobotTask)}
_INCHES, _DPI = (4.8, 3.6), 100  # frames of 480 x 360 pixels: encoders need even sizes
_FPS = 30
_HOLD = 15  # number of frames that show the last state
_BLUE, _ORANGE, _GREEN, _GREY, _BLACK = "#0072B2", "#D55E00", "#009E73", "#bbbbbb", "#333333"
_HAND_CENTRE = np.array([1.0, 0.9, 0.16])
_HAND_VIEW = np.array([[0.5, -0.866, 0.0], [0.366, 0.211, 0.906]])  # right and up in the picture: from above the thumb


class Episode(NamedTuple):
    """An episode to film; there is one state more than actions and rewards."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


class Scene(NamedTuple):
    """A drawing of a task, given the states so far and the first coordinate of the next action."""

    draw: Callable[[Axes, np.ndarray, float], None]
    x: tuple[float, float]  # limits of the picture
    y: tuple[float, float]
    aspect: str = "equal"


def check_filmed(task: str) -> None:
    """Refuse a task without a scene, or a missing encoder, before anything is computed."""
    if task not in SCENES:
        raise ConfigError(f"video: there are no pictures of {task}; leave it out, or film one of {', '.join(SCENES)}")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("video: needs imageio-ffmpeg; pip install 'pcmlp[video]'")


def frames(task: str, episode: Episode) -> Iterator[np.ndarray]:
    """Yield a picture of each state, [height, width, 3] bytes."""
    scene, figure = SCENES[task], Figure(_INCHES, dpi=_DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.88))
    title = figure.text(0.02, 0.94, "", fontsize=10, color=_BLACK)
    returns = np.concatenate([[0.0], np.cumsum(episode.rewards)])
    actions = np.append(np.clip(episode.actions.reshape(len(episode.actions), -1)[:, 0], -2, 2), 0.0)
    for n, action in enumerate(actions):
        axes.clear()
        axes.set_axis_off()
        axes.set(xlim=scene.x, ylim=scene.y, aspect=scene.aspect)
        scene.draw(axes, episode.states[: n + 1], float(action))
        title.set_text(f"{task}   step {n}   return {returns[n]:.1f}")
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def write_video(path: Path, task: str, episode: Episode) -> Path:
    """Write the episode as an mp4."""
    from imageio_ffmpeg import get_ffmpeg_exe

    # imageio-ffmpeg's own writer is not used: it forks, which may deadlock a process with threads, such as JAX's.
    size = f"{round(_INCHES[0] * _DPI)}x{round(_INCHES[1] * _DPI)}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(_FPS), "-i", "-"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-loglevel", "error", "-y", str(path)]
    with subprocess.Popen([get_ffmpeg_exe(), *source, *target], stdin=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        frame = b""
        for picture in frames(task, episode):
            frame = picture.tobytes()
            encoder.stdin.write(frame)
        encoder.stdin.write(_HOLD * frame)
    if encoder.returncode:
        raise OSError(f"{path}: ffmpeg could not write it (exit code {encoder.returncode})")
    return path


def _draw_car(axes: Axes, states: np.ndarray, action: float) -> None:
    """Draw a car in a valley, the flag, and an arrow for its push."""
    ground, flag = np.linspace(-1.2, 0.6, 200), np.sin(1.35)
    axes.plot(ground, np.sin(3 * ground), color=_BLACK, linewidth=1.5)
    axes.plot([0.45, 0.45, 0.53, 0.45], flag + np.array([0.0, 0.3, 0.24, 0.18]), color=_GREEN)
    x = states[-1, 0]
    along = np.array([1.0, 3 * np.cos(3 * x)]) / np.hypot(1.0, 3 * np.cos(3 * x))
    centre = np.array([x, np.sin(3 * x)]) + 0.08 * np.array([-along[1], along[0]])
    look = {"arrowstyle": "-|>", "color": _ORANGE, "linewidth": 2}
    axes.annotate("", xy=tuple(centre + 0.3 * action * along), xytext=tuple(centre), arrowprops=look)
    axes.plot(*centre, "o", color=_BLUE, markersize=13)


def _draw_acrobot(axes: Axes, states: np.ndarray, action: float) -> None:
    """Draw two links that hang, and the line that their tip should reach."""
    axes.axhline(1.0, color=_GREEN, linestyle="--", linewidth=1)
    axes.plot(0, 0, "s", color=_BLACK, markersize=8)
    angles = np.cumsum(np.arctan2(states[-1, [1, 3]], states[-1, [0, 2]]))
    links = np.stack([np.sin(angles), -np.cos(angles)], axis=1)
    _draw_rods(axes, links)
    _draw_motor(axes, links[0], action)


def _draw_pendulum(axes: Axes, states: np.ndarray, action: float) -> None:
    cosine, sine = states[-1, :2]
    _draw_rods(axes, np.array([[-sine, cosine]]))
    _draw_motor(axes, np.zeros(2), action / 2)


def _draw_point(axes: Axes, states: np.ndarray, action: float) -> None:
    """Draw a point in a maze, its path and the goal."""
    axes.add_patch(Rectangle((0, 1), 2, 1, color=_GREY))
    axes.add_patch(Rectangle((0, 0), 3, 3, fill=False, color=_BLACK))
    axes.add_patch(Circle((0.5, 2.5), 0.4, color=_GREEN, alpha=0.4))
    axes.plot(*states.T, color=_BLUE, alpha=0.4, linewidth=1.5)
    axes.plot(*states[-1], "o", color=_BLUE, markersize=9)


def _draw_reacher(axes: Axes, states: np.ndarray, action: float) -> None:
    """Draw an arm and its goal, from above."""
    axes.plot(*states[-1, 4:6], "o", color=_GREEN, markersize=10)
    angles = np.cumsum(np.arctan2(states[-1, 2:4], states[-1, :2]))
    _draw_rods(axes, np.array([[0.1], [0.11]]) * np.stack([np.cos(angles), np.sin(angles)], axis=1), marker="o")


def _draw_rods(axes: Axes, links: np.ndarray, marker: str = "") -> None:
    """Draw links one after another from the origin on, [links, 2]."""
    joints = np.cumsum([np.zeros(2), *links], axis=0)
    axes.plot(*joints.T, color=_BLUE, linewidth=6, solid_capstyle="round", marker=marker)


def _draw_motor(axes: Axes, place: np.ndarray, torque: float) -> None:
    """Draw a joint, larger and coloured while it pushes."""
    size = 7 + 6 * min(1.0, abs(torque))
    axes.plot(*place, "o", color=_ORANGE if abs(torque) > 0.05 else _BLACK, markersize=size, zorder=3)


@cache
def _load_physics(task: str) -> tuple[Any, Any]:
    """Return the MjModel and MjData of a task."""
    from pcmlp.tasks.mujoco.hand_egg import egg_in_hand
    from pcmlp.tasks.mujoco.simulator import load_model, mujoco

    if task == "hand-egg":
        hand = egg_in_hand()
        return hand.model, hand.data
    model = load_model(_ROBOTS[task])
    return model, mujoco.MjData(model)


def find_pose(task: str, states: np.ndarray) -> np.ndarray:
    """Return the positions of a robot's joints in the last state."""
    robot, model = _ROBOTS[task], _load_physics(task)[0]
    rest = model.nq - robot.hidden
    moved = robot.dt * states[:-1, rest : rest + robot.hidden].sum(axis=0)
    return np.concatenate([moved, states[-1, :rest]])


def _draw_robot(axes: Axes, states: np.ndarray, action: float, *, task: str, top: bool) -> None:
    """Draw a robot from the side or, with `top`, from above.

    The camera follows the robot, and marks on the ground show the metres; among walls the camera stands still, and the
    path is shown.
    """
    walls, (model, data) = _ROBOTS[task].walls, _load_physics(task)
    centre = np.zeros(2)
    for wall in walls:
        axes.add_patch(Rectangle(wall.low, *np.subtract(wall.high, wall.low), color=_GREY))
    pose = find_pose(task, states)
    if walls:
        axes.plot(*states[:, :2].T, color=_BLUE, alpha=0.4, linewidth=1)
    else:
        centre[0], (left, right), (bottom, high) = pose[0], axes.get_xlim(), axes.get_ylim()
        mark = 0.05 * (high - bottom)
        low = bottom if top else -mark  # at the edge, or below the ground
        axes.vlines(np.arange(np.ceil(centre[0] + left), centre[0] + right) - centre[0], low, low + mark, _GREY, lw=2)
    if not top:
        axes.axhline(0.0, color=_GREY, linewidth=2)
    ends, widths = _find_limbs(model, data, pose, model.geom_bodyid > 0)
    _draw_limbs(axes, ends[..., [0, 1] if top else [0, 2]] - centre, widths, thinnest=1.0 if walls else 3.0)


def _draw_hand(axes: Axes, states: np.ndarray, action: float) -> None:
    """Draw a hand, the egg and its goal, without perspective."""
    from pcmlp.tasks.mujoco.simulator import mujoco

    model, data = _load_physics("hand-egg")
    pose = np.concatenate([states[-1, :24], states[-1, 61:75]])  # joints, egg, goal
    fingers = (model.geom_type == int(mujoco.mjtGeom.mjGEOM_CAPSULE)) & (model.geom_bodyid > 0)
    ends, widths = _find_limbs(model, data, pose, fingers)
    corners = ("wrist", "ffknuckle", "mfknuckle", "rfknuckle", "lfknuckle", "wrist")
    palm = np.stack([data.body(f"robot0:{name}").xpos for name in corners])
    axes.plot(*_project(palm).T, color=_GREY, linewidth=4)
    _draw_limbs(axes, _project(ends), widths)
    turn = np.linspace(0, 2 * np.pi, 40)
    for name, colour in (("target", _GREEN), ("object", _ORANGE)):  # the outline of an ellipsoid and its long axis
        halves = _HAND_VIEW @ (data.geom(name).xmat.reshape(3, 3) * model.geom(name).size)  # columns are half axes
        outline = np.linalg.cholesky(halves @ halves.T) @ [np.cos(turn), np.sin(turn)]
        for line in (outline, halves[:, 2:] * [1, -1]):
            axes.plot(*(_project(data.geom(name).xpos)[:, None] + line), color=colour, linewidth=2)


def _project(places: np.ndarray) -> np.ndarray:
    return (places - _HAND_CENTRE) @ _HAND_VIEW.T


def _find_limbs(model: Any, data: Any, pose: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of the axes of the chosen geoms in a pose, [geoms, 2, 3], and their widths."""
    from pcmlp.tasks.mujoco.simulator import mujoco

    data.qpos[:] = pose
    mujoco.mj_kinematics(model, data)
    radius, length = model.geom_size[chosen, :2].T
    length = np.maximum(length, 1e-3)  # metres; a sphere has length 0, and a line of length 0 is not drawn
    axis = data.geom_xmat[chosen].reshape(-1, 3, 3)[:, :, 2] * length[:, None]
    return np.stack([data.geom_xpos[chosen] - axis, data.geom_xpos[chosen] + axis], 1), 2 * radius


def _draw_limbs(axes: Axes, ends: np.ndarray, widths: np.ndarray, thinnest: float = 3.0) -> None:
    """Draw lines between ends, [lines, 2, 2], to scale but at least `thinnest` points wide."""
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height / _DPI * 72 / (high - low)  # points per metre
    for (x, y), width in zip(ends.transpose(0, 2, 1), widths, strict=True):
        axes.plot(x, y, color=_BLUE, linewidth=max(thinnest, width * points), solid_capstyle="round", alpha=0.8)


def _robot_scene(task: str, height: float, middle: float = 0.0, *, top: bool = False) -> Scene:
    """Return a scene with `height` metres in the picture, and `middle` halfway up."""
    across, wide = (middle, height / 2) if _ROBOTS[task].walls else (0.0, height * 2 / 3)
    limits = (across - wide, across + wide), (middle - height / 2, middle + height / 2)
    return Scene(partial(_draw_robot, task=task, top=top), *limits)


SCENES: dict[str, Scene] = {
    "mountain-car": Scene(_draw_car, (-1.3, 0.7), (-1.25, 1.5), "auto"),
    "acrobot": Scene(_draw_acrobot, (-2.3, 2.3), (-2.3, 2.3)),
    "pendulum": Scene(_draw_pendulum, (-1.4, 1.4), (-1.4, 1.4)),
    "point-umaze": Scene(_draw_point, (-0.1, 3.1), (-0.1, 3.1)),
    "half-cheetah": _robot_scene("half-cheetah", 2.0, 0.6),
    "hopper-et": _robot_scene("hopper-et", 2.4, 0.9),
    "walker2d-et": _robot_scene("walker2d-et", 2.4, 0.9),
    "reacher": Scene(_draw_reacher, (-0.3, 0.3), (-0.225, 0.225)),
    "ant": _robot_scene("ant", 2.4, 0.7),
    "humanoid-et": _robot_scene("humanoid-et", 2.6, 1.0),
    "slim-humanoid-et": _robot_scene("slim-humanoid-et", 2.6, 1.0),
    "swimmer": _robot_scene("swimmer", 4.0, top=True),
    "swimmer-v0": _robot_scene("swimmer-v0", 4.0, top=True),
    "ant-umaze": _robot_scene("ant-umaze", 26.0, 8.0, top=True),
    "hand-egg": Scene(_draw_hand, (-0.2, 0.2), (-0.15, 0.15)),
}
