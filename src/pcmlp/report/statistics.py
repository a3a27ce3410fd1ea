"""Statistics over the seeds of a task, and over tasks.

    deviation = the standard deviation, with n - 1: seeds are a sample
    IQM       = the mean of the middle half of all scores (Agarwal et al. 2021)
    interval  = its 95 % percentile interval over bootstrap samples that resample seeds within each task
    difference of two runs = of their means; its interval resamples the seeds of both, each on its own
    growth    = the slope of ln(median over seeds) against ln x; its interval resamples seeds
    profile   = the share of seeds with a score above tau, for every tau

paper: mean and standard deviation over four seeds, and ranks by the mean.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_RESAMPLES = 2_000
_INTERVAL = (2.5, 97.5)  # percentiles


def deviation(values: Sequence[float] | np.ndarray) -> float:
    """Return the standard deviation over seeds; NaN for a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else np.nan


def normalise(returns: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale returns so that `low` becomes 0 and `high` becomes 1."""
    if not high > low:
        raise ValueError(f"low={low}, high={high}: nothing between them; give a high return above the low one")
    return (returns - low) / (high - low)


class Estimate(NamedTuple):
    """A number with its confidence interval, NaN where there is none."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Sequence[np.ndarray]) -> Estimate:
    """Return the IQM over tasks, each [seeds]; it has no interval if a task has a single seed."""

    def middle_mean(pooled: np.ndarray) -> np.ndarray | np.floating:
        cut = pooled.shape[-1] // 4
        return np.sort(pooled, axis=-1)[..., cut : pooled.shape[-1] - cut].mean(axis=-1)

    value = float(middle_mean(np.concatenate(scores)))
    if min(len(seeds) for seeds in scores) < 2:
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(0)
    resampled = [seeds[rng.integers(len(seeds), size=(_RESAMPLES, len(seeds)))] for seeds in scores]
    low, high = np.percentile(middle_mean(np.concatenate(resampled, axis=1)), _INTERVAL)
    return Estimate(value, float(low), float(high))


def mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the mean's interval at each point of [points, seeds]; NaN for a single seed. All points have
    the same resamples."""
    points, seeds = values.shape
    if seeds < 2:
        return np.full(points, np.nan), np.full(points, np.nan)
    drawn = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, seeds))
    weights = (drawn[:, :, None] == np.arange(seeds)).mean(axis=1)  # [resamples, seeds]
    low, high = np.percentile(values @ weights.T, _INTERVAL, axis=1)
    return low, high


def mean_difference(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Estimate:
    """Return the mean over tasks of how much larger the mean of `first` is than that of `second`; both have the scores
    of each task, [seeds]. It has no interval if a task has a single seed."""
    value = float(np.mean([a.mean() - b.mean() for a, b in zip(first, second, strict=True)]))
    if min(len(seeds) for seeds in (*first, *second)) < 2:
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(0)

    def resample(scores: Sequence[np.ndarray]) -> np.ndarray:
        means = [seeds[rng.integers(len(seeds), size=(_RESAMPLES, len(seeds)))].mean(axis=1) for seeds in scores]
        return np.mean(means, axis=0)

    low, high = np.percentile(resample(first) - resample(second), _INTERVAL)
    return Estimate(value, float(low), float(high))


def growth(x: Sequence[float], needed: np.ndarray) -> Estimate:
    """Return the slope of ln(median) against ln x for numbers [points, seeds], which may be infinite; NaN if a median
    is infinite, or for a single point.

    All points have the same resamples. A resample with an infinite median counts as an infinite slope, so that seeds
    that never finish widen the interval upwards.
    """
    points, seeds = needed.shape
    if points < 2:
        return Estimate(np.nan, np.nan, np.nan)
    log_x = np.log(x) - np.mean(np.log(x))

    def slopes(numbers: np.ndarray) -> np.ndarray:
        medians = np.median(numbers, axis=-1)  # [points, ...]
        finite = np.isfinite(medians).all(axis=0)
        logs = np.log(np.where(finite, medians, 1.0))
        return np.where(finite, np.tensordot(log_x, logs, axes=1) / np.sum(log_x**2), np.inf)

    value = float(slopes(needed))
    if seeds < 2 or not np.isfinite(value):
        return Estimate(value if np.isfinite(value) else np.nan, np.nan, np.nan)
    drawn = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, seeds))
    low, high = np.percentile(slopes(needed[:, drawn]), _INTERVAL, method="nearest")
    return Estimate(value, float(low), float(high))


def profile(scores: Sequence[np.ndarray], thresholds: np.ndarray) -> np.ndarray:
    """Return the share of seeds above each threshold; every task has the same weight, however many seeds it has."""
    return np.mean([(seeds[:, None] > thresholds[None, :]).mean(axis=0) for seeds in scores], axis=0)


class Rank(NamedTuple):
    """The rank of an algorithm over tasks; 1 is the best."""

    mean: float
    median: float


def ranks(means: Mapping[str, Mapping[str, float]]) -> dict[str, Rank]:
    """Rank the algorithms of task -> algorithm -> mean return; equal returns share the mean of their ranks.

    An algorithm without a number on a task is last there, because it could not be run.
    """
    names = list(dict.fromkeys(name for of_task in means.values() for name in of_task))
    table = np.array([[of_task.get(name, -np.inf) for name in names] for of_task in means.values()])
    better = (table[:, None, :] > table[:, :, None]).sum(axis=2)
    equal = (table[:, None, :] == table[:, :, None]).sum(axis=2)
    rank = dict(zip(names, (better + (equal + 1) / 2).T, strict=True))
    return {name: Rank(float(of_tasks.mean()), float(np.median(of_tasks))) for name, of_tasks in rank.items()}
