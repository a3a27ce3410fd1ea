"""`pcmlp paper`: conduct experiments, from their runs to the page.

`EXPERIMENTS` has every figure and table of the paper in order, then the theorems in practice, then questions that the
paper leaves open. Finished runs are kept and not repeated; a table has a row for every finished run.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.experiments import (
    as_printed,
    budget,
    catalogue,
    costs,
    environments,
    forgetting,
    held_out,
    lemmas,
    pool,
    reward_scale,
    theorems,
    theory,
)
from pcmlp.experiments.claims import CLAIMS
from pcmlp.experiments.experiment import Done, Experiment, write_table
from pcmlp.experiments.job import FULL, SCALES, Engine, Job, Scale, check_result, check_run, is_finished, run_local
from pcmlp.experiments.protocol import check_reported, plan_protocol, write_protocol
from pcmlp.experiments.verdict import Kept, write_verdicts
from pcmlp.parts import find_known
from pcmlp.report.experiment import check_tables, hash_tables
from pcmlp.report.page import report
from pcmlp.report.reading import read_runs
from pcmlp.report.verdict import FILE, count_verdicts
from pcmlp.runs.cache import check_device, compiling_anew
from pcmlp.runs.durable import write_sealed
from pcmlp.runs.metrics import read_table

EXPERIMENTS: dict[str, Experiment] = {
    made.name: made
    for made in (
        as_printed.AS_PRINTED,
        catalogue.SPARSE,
        catalogue.DENSE,
        held_out.HELD_OUT,
        catalogue.ABLATION,
        catalogue.VANISHING,
        forgetting.FORGETTING,
        catalogue.PLANNERS,
        catalogue.WALL_CLOCK,
        theorems.COMBINATION_LOCK,
        lemmas.LOW_RANK,
        lemmas.KNR_TASKS,
        theorems.CERTIFICATE,
        theory.THEORY,
        catalogue.CONTROLS,
        catalogue.OWN_TASKS,
        reward_scale.SCALE,
        costs.COSTS,
        environments.ENVIRONMENTS,
    )
}
ALL = "all"
ENGINES = ("local", "ray")


def paper(
    names: Sequence[str],
    *,
    scale: str,
    engine: str = "local",
    jobs: int | None = None,
    address: str | None = None,
    results: Path | None = None,
    runs: Path | None = None,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> Path:
    """Conduct experiments and return the page. Everything is checked before anything is run; finished runs are not
    repeated."""
    size, chosen = choose(names, scale)
    runs, results = runs or size.folder, results or size.results
    run = find_engine(engine, address, jobs)  # first: some jobs are made with JAX, which may take the GPU
    check_runs_known(chosen, only)
    asked = {experiment.name: experiment.jobs_at(size, only, seeds) for experiment in chosen}
    if size is FULL:
        check_all_reported(chosen, [job for each in asked.values() for job in each], runs, results)
    check([job for each in asked.values() for job in each], runs, results)
    if any(results.rglob("metrics.csv")):  # raises now, not after hours of work, if a result cannot be read
        read_runs([results])
    for experiment in chosen:
        print_share(experiment.name, experiment.jobs(), asked[experiment.name], bool(only))
    if run is not run_local:  # all jobs at once, so that every machine has work; timed jobs run afterwards, alone
        shared = {job.where: job for experiment in chosen if not experiment.alone for job in asked[experiment.name]}
        run(list(shared.values()), runs, results)
    for experiment in chosen:
        if asked[experiment.name] or not only:
            order = list(EXPERIMENTS).index(experiment.name)
            conduct(experiment, asked[experiment.name], size, runs, results, order=order, whole=not only)
    if size is FULL:
        print_verdicts(results)
    return report([results], results)


def check_all_reported(chosen: Sequence[Experiment], asked: Sequence[Job], runs: Path, results: Path) -> None:
    """Raise if an experiment, or one whose runs another experiment shows, is not as in its protocol."""
    for name in dict.fromkeys([*(experiment.name for experiment in chosen), *(job.experiment for job in asked)]):
        check_reported(EXPERIMENTS[name], [job for job in asked if job.experiment == name], runs, results)


def print_verdicts(results: Path) -> None:
    """Judge the paper's claims by all results that are kept, and print how many have each verdict."""
    verdicts = write_verdicts(CLAIMS, Kept.of(results, EXPERIMENTS.values()))
    print(f"\n{results / FILE}: {count_verdicts(verdicts)}", flush=True)


def choose(names: Sequence[str], scale: str) -> tuple[Scale, list[Experiment]]:
    """Return the scale and the experiments that are asked for, or raise if one of them is unknown."""
    if not names:
        raise ConfigError(f"paper: no experiment was given; give {ALL}, or some of {', '.join(EXPERIMENTS)}")
    for name in names:
        find_known("experiment", name, [*EXPERIMENTS, ALL], "pcmlp list shows them all")
    size = SCALES[find_known("scale", scale, SCALES, "one of " + ", ".join(SCALES))]
    return size, [EXPERIMENTS[name] for name in (EXPERIMENTS if ALL in names else dict.fromkeys(names))]


