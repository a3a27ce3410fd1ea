"""`pcmlp paper`: the experiments that are asked for, from their runs to the page."""

from collections.abc import Sequence
from pathlib import Path

from pcmlp.experiments.catalogue import EXPERIMENTS
from pcmlp.experiments.engines import Engine, local
from pcmlp.experiments.experiment import check, conduct, known_runs
from pcmlp.experiments.job import Job
from pcmlp.experiments.scales import SCALES
from pcmlp.report.page import report
from pcmlp.report.reading import read_runs
from pcmlp.runs.parse import known
from pcmlp.types import ConfigError

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
    """The page. Everything is checked before anything is run; what is finished is not run again."""
    if not names:
        raise ConfigError(f"paper: no experiment was given; give {ALL}, or some of {', '.join(EXPERIMENTS)}")
    for name in names:
        known("experiment", name, [*EXPERIMENTS, ALL], "pcmlp list shows them all")
    size = SCALES[known("scale", scale, SCALES, "one of " + ", ".join(SCALES))]
    runs, results = runs or size.folder, results or size.results
    chosen = [EXPERIMENTS[name] for name in (EXPERIMENTS if ALL in names else dict.fromkeys(names))]
    known_runs(chosen, only)
    jobs = {experiment.name: experiment.jobs_at(size, only, seeds) for experiment in chosen}
    run = engine_of(engine, address)
    check([job for of_one in jobs.values() for job in of_one], runs, results)
    if any(results.rglob("metrics.csv")):  # what the page cannot show is to be known before hours of work, not after
        read_runs([results])
    for experiment in chosen:
        said(experiment.name, experiment.jobs(), jobs[experiment.name], bool(only))
    if run is not local:  # all at once, so that every machine has something to do; those that are timed stay here
        shared = {job.where: job for experiment in chosen if not experiment.alone for job in jobs[experiment.name]}
        run(list(shared.values()), runs, results)
    for experiment in chosen:
        if jobs[experiment.name] or not only:
            conduct(experiment, jobs[experiment.name], size, runs, results, whole=not only)
    return report([results], results)


def engine_of(name: str, address: str | None) -> Engine:
    known("engine", name, ENGINES, "one of " + ", ".join(ENGINES))
    if name == "local":
        if address is not None:
            raise ConfigError(f"--address {address}: of a Ray cluster; give --engine ray as well, or leave it out")
        return local
    try:
        from pcmlp.experiments import ray_engine
    except ImportError as error:
        raise ConfigError("--engine ray: Ray is not installed; pip install 'pcmlp[ray]'") from error
    return ray_engine.engine(address)


def said(name: str, of_all: Sequence[Job], asked: Sequence[Job], only: bool) -> None:
    """How much of an experiment this is."""
    left = [] if only else sorted({job.name for job in of_all} - {job.name for job in asked})
    without = f"; this scale leaves out {', '.join(left)}" if left else ""
    print(f"{name}: {len(asked)} of {len(of_all)} runs{without}", flush=True)
