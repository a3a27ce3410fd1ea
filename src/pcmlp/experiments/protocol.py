"""Protocols: what a reported experiment runs is written down and committed before it runs.

    seeds 100 to 199     tuning: settings are chosen by these runs, so they are never reported
    all other seeds      reporting: each is run once, with the settings of the protocol

A protocol holds the runs at full scale only; smaller scales report nothing.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.experiments.experiment import Experiment
from pcmlp.experiments.job import Job
from pcmlp.report.protocol import FILE, Configs, Protocol, check_revision, read_protocol
from pcmlp.runs.config import to_json
from pcmlp.runs.durable import write_sealed
from pcmlp.runs.source import VARIABLE, find_source
from pcmlp.runs.summary import read_summary

TUNING_SEEDS = range(100, 200)


def plan_protocol(experiment: Experiment, runs: Path, results: Path) -> Configs:
    """Return the contents of an experiment's protocol. Raise if a run was made before it, or by another one."""
    jobs = experiment.jobs()
    check_seeds(experiment.name, jobs)
    before, configs = read_protocol(results / experiment.name), configs_of(jobs)
    known = before.runs if before else {}
    for root in (results, runs):
        for file in sorted((root / experiment.name).glob("*/*/config.json")):
            where = file.parent.relative_to(root).as_posix()
            if where not in known or known[where] != configs.get(where):
                raise ConfigError(f"{file.parent}: was made before this protocol; remove it, and give --protocol again")
    return configs


def write_protocol(name: str, configs: Configs, results: Path) -> Path:
    """Write the protocol of an experiment, and return the file."""
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / FILE, {"experiment": name, "runs": configs})
    return folder / FILE


def check_reported(experiment: Experiment, asked: Sequence[Job], runs: Path, results: Path) -> None:
    """Raise if a result could not be reported.

    That is so if the experiment needs a protocol and has none, if its runs or those that are asked for do not match the
    protocol, or if a result would have no git revision.
    """
    protocol = read_protocol(results / experiment.name)
    if protocol is None:
        if experiment.needs_protocol:
            write = f"pcmlp paper {experiment.name} --protocol"
            raise ConfigError(f"{experiment.name}: has no {FILE} in {results}; write it with {write}, and commit it")
        return
    check_seeds(experiment.name, asked)
    if change := find_change(protocol, experiment.jobs()):
        new = f"write a new one for new results with pcmlp paper {experiment.name} --protocol"
        raise ConfigError(f"{protocol.file}: {change}; change it back, or {new}")
    for where, config in configs_of(asked).items():
        if how := protocol.compare(where, config):
            raise ConfigError(f"{protocol.file}: {where} is asked for with other settings ({how}); leave out --seeds")
    source = find_source()
    if source.revision is None:
        raise ConfigError(f"{experiment.name}: its results need a git revision, and none is known here; set {VARIABLE}")
    if source.clean is False and asked:
        raise ConfigError(f"{experiment.name}: its results need a revision, and src has changes; commit them first")
    for job in asked:  # runs that were made before, and are only kept now
        if (runs / job.where / "summary.json").exists() and not (results / job.where / "summary.json").exists():
            check_revision(runs / job.where, read_summary(runs / job.where))


def find_change(protocol: Protocol, jobs: Sequence[Job]) -> str:
    """Return the first run of an experiment that is not as in the protocol, and how it differs; empty if there is
    none."""
    now = configs_of(jobs)
    found = [(where, protocol.compare(where, config)) for where, config in now.items()]
    gone = [(where, "it is no run any more") for where in protocol.runs if where not in now]
    return next((f"{where} is not the same now ({how})" for where, how in (*found, *gone) if how), "")


def check_seeds(name: str, jobs: Sequence[Job]) -> None:
    """Raise if a job has a seed that is for tuning."""
    for job in jobs:
        if tuned := [seed for seed in job.seeds if seed in TUNING_SEEDS]:
            first, last = TUNING_SEEDS[0], TUNING_SEEDS[-1]
            why = f"seeds {first} to {last} are for tuning, and {name} is reported"
            raise ConfigError(f"{job.name}: seed {tuned[0]}: {why}; give others")


def configs_of(jobs: Sequence[Job]) -> Configs:
    """Return the configuration of each job, as in its `config.json`."""
    return {job.where.as_posix(): json.loads(to_json(job.config())) for job in jobs}
