"""The expected time of a job, from the steps of its seeds."""

from pathlib import Path

from pcmlp.experiments.job import Job


def expected_seconds(job: Job, results: Path) -> float | None:
    """Return the seconds that a job takes, or only a number that orders jobs by their length; None if nothing is
    known."""
    return float(job.steps * len(job.seeds))
