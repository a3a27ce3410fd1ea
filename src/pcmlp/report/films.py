"""Films of episodes (`pcmlp eval --video`): a drawing of every observed state, encoded as mp4."""

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pcmlp.errors import ConfigError
from pcmlp.report.scenes import SCENES

_INCHES, _DPI = (4.8, 3.6), 100  # frames of 480 x 360 pixels: encoders need even sizes
_FPS = 30
_HOLD = 15  # number of frames that show the last state


class Episode(NamedTuple):
    """An episode to film; there is one state more than actions and rewards."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def check_filmed(task: str) -> None:
    """Refuse a task without a scene, or a missing encoder, before anything is computed."""
    if task not in SCENES:
        raise ConfigError(f"--video: there are no pictures of {task}; leave it out, or film one of {', '.join(SCENES)}")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("--video: needs imageio-ffmpeg; pip install 'pcmlp[video]'")


def frames(task: str, episode: Episode) -> Iterator[np.ndarray]:
    """Yield a picture of each state, [height, width, 3] bytes."""
    figure = Figure(_INCHES, dpi=_DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.88))
    axes.set_axis_off()
    scene = SCENES[task]
    axes.set(xlim=scene.limits[0], ylim=scene.limits[1], aspect=scene.aspect)
    scene.draw_background(axes)
    title = figure.text(0.02, 0.94, "", fontsize=10, color="#333333")
    returns = np.concatenate([[0.0], np.cumsum(episode.rewards)])
    for n in range(len(episode.states)):
        last = n + 1 == len(episode.states)
        action = 0.0 if last else float(np.clip(episode.actions[n].flat[0], -2, 2))
        moving = scene.draw(axes, episode.states[: n + 1], action)
        title.set_text(f"{task}   step {n}   return {returns[n]:.1f}")
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
        for artist in moving:
            artist.remove()


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
