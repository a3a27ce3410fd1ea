"""`summary.json`: the final results of each seed, the cost of the run, and the machine and versions."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from pcmlp.runs.config import RunConfig
from pcmlp.runs.folder import Row

SUCCESS = 0.95  # a seed is solved if at least this share of its evaluation episodes succeed
_PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "pcmlp")
_COMPILING = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")


class CompileClock:
    """A clock of the seconds that JAX spends lowering and compiling; a context manager."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def _hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event in _COMPILING:
            self.seconds += duration_secs

    def __enter__(self) -> "CompileClock":
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._hear)


def summarise(
    config: RunConfig,
    rows: Sequence[Row],
    wall_s: float,
    compile_s: float,
    save_s: float,
    evaluated_episodes: int,
    command: str,
    status: str,
) -> dict[str, Any]:
    """Return the contents of `summary.json`."""
    return {
        # finished, certified (`--stop-when-certified`), stopped after an iteration, interrupted in one, or failed
        "status": status,
        "command": command,
        "task": config.task_name,
        "algo": config.algo,
        "iterations": max((row["iteration"] for row in rows), default=0),
        "seeds": [summarise_seed(seed, [row for row in rows if row["seed"] == seed]) for seed in config.seeds],
        "wall_s": round(wall_s, 3),
        "compile_s": round(compile_s, 3),
        "save_s": round(save_s, 3),
        "virtual_steps_per_s": virtual_steps_per_s(config, rows, evaluated_episodes, wall_s - compile_s),
        "device": device(),
        "versions": versions(),
        "revision": revision(),
    }


def summarise_seed(seed: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the final results of one seed."""
    last: Row = rows[-1] if rows else {}
    solved = (row["env_steps"] for row in rows if (row["eval_success"] or 0.0) >= SUCCESS)
    return {
        "seed": seed,
        "env_steps": last.get("env_steps"),
        "final_return": last.get("eval_return_mean"),
        "final_success": last.get("eval_success"),
        "env_steps_to_success": next(solved, None),
        "final_certificate": last.get("certificate"),
    }


def virtual_steps_per_s(
    config: RunConfig, rows: Sequence[Row], evaluated_episodes: int, seconds: float
) -> float | None:
    """Return the imagined steps per second of planning, collecting and evaluating together; None if planning takes
    no imagined steps."""
    per_action, per_plan = config.algorithm.imagined_steps(config.task.horizon)
    if per_action == per_plan == 0 or not rows or seconds <= 0:
        return None
    seeds = len(config.seeds)
    evaluated = evaluated_episodes * config.task.horizon * seeds
    last = rows[-seeds:]
    actions = evaluated + sum(row["env_steps"] for row in last)
    plans = last[-1]["iteration"] * seeds
    return round((actions * per_action + plans * per_plan) / seconds, 1)


def device() -> str:
    """Return a description of the device that JAX uses."""
    first = jax.devices()[0]
    if first.platform == "cpu":
        return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"
    return f"{first.platform} ({first.device_kind})"


@functools.cache
def revision() -> str | None:
    """Return the git revision of the source, with "+changes" if files differ from it; None outside a checkout."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.strip()

    try:
        root = Path(git("rev-parse", "--show-toplevel"))
        if not (root / "src" / "pcmlp").is_dir():  # the checkout belongs to another project
            return None
        changed = git("-C", str(root), "status", "--porcelain", "src")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache  # called for every checkpoint
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}
