"""The information gain and the sum of the bonuses, against their bounds (paper: appendix A.3 and appendix B).

    I_N = ln det(I + sum_n Sigma_pi_n / lambda)  <=  d ln(1 + N / (d lambda))  <=  d ln(1 + N / lambda)

    sum_{n < N} E_{d_pi_n+1} b_n  <=  c sqrt(2 N I_N)                             as printed; false for a small lambda
                                  <=  c sqrt((N - 1) kappa(x) I_N)                repaired
    kappa(x) = x / ln(1 + x),     x = min{1 / lambda, (H / c)^2}

The potential lemma bounds a trace by twice a logarithm, which fails where the trace is above 2.51. The repair has
kappa(x) in place of 2, for the largest trace that counts: a trace is at most 1 / lambda, and what is above (H / c)^2
does not count, because b_n is at most H. docs/theory.md has the proof.

The bounds are about any sequence of distributions, so also about the samples of a run, of which its Sigma is made. The
bonus of a run has a factor 2 (Eq. 2), so c is 2 bonus_scale here.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.experiment import Done, Row, Rows, Tables
from pcmlp.experiments.job import Job, Scale
from pcmlp.experiments.theorems import theorem_settings
from pcmlp.features import feature_dim
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_metrics

_ROUNDING = 1e-5  # relative rounding error of 32 bits and of the digits of metrics.csv
_SELDOM = "eval_every=1000000"  # these runs are not about returns
_FEWER_PLANS = ("planner.num_plans=100", "planner.elites=10", "eval_episodes=2", _SELDOM)


class Measured(NamedTuple):
    """A task of Algorithm 1 whose gain is measured."""

    task: str
    algo: str
    steps: int
    settings: tuple[str, ...] = ()


TASKS = (
    Measured("combination-lock", "pcmlp-linear", 4_000, (_SELDOM,)),
    Measured("low-rank", "pcmlp-linear", 50_000, (_SELDOM,)),
    Measured("knr-lds", "pcmlp-knr", 600, _FEWER_PLANS),
    Measured("knr-poly", "pcmlp-knr", 800, _FEWER_PLANS),
)
# The preset's c and lambda; its c with the lambda of the theorems; the c and lambda of the theorems.
LABELS = ("gain-preset", "gain-ridge-1", "gain-theorem")


def jobs() -> list[Job]:
    """Return the runs: each task with each choice of c and lambda."""
    return [_job(measured, label) for measured in TASKS for label in LABELS]


def _job(measured: Measured, label: str) -> Job:
    task, algo, steps, settings = measured
    if label == "gain-theorem":
        changed = theorem_settings(resolve(task, algo, (0,), steps, settings))
    else:
        changed = ("ridge=1",) if label == "gain-ridge-1" else ()
    return Job("theory", task, label, algo, steps, (*settings, *changed))


def potential_factor(ridge: float, most: float = math.inf) -> float:
    """Return kappa(x) for x = min{1 / lambda, most}: sum_n min{w_n, most} <= kappa(x) I_N for the traces w_n of the
    potential lemma, which has 2 in its place."""
    x = min(1 / ridge, most)
    return x / math.log1p(x)


class Series(NamedTuple):
    """What a run has measured after its first N policies, for N = 1, 2, ...: [iterations, seeds]."""

    gain: np.ndarray  # I_N of the samples
    bonus: np.ndarray  # sum_{n < N} of the mean of b_n over the samples of pi_n+1


def series(metrics: Mapping[str, list[float]], seeds: int) -> Series:
    """Return the gain and the sum of the bonuses. Row n of `bonus_mean` is about b_{n-1} and the samples of pi_n; the
    lemma begins with b_1."""
    gain, paid = (np.reshape(metrics[name], (-1, seeds))[1:] for name in ("info_gain", "bonus_mean"))
    return Series(gain, np.cumsum(paid, axis=0) - paid[:1])


class Bounds(NamedTuple):
    """The bounds on the gain and on the sum of the bonuses, [iterations, seeds] or [iterations, 1]."""

    gain: np.ndarray
    gain_spread: np.ndarray
    bonus: np.ndarray
    bonus_dim: np.ndarray
    repaired: np.ndarray


def bounds(gain: np.ndarray, dim: int, ridge: float, scale: float, horizon: float) -> Bounds:
    """Return all bounds, for b = min{`scale` sqrt(phi^T Sigma^-1 phi), `horizon`}."""
    N = np.arange(1, len(gain) + 1)[:, None]
    most = dim * np.log1p(N / ridge)
    factor = potential_factor(ridge, (horizon / scale) ** 2)
    return Bounds(
        most,
        dim * np.log1p(N / (dim * ridge)),
        scale * np.sqrt(2 * N * gain),
        scale * np.sqrt(2 * N * most),
        scale * np.sqrt((N - 1) * factor * gain),
    )


def _above(measured: np.ndarray, bound: np.ndarray) -> np.ndarray:
    return measured > bound * (1 + _ROUNDING)


def _largest_ratio(measured: np.ndarray, bound: np.ndarray) -> float:
    """Return the largest ratio over seeds and N; from the second policy on, because the sum begins there."""
    return float(np.max(measured[1:] / bound[1:]))


def gain_row(named: Row, found: Series, limits: Bounds, dim: int, ridge: float) -> Row:
    """Return the row of a run in the table of gains."""
    last, N = found.gain[-1], len(found.gain)
    return {
        **named,
        "policies": N,
        "dim": dim,
        "gain": last.mean(),
        "largest_gain": last.max(),
        "bound": limits.gain[-1, 0],
        "bound_spread": limits.gain_spread[-1, 0],
        "share_of_bound": last.mean() / limits.gain[-1, 0],
        "effective_dim": last.mean() / math.log1p(N / ridge),
        "above": int(_above(found.gain, limits.gain_spread).sum()),
        "of": found.gain.size,
    }


def bonus_row(named: Row, found: Series, limits: Bounds) -> Row:
    """Return the row of a run in the table of sums of bonuses. `N_above` are the least and the largest N at which the
    sum of a seed is above the printed bound."""
    above = _above(found.bonus, limits.bonus)[1:]
    where = 2 + np.flatnonzero(above.any(axis=1))
    return {
        **named,
        "policies": len(found.bonus),
        "sum": found.bonus[-1].mean(),
        "bound": limits.bonus[-1].mean(),
        "bound_dim": limits.bonus_dim[-1, 0],
        "repaired": limits.repaired[-1].mean(),
        "largest_ratio": _largest_ratio(found.bonus, limits.bonus),
        "largest_ratio_dim": _largest_ratio(found.bonus, limits.bonus_dim),
        "largest_ratio_repaired": _largest_ratio(found.bonus, limits.repaired),
        "above": int(above.sum()),
        "above_dim": int(_above(found.bonus, limits.bonus_dim)[1:].sum()),
        "above_repaired": int(_above(found.bonus, limits.repaired)[1:].sum()),
        "of": above.size,
        "seeds_above": int(above.any(axis=0).sum()),
        "N_above": f"{where.min()} to {where.max()}" if where.size else "",
    }


def tables(done: Done) -> Tables:
    """Yield `gain` and `bonus_sum`, each with a row for each run."""
    gains: Rows = []
    sums: Rows = []
    for job in done.jobs:
        if job.experiment != "theory" or job.label not in LABELS:
            continue
        problem, algorithm = build(job.config())
        assert isinstance(algorithm, PCMLP)
        assert callable(algorithm.features)
        mdp, ridge, c = problem.world.mdp, algorithm.ridge, algorithm.bonus_scale
        dim = feature_dim(algorithm.features, mdp)
        found = series(read_metrics(done.result(job)), len(job.seeds))
        limits = bounds(found.gain, dim, ridge, 2 * c, mdp.horizon)
        named: Row = {"task": job.task, "run": job.label, "ridge": ridge}
        gains.append(gain_row(named, found, limits, dim, ridge))
        if len(found.bonus) > 1:
            sums.append(bonus_row({**named, "bonus_scale": c}, found, limits))
    yield "gain", gains
    yield "bonus_sum", sums


def fresh_directions(scale: Scale) -> Rows:
    """Return the sum of the bonuses and its bounds if each of N = d policies visits one direction of its own: the worst
    case for the printed lemma. c is 1, and nothing is capped."""
    N = 10
    rows: Rows = []
    for ridge in (1.0, 0.398, 0.1, 0.01, 0.001):
        gain = np.arange(1, N + 1)[:, None] * math.log1p(1 / ridge)
        limits = bounds(gain, N, ridge, 1.0, math.inf)
        paid = (N - 1) / math.sqrt(ridge)
        rows.append(
            {
                "ridge": ridge,
                "policies": N,
                "sum": paid,
                "bound": limits.bonus[-1, 0],
                "bound_dim": limits.bonus_dim[-1, 0],
                "repaired": limits.repaired[-1, 0],
                "holds": paid <= limits.bonus[-1, 0],
                "holds_repaired": paid <= limits.repaired[-1, 0] * (1 + _ROUNDING),
            }
        )
    return rows


MEASURED: Mapping[str, Callable[[Scale], Rows]] = {"bonus_sum_fresh": fresh_directions}
