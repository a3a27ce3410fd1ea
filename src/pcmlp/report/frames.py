"""Episodes as moving pictures: a scene for each task whose states can be drawn, and the film of them.

A scene draws one state into the axes that it is given; what does not move is drawn once. The states are those that the
agent observes, so any policy's episode can be shown, real or imagined.
"""

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from pcmlp.report.robots import ROBOT_SCENES
from pcmlp.types import ConfigError

_BLUE, _ORANGE, _GREEN, _GREY, _BLACK = "#0072B2", "#D55E00", "#009E73", "#bbbbbb", "#333333"
_INCHES, _DPI = (4.8, 3.6), 100  # frames of 480 x 360: encoders want even sizes
_FPS = 30
_HOLD = 15  # frames that the last state stays


class Episode(NamedTuple):
    """What happened; there is one state more than actions."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


class Scene(Protocol):
    def setting(self, axes: Axes) -> None: ...

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        """What moves, given the states so far and the first coordinate of the action that comes next."""
        ...


class MountainCar:
    def setting(self, axes: Axes) -> None:
        x = np.linspace(-1.2, 0.6, 200)
        axes.plot(x, np.sin(3 * x), color=_BLACK, linewidth=1.5)
        axes.plot([0.45, 0.45], [np.sin(1.35), np.sin(1.35) + 0.3], color=_GREEN)
        axes.plot([0.45, 0.53, 0.45], np.sin(1.35) + np.array([0.3, 0.24, 0.18]), color=_GREEN)
        axes.set(xlim=(-1.3, 0.7), ylim=(-1.25, 1.5))

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        x = states[-1, 0]
        slope = 3 * np.cos(3 * x)
        along = np.array([1.0, slope]) / np.hypot(1.0, slope)
        centre = np.array([x, np.sin(3 * x)]) + 0.08 * np.array([-along[1], along[0]])
        car = axes.plot(*centre, "o", color=_BLUE, markersize=13)
        return [*car, *_arrow(axes, centre, centre + 0.3 * action * along)]


class Acrobot:
    def setting(self, axes: Axes) -> None:
        axes.axhline(1.0, color=_GREEN, linestyle="--", linewidth=1)
        axes.plot(0, 0, "s", color=_BLACK, markersize=8)
        _square(axes, 2.3)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        first = np.arctan2(states[-1, 1], states[-1, 0])
        second = first + np.arctan2(states[-1, 3], states[-1, 2])
        elbow = np.array([np.sin(first), -np.cos(first)])
        tip = elbow + np.array([np.sin(second), -np.cos(second)])
        return [*_rod(axes, np.zeros(2), elbow), *_rod(axes, elbow, tip), *_motor(axes, elbow, action)]


class Pendulum:
    def setting(self, axes: Axes) -> None:
        _square(axes, 1.4)

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        cosine, sine = states[-1, :2]
        return [*_rod(axes, np.zeros(2), np.array([-sine, cosine])), *_motor(axes, np.zeros(2), action / 2)]


class PointUMaze:
    def setting(self, axes: Axes) -> None:
        axes.add_patch(Rectangle((0, 1), 2, 1, color=_GREY))
        axes.add_patch(Rectangle((0, 0), 3, 3, fill=False, color=_BLACK))
        axes.add_patch(Circle((0.5, 2.5), 0.4, color=_GREEN, alpha=0.4))
        axes.set(xlim=(-0.1, 3.1), ylim=(-0.1, 3.1), aspect="equal")

    def draw(self, axes: Axes, states: np.ndarray, action: float) -> list[Artist]:
        way = axes.plot(states[:, 0], states[:, 1], color=_BLUE, alpha=0.4, linewidth=1.5)
        return [*way, *axes.plot(*states[-1], "o", color=_BLUE, markersize=9)]


SCENES: dict[str, Scene] = {
    "mountain-car": MountainCar(),
    "acrobot": Acrobot(),
    "pendulum": Pendulum(),
    "point-umaze": PointUMaze(),
    **ROBOT_SCENES,
}


def check_filmed(task: str) -> None:
    """That a film of the task can be made, before anything is computed for it."""
    if task not in SCENES:
        raise ConfigError(f"--video: no pictures of {task}; leave it out, it is for {', '.join(SCENES)}")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("--video: needs imageio-ffmpeg; pip install 'pcmlp[video]'")


def frames(task: str, episode: Episode) -> Iterator[np.ndarray]:
    """A picture of each state, [height, width, 3] bytes."""
    picture = Figure(_INCHES, dpi=_DPI)
    canvas = FigureCanvasAgg(picture)
    axes = picture.add_axes((0.02, 0.02, 0.96, 0.88))
    axes.set_axis_off()
    scene = SCENES[task]
    scene.setting(axes)
    title = picture.text(0.02, 0.94, "", fontsize=10, color=_BLACK)
    count = len(episode.states)
    paid = np.concatenate([[0.0], np.cumsum(episode.rewards)])
    for n in range(count):
        action = float(np.clip(episode.actions[n].flat[0], -2, 2)) if n + 1 < count else 0.0
        moving = scene.draw(axes, episode.states[: n + 1], action)
        title.set_text(f"{task}   step {n}   return {paid[n]:.1f}")
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
        for artist in moving:
            artist.remove()


def write_video(path: Path, task: str, episode: Episode) -> Path:
    """The episode as an mp4."""
    from imageio_ffmpeg import get_ffmpeg_exe

    # its own writer forks, which may deadlock in a process with threads, and JAX has some
    size = f"{round(_INCHES[0] * _DPI)}x{round(_INCHES[1] * _DPI)}"
    pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(_FPS), "-i", "-"]
    film = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-loglevel", "error", "-y", str(path)]
    with subprocess.Popen([get_ffmpeg_exe(), *pictures, *film], stdin=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        picture = np.zeros(0, np.uint8)
        for picture in frames(task, episode):
            encoder.stdin.write(picture.tobytes())
        encoder.stdin.write(_HOLD * picture.tobytes())
    if encoder.returncode:
        raise OSError(f"{path}: ffmpeg could not write it (exit code {encoder.returncode})")
    return path


def _square(axes: Axes, half: float) -> None:
    axes.set(xlim=(-half, half), ylim=(-half, half), aspect="equal")


def _rod(axes: Axes, start: np.ndarray, end: np.ndarray) -> list[Artist]:
    x, y = np.stack([start, end]).T
    return [*axes.plot(x, y, color=_BLUE, linewidth=6, solid_capstyle="round")]


def _motor(axes: Axes, place: np.ndarray, torque: float) -> list[Artist]:
    """A joint, larger and coloured while it pushes."""
    size = 7 + 6 * min(1.0, abs(torque))
    return [*axes.plot(*place, "o", color=_ORANGE if abs(torque) > 0.05 else _BLACK, markersize=size, zorder=3)]


def _arrow(axes: Axes, start: np.ndarray, end: np.ndarray) -> list[Artist]:
    look = {"arrowstyle": "-|>", "color": _ORANGE, "linewidth": 2}
    return [axes.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=look)]
