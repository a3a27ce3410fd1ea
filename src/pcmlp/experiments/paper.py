"""`pcmlp paper`: conduct experiments, from their runs to the page.

`EXPERIMENTS` has every figure and table of the paper in order, then the theorems in practice, then questions that the
paper leaves open.
"""

from collections.abc import Sequence
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.experiments import beyond, certificate, held_out, knr, low_rank, section7, wall_clock
from pcmlp.experiments.experiment import Experiment, check, conduct
from pcmlp.experiments.job import Engine, Job, run_local
from pcmlp.experiments.scales import SCALES
from pcmlp.parts import find_known
from pcmlp.report.page import report
from pcmlp.report.reading import read_runs

EXPERIMENTS: dict[str, Experiment] = {
    made.name: made
    for made in (
        section7.SPARSE,
        section7.DENSE,
        held_out.HELD_OUT,
        section7.ABLATION,
        section7.VANISHING,
        section7.PLANNERS,
        wall_clock.WALL_CLOCK,
        beyond.COMBINATION_LOCK,
        low_rank.LOW_RANK,
        knr.KNR_TASKS,
        certificate.CERTIFICATE,
        beyond.CONTROLS,
        beyond.OWN_TASKS,
    )
}
ALL = "all"
ENGINES = ("local", "ray")


def paper(
    names: Sequence[str],
    *,
    scale: str,
    engine: str = "local",
    address: str | None = None,
    results: Path | None = None,
    runs: Path | None = None,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> Path:
    """Conduct experiments and return the page. Everything is checked before anything is run; finished runs are not
    repeated."""
    if not names:
        raise ConfigError(f"paper: no experiment was given; give {ALL}, or some of {', '.join(EXPERIMENTS)}")
    for name in names:
        find_known("experiment", name, [*EXPERIMENTS, ALL], "pcmlp list shows them all")
    size = SCALES[find_known("scale", scale, SCALES, "one of " + ", ".join(SCALES))]
    runs, results = runs or size.folder, results or size.results
    chosen = [EXPERIMENTS[name] for name in (EXPERIMENTS if ALL in names else dict.fromkeys(names))]
    known_jobs = [job.name for experiment in chosen for job in experiment.jobs()]
    for name in only:
        find_known("--only", name, known_jobs, "TASK/LABEL")
    jobs = {experiment.name: experiment.jobs_at(size, only, seeds) for experiment in chosen}
    run = find_engine(engine, address)
    check([job for asked in jobs.values() for job in asked], runs, results)
    if any(results.rglob("metrics.csv")):  # raises now, not after hours of work, if a result cannot be read
        read_runs([results])
    for experiment in chosen:
        print_share(experiment.name, experiment.jobs(), jobs[experiment.name], bool(only))
    if run is not run_local:  # all jobs at once, so that every machine has work; timed jobs run here
        shared = {job.where: job for experiment in chosen if not experiment.alone for job in jobs[experiment.name]}
        run(list(shared.values()), runs, results)
    for experiment in chosen:
        if jobs[experiment.name] or not only:
            order = list(EXPERIMENTS).index(experiment.name)
            conduct(experiment, jobs[experiment.name], size, runs, results, order=order, whole=not only)
    return report([results], results)


def find_engine(name: str, address: str | None) -> Engine:
    """Return the engine that runs the jobs, or raise if it is unknown or not installed."""
    find_known("engine", name, ENGINES, "one of " + ", ".join(ENGINES))
    if name == "local":
        if address is not None:
            raise ConfigError(f"--address {address}: only for Ray; give --engine ray as well, or leave it out")
        return run_local
    try:
        from pcmlp.experiments import ray_engine
    except ImportError as error:
        raise ConfigError("--engine ray: Ray is not installed; pip install 'pcmlp[ray]'") from error
    return ray_engine.connect(address)


def print_share(name: str, every: Sequence[Job], asked: Sequence[Job], only: bool) -> None:
    """Print how many runs of an experiment are made, and which runs the scale leaves out."""
    left = [] if only else sorted({job.name for job in every} - {job.name for job in asked})
    without = f"; this scale leaves out {', '.join(left)}" if left else ""
    print(f"{name}: {len(asked)} of {len(every)} runs{without}", flush=True)
