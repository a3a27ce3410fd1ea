"""What reports know of runs: their files, checked, and the few numbers that tables and sentences are made of."""

import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pcmlp.runs.episodes import Record, read
from pcmlp.runs.folder import read_metrics, read_table
from pcmlp.runs.resume import ENDED
from pcmlp.runs.summary import SUCCESS
from pcmlp.types import ConfigError

_NEEDED = ("iteration", "seed", "env_steps", "eval_return_mean")
_TYPES = {  # of what is read of config.json and summary.json, where it is there and not null
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
    """A column of `metrics.csv` over the iterations where every seed has a number."""

    iteration: np.ndarray  # [iterations]
    env_steps: np.ndarray  # [iterations], the mean over seeds: episodes end, and draws take, a random number of steps
    values: np.ndarray  # [iterations, seeds]

    def __bool__(self) -> bool:
        return self.values.size > 0

    @property
    def mean(self) -> np.ndarray:
        return self.values.mean(axis=1)

    def below_peak(self) -> float:
        """How many times smaller the last mean is than the largest; nan where nothing was paid."""
        return float(self.mean.max() / self.mean[-1]) if self and self.mean[-1] > 0 else np.nan


@dataclass(frozen=True)
class Run:
    """One run folder, read."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]  # empty while the run is under way
    seeds: tuple[int, ...]
    metrics: dict[str, np.ndarray]  # column -> [iterations, seeds], NaN where it is empty

    @property
    def task(self) -> str:
        return self.config["task"]["name"]

    @property
    def algo(self) -> str:
        return self.config["algo"]

    @property
    def status(self) -> str:
        return str(self.summary.get("status", "unfinished"))

    @property
    def done(self) -> bool:
        """Whether it came to its end: only then are its last numbers a result."""
        return self.status in ENDED

    @property
    def made_by(self) -> str:
        """For the line under a picture's title."""
        return f"{self.task}, {self.algo}, {counted(len(self.seeds), 'seed')}"

    @property
    def deploys(self) -> bool:
        """Whether exploring and deploying policies are two, as in Algorithm 2."""
        return bool(self.curve("explore_return_mean"))

    @property
    def judged(self) -> str:
        """Whose return `eval_return_mean` is."""
        if self.deploys:
            return "deploying policy"
        return "best policy of the cover" if "best_index" in self.metrics else "policy"

    def curve(self, column: str) -> Curve:
        steps = self.metrics["env_steps"]
        values = self.metrics.get(column, np.full(steps.shape, np.nan))
        defined = np.isfinite(values).all(axis=1)
        return Curve(self.metrics["iteration"][defined, 0], steps[defined].mean(axis=1), values[defined])

    @property
    def reward_free(self) -> bool:
        return bool(self.config.get("reward_free"))

    def shows(self, column: str) -> bool:
        """What a policy earns at the task that explores with no reward was nobody's aim, and is not shown."""
        return bool(self.curve(column)) and not (self.reward_free and column.startswith("eval_"))

    def final(self, column: str) -> np.ndarray | None:
        """Its last row, [seeds]; none where it is not shown, or a seed has no number at the end."""
        return self.metrics[column][-1] if self.shows(column) and np.isfinite(self.metrics[column][-1]).all() else None

    @property
    def has_success(self) -> bool:
        """Pendulum and the regulators have no goal, and who explores with no reward is not after it."""
        return self.shows("eval_success")

    @cached_property
    def steps_to_success(self) -> np.ndarray:
        """Of each seed; infinite where it never came."""
        solved = self.metrics.get("eval_success", np.zeros_like(self.metrics["env_steps"])) >= SUCCESS
        return np.where(solved, self.metrics["env_steps"], np.inf).min(axis=0, initial=np.inf)

    @property
    def num_solved(self) -> int:
        return int(np.isfinite(self.steps_to_success).sum())

    @property
    def env_steps(self) -> float:
        """How many a seed took."""
        return float(self.metrics["env_steps"][-1].mean())

    @property
    def wall_s(self) -> float | None:
        clock = self.curve("wall_s")
        return self.summary.get("wall_s", float(clock.values[-1, 0]) if clock else None)

    @cached_property
    def reached(self) -> float | None:
        """The share of successes at what was planned for after exploring with no reward, where it was tried; with a
        reward for being there alone, where there are others."""
        file = self.path / "places.csv"
        rows = [row for row in read_table(file) if row.get("paid", "there") == "there"] if file.exists() else []
        try:
            return float(np.mean([float(row["success"]) for row in rows])) if rows else None
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{file}: has no share of successes ({error}); remove it to make it again") from error

    def records(self) -> list[Record]:
        """Everything that was collected, in turn."""
        return list(read(self.path / "episodes"))


@dataclass(frozen=True)
class About:
    """What an experiment says of itself: `experiment.json` in its folder of the results."""

    title: str
    place: str  # in the paper
    shows: str
    command: str
    scale: str  # other than full, its numbers are no results
    order: int  # on a page
    runs: tuple[Path, ...]  # those that are there; some may lie with another experiment


def about(folder: Path) -> About | None:
    file = folder / "experiment.json"
    if not file.exists():
        return None
    try:
        said = _json_object(file)
        if not all(isinstance(said[name], str) for name in ("title", "place", "shows", "command", "scale")):
            raise ValueError("what it says is no text")
        order = int(said.pop("order"))
        runs = tuple(path for run in said.pop("runs") if ((path := folder.parent / run) / "metrics.csv").exists())
        return About(**said, order=order, runs=runs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run its experiment again") from error


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders that are given, or lie inside those given, or that an experiment given has from another."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = runs_in(path)
        if not inside:
            what = "no run in it (no metrics.csv)" if path.is_dir() else "is not a folder"
            raise ConfigError(f"{path}: {what}; give a run folder or a folder of runs")
        found |= dict.fromkeys(inside)
    return list(found)


def runs_in(folder: Path) -> list[Path]:
    """Itself, if it is a run's, or those inside; and where it is an experiment's, those that it has from another."""
    if (folder / "metrics.csv").exists():
        return [folder.resolve()]
    inside = sorted(file.parent for file in folder.resolve().rglob("metrics.csv"))
    others = made.runs if (made := about(folder.resolve())) else ()
    return list(dict.fromkeys((*inside, *others)))


def load(path: Path) -> Run:
    try:
        config = _json_object(path / "config.json")
        summary = _json_object(path / "summary.json") if (path / "summary.json").exists() else {}
        if not (isinstance(config["task"]["name"], str) and isinstance(config["algo"], str)):
            raise ValueError("config.json names no task and algorithm")
        _check_types(config)
        _check_types(summary)
        columns = {name: np.array(values) for name, values in read_metrics(path).items()}
        for name in _NEEDED:
            if name not in columns:
                raise ValueError(f"metrics.csv has no column {name}")
        if not len(columns["seed"]):
            raise ValueError("metrics.csv has no row yet")
        run = Run(path, config, summary, *_by_seed(columns))
        _check_version(run.summary)
        _check_whole(run)
        return run
    except (OSError, ValueError, KeyError, TypeError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: not a run that can be read ({line}); give another folder or run it again"
        ) from error


def _check_types(record: dict[str, Any]) -> None:
    for name, kind in _TYPES.items():
        if record.get(name) is not None and not isinstance(record[name], kind):
            raise ValueError(f"{name} is {record[name]!r}")


def _check_version(summary: dict[str, Any]) -> None:
    """Before 1.0 a minor version may change what files mean, from then on a major one."""
    theirs = (summary.get("versions") or {}).get("pcmlp")
    ours = importlib.metadata.version("pcmlp")
    if theirs is not None and _era(str(theirs)) != _era(ours):
        raise ValueError(f"it was made by pcmlp {theirs}, and this is {ours}")


def _era(version: str) -> list[str]:
    return version.split(".")[: 2 if version.startswith("0.") else 1]


def _check_whole(run: Run) -> None:
    """A run that ended has written every row."""
    said, rows = run.summary.get("iterations"), run.metrics["iteration"]
    last = int(rows[-1, 0])
    if run.done and said is not None and last != said:
        raise ValueError(f"metrics.csv is half-written: it has rows up to iteration {last} of {said}")


def _json_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not an object")
    return content


def _by_seed(columns: dict[str, np.ndarray]) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """Each column as [iterations, seeds], without an iteration that was cut off."""
    seeds = list(dict.fromkeys(columns["seed"].tolist()))
    whole = len(columns["seed"]) // max(1, len(seeds))  # iterations that every seed has a row of
    table = {name: values[: whole * len(seeds)].reshape(whole, len(seeds)) for name, values in columns.items()}
    if not (table["seed"] == np.array(seeds)).all():
        raise ValueError("metrics.csv has not a row for each seed and iteration")
    return tuple(int(seed) for seed in seeds), table


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def number(x: float) -> str:
    """A return, as people read it: no more than hundredths, no minus before a zero."""
    return f"{x:,.0f}" if abs(x) >= 1_000 else f"{round(x, 2) + 0.0:.4g}"


def percent(share: float | np.floating) -> str:
    return f"{100 * share:.0f} %"
