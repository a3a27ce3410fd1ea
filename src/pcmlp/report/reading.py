"""The run folders that the report reads: their files are checked, and give the numbers for pictures, tables and text.

Nothing else in the report opens a file of a run. No file is executed, and no task is built.
"""

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcmlp.errors import ConfigError, first_line
from pcmlp.report.visits import Visits, read_visits
from pcmlp.runs.checkpoint import ENDED
from pcmlp.runs.durable import read_json
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import read_metrics, read_table
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
    task: str
    algo: str
    status: str  # the one in `summary.json`, or "unfinished"
    config: dict[str, Any]
    summary: dict[str, Any]  # empty while the run is in progress
    seeds: tuple[int, ...]
    metrics: dict[str, np.ndarray]  # column -> [iterations, seeds], NaN where a cell is empty

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended; only then are its last numbers results."""
        return self.status in ENDED

    @property
    def reward_free(self) -> bool:
        """Whether the run explored without a reward."""
        return bool(self.config.get("reward_free"))

    @property
    def evaluated_policy(self) -> str:
        """The name of the policy whose return is `eval_return_mean`."""
        if self.curve("explore_return_mean"):  # the exploring policy is another one, as in Algorithm 2
            return "deploying policy"
        is_cover = "draws" in self.config  # a setting that only Algorithm 1 has
        return "best policy of the cover" if is_cover else "policy"

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

    @cached_property
    def steps_to_sustained_success(self) -> np.ndarray:
        """The env steps of the first evaluation of each seed from which on all succeed; infinite without one."""
        solved = self.metrics.get("eval_success", np.zeros_like(self.metrics["env_steps"])) >= SUCCESS
        lasting = np.logical_and.accumulate(solved[::-1], axis=0)[::-1]
        return np.where(lasting, self.metrics["env_steps"], np.inf).min(axis=0, initial=np.inf)

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

    @property
    def explored(self) -> str:
        """The share that the real steps have explored, and of what, for a task without a map; empty if unknown."""
        shares = [seed.get("explored") for seed in self.summary.get("seeds") or () if isinstance(seed, dict)]
        known, of = [share for share in shares if isinstance(share, int | float)], self.summary.get("explored_of")
        return f"{100 * np.mean(known):.0f} % of {of}" if known and of and not self.curve("coverage") else ""

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

    @cached_property
    def visits(self) -> Visits | None:
        """The places where its policies have been; None if no episodes were kept, as in committed results."""
        return read_visits(self.task, partial(read, self.path / "episodes"))


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
    """Read the run folders given, and those inside the folders given, each once; refuse what cannot be read."""
    if not paths:
        raise ConfigError("report: no folder was given; give a run folder or a folder of runs")
    return [load(folder) for folder in dict.fromkeys(folder for path in paths for folder in find_runs(path))]


class Found(NamedTuple):
    """The runs of some folders that can be read."""

    runs: list[Run]
    left_out: list[str]  # a line about each run that cannot be read
    empty: list[str]  # a line about each given folder that has no run


def read_readable_runs(paths: Sequence[Path], load_run: Callable[[Path], Run] | None = None) -> Found:
    """Read the runs at or inside the paths, each once, and say why others were left out. `load_run` replaces `load`."""
    runs: dict[Path, Run] = {}
    left_out: list[str] = []
    empty: list[str] = []
    for path in paths:
        try:
            folders = find_runs(path)
        except ConfigError as error:
            (left_out if (path / "experiment.json").exists() else empty).append(str(error))
            folders = []
        begun = {file.parent.resolve() for file in path.rglob("config.json") if not _is_plan(file.parent)}
        for folder in dict.fromkeys([*folders, *sorted(begun)]):
            try:
                runs[folder] = (load_run or load)(folder)
            except ConfigError as error:
                left_out.append(str(error))
    return Found(list(runs.values()), list(dict.fromkeys(left_out)), empty)


def _is_plan(folder: Path) -> bool:
    return (folder / "plan.json").exists()


def find_runs(path: Path) -> list[Path]:
    """Return the run folders at or inside a folder, and those its `experiment.json` names from other experiments."""
    if (path / "metrics.csv").exists():
        return [path.resolve()]
    inside = sorted(file.parent for file in path.resolve().rglob("metrics.csv"))
    experiment = read_experiment(path.resolve())
    found = list(dict.fromkeys((*inside, *(experiment.runs if experiment else ()))))
    if not found:
        what = "no run in it (no metrics.csv)" if path.is_dir() else "is not a folder"
        raise ConfigError(f"{path}: {what}; give a run folder or a folder of runs")
    return found


def load(path: Path) -> Run:
    """Read and check the files of a run folder."""
    try:
        config = read_json(path / "config.json")
        summary = read_json(path / "summary.json") if (path / "summary.json").exists() else {}
        named, algo, status = config.get("task"), config.get("algo"), str(summary.get("status", "unfinished"))
        task = named.get("name") if isinstance(named, dict) else None
        if not (isinstance(task, str) and isinstance(algo, str)):
            raise ValueError("config.json names no task and algorithm")
        for name, kind in _TYPES.items():
            for content in (config, summary):
                if content.get(name) is not None and not isinstance(content[name], kind):
                    raise ValueError(f"{name} is {content[name]!r}")
        _check_version((summary.get("versions") or {}).get("pcmlp"))
        seeds, metrics = _read_by_seed(path)
        expected, last = summary.get("iterations"), int(metrics["iteration"][-1, 0])
        if status in ENDED and expected is not None and last != expected:
            raise ValueError(f"metrics.csv is half-written: it has rows up to iteration {last} of {expected}")
        return Run(path, task, algo, status, config, summary, seeds, metrics)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: not a run that can be read ({first_line(error)}); give another folder or run it again"
        ) from error


def _check_version(theirs: object) -> None:
    """Refuse files of another version: a minor one before 1.0, a major one later may change their meaning."""

    def era(version: str) -> list[str]:
        return version.split(".")[: 2 if version.startswith("0.") else 1]

    ours = importlib.metadata.version("pcmlp")
    if theirs is not None and era(str(theirs)) != era(ours):
        raise ValueError(f"it was made by pcmlp {theirs}, and this is {ours}")


def _read_by_seed(path: Path) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """Return the seeds, and each column as [iterations, seeds] without an iteration that was cut off."""
    columns = {name: np.array(values) for name, values in read_metrics(path).items()}
    for name in _REQUIRED:
        if name not in columns:
            raise ValueError(f"metrics.csv has no column {name}")
    if not len(columns["seed"]):
        raise ValueError("metrics.csv has no row yet")
    seeds = list(dict.fromkeys(columns["seed"].tolist()))
    complete = len(columns["seed"]) // len(seeds)  # iterations
    table = {name: values[: complete * len(seeds)].reshape(complete, len(seeds)) for name, values in columns.items()}
    if not (table["seed"] == np.array(seeds)).all():
        raise ValueError("metrics.csv does not have a row for each seed and iteration")
    return tuple(int(seed) for seed in seeds), table