def check_runs_known(chosen: Sequence[Experiment], only: Sequence[str]) -> None:
    """Raise if a run that is asked for belongs to none of the experiments."""
    known = [job.name for experiment in chosen for job in experiment.jobs()]
    for name in only:
        find_known("--only", name, known, "TASK/LABEL")


def print_plan(
    names: Sequence[str],
    *,
    scale: str,
    jobs: int | None = None,
    results: Path | None = None,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> None:
    """Print the runs of experiments with their expected minutes, and run nothing."""
    size, chosen = choose(names, scale)
    check_count(jobs)
    check_runs_known(chosen, only)
    asked = {job.where: job for experiment in chosen for job in experiment.jobs_at(size, only, seeds)}
    alone = [experiment.name for experiment in chosen if experiment.alone]
    for line in budget.describe_plan(list(asked.values()), results or size.results, jobs or 1, alone):
        print(line, flush=True)


def write_protocols(
    names: Sequence[str], *, scale: str, results: Path | None = None, runs: Path | None = None
) -> list[Path]:
    """Write the protocols of experiments, which hold all their runs at full scale, and return the files."""
    size, chosen = choose(names, scale)
    if size is not FULL:
        raise ConfigError(f"--protocol: holds the runs at full scale; leave out --scale {scale}")
    runs, results = runs or size.folder, results or size.results
    make_folder("results", results)
    protocols = {experiment.name: plan_protocol(experiment, runs, results) for experiment in chosen}  # before any file
    return [write_protocol(name, configs, results) for name, configs in protocols.items()]


def check_count(jobs: int | None) -> None:
    """Raise if the number of runs at a time makes no sense."""
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: give 1 or more, or leave it out")


def find_engine(name: str, address: str | None, jobs: int | None = None) -> Engine:
    """Return the engine that runs the jobs, or raise if it is unknown or not installed, or cannot run so many at a
    time."""
    find_known("engine", name, ENGINES, "one of " + ", ".join(ENGINES))
    check_count(jobs)
    if name == "local":
        if address is not None:
            raise ConfigError(f"--address {address}: only for Ray; give --engine ray as well, or leave it out")
        return pool.connect(jobs)
    check_device()
    from pcmlp.experiments import ray_engine

    return ray_engine.connect(address, jobs)


def check(jobs: Sequence[Job], runs: Path, results: Path) -> None:
    """Raise if a folder of a job belongs to another run or cannot be written, before anything is run."""
    for job in jobs:
        config = job.config()
        check_result(config, results / job.where)
        if not is_finished(config, results / job.where):
            check_run(config, runs / job.where)
    make_folder("runs", runs)
    make_folder("results", results)


def make_folder(flag: str, folder: Path) -> None:
    """Make a folder that a flag names, or raise if it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--{flag} {folder}: cannot be made ({error.strerror}); give another folder") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--{flag} {folder}: cannot be written; give another folder")


def print_share(name: str, every: Sequence[Job], asked: Sequence[Job], only: bool) -> None:
    """Print how many runs of an experiment are made, and which runs the scale leaves out."""
    left = [] if only else sorted({job.name for job in every} - {job.name for job in asked})
    without = f"; this scale leaves out {', '.join(left)}" if left else ""
    print(f"{name}: {len(asked)} of {len(every)} runs{without}", flush=True)


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
    check_tables(folder)
    describe(experiment, scale, folder, order)
    for name, measure in experiment.measured.items():
        table = folder / f"{name}.csv"
        made = table.exists() and read_table(table)  # reading raises if it is damaged
        if whole and not made and (rows := measure(scale)):
            write_table(table, rows)
    candidates = {job.where: job for job in [*map(scale.apply, experiment.jobs()), *jobs]}  # new jobs override
    finished = [job for job in candidates.values() if is_finished(job.config(), results / job.where)]
    for name, rows in experiment.tables(Done(tuple(finished), scale, runs, results)):
        if rows:
            write_table(folder / f"{name}.csv", rows)
    describe(experiment, scale, folder, order, hash_tables(folder))
    if experiment.draw is not None:
        experiment.draw(Kept.of(results, EXPERIMENTS.values()), folder)


def _time(job: Job, runs: Path, results: Path) -> None:
    """Run a job from the beginning and compile everything again, so that its times can be compared."""
    if not is_finished(job.config(), results / job.where) and not is_finished(job.config(), runs / job.where):
        shutil.rmtree(runs / job.where, ignore_errors=True)
    with compiling_anew():
        run_local([job], runs, results)


def describe(
    experiment: Experiment, scale: Scale, folder: Path, order: int = 0, tables: Mapping[str, str] | None = None
) -> None:
    """Write `experiment.json`, from which the page reads the description of an experiment and the hashes of its
    tables."""
    record = {
        "title": experiment.title,
        "place": experiment.place,
        "shows": experiment.shows,
        "command": f"pcmlp paper {experiment.name}" + ("" if scale is FULL else f" --scale {scale.name}"),
        "scale": scale.name,
        "order": order,
        "runs": [job.where.as_posix() for job in experiment.jobs()],
        "tables": dict(tables or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / "experiment.json", record)
