"""What several seeds of several tasks say together (Agarwal et al. 2021).

    IQM      = the mean of the middle half of all scores: no seed decides it, and none but the worst and best is ignored
    interval = its percentiles over bootstrap samples that draw seeds anew within each task
    profile  = the share of runs with a score above tau, for every tau

(paper: mean and standard deviation over four seeds, and ranks by the mean.) Scores are returns that were made
comparable, such as by what random play and the best known get.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

_RESAMPLES = 2_000
_CONFIDENCE = 0.95
Scores = Sequence[np.ndarray]  # of each task, [seeds]


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> Estimate:
    """Over all tasks and seeds, with its interval; of a single run there is none."""

    def pooled(*tasks: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
        return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    value = float(pooled(*scores))
    if min(len(seeds) for seeds in scores) < 2:
        return Estimate(value, np.nan, np.nan)
    found = stats.bootstrap(
        tuple(scores),
        pooled,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return Estimate(value, float(low), float(high))


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs above each threshold; every task counts the same, however many seeds it has."""
    return np.mean([(seeds[:, None] > thresholds[None, :]).mean(axis=0) for seeds in scores], axis=0)


def normalised(returns: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 for `low`, 1 for `high`."""
    if not high > low:
        raise ValueError(f"a return of {low} for 0 and of {high} for 1 leaves nothing between them")
    return (returns - low) / (high - low)


class Rank(NamedTuple):
    mean: float
    median: float


def ranks(means: Mapping[str, Mapping[str, float]]) -> dict[str, Rank]:
    """Of each algorithm by its mean returns, task -> algorithm -> mean: 1 is the best, equals share what they take up.

    An algorithm that a task has no number of is last there: it could not be run, which is no merit.
    """
    names = list(dict.fromkeys(name for of_task in means.values() for name in of_task))
    table = [stats.rankdata([-of_task.get(name, -np.inf) for name in names]) for of_task in means.values()]
    return {
        name: Rank(float(np.mean(column)), float(np.median(column)))
        for name, column in zip(names, np.transpose(table), strict=True)
    }
