"""Reruns: the same run once more, since a GPU does not add numbers in the same order every time.

A rerun is a run of its own, with the same settings and seeds. Its label is that of the first run, followed by `-rerun`.
Its returns differ from those of the first run by chance alone, so they show how much of the spread between seeds is due
to the seeds.

    std_of_seeds  = the standard deviation, with n - 1, of the n returns x_1 … x_n of the first run
    std_of_reruns = sqrt(mean over seeds of (x_i - y_i)² / 2), where y_i is the return of seed i's rerun

The second is the root mean square over seeds of the standard deviation, with n - 1, of the two returns of a seed. The
first contains it: a seed's return also varies from rerun to rerun.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pcmlp.errors import ConfigError
from pcmlp.experiments.job import Job
from pcmlp.report.statistics import deviation

SUFFIX = "-rerun"


def rerun(job: Job) -> Job:
    """Return the job that makes the same run once more."""
    return replace(job, label=job.label + SUFFIX)


def rerun_rows(summaries: Mapping[Job, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each run of which there is a rerun, given the summaries of all runs."""
    firsts = {rerun(job).where: job for job in summaries}
    rows = []
    for again in summaries:
        if (first := firsts.get(again.where)) is None:
            continue
        if again != rerun(first):
            why = f"has other settings or seeds than {first.name}, so it is no rerun of it"
            raise ConfigError(f"{again.name}: {why}; give it another label")
        x, y = (np.array([seed["final_return"] for seed in summaries[job]["seeds"]]) for job in (first, again))
        of_reruns = float(np.sqrt(np.mean((x - y) ** 2) / 2))
        spread = deviation(x)
        rows.append(
            {
                "task": first.task,
                "run": first.label,
                "seeds": len(x),
                "return": round(float(x.mean()), 2),
                "return_of_reruns": round(float(y.mean()), 2),
                "std_of_seeds": round(spread, 2) if np.isfinite(spread) else "",
                "std_of_reruns": round(of_reruns, 2),
            }
        )
    return rows
