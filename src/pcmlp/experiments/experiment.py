"""An experiment: a figure or table of the paper, the runs it needs, and the tables that are made of them."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.experiments.job import Job, Scale, is_finished
from pcmlp.experiments.reruns import rerun_rows
from pcmlp.published import PAPER, best_published, dense_table
from pcmlp.report.reading import load
from pcmlp.report.statistics import deviation, interquartile_mean
from pcmlp.runs.durable import room_for, write_text
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary

Row = dict[str, Any]
Rows = list[Row]
Column = Callable[[Job, dict[str, Any]], Row]  # job, summary -> cells of a row
Tables = Iterator[tuple[str, Rows]]  # name of the file without .csv, and its rows
_FIRST, _SUSTAINED = "env_steps_to_success", "env_steps_to_sustained_success"
PAPER_MINUTES = {"pcmlp": 148.7, "pets-gt": 132.8, "mbpo": 153.5}  # minutes of a whole run, appendix C.2


@dataclass(frozen=True)
class Done:
    """The finished runs of an experiment, which its tables are made of."""

    jobs: tuple[Job, ...]
    scale: Scale
    runs: Path
    results: Path

    def result(self, job: Job) -> Path:
        """Return the folder with the kept files of a run."""
        return self.results / job.where

    def run(self, job: Job) -> Path | None:
        """Return the folder with all files of a run, if it still exists."""
        folder = self.runs / job.where
        return folder if is_finished(job.config(), folder) else None

    def summary(self, job: Job) -> dict[str, Any]:
        """Return the summary of a run. Older ones lack the steps to sustained success, which its metrics give."""
        summary = read_summary(self.result(job))
        if any(_SUSTAINED not in seed for seed in summary["seeds"]):
            found = load(self.result(job)).steps_to_sustained_success
            for seed, steps in zip(summary["seeds"], found, strict=True):
                seed[_SUSTAINED] = int(steps) if np.isfinite(steps) else None
        return summary

    def jobs_of(self, task: str) -> dict[str, Job]:
        """Return the jobs of one task, by label."""
        return {job.label: job for job in self.jobs if job.task == task}


@dataclass(frozen=True)
class Experiment:
    """An experiment: its description, its runs and its tables."""

    name: str  # name on the command line, and of its folder in the results
    title: str
    place: str  # its place in the paper
    shows: str
    jobs: Callable[[], Sequence[Job]]  # at full scale; a job of another experiment runs only in that one
    tables: Callable[[Done], Tables]
    measured: Mapping[str, Callable[[Scale], Rows]] = field(default_factory=dict)  # tables that need no run: made once
    alone: bool = False  # if time is measured, it runs in this process, whatever the engine
    needs_protocol: bool = False  # whether it runs only if results/NAME/protocol.json was written before
    draw: Callable[[Any, Path], Any] | None = None  # writes pictures into a folder, given the `Kept` results

    def jobs_at(self, scale: Scale, only: Sequence[str] = (), seeds: Sequence[int] | None = None) -> list[Job]:
        """Return the jobs that are given by name, or all jobs of the scale."""
        asked = [job for job in self.jobs() if (job.name in only if only else scale.has(job))]
        scaled = [scale.apply(job) for job in asked]
        return scaled if seeds is None else [replace(job, seeds=tuple(seeds)) for job in scaled]


def per_run(name: str, *columns: Column) -> Callable[[Done], Tables]:
    """Return a function that makes a table with a row for each run, to which each column function adds cells; and
    `reruns`, if there are any."""

    def tables(done: Done) -> Tables:
        summaries = {job: done.summary(job) for job in done.jobs}
        yield name, [{key: x for part in columns for key, x in part(*made).items()} for made in summaries.items()]
        if reruns := rerun_rows(summaries):
            yield "reruns", reruns

    return tables


def solved_columns(job: Job, summary: dict[str, Any]) -> Row:
    """Return the columns of a run that has a goal: how many seeds reached it, when, and their final results; and the
    same of sustained success, from which on all evaluations succeed. A seed that never reached it counts as slower than
    any other, so there is no median if half of the seeds did not."""
    seeds = summary["seeds"]
    first, sustained = steps_to_success(summary), steps_to_success(summary, _SUSTAINED)
    returns = [seed["final_return"] for seed in seeds]
    return {
        "task": job.task,
        "run": job.label,
        "env_steps": seeds[0]["env_steps"],
        "solved": f"{np.isfinite(first).sum()} of {len(seeds)}",
        "median_steps": known(float(np.median(first)), 0),
        "most_steps": known(float(first.max()), 0),
        "sustained": f"{np.isfinite(sustained).sum()} of {len(seeds)}",
        "median_steps_sustained": known(float(np.median(sustained)), 0),
        "final_return": round(float(np.mean(returns)), 2),
        **spread_columns(returns, 2),
        "worst_return": round(min(returns), 2),
        "final_success": round(float(np.mean([seed["final_success"] for seed in seeds])), 3),
    }


def steps_to_success(summary: dict[str, Any], which: str = _FIRST) -> np.ndarray:
    """Return the steps that each seed needed; infinite for a seed that never succeeded."""
    steps = [seed[which] for seed in summary["seeds"]]
    return np.array([np.inf if needed is None else needed for needed in steps])


def return_columns(job: Job, summary: dict[str, Any]) -> Row:
    """Return the columns of a run in which every step is rewarded: the final results of its seeds."""
    returns = [seed["final_return"] for seed in summary["seeds"]]
    return {
        "task": job.task,
        "run": job.label,
        "env_steps": summary["seeds"][0]["env_steps"],
        "final_return": round(float(np.mean(returns)), 1),
        **spread_columns(returns, 1),
        "worst_return": round(min(returns), 1),
        "best_return": round(max(returns), 1),
    }


def spread_columns(returns: Sequence[float], digits: int) -> Row:
    """Return the standard deviation over seeds, and their interquartile mean with its 95 % interval."""
    middle = interquartile_mean([np.array(returns)])
    values = {"std": deviation(returns), "iqm": middle.value, "iqm_low": middle.low, "iqm_high": middle.high}
    return {name: known(value, digits) for name, value in values.items()}


def known(value: float, digits: int) -> int | float | str:
    """Return a rounded number, whole if it has no digits; empty if it is not finite."""
    if not np.isfinite(value):
        return ""
    return round(float(value), digits) if digits else int(value)


def machine_columns(job: Job, summary: dict[str, Any]) -> Row:
    """Return the columns about the machine of a run. Seconds on a shared device measure the other runs too, so they are
    left out."""
    seconds = "" if summary.get("shared_device") else round(summary["wall_s"])
    return {"wall_s": seconds, "device": summary["device"]}


def published_columns(job: Job, summary: dict[str, Any]) -> Row:
    """Return the published returns for the task of a run."""
    known = dense_table().get(job.task)
    return {
        "paper": known[PAPER].mean if known else "",
        "best_of_benchmark": best_published(job.task)[1].mean if known else "",
    }


def bonus_columns(job: Job, summary: dict[str, Any]) -> Row:
    """Return the bonus that a run had, and its success."""
    algorithm, success = job.config().algorithm, [seed["final_success"] for seed in summary["seeds"]]
    assert isinstance(algorithm, Deep)
    return {
        "bonus_scale": algorithm.bonus_scale,
        "covariance": "on" if algorithm.covariance else "off",
        "final_success": "" if None in success else round(float(np.mean(success)), 3),
    }


def planner_column(job: Job, summary: dict[str, Any]) -> Row:
    """Return the planner of a run."""
    return {"planner": job.config().part_names()["planner"]}


def vanishing_tables(done: Done) -> Tables:
    """Yield `bonus`, with a row for each iteration, and `vanishing`, which says how far the bonus fell and how much
    information the cover has gained by then."""
    iterations: list[Row] = []
    falls: list[Row] = []
    for job in done.jobs:
        run, named = load(done.result(job)), {"task": job.task, "run": job.label}
        curve, gain = run.curve("bonus_mean"), run.curve("info_gain")
        for n, steps, values, gains in zip(curve.iteration, curve.env_steps, curve.values, gain.mean, strict=True):
            bonus = {"mean": float(np.mean(values)), "std": deviation(values)}
            cells = {f"bonus_{of}": float(f"{x:.6g}") if np.isfinite(x) else "" for of, x in bonus.items()}
            numbers = {"iteration": int(n), "env_steps": int(steps), **cells, "info_gain": round(float(gains), 2)}
            iterations.append({**named, **numbers})
        if curve:
            ends = {"peak": float(f"{curve.mean.max():.4g}"), "last": float(f"{curve.mean[-1]:.4g}")}
            fall = {"fall": round(curve.fold_below_peak(), 2), "info_gain": round(float(gain.mean[-1]), 2)}
            falls.append({**named, "iterations": len(curve.mean), **ends, **fall})
    yield "bonus", iterations
    yield "vanishing", falls


def timed_tables(done: Done) -> Tables:
    """Yield the table of seconds; raise if they were measured on several machines, or beside other runs."""
    summaries = {job: done.summary(job) for job in done.jobs}
    if shared := [str(done.result(job)) for job, summary in summaries.items() if summary.get("shared_device")]:
        raise ConfigError(f"{shared[0]}: timed while other runs used the device; remove it to time it alone")
    if len(machines := sorted({summary["device"] for summary in summaries.values()})) > 1:
        folder = done.results / "wall_clock"
        raise ConfigError(f"{folder}: timed on several machines ({', '.join(machines)}); remove it to time all on one")
    rows = []
    for job, summary in summaries.items():
        seconds, steps = last_iteration(done.result(job), len(job.seeds))
        rows.append(
            {
                "algorithm": job.label,
                "s_per_1000_steps": round(1_000 * seconds / steps, 2),
                "steps_timed": int(steps),
                "compile_s": round(summary["compile_s"], 1),
                "paper_min_of_a_whole_run": PAPER_MINUTES.get(job.algo, ""),
                "device": summary["device"],
                "versions": " ".join(f"{name} {version}" for name, version in summary["versions"].items()),
            }
        )
    yield "wall_clock", sorted(rows, key=lambda row: row["s_per_1000_steps"])


def last_iteration(result: Path, seeds: int) -> tuple[float, float]:
    """Return the seconds of a run's last iteration, and the env steps of one seed in it."""
    metrics, before = read_metrics(result), -1 - seeds  # a row for each seed
    seconds, steps = (metrics[name][-1] - metrics[name][before] for name in ("wall_s", "env_steps"))
    return seconds, steps


def slope(rows: Sequence[Row], x: str, y: str) -> float | str:
    """Return the slope of ln y against ln x over the rows; empty for fewer than two rows or numbers that are not
    finite."""
    with np.errstate(divide="ignore"):  # an error may be 0
        logs = np.log([[float(row[x]), float(row[y])] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(rows) > 1 and np.isfinite(logs).all() else ""


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with room_for(path.name, path.parent, len(text.getvalue())):
        write_text(path, text.getvalue())


def write_table(path: Path, rows: Rows) -> None:
    """Write a table as CSV and print it."""
    write_csv(path, rows)
    print(f"\n{path}")
    for row in rows:
        print("  " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
