"""Both sides of each inequality in the proof of the theorems, from real runs (paper: appendix A; docs/proof.md).

    covariance     b_n <= b-hat_n <= 4 b_n                                       for large K
    regret         sum_{n<=N} (J* - J(pi_n)) <= 6 H^2 sum_{n<N} E_{pi_n+1} b_n + H
    bonus sum      sum_{n<N} E_{pi_n+1} b_n <= c sqrt(2 N d ln(1 + N / lambda))

A run prints none of these numbers, because they need the true distributions and values. In finite MDPs these are
computed exactly, so a sum above its bound cannot be an error of measurement.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.experiment import Done, Row, Rows, Tables
from pcmlp.experiments.history import History, bonus_table, play
from pcmlp.experiments.job import SEEDS, Job, Scale
from pcmlp.experiments.theorems import SMALL, optimum
from pcmlp.runs.certificate import DELTA, proved_scale
from pcmlp.runs.config import build, resolve
from pcmlp.types import MDP

LOCK, LOW_RANK = "combination-lock", "low-rank"
ITERATIONS = {LOCK: 50, LOW_RANK: 100}
SHOWN = (1, 6, 11, 21)  # iterations of the lock after which the bonus is drawn
RIDGES = (1.0, 0.01, 0.0001)
_COVER = 20  # policies whose covariance is estimated
_SAMPLES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def play_task(scale: Scale, task: str, c: str | float = "preset", ridge: float | None = None) -> tuple[PCMLP, History]:
    """Return a run with the preset's c, the least `proved` one or a number, and with the preset's ridge or another."""
    method, _, settings = SMALL[task]
    problem, algo = build(resolve(task, method, (0,), 1_000, settings))
    assert isinstance(algo, PCMLP)
    iterations = scale.size("lemma_runs", ITERATIONS[task])
    algo = algo if ridge is None else dataclasses.replace(algo, ridge=ridge)
    if c == "proved":
        c = least_scale(algo, problem.world.mdp, iterations)
    if not isinstance(c, str):
        algo = dataclasses.replace(algo, bonus_scale=float(c))
    keys = jax.vmap(jax.random.key)(jnp.array(SEEDS[: scale.size("trials", len(SEEDS))]))
    return algo, play(problem, algo, keys, iterations)


def least_scale(algo: PCMLP, mdp: MDP, iterations: int) -> float:
    """Return the least c at which every promise of a run is proved to be at least J*."""
    c = proved_scale(algo, mdp, iterations)
    assert c is not None
    return c


def thinned(iterations: int) -> list[int]:
    """Return up to 25 numbers of iterations, evenly spread on a logarithmic axis, with the last one."""
    return sorted({round(n) for n in np.geomspace(1, iterations, 25)})


# The running example


def lock(scale: Scale) -> Rows:
    """Return what each policy of one run on the lock does: how many digits it enters, the bonus for which it was
    planned at the pairs that it visits, and the information gain of the cover that contains it."""
    algo, run = play_task(scale, LOCK)
    states = np.arange(run.truth.shape[0])
    entered = np.einsum("nhxa,xay,y->nh", run.occupancy[:, 0], run.truth, np.where(states <= run.horizon, states, 0))
    gains = information_gains(algo, run)[:, 0]
    bonuses = planned_bonuses(algo, run)
    paid = ["", *np.sum(run.visits[1:-1, 0] * bonuses[:-1], axis=(1, 2))]
    return [
        {"iteration": n + 1, "digits": entered[n].max(), "bonus_paid": paid[n], "info_gain": gains[n]}
        for n in range(len(gains))
    ]


def lock_bonus(scale: Scale) -> Rows:
    """Return b-hat_n of the same run at every digit of the code, after some iterations."""
    algo, run = play_task(scale, LOCK)
    bonuses, code = planned_bonuses(algo, run), run.truth[np.arange(run.horizon), :, 1 + np.arange(run.horizon)]
    return [
        {"iteration": n, "digit": x + 1, "action": a, "right": int(np.argmax(code[x, :]) == a), "bonus": bonus}
        for n in SHOWN
        if n <= len(bonuses)
        for (x, a), bonus in np.ndenumerate(bonuses[n - 1, : run.horizon])
    ]


def planned_bonuses(algo: PCMLP, run: History) -> np.ndarray:
    """Return b-hat_n of the first seed, [N, S, A]: with the estimated covariance and the factor 2 of Eq. 2."""
    return bonus_table(run.phi, run.covariances[:, 0], 2 * algo.bonus_scale, run.horizon)


# Covariance: b-hat against b


def covariance(scale: Scale) -> Rows:
    """Return the smallest and largest b-hat_n / b_n over all pairs and n <= 20, for the policies of a run on `low-rank`
    and K independent draws from each of them, for growing K.

    Both bonuses are without the cap H, which would only bring the ratio closer to 1.
    """
    _, run = play_task(scale, LOW_RANK)
    visits, repeats = run.visits[:_COVER, 0], scale.size("lemma_runs", 100)
    rng = np.random.default_rng(0)
    rows: Rows = []
    for ridge in (1.0, 0.01):
        needed = theory.covariance_samples(len(visits), run.phi.shape[-1], DELTA, ridge)
        for samples in _SAMPLES:
            ratios = np.stack([bonus_ratios(rng, run.phi, visits, ridge, samples) for _ in range(repeats)])
            low, high = ratios.min((1, 2, 3)), ratios.max((1, 2, 3))
            within = float(np.mean((low >= 1) & (high <= 4)))
            ends = {"lowest": low.min(), "median_low": np.median(low), "median_high": np.median(high)}
            row = {"ridge": ridge, "samples": samples, **ends, "highest": high.max(), "within_1_and_4": within}
            rows.append({**row, "repeats": repeats, "policies": len(visits), "samples_of_the_lemma": needed})
    return rows


def bonus_ratios(
    rng: np.random.Generator, phi: np.ndarray, visits: np.ndarray, ridge: float, samples: int
) -> np.ndarray:
    """Return b-hat_n / b_n without their caps, [n, S, A], for this many draws from each of the distributions."""
    seen = np.stack([rng.multinomial(samples, d.ravel() / d.sum()).reshape(d.shape) / samples for d in visits])
    true, estimated = (
        np.cumsum(np.einsum("nxa,xai,xaj->nij", d, phi, phi), axis=0) + ridge * np.eye(phi.shape[-1])
        for d in (visits, seen)
    )
    return bonus_table(phi, estimated, 2.0, math.inf) / bonus_table(phi, true, 1.0, math.inf)


# Regret, and the sum of bonuses


def regret(scale: Scale) -> Rows:
    """Return both sides of the regret lemma after N iterations, and the gap of the best policy so far."""
    rows: Rows = []
    for task in (LOCK, LOW_RANK):
        best = optimum(build(resolve(task, SMALL[task][0], (0,), 1_000, SMALL[task][2]))[0].world.mdp)
        for label, c in (("proved", "proved"), ("preset", "preset"), ("no-bonus", 0.0)):
            algo, run = play_task(scale, task, c)
            named: Row = {"task": task, "run": label, "bonus_scale": algo.bonus_scale, "ridge": algo.ridge}
            rows.extend({**named, "optimum": best, **row} for row in regret_rows(algo, run, best))
    return rows


def regret_rows(algo: PCMLP, run: History, best: float) -> Iterator[Row]:
    """Yield both sides after N iterations."""
    gaps, bounds = best - run.values[:-1], regret_bounds(algo, run)
    sums = np.cumsum(gaps, axis=0)
    for n in thinned(len(gaps)):
        left, right = sums[n - 1], bounds[n - 1]
        yield {
            "iterations": n,
            "seeds": len(left),
            "regret_median": np.median(left),
            "regret_most": left.max(),
            "bound_median": np.median(right),
            "bound_least": right.min(),
            "share_under_bound": float(np.mean(left <= right)),
            "best_gap_median": np.median(gaps[:n].min(0)),
            "best_gap_most": gaps[:n].min(0).max(),
        }


def regret_bounds(algo: PCMLP, run: History) -> np.ndarray:
    """Return 6 H^2 sum_{n<N} E b_n + H for every N, [N, seeds]."""
    return 6 * run.horizon**2 * bonus_sums(algo, run) + run.horizon


def bonus_sums(algo: PCMLP, run: History) -> np.ndarray:
    """Return sum_{n<N} E_{pi_n+1} b_n for every N, [N, seeds]; the sum for N = 1 is empty."""
    expected = run.expected_bonuses(algo.bonus_scale, algo.ridge)[:-1]
    return np.cumsum(np.concatenate([np.zeros_like(run.values[:1]), expected]), axis=0)


def bonus_sum(scale: Scale) -> Rows:
    """Return the sum of bonuses on the lock and its bound, for a large and two small ridges, each with the least c that
    is proved for it."""
    rows: Rows = []
    for ridge in RIDGES:
        algo, run = play_task(scale, LOCK, "proved", ridge)
        sums, gains = bonus_sums(algo, run), information_gains(algo, run)
        for n in thinned(len(sums)):
            printed, repaired = sum_bounds(algo, run, n)
            total: Row = {"sum_median": np.median(sums[n - 1]), "sum_most": sums[n - 1].max()}
            with_gain = algo.bonus_scale * np.sqrt(2 * n * gains[n - 1])  # of each seed
            bounds = {"printed": printed, "printed_with_gain": with_gain, "repaired": repaired}
            under = {f"share_under_{name}": float(np.mean(sums[n - 1] <= bound)) for name, bound in bounds.items()}
            medians = {name: float(np.median(bound)) for name, bound in bounds.items()}
            rows.append({"ridge": ridge, "bonus_scale": algo.bonus_scale, "iterations": n, **total, **medians, **under})
    return rows


def sum_bounds(algo: PCMLP, run: History, iterations: int) -> tuple[float, float]:
    """Return the bound on the sum of bonuses as printed, and with the factor that is proved for the run's lambda and c
    in place of 2."""
    root = algo.bonus_scale * math.sqrt(iterations * run.phi.shape[-1] * math.log1p(iterations / algo.ridge))
    factor = theory.potential_factor(algo.ridge, (run.horizon / algo.bonus_scale) ** 2)
    return math.sqrt(2) * root, math.sqrt(factor) * root


def information_gains(algo: PCMLP, run: History) -> np.ndarray:
    """Return ln det(Sigma_N / lambda) of the run's own policies for every N, [N, seeds]."""
    return np.linalg.slogdet(run.true_covariances(algo.ridge) / algo.ridge)[1]


def jobs() -> list[Job]:
    """Return no runs: run folders do not have the exact distributions, so the tables below make their own runs."""
    return []


def tables(done: Done) -> Tables:
    """Yield no tables, because there are no runs to make them of."""
    yield from ()


MEASURED: Mapping[str, Callable[[Scale], Rows]] = {
    "chain_lock": lock,
    "chain_lock_bonus": lock_bonus,
    "chain_covariance": covariance,
    "chain_regret": regret,
    "chain_bonus_sum": bonus_sum,
}
