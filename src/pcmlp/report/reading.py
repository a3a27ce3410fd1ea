"""The run folders that the report reads: their files are checked, and give the numbers for pictures, tables and text.

Nothing else in the report opens a file of a run. No file is executed, and no task is built.
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pcmlp.errors import ConfigError
from pcmlp.runs.durable import read_json
from pcmlp.runs.episodes import Record, read
from pcmlp.runs.folder import read_metrics, read_table
from pcmlp.runs.resume import ENDED
from pcmlp.runs.summary import SUCCESS

_REQUIRED = ("iteration", "seed", "env_steps", "eval_return_mean")
_TYPES = {  # types of the keys in config.json and summary.json that are used; each may be missing or null
    "steps": int,
    "reward_free": bool,
    "status": str,
    "iterations": int,
    "wall_s": (int, float),
    "versions": dict,
    "certificate": dict,
}


@dataclass(frozen=True)
class Curve:
    """A column of `metrics.csv` over the iterations where every seed has a number; falsy if there are none."""

    iteration: np.ndarray  # [iterations]
    env_steps: np.ndarray  # [iterations], the mean over seeds, whose episodes differ in length
    values: np.ndarray  # [iterations, seeds]

    def __bool__(self) -> bool:
        return self.values.size > 0

    @property
    def mean(self) -> np.ndarray:
        """The mean over seeds, [iterations]."""
        return self.values.mean(axis=1)

    def fold_below_peak(self) -> float:
        """Return the largest mean divided by the last one; NaN if the last one is not positive."""
        return float(self.mean.max() / self.mean[-1]) if self and self.mean[-1] > 0 else np.nan


@dataclass(frozen=True)
class Run:
    """The files of one run folder."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]  # empty while the run is in progress
    seeds: tuple[int, ...]
    metrics: dict[str, np.ndarray]  # column -> [iterations, seeds], NaN where a cell is empty

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.config["task"]["name"]

    @property
    def algo(self) -> str:
        """The name of its algorithm."""
        return self.config["algo"]

    @property
    def status(self) -> str:
        """The status in `summary.json`, or "unfinished"."""
        return str(self.summary.get("status", "unfinished"))

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended; only then are its last numbers results."""
        return self.status in ENDED

    @property
    def reward_free(self) -> bool:
        """Whether the run explored without a reward."""
        return bool(self.config.get("reward_free"))

    @property
    def deploys(self) -> bool:
        """Whether the deployed policy differs from the exploring one, as in Algorithm 2."""
        return bool(self.curve("explore_return_mean"))

    @property
    def evaluated_policy(self) -> str:
        """The name of the policy whose return is `eval_return_mean`."""
        if self.deploys:
            return "deploying policy"
        is_cover = "draws" in self.config  # a setting that only Algorithm 1 has
        return "best policy of the cover" if is_cover else "policy"

    @property
    def certificate(self) -> dict[str, Any]:
        """The entry `certificate` of `summary.json`; empty while the run is in progress."""
        return self.summary.get("certificate") or {}

    def curve(self, column: str) -> Curve:
        """Return a column of `metrics.csv`; an unknown column gives an empty curve."""
        steps = self.metrics["env_steps"]
        values = self.metrics.get(column, np.full(steps.shape, np.nan))
        defined = np.isfinite(values).all(axis=1)
        return Curve(self.metrics["iteration"][defined, 0], steps[defined].mean(axis=1), values[defined])

    def shows(self, column: str) -> bool:
        """Return whether there is a curve to show; returns of a reward-free run are hidden."""
        return bool(self.curve(column)) and not (self.reward_free and column.startswith("eval_"))

    def final(self, column: str) -> np.ndarray | None:
        """Return the last row of a column, [seeds]; None if it is hidden or a seed has no number there."""
        return self.metrics[column][-1] if self.shows(column) and np.isfinite(self.metrics[column][-1]).all() else None

    @property
    def has_success(self) -> bool:
        """Whether success is measured; it is not for tasks without a goal and for reward-free runs."""
        return self.shows("eval_success")

    @cached_property
    def steps_to_success(self) -> np.ndarray:
        """The env steps of each seed's first success; infinite for a seed without one."""
        solved = self.metrics.get("eval_success", np.zeros_like(self.metrics["env_steps"])) >= SUCCESS
        return np.where(solved, self.metrics["env_steps"], np.inf).min(axis=0, initial=np.inf)

    @property
    def num_solved(self) -> int:
        """The number of seeds that succeeded."""
        return int(np.isfinite(self.steps_to_success).sum())

    @property
    def env_steps(self) -> float:
        """The env steps of a seed, averaged over seeds."""
        return float(self.metrics["env_steps"][-1].mean())

    @property
    def wall_s(self) -> float | None:
        """The seconds that the run has taken."""
        clock = self.curve("wall_s")
        return self.summary.get("wall_s", float(clock.values[-1, 0]) if clock else None)

    @cached_property
    def planned_success(self) -> float | None:
        """The share of successes of the plans made after reward-free exploration (`places.csv`), if any were made.

        If several kinds of reward were planned for, only the reward for being at the place counts.
        """
        file = self.path / "places.csv"
        rows = [row for row in read_table(file) if row.get("paid", "there") == "there"] if file.exists() else []
        try:
            return float(np.mean([float(row["success"]) for row in rows])) if rows else None
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{file}: has no share of successes ({error}); remove it to make it again") from error

    def records(self) -> list[Record]:
        """Read every record of the episode log, in order."""
        return list(read(self.path / "episodes"))


