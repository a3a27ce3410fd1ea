"""`summary.json`: how each seed ended, what the run cost and what it ran on."""

import functools
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from typing import Any

import jax
import jax.monitoring

from pcmlp.runs.config import RunConfig
from pcmlp.runs.folder import Row
from pcmlp.runs.plans import imagined_steps

SUCCESS = 0.95  # share of an evaluation's episodes from which on a seed is solved
_PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "pcmlp")
_COMPILING = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")


class CompileClock:
    """Adds up the seconds that JAX spends lowering and compiling; a context manager."""

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
    judged_episodes: int,
    command: str,
    status: str,
) -> dict[str, Any]:
    return {
        # finished, certified (`--stop-when-certified`), stopped after an iteration, interrupted in one, or failed
        "status": status,
        "command": command,
        "task": config.task_name,
        "algo": config.algo,
        "iterations": max((row["iteration"] for row in rows), default=0),
        "seeds": [of_seed(seed, [row for row in rows if row["seed"] == seed]) for seed in config.seeds],
        "wall_s": round(wall_s, 3),
        "compile_s": round(compile_s, 3),
        "save_s": round(save_s, 3),
        "virtual_steps_per_s": virtual_steps_per_s(config, rows, judged_episodes, wall_s - compile_s),
        "device": device(),
        "versions": versions(),
    }


def of_seed(seed: int, rows: Sequence[Row]) -> dict[str, Any]:
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


def virtual_steps_per_s(config: RunConfig, rows: Sequence[Row], judged_episodes: int, seconds: float) -> float | None:
    """Imagined steps a second, planning, collecting and evaluating together; null where planning takes no samples."""
    per_action, per_plan = imagined_steps(config)
    if per_action == per_plan == 0 or not rows or seconds <= 0:
        return None
    seeds = len(config.seeds)
    evaluated = judged_episodes * config.task.horizon * seeds
    last = rows[-seeds:]
    actions = evaluated + sum(row["env_steps"] for row in last)
    plans = last[-1]["iteration"] * seeds
    return round((actions * per_action + plans * per_plan) / seconds, 1)


def device() -> str:
    first = jax.devices()[0]
    if first.platform == "cpu":
        return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"
    return f"{first.platform} ({first.device_kind})"


@functools.cache  # every checkpoint asks
def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}
