"""Statistics over the seeds of several tasks (Agarwal et al. 2021).

    IQM      = the mean of the middle half of all scores
    interval = its 95 % percentile interval over bootstrap samples that resample seeds within each task
    profile  = the share of seeds with a score above tau, for every tau

(paper: mean and standard deviation over four seeds, and ranks by the mean.) Scores are comparable between tasks, such
as returns scaled by those of random play and of the best known algorithm.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

_RESAMPLES = 2_000
_CONFIDENCE = 0.95
TaskScores = Sequence[np.ndarray]  # [seeds] of each task


class Estimate(NamedTuple):
    """A number with its confidence interval, NaN where there is none."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: TaskScores) -> Estimate:
    """Return the IQM over all tasks and seeds; it has no interval if a task has a single seed."""

    def pooled(*tasks: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
        return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    value = float(pooled(*scores))
    if min(len(seeds) for seeds in scores) < 2:
        return Estimate(value, np.nan, np.nan)
    result = stats.bootstrap(
        tuple(scores),
        pooled,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    low, high = result.confidence_interval
    return Estimate(value, float(low), float(high))


def profile(scores: TaskScores, thresholds: np.ndarray) -> np.ndarray:
    """Return the share of seeds above each threshold; every task has the same weight, however many seeds it has."""
    return np.mean([(seeds[:, None] > thresholds[None, :]).mean(axis=0) for seeds in scores], axis=0)


def normalise(returns: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale returns so that `low` becomes 0 and `high` becomes 1."""
    if not high > low:
        raise ValueError(f"low={low}, high={high}: nothing between them; give a high return above the low one")
    return (returns - low) / (high - low)


class Rank(NamedTuple):
    """The rank of an algorithm over tasks; 1 is the best."""

    mean: float
    median: float


def ranks(means: Mapping[str, Mapping[str, float]]) -> dict[str, Rank]:
    """Rank the algorithms of task -> algorithm -> mean return; equal returns share the mean of their ranks.

    An algorithm without a number on a task is last there, because it could not be run.
    """
    names = list(dict.fromkeys(name for of_task in means.values() for name in of_task))
    table = [stats.rankdata([-of_task.get(name, -np.inf) for name in names]) for of_task in means.values()]
    return {
        name: Rank(float(np.mean(column)), float(np.median(column)))
        for name, column in zip(names, np.transpose(table), strict=True)
    }