@dataclass(frozen=True)
class Experiment:
    """The description of an experiment, from `experiment.json`."""

    title: str
    place: str  # its place in the paper
    shows: str
    command: str
    scale: str  # only the numbers of scale "full" are results
    order: int  # position on the page
    runs: tuple[Path, ...]  # existing runs; some may belong to another experiment


def read_experiment(folder: Path) -> Experiment | None:
    """Read the folder's `experiment.json`, if it has one."""
    file = folder / "experiment.json"
    if not file.exists():
        return None
    try:
        content = read_json(file)
        if not all(isinstance(content[name], str) for name in ("title", "place", "shows", "command", "scale")):
            raise ValueError("its entries must be strings")
        order = int(content.pop("order"))
        runs = tuple(path for run in content.pop("runs") if ((path := folder.parent / run) / "metrics.csv").exists())
        return Experiment(**content, order=order, runs=runs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run its experiment again") from error


def read_tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Read the CSV files of an experiment's folder by file name, without those that have no row."""
    tables = {path.name: read_table(path) for path in sorted(folder.glob("*.csv"))}
    return {name: rows for name, rows in tables.items() if rows}


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read the run folders given, and those inside the folders given."""
    if not paths:
        raise ConfigError("report: no folder was given; give a run folder or a folder of runs")
    return [load(folder) for folder in find_runs(paths)]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders at or inside the paths, each once; refuse a path without any."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = runs_in(path)
        if not inside:
            what = "no run in it (no metrics.csv)" if path.is_dir() else "is not a folder"
            raise ConfigError(f"{path}: {what}; give a run folder or a folder of runs")
        found |= dict.fromkeys(inside)
    return list(found)


def runs_in(folder: Path) -> list[Path]:
    """Return the run folders at or inside a folder, and those its `experiment.json` names from other experiments."""
    if (folder / "metrics.csv").exists():
        return [folder.resolve()]
    inside = sorted(file.parent for file in folder.resolve().rglob("metrics.csv"))
    experiment = read_experiment(folder.resolve())
    return list(dict.fromkeys((*inside, *(experiment.runs if experiment else ()))))


def load(path: Path) -> Run:
    """Read and check the files of a run folder."""
    try:
        config = read_json(path / "config.json")
        summary = read_json(path / "summary.json") if (path / "summary.json").exists() else {}
        if not (isinstance(config["task"]["name"], str) and isinstance(config["algo"], str)):
            raise ValueError("config.json names no task and algorithm")
        _check_types(config)
        _check_types(summary)
        columns = {name: np.array(values) for name, values in read_metrics(path).items()}
        for name in _REQUIRED:
            if name not in columns:
                raise ValueError(f"metrics.csv has no column {name}")
        if not len(columns["seed"]):
            raise ValueError("metrics.csv has no row yet")
        run = Run(path, config, summary, *_by_seed(columns))
        _check_version(run.summary)
        _check_complete(run)
        return run
    except (OSError, ValueError, KeyError, TypeError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: not a run that can be read ({line}); give another folder or run it again"
        ) from error


def _check_types(content: dict[str, Any]) -> None:
    for name, kind in _TYPES.items():
        if content.get(name) is not None and not isinstance(content[name], kind):
            raise ValueError(f"{name} is {content[name]!r}")


def _check_version(summary: dict[str, Any]) -> None:
    """Refuse files of another version: a minor one before 1.0, a major one later may change their meaning."""

    def era(version: str) -> list[str]:
        return version.split(".")[: 2 if version.startswith("0.") else 1]

    theirs, ours = (summary.get("versions") or {}).get("pcmlp"), importlib.metadata.version("pcmlp")
    if theirs is not None and era(str(theirs)) != era(ours):
        raise ValueError(f"it was made by pcmlp {theirs}, and this is {ours}")


def _check_complete(run: Run) -> None:
    """Refuse a run that has ended but lacks rows."""
    expected, last = run.summary.get("iterations"), int(run.metrics["iteration"][-1, 0])
    if run.has_ended and expected is not None and last != expected:
        raise ValueError(f"metrics.csv is half-written: it has rows up to iteration {last} of {expected}")


def _by_seed(columns: dict[str, np.ndarray]) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """Return the seeds, and each column as [iterations, seeds] without an iteration that was cut off."""
    seeds = list(dict.fromkeys(columns["seed"].tolist()))
    complete = len(columns["seed"]) // max(1, len(seeds))  # iterations
    table = {name: values[: complete * len(seeds)].reshape(complete, len(seeds)) for name, values in columns.items()}
    if not (table["seed"] == np.array(seeds)).all():
        raise ValueError("metrics.csv does not have a row for each seed and iteration")
    return tuple(int(seed) for seed in seeds), table
