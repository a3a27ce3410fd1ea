"""`pcmlp doctor`: whether this machine can run pcmlp, what is missing, and how to get it.

Every check prints one line. A failed check that every run needs fails the command (exit code 1); a check that only some
commands need is reported with its remedy.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pcmlp.errors import first_line

_ROOM = 200_000_000  # bytes of a small run's folder, including checkpoints
_SELF_TEST = "self-test"


class Finding(NamedTuple):
    """The outcome of a check; `needed` says whether every run needs it."""

    good: bool
    line: str
    needed: bool = True


def examine(*, train: bool = False) -> dict[str, Finding]:
    """Run all checks and return what they found; with `train`, also the one that trains."""
    checks: dict[str, Callable[[], Finding]] = {
        "versions": versions,
        "devices": devices,
        "compile cache": cache,
        "this folder": folder,
        "pictures": pictures,
        "video": video,
        "TensorBoard": lambda: optional("tensorboardX", "tensorboard", "train --tensorboard"),
        "Minari": lambda: optional("minari", "minari", "export --minari and train --data"),
        "Optuna": lambda: optional("optuna", "tune", "tune"),
        "W&B": lambda: optional("wandb", "wandb", "train --wandb"),
        "Gymnasium": lambda: optional("gymnasium", "gymnasium", "environments of your own"),
        "MuJoCo": lambda: optional("mujoco", "mujoco", "tasks with robots"),
        "DM Control": lambda: optional("dm_control", "dmc", "dmc:DOMAIN-TASK"),
        "Robotics": lambda: optional("gymnasium_robotics", "robotics", "hand-egg"),
    }
    if train:
        checks[_SELF_TEST] = self_test
    return {name: run_check(check) for name, check in checks.items()}


def show(findings: Mapping[str, Finding]) -> int:
    """Print what the checks found and return the exit code."""
    table = Table("check", "", "what was found", title="pcmlp doctor")
    for name, finding in findings.items():
        table.add_row(name, "ok" if finding.good else "FAILED" if finding.needed else "missing", Text(finding.line))
    Console().print(table)
    if _SELF_TEST not in findings:
        print("pcmlp doctor --train also trains something tiny, in about half a minute")
    return int(any(finding.needed and not finding.good for finding in findings.values()))


def run_check(check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check; a check that raises is a failed one, and the others continue."""
    try:
        return check()
    except Exception as error:
        return Finding(False, f"{type(error).__name__}: {first_line(error)}")


def versions() -> Finding:
    """Return the versions of the packages that results depend on."""
    names = ("pcmlp", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")
    each = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return Finding(True, f"Python {platform.python_version()}, {each}")


def devices() -> Finding:
    """Multiply matrices on every device."""
    import jax
    import jax.numpy as jnp

    for device in jax.devices():
        ones = jax.device_put(jnp.ones((64, 64)), device)
        if float(jnp.sum(ones @ ones)) != 64.0**3:
            return Finding(False, f"{device}: the result of a matrix product is wrong")
    kinds = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in jax.devices()}))
    hint = "; for a GPU: pip install 'pcmlp[cuda]'" if jax.default_backend() == "cpu" else ""
    return Finding(True, f"{len(jax.devices())} of {kinds}{hint}")


def cache() -> Finding:
    """Check that compiled programs can be kept."""
    from pcmlp.runs.cache import cache_folder, use_cache

    named = cache_folder()
    if named is None:
        return Finding(False, "off by PCMLP_CACHE=off: every run compiles again", needed=False)
    if use_cache() is None:
        return Finding(
            False, f"{named} cannot be written: every run compiles again; PCMLP_CACHE names another", needed=False
        )
    return Finding(True, str(named))


def folder() -> Finding:
    """Check that runs can be written here."""
    here = Path.cwd()
    with tempfile.TemporaryFile(dir=here) as file:
        file.write(b"x")
    free = shutil.disk_usage(here).free
    if free < _ROOM:
        return Finding(False, f"{here}: {free / 1e6:.0f} MB free, a run needs {_ROOM / 1e6:.0f}; free some space")
    return Finding(True, f"{here} can be written, {free / 1e9:.1f} GB free")


def pictures() -> Finding:
    """Draw a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([0, 1])
    FigureCanvasAgg(figure).print_png(io.BytesIO())
    return Finding(True, f"matplotlib {importlib.metadata.version('matplotlib')} draws without a display")


def video() -> Finding:
    """Start the encoder of films."""
    missing = optional("imageio_ffmpeg", "video", "eval --video")
    if not missing.good:
        return missing
    from imageio_ffmpeg import get_ffmpeg_exe

    encoder = get_ffmpeg_exe()
    subprocess.run([encoder, "-version"], check=True, capture_output=True, timeout=30)
    return Finding(True, f"{Path(encoder).name} runs")


def optional(module: str, extra: str, purpose: str) -> Finding:
    """Check that an optional package is installed."""
    if importlib.util.find_spec(module) is None:
        return Finding(
            False, f"{module} is not installed, which {purpose} needs; pip install 'pcmlp[{extra}]'", needed=False
        )
    return Finding(True, f"{module} {importlib.metadata.version(module.replace('_', '-'))}")


def self_test() -> Finding:
    """Train a tiny run of Deep PC-MLP for one iteration, resume it for another, and evaluate it."""
    from pcmlp.runs.config import resolve, tiny_overrides
    from pcmlp.runs.evaluate import evaluate_run
    from pcmlp.runs.metrics import read_metrics
    from pcmlp.runs.policy import load_run
    from pcmlp.runs.train import train

    begun, silent = time.perf_counter(), Console(file=io.StringIO())
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        settings = tiny_overrides(resolve("mountain-car"))
        for steps in (20, 40):
            config = resolve("mountain-car", seeds=(0,), steps=steps, settings=settings)
            train(config, out, console=silent, resume=True)
        rows = read_metrics(out)
        evaluate_run(load_run(out), 2)
    if rows["iteration"] != [0.0, 1.0, 2.0] or not all(map(math.isfinite, rows["eval_return_mean"])):
        return Finding(
            False, f"iterations {rows['iteration']} with returns {rows['eval_return_mean']}: not those of a working run"
        )
    return Finding(True, f"trained, resumed and evaluated in {time.perf_counter() - begun:.0f} s")
