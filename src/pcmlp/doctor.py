"""`pcmlp doctor`: whether this machine can run pcmlp, what of it is missing, and how to get that.

Every check is one line. What a run cannot do without fails the command (exit code 1); what only some commands need is
named with its remedy.
"""

import importlib.metadata
import importlib.util
import io
import math
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

_ROOM = 200_000_000  # bytes of a small run's folder, checkpoints included
_TINY = (
    "samples_per_policy=20",
    "task.horizon=20",
    "eval_episodes=2",
    "replay_size=50",
    "model.sizes=16",
    "model.steps=2",
    "features.sizes=16",
    "planner.updates=1",
    "planner.streams=8",
    "planner.length=10",
    "planner.value_batch=20",
)


class Finding(NamedTuple):
    good: bool
    needed: bool
    line: str


def good(line: str) -> Finding:
    return Finding(True, True, line)


def bad(line: str, *, needed: bool = True) -> Finding:
    return Finding(False, needed, line)


def main() -> int:
    checks = {
        "versions": versions,
        "devices": devices,
        "compile cache": cache,
        "this folder": folder,
        "pictures": pictures,
        "video": video,
        "TensorBoard": lambda: optional("tensorboardX", "tensorboard", "train --tensorboard"),
        "Minari": lambda: optional("minari", "minari", "export --minari"),
        "Gymnasium": lambda: optional("gymnasium", "gymnasium", "environments of your own"),
        "MuJoCo": lambda: optional("mujoco", "mujoco", "tasks with robots"),
        "Robotics": lambda: optional("gymnasium_robotics", "robotics", "hand-egg"),
        "self-test": self_test,
    }
    table = Table("check", "", "what was found", title="pcmlp doctor")
    findings = []
    for name, check in checks.items():
        finding = found(check)
        findings.append(finding)
        table.add_row(name, "ok" if finding.good else "FAILED" if finding.needed else "missing", Text(finding.line))
    Console().print(table)
    return int(any(finding.needed and not finding.good for finding in findings))


def found(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # whatever is wrong with a machine, the other checks go on
        said = str(error).strip().splitlines()
        return bad(f"{type(error).__name__}: {said[0] if said else 'says no more'}")


def versions() -> Finding:
    names = ("pcmlp", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")
    each = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return good(f"Python {platform.python_version()}, {each}")


def devices() -> Finding:
    import jax
    import jax.numpy as jnp

    for device in jax.devices():
        ones = jax.device_put(jnp.ones((64, 64)), device)
        if float(jnp.sum(ones @ ones)) != 64.0**3:
            return bad(f"{device}: a product of matrices is wrong")
    kinds = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in jax.devices()}))
    hint = "; a GPU: pip install 'pcmlp[cuda]'" if jax.default_backend() == "cpu" else ""
    return good(f"{len(jax.devices())} of {kinds}{hint}")


def cache() -> Finding:
    from pcmlp.runs.cache import cache_folder, use_cache

    named = cache_folder()
    if named is None:
        return bad("off by PCMLP_CACHE=off: every run compiles again", needed=False)
    if use_cache() is None:
        return bad(f"{named} cannot be written: every run compiles again; PCMLP_CACHE names another", needed=False)
    return good(str(named))


def folder() -> Finding:
    here = Path.cwd()
    with tempfile.TemporaryFile(dir=here) as file:
        file.write(b"x")
    free = shutil.disk_usage(here).free
    if free < _ROOM:
        return bad(f"{here}: {free / 1e6:.0f} MB free, a run wants {_ROOM / 1e6:.0f}; make room")
    return good(f"{here} can be written, {free / 1e9:.1f} GB free")


def pictures() -> Finding:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([0, 1])
    FigureCanvasAgg(figure).print_png(io.BytesIO())
    return good(f"matplotlib {importlib.metadata.version('matplotlib')} draws without a display")


def video() -> Finding:
    missing = optional("imageio_ffmpeg", "video", "eval --video")
    if not missing.good:
        return missing
    from imageio_ffmpeg import get_ffmpeg_exe

    encoder = get_ffmpeg_exe()
    subprocess.run([encoder, "-version"], check=True, capture_output=True, timeout=30)
    return good(f"{Path(encoder).name} runs")


def optional(module: str, extra: str, purpose: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return bad(f"{module} is not installed, which {purpose} needs; pip install 'pcmlp[{extra}]'", needed=False)
    return good(f"{module} {importlib.metadata.version(module.replace('_', '-'))}")


def self_test() -> Finding:
    """A tiny run of Deep PC-MLP, stopped after one of two iterations, resumed, and evaluated."""
    from pcmlp.runs.config import resolve
    from pcmlp.runs.evaluate import evaluate_run
    from pcmlp.runs.folder import read_metrics
    from pcmlp.runs.policy import load_run
    from pcmlp.runs.train import train

    begun, silent = time.perf_counter(), Console(file=io.StringIO())
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        for steps in (20, 40):
            train(resolve("mountain-car", seeds=(0,), steps=steps, settings=_TINY), out, console=silent, resume=True)
        rows = read_metrics(out)
        evaluate_run(load_run(out), 2)
    if rows["iteration"] != [0.0, 1.0, 2.0] or not all(map(math.isfinite, rows["eval_return_mean"])):
        return bad(f"iterations {rows['iteration']} with returns {rows['eval_return_mean']}: not those of a sound run")
    return good(f"trained, resumed and evaluated in {time.perf_counter() - begun:.0f} s")
