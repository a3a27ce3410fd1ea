"""`summary.json`: the final results of each seed, the cost of the run, and the machine and versions."""

import functools
import importlib.metadata
import itertools
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.monitoring
import numpy as np

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.pc_pg import PCPG
from pcmlp.errors import ConfigError
from pcmlp.runs.config import RunConfig
from pcmlp.runs.durable import Damaged, check_type, read_sealed
from pcmlp.runs.findings import MAP, Findings
from pcmlp.runs.metrics import Row
from pcmlp.runs.source import find_source

SUCCESS = 0.95  # a seed is solved if at least this share of its evaluation episodes succeed
_PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "pcmlp")
COMPILE_EVENTS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")
_SAVED = "/jax/compilation_cache/compile_time_saved_sec"


class Certificate(TypedDict, total=False):
    """The standing of a run's certificate in `summary.json`."""

    kind: str
    why: str
    stop_when_certified: float | None


class SeedSummary(TypedDict, total=False):
    """The final results of one seed in `summary.json`."""

    seed: int
    env_steps: int | None
    evaluated_env_steps: int | None
    final_return: float | None
    final_success: float | None
    env_steps_to_success: int | None
    env_steps_to_sustained_success: int | None
    success_changes: list[int]
    final_certificate: float | None
    rewards_seen: int
    ends_seen: int
    explored: float | None


