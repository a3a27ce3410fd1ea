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
from pcmlp.report.experiment import read_experiment
from pcmlp.report.protocol import check_protocol
from pcmlp.report.visits import Visits, read_visits
from pcmlp.runs.checkpoint import ENDED, newest_manifest
from pcmlp.runs.config import parse_record
from pcmlp.runs.durable import read_text
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import PLAN, check_folder
from pcmlp.runs.metrics import FILE, Text, by_column, read_rows, read_table
from pcmlp.runs.summary import find_changes, last_success, read_summary


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
    evaluated: np.ndarray  # [iterations], whether the policies were evaluated
    log_bytes: int | None = None  # of the episode log; None: all of it
    damage: str | None = None  # what is wrong with the episode log, and what it costs
    edited_log: bool = False  # whether it was edited, so that nothing of it is shown

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
        """Return the last row of a column, [seeds], among evaluated iterations if it is about an evaluation; None if it
        is hidden or a seed has no finite number there."""
        if not self.shows(column):
            return None
        values = self.metrics[column][self.evaluated] if column.startswith("eval_") else self.metrics[column]
        return values[-1] if len(values) and np.isfinite(values[-1]).all() else None

    @property
    def has_success(self) -> bool:
        """Whether success is measured; it is not for tasks without a goal and for reward-free runs."""
        return self.shows("eval_success")

    @cached_property
    def _success_changes(self) -> list[list[int]]:
        steps = self.metrics["env_steps"]
        success = self.metrics.get("eval_success", np.zeros_like(steps))[self.evaluated].T.tolist()
        columns = zip(steps[self.evaluated].T.astype(int).tolist(), success, strict=True)
        return [find_changes(zip(*column, strict=True)) for column in columns]

    @cached_property
    def steps_to_success(self) -> np.ndarray:
        """The env steps of each seed's first success; infinite for a seed without one."""
        return np.array([changes[0] if changes else np.inf for changes in self._success_changes])

    @cached_property
    def steps_to_sustained_success(self) -> np.ndarray:
        """The env steps of the first evaluation of each seed from which on all succeed; infinite without one."""
        found = [last_success(changes) for changes in self._success_changes]
        return np.array([np.inf if steps is None else steps for steps in found])

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
        """The seconds that the run has taken; None if other runs used its device, on which they then depend too."""
        if self.summary.get("shared_device"):
            return None
        clock = self.curve("wall_s")
        return self.summary.get("wall_s", float(clock.values[-1, 0]) if clock else None)

    @property
    def explored(self) -> str:
        """The share that the real steps have explored, and of what, for a task without a map; empty if unknown."""
        shares = [seed.get("explored") for seed in self.summary.get("seeds", ())]
        known, of = [share for share in shares if share is not None], self.summary.get("explored_of")
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
        if self.edited_log:
            return None
        try:
            return read_visits(self.task, partial(read, self.path / "episodes", self.log_bytes))
        except (ValueError, IndexError) as error:
            log = self.path / "episodes" / "log"
            raise ConfigError(f"{log}: not the episodes of {self.task} ({first_line(error)}); remove it") from error


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

    @property
    def damaged(self) -> list[str]:
        """A line about each damaged log of a run that can be read."""
        return [run.damage for run in self.runs if run.damage]


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
    return (folder / PLAN).exists() and not (folder / "summary.json").exists()


def find_runs(path: Path) -> list[Path]:
    """Return the run folders at or inside a folder, and those its `experiment.json` names from other experiments."""
    if (path / FILE).exists():
        return [path.resolve()]
    inside = sorted(file.parent for file in path.resolve().rglob(FILE))
    experiment = read_experiment(path.resolve())
    found = list(dict.fromkeys((*inside, *(experiment.runs if experiment else ()))))
    if not found:
        what = "no run in it (no metrics.csv)" if path.is_dir() else "is not a folder"
        raise ConfigError(f"{path}: {what}; give a run folder or a folder of runs")
    return found


def load(path: Path) -> Run:
    """Read and check the files of a run folder."""
    try:
        check_folder(path)
        summary = read_summary(path) if (path / "summary.json").exists() else {}
        manifest = newest_manifest(path, summary)  # before the files, which may grow meanwhile
        config, rows = parse_record(read_text(path / "config.json")), read_rows(path)
        log_bytes, damage = None, None
        if manifest is not None:
            manifest.check_config(config)
            manifest.check_metrics(rows)
            rows = rows[: manifest.metrics_rows]  # no hash covers later rows; resuming writes them again
            log_bytes, damage = manifest.log_bytes, manifest.find_damage(path / "episodes")
        _check_version(summary.get("versions", {}).get("pcmlp"))
        seeds, metrics, evaluated = _by_seed(rows)
        status, expected, last = summary.get("status"), summary.get("iterations"), int(metrics["iteration"][-1, 0])
        if status in ENDED and expected is not None and last != expected:
            raise ValueError(f"metrics.csv is half-written: it has rows up to iteration {last} of {expected}")
        task, algo = config["task"]["name"], config["algo"]
        run = Run(
            path,
            task,
            algo,
            status or "unfinished",
            config,
            summary,
            seeds,
            metrics,
            evaluated,
            log_bytes,
            damage.line if damage else None,
            bool(damage and damage.is_edited),
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: not a run that can be read ({first_line(error)}); give another folder or run it again"
        ) from error
    check_protocol(path, run.config, run.summary)
    return run


def _check_version(theirs: object) -> None:
    """Refuse files of another version: a minor one before 1.0, a major one later may change their meaning."""

    def era(version: str) -> list[str]:
        return version.split(".")[: 2 if version.startswith("0.") else 1]

    ours = importlib.metadata.version("pcmlp")
    if theirs is not None and era(str(theirs)) != era(ours):
        raise ValueError(f"it was made by pcmlp {theirs}, and this is {ours}")


def _by_seed(rows: Sequence[Text]) -> tuple[tuple[int, ...], dict[str, np.ndarray], np.ndarray]:
    """Return the seeds, each column as [iterations, seeds] without an iteration that was cut off, and which iterations
    were evaluated: one whose return is NaN was evaluated, one with an empty cell was not."""
    if not rows:
        raise ValueError("metrics.csv has no row yet")
    columns = {name: np.array(values) for name, values in by_column(rows).items()}
    if not all(np.isfinite(columns[name]).all() for name in ("iteration", "seed", "env_steps")):
        raise ValueError("metrics.csv has a row without iteration, seed or env_steps")
    seeds = list(dict.fromkeys(columns["seed"].tolist()))
    complete = len(rows) // len(seeds)  # iterations
    table = {name: values[: complete * len(seeds)].reshape(complete, len(seeds)) for name, values in columns.items()}
    if not (table["seed"] == np.array(seeds)).all():
        raise ValueError("metrics.csv does not have a row for each seed and iteration")
    evaluated = np.array([row["eval_return_mean"] != "" for row in rows[:: len(seeds)][:complete]])
    return tuple(int(seed) for seed in seeds), table, evaluated
