"""Who runs the jobs of an experiment.

An engine runs each of them, or finds it finished, and returns once every one is kept in `results`. A stop
(`KeyboardInterrupt`) and what is wrong with a job (`ConfigError`, `RunStopped`) are passed on; what is finished by then
stays.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from pcmlp.experiments.job import Job, run_job


@runtime_checkable
class Engine(Protocol):
    def __call__(self, jobs: Sequence[Job], runs: Path, results: Path) -> None: ...


def local(jobs: Sequence[Job], runs: Path, results: Path) -> None:
    """One after another in this process."""
    for job in jobs:
        run_job(job, runs, results)