class Summary(TypedDict, total=False):
    """The contents of `summary.json`."""

    status: str
    command: str
    task: str
    algo: str
    iterations: int
    data_steps: int
    seeds: list[SeedSummary]
    wall_s: float
    compile_s: float
    save_s: float
    shared_device: bool
    peak_memory_mb: float | None
    virtual_steps_per_s: float | None
    device: str
    versions: dict[str, str]
    revision: str | None
    clean: bool | None
    explored_of: str | None
    reward_free: bool
    nothing_found: str | None
    certificate: Certificate
    manifest: dict[str, str | int | None]


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json`."""
    try:
        return dict(check_type(read_sealed(run / "summary.json"), Summary, "summary.json"))
    except Damaged as error:
        remedy = "remove it, then resume the run, which writes it again"
        raise ConfigError(f"{run}/summary.json: {error}; {remedy}") from error


class CompileClock:
    """A clock of the seconds that JAX spends lowering and compiling, and of those that its cache saves; a context
    manager."""

    def __init__(self) -> None:
        self.seconds = self.saved = 0.0

    def hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Count an event of JAX."""
        if event in COMPILE_EVENTS:
            self.seconds += duration_secs
        elif event == _SAVED:
            self.saved += duration_secs

    def __enter__(self) -> "CompileClock":
        jax.monitoring.register_event_duration_secs_listener(self.hear)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self.hear)


def summarise(
    config: RunConfig,
    rows: Sequence[Row],
    command: str,
    status: str,
    shared_device: bool,
    wall_s: float,
    compile_s: float,
    save_s: float,
    evaluated_episodes: int,
) -> dict[str, Any]:
    """Return the contents of `summary.json`."""
    return {
        # finished, certified (`--stop-when-certified`), stopped after an iteration, interrupted in one, or failed
        "status": status,
        "command": command,
        "task": config.task_name,
        "algo": config.algo,
        "iterations": max((row["iteration"] for row in rows), default=0),
        **({"data_steps": config.data.steps} if config.data else {}),  # env_steps counts real steps only
        "seeds": [summarise_seed(seed, [row for row in rows if row["seed"] == seed]) for seed in config.seeds],
        "wall_s": round(wall_s, 3),
        "compile_s": round(compile_s, 3),
        "save_s": round(save_s, 3),
        "shared_device": shared_device,
        "peak_memory_mb": device_memory_mb(),
        "virtual_steps_per_s": None
        if shared_device
        else virtual_steps_per_s(config, rows, evaluated_episodes, wall_s - compile_s),
        "device": device(),
        "versions": versions(),
        **find_source()._asdict(),
    }


def summarise_seed(seed: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the final results of one seed: those of its last evaluation, which is that of its last row if the run has
    finished."""
    last: Row = rows[-1] if rows else {}
    evaluated = [row for row in rows if row["eval_return_mean"] is not None]
    changes = find_changes((row["env_steps"], row["eval_success"] or 0.0) for row in evaluated)
    return {
        "seed": seed,
        "env_steps": last.get("env_steps"),
        "evaluated_env_steps": last_number(evaluated, "env_steps"),
        "final_return": last_number(rows, "eval_return_mean"),
        "final_success": last_number(rows, "eval_success"),
        "env_steps_to_success": next(iter(changes), None),
        "env_steps_to_sustained_success": last_success(changes),
        "success_changes": changes,
        "final_certificate": last_number(rows, "certificate"),
    }


def last_number(rows: Sequence[Row], column: str) -> Any:
    """Return the number in the last row that has one in the column; None if no row has."""
    return next((row[column] for row in reversed(rows) if row.get(column) is not None), None)


def find_changes(evaluations: Iterable[tuple[int, float]]) -> list[int]:
    """Return the env steps of the evaluations at which a seed was solved, lost again, solved again, and so on, given
    the env steps and the success of each evaluation."""
    changes: list[int] = []
    for steps, share in evaluations:
        if (share >= SUCCESS) != bool(len(changes) % 2):
            changes.append(steps)
    return changes


def last_success(changes: Sequence[int]) -> int | None:
    """Return the env steps from which on all evaluations of a seed succeed; None if the last one does not."""
    return changes[-1] if len(changes) % 2 else None


def add_findings(summary: dict[str, Any], config: RunConfig, rows: Sequence[Row], findings: Findings) -> None:
    """Add what the real steps of each seed have found, and the line `nothing_found`."""
    last = {row["seed"]: row for row in rows}
    for i, (seed, explored) in enumerate(zip(summary["seeds"], findings.explored(), strict=True)):
        coverage = last.get(seed["seed"], {}).get("coverage")
        seed |= findings.counts(i)
        seed["explored"] = explored if coverage is None else coverage
    covered = [row["coverage"] for row in last.values() if row.get("coverage") is not None]
    bonuses = [row["bonus_mean"] for row in last.values() if row.get("bonus_mean") is not None]
    success = [row["eval_success"] for row in rows if row["eval_success"] is not None]
    steps = int(np.mean([row["env_steps"] for row in last.values()])) if last else 0
    grows = isinstance(config.algorithm, Deep)
    summary["explored_of"] = MAP if covered else findings.explored_of
    summary["reward_free"] = isinstance(config.algorithm, Deep | PCPG) and config.algorithm.reward_free
    summary["nothing_found"] = None
    if not summary["reward_free"]:
        summary["nothing_found"] = findings.describe_nothing(
            steps,
            succeeded=any(share > 0 for share in success) if success else None,
            bonus=float(np.mean(bonuses)) if bonuses else None,
            longer=f"{'--resume ' if grows else ''}--steps {2 * config.steps}",
            coverage=float(np.mean(covered)) if covered else None,
        )


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """Return the lines under the table of seeds: returns that are not those of the last iteration, success that was
    lost, and what to do if nothing was found."""
    lines = []
    for seed in summary["seeds"][:1]:  # all seeds are evaluated together
        if (at := seed.get("evaluated_env_steps")) is not None and at != seed["env_steps"]:
            lines.append(f"the last evaluation was at {at:,} env steps; pcmlp eval evaluates the saved policies")
    for seed in summary["seeds"]:
        if len(changes := seed.get("success_changes", ())) > 1:
            words = ["solved at", *itertools.islice(itertools.cycle(("lost by", "solved again at")), len(changes) - 1)]
            story = ", ".join(f"{word} {step:,}" for word, step in zip(words, changes, strict=True))
            lines.append(f"seed {seed['seed']}: {story}")
    return [*lines, *([summary["nothing_found"]] if summary.get("nothing_found") else [])]


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


def device_memory_mb() -> float | None:
    """Return the most memory of the device that this process has used so far; None on a CPU."""
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    return None if peak is None else round(peak / 1e6, 1)


def device() -> str:
    """Return a description of the device that JAX uses."""
    first = jax.devices()[0]
    if first.platform == "cpu":
        return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"
    return f"{first.platform} ({first.device_kind})"


@functools.cache  # called for every checkpoint
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}
