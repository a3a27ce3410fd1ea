"""An experiment: a figure or table of the paper, the runs it needs, and the tables that are made of them.

`pcmlp paper NAME` and `python -m pcmlp.experiments.NAME` conduct one. What is finished is kept and not done again; a
table has a row for whatever is finished by then.
"""

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcmlp.experiments.engines import local
from pcmlp.experiments.job import Job, check_mine, check_result, is_finished
from pcmlp.experiments.scales import FULL, SCALES, Scale
from pcmlp.experiments.tables import Row, Rows, write_table
from pcmlp.runs.cache import compiling_anew, prepare
from pcmlp.runs.durable import write_durably
from pcmlp.runs.folder import read_summary, read_table
from pcmlp.runs.parse import known
from pcmlp.types import ConfigError


@dataclass(frozen=True)
class Done:
    """What is finished of an experiment: what its tables are made of."""

    jobs: tuple[Job, ...]
    scale: Scale
    runs: Path
    results: Path

    def result(self, job: Job) -> Path:
        """The files that are kept of a run."""
        return self.results / job.where

    def run(self, job: Job) -> Path | None:
        """All of its files, where they still are."""
        folder = self.runs / job.where
        return folder if is_finished(job.config(), folder) else None

    def summary(self, job: Job) -> dict[str, Any]:
        return read_summary(self.result(job))

    def of(self, task: str) -> dict[str, Job]:
        return {job.label: job for job in self.jobs if job.task == task}


Tables = Iterator[tuple[str, Rows]]  # the name of its file, less .csv


@dataclass(frozen=True)
class Experiment:
    name: str  # of its module, and of its folder in the results
    title: str
    place: str  # in the paper
    shows: str
    jobs: Callable[[], Sequence[Job]]  # at full scale; one of another experiment is run there, and once
    tables: Callable[[Done], Tables]
    measured: Mapping[str, Callable[[Scale], Rows]] = field(default_factory=dict)  # tables that take no run: made once
    alone: bool = False  # seconds are measured: in this process, whatever the engine

    def jobs_at(self, scale: Scale, only: Sequence[str] = (), seeds: Sequence[int] | None = None) -> list[Job]:
        """Those that are asked for by name, or all that the scale does not leave out."""
        asked = [job for job in self.jobs() if (job.name in only if only else scale.has(job))]
        scaled = [scale.of(job) for job in asked]
        return scaled if seeds is None else [replace(job, seeds=tuple(seeds)) for job in scaled]


def per_run(row: Callable[[Job, dict[str, Any]], Row], name: str) -> Callable[[Done], Tables]:
    """One table with a row for each run, made of its summary."""

    def tables(done: Done) -> Tables:
        yield name, [row(job, done.summary(job)) for job in done.jobs]

    return tables


def check(jobs: Sequence[Job], runs: Path, results: Path) -> None:
    """That every folder of theirs is theirs or free and can be written, before anything is run."""
    for job in jobs:
        config = job.config()
        check_result(config, results / job.where)
        if not is_finished(config, results / job.where):
            check_mine(config, runs / job.where)
    for flag, folder in (("runs", runs), ("results", results)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--{flag} {folder}: cannot be made ({error.strerror}); give another folder") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"--{flag} {folder}: cannot be written; give another folder")


def conduct(
    experiment: Experiment, jobs: Sequence[Job], scale: Scale, runs: Path, results: Path, *, whole: bool = True
) -> None:
    """The runs in this process, unless they are finished; then the tables of all that is, now or from before. What is
    measured besides is for the `whole` experiment."""
    if experiment.alone:
        for job in jobs:
            _timed(job, runs, results)
    else:
        local(jobs, runs, results)
    folder = results / experiment.name
    describe(experiment, scale, folder)
    for name, measure in experiment.measured.items():
        if whole and not kept(folder / f"{name}.csv"):
            write_table(folder / f"{name}.csv", measure(scale))
    candidates = {job.where: job for job in [*map(scale.of, experiment.jobs()), *jobs]}  # those just run come last
    finished = [job for job in candidates.values() if is_finished(job.config(), results / job.where)]
    for name, rows in experiment.tables(Done(tuple(finished), scale, runs, results)):
        if rows:
            write_table(folder / f"{name}.csv", rows)


def _timed(job: Job, runs: Path, results: Path) -> None:
    """From nothing: neither taken up in the middle nor with programs that others have compiled."""
    if not is_finished(job.config(), results / job.where) and not is_finished(job.config(), runs / job.where):
        shutil.rmtree(runs / job.where, ignore_errors=True)
    with compiling_anew():
        local([job], runs, results)


def describe(experiment: Experiment, scale: Scale, folder: Path) -> None:
    """For the page, which reads files alone."""
    from pcmlp.experiments.catalogue import EXPERIMENTS  # which imports this module

    names = list(EXPERIMENTS)
    said = {
        "title": experiment.title,
        "place": experiment.place,
        "shows": experiment.shows,
        "command": f"pcmlp paper {experiment.name}" + ("" if scale is FULL else f" --scale {scale.name}"),
        "scale": scale.name,
        "order": names.index(experiment.name) if experiment.name in names else len(names),
        "runs": [job.where.as_posix() for job in experiment.jobs()],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / "experiment.json", (json.dumps(said, indent=2) + "\n").encode())


def kept(table: Path) -> bool:
    """Whether it is there, whole."""
    return table.exists() and bool(read_table(table))


def known_runs(experiments: Sequence[Experiment], only: Sequence[str]) -> None:
    names = [job.name for experiment in experiments for job in experiment.jobs()]
    for name in only:
        known("--only", name, names, "TASK/LABEL")


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> None:
    """`python -m pcmlp.experiments.NAME`, on this machine."""
    options = argparse.ArgumentParser(description=f"{experiment.shows} ({experiment.place})")
    options.add_argument("only", nargs="*", metavar="TASK/LABEL", help="some of its runs; all if none is given")
    options.add_argument("--scale", default="full", choices=list(SCALES))
    options.add_argument("--seeds", nargs="+", type=int, help="in the place of its own")
    options.add_argument("--results", type=Path, help="where the kept files and tables go")
    options.add_argument("--runs", type=Path, help="where the runs go")
    given = options.parse_args(arguments)
    prepare(tiny=given.scale == "smoke")
    scale = SCALES[given.scale]
    runs, results = given.runs or scale.folder, given.results or scale.results
    try:
        known_runs([experiment], given.only)
        jobs = experiment.jobs_at(scale, given.only, given.seeds)
        check(jobs, runs, results)
        conduct(experiment, jobs, scale, runs, results, whole=not given.only)
    except ConfigError as error:
        options.error(str(error))
