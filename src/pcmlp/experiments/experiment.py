"""An experiment: a figure or table of the paper, the runs it needs, and the tables that are made of them.

`pcmlp paper NAME` conducts one. Finished runs are kept and not repeated; a table has a row for every finished
run.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.experiments.job import Job, check_result, check_run, is_finished, run_local
from pcmlp.experiments.scales import FULL, Scale
from pcmlp.experiments.tables import Row, Rows, write_table
from pcmlp.runs.cache import compiling_anew
from pcmlp.runs.durable import write_json
from pcmlp.runs.folder import read_summary, read_table


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
        """Return the summary of a run."""
        return read_summary(self.result(job))

    def jobs_of(self, task: str) -> dict[str, Job]:
        """Return the jobs of one task, by label."""
        return {job.label: job for job in self.jobs if job.task == task}


Tables = Iterator[tuple[str, Rows]]  # name of the file without .csv, and its rows


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

    def jobs_at(self, scale: Scale, only: Sequence[str] = (), seeds: Sequence[int] | None = None) -> list[Job]:
        """Return the jobs that are given by name, or all jobs of the scale."""
        asked = [job for job in self.jobs() if (job.name in only if only else scale.has(job))]
        scaled = [scale.apply(job) for job in asked]
        return scaled if seeds is None else [replace(job, seeds=tuple(seeds)) for job in scaled]


def per_run(row: Callable[[Job, dict[str, Any]], Row], name: str) -> Callable[[Done], Tables]:
    """Return the function that makes one table with a row for each run from its summary."""

    def tables(done: Done) -> Tables:
        yield name, [row(job, done.summary(job)) for job in done.jobs]

    return tables


def check(jobs: Sequence[Job], runs: Path, results: Path) -> None:
    """Raise if a folder of a job belongs to another run or cannot be written, before anything is run."""
    for job in jobs:
        config = job.config()
        check_result(config, results / job.where)
        if not is_finished(config, results / job.where):
            check_run(config, runs / job.where)
    for flag, folder in (("runs", runs), ("results", results)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--{flag} {folder}: cannot be made ({error.strerror}); give another folder") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"--{flag} {folder}: cannot be written; give another folder")


def conduct(
    experiment: Experiment,
    jobs: Sequence[Job],
    scale: Scale,
    runs: Path,
    results: Path,
    *,
    order: int = 0,
    whole: bool = True,
) -> None:
    """Run the jobs that are not finished, in this process; then write the tables of all finished jobs. Tables that need
    no run are made for the `whole` experiment only. `order` is the place of the experiment on the page."""
    if experiment.alone:
        for job in jobs:
            _time(job, runs, results)
    else:
        run_local(jobs, runs, results)
    folder = results / experiment.name
    describe(experiment, scale, folder, order)
    for name, measure in experiment.measured.items():
        if whole and not is_kept(folder / f"{name}.csv"):
            write_table(folder / f"{name}.csv", measure(scale))
    candidates = {job.where: job for job in [*map(scale.apply, experiment.jobs()), *jobs]}  # new jobs override
    finished = [job for job in candidates.values() if is_finished(job.config(), results / job.where)]
    for name, rows in experiment.tables(Done(tuple(finished), scale, runs, results)):
        if rows:
            write_table(folder / f"{name}.csv", rows)


def _time(job: Job, runs: Path, results: Path) -> None:
    """Run a job from the beginning and compile everything again, so that its times can be compared."""
    if not is_finished(job.config(), results / job.where) and not is_finished(job.config(), runs / job.where):
        shutil.rmtree(runs / job.where, ignore_errors=True)
    with compiling_anew():
        run_local([job], runs, results)


def describe(experiment: Experiment, scale: Scale, folder: Path, order: int = 0) -> None:
    """Write `experiment.json`, from which the page reads the description of an experiment."""
    record = {
        "title": experiment.title,
        "place": experiment.place,
        "shows": experiment.shows,
        "command": f"pcmlp paper {experiment.name}" + ("" if scale is FULL else f" --scale {scale.name}"),
        "scale": scale.name,
        "order": order,
        "runs": [job.where.as_posix() for job in experiment.jobs()],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "experiment.json", record)


def is_kept(table: Path) -> bool:
    """Return whether a table exists; raise if it is damaged."""
    return table.exists() and bool(read_table(table))
