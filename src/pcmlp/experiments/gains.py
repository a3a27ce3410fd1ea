"""The information gain and the sum of the bonuses, against their bounds (paper: appendix A.3 and appendix B).

    I_N = ln det(I + sum_n Sigma_pi_n / lambda)  <=  d ln(1 + N / (d lambda))  <=  d ln(1 + N / lambda)

    sum_{n < N} E_{d_pi_n+1} b_n  <=  c sqrt(2 N I_N)                             as printed; false for a small lambda
                                  <=  c sqrt((N - 1) kappa(x) I_N)                repaired
    kappa(x) = x / ln(1 + x),     x = min{1 / lambda, (H / c)^2}

In the lemma I_N is the largest gain of any N policies; the proof has the smaller gain of the run's own policies. A sum
that is above the bound with the run's own gain contradicts the proof, and one that is above the bound with the largest
gain contradicts the lemma.

The potential lemma bounds a trace by twice the growth of ln det Sigma, which may be false for a trace above 2.51. The
repair has kappa(x) in place of 2, where x is the largest trace that counts: a trace is at most 1 / lambda, and the part
above (H / c)^2 does not count, because b_n is at most H. docs/theory.md has the proof.

The bounds hold for any sequence of distributions. So they also hold for the samples of a run, of which its Sigma is
made. The bonus of a run has a factor 2 (Eq. 2), so c is 2 bonus_scale here.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp import finite, theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.experiment import Done, Row, Rows, Tables
from pcmlp.experiments.job import Job, Scale
from pcmlp.experiments.theorems import lock_jobs, theorem_settings
from pcmlp.features import feature_dim
from pcmlp.finite import FiniteTransition
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.types import MDP, Features

_ROUNDING = 1e-5  # relative error of 32-bit numbers, and of the digits in metrics.csv
_SHARES = np.linspace(0.05, 1, 20) ** 2  # steps of a search along a line
_SELDOM = "eval_every=1000000"  # the returns of these runs are not used
_FEWER_PLANS = ("planner.num_plans=100", "planner.elites=10", "eval_episodes=2", _SELDOM)


class Measured(NamedTuple):
    """A task of Algorithm 1 whose gain is measured."""

    task: str
    algo: str
    steps: int
    settings: tuple[str, ...] = ()


TASKS = (
    Measured("combination-lock", "pcmlp-linear", 250, ("task.horizon=5", _SELDOM)),
    Measured("low-rank", "pcmlp-linear", 50_000, (_SELDOM,)),
    Measured("knr-lds", "pcmlp-knr", 600, _FEWER_PLANS),
    Measured("knr-poly", "pcmlp-knr", 800, _FEWER_PLANS),
    Measured("linear-core", "pcmlp-linear", 8_000, (_SELDOM,)),
    Measured("knr-pendulum", "pcmlp-knr", 360, _FEWER_PLANS),
    Measured("knr-rbf", "pcmlp-knr", 360, _FEWER_PLANS),
)
# The preset's c and lambda; its c with the lambda of the theorems; the c and lambda of the theorems.
LABELS = ("gain-preset", "gain-ridge-1", "gain-theorem")
_LOCKS = ("horizon-10", "pcmlp-linear", "horizon-40")  # runs of combination_lock, with more digits


def jobs() -> list[Job]:
    """Return the runs: each task with each choice of c and lambda, and longer locks."""
    own = [_job(measured, label) for measured in TASKS for label in LABELS]
    return [*own, *(job for job in lock_jobs() if job.label in _LOCKS)]


@functools.cache  # building a problem takes half a second, and the jobs are asked for often
def _job(measured: Measured, label: str) -> Job:
    task, algo, steps, settings = measured
    if label == "gain-theorem":
        changed = theorem_settings(resolve(task, algo, (0,), steps, settings))
    else:
        changed = ("ridge=1",) if label == "gain-ridge-1" else ()
    return Job("theory", task, label, algo, steps, (*settings, *changed))


class Series(NamedTuple):
    """The measurements of a run after its first N policies, for N = 1, 2, ...: [iterations, seeds]."""

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
    factor = theory.potential_factor(ridge, (horizon / scale) ** 2)
    return Bounds(
        most,
        dim * np.log1p(N / (dim * ridge)),
        scale * np.sqrt(2 * N * gain),
        scale * np.sqrt(2 * N * most),
        scale * np.sqrt((N - 1) * factor * gain),
    )


def _above(measured: np.ndarray, bound: np.ndarray) -> np.ndarray:
    return measured > bound * (1 + _ROUNDING)


def gain_row(named: Row, found: Series, limits: Bounds, largest: float | None) -> Row:
    """Return the row of a run in the table of gains; `largest` is a bound on the gain of any N policies."""
    last = found.gain[-1]
    return {
        **named,
        "gain": last.mean(),
        "gain_of_best_seed": last.max(),
        "largest_gain": "" if largest is None else largest,
        "bound_spread": limits.gain_spread[-1, 0],
        "bound": limits.gain[-1, 0],
        "share_of_bound": last.mean() / limits.gain[-1, 0],
        "above": int(_above(found.gain, limits.gain_spread).sum()),
        "of": found.gain.size,
    }


def bonus_row(named: Row, found: Series, limits: Bounds, largest: np.ndarray) -> Row:
    """Return the row of a run in the table of sums of bonuses; `largest` is the printed bound with the largest gain of
    any N policies, [iterations, 1], and infinite where it is unknown. `N_above` is the least and the largest N at which
    the sum of some seed is above the printed bound with its own gain."""
    measured = found.bonus[1:]
    above = {name: _above(measured, bound[1:]) for name, bound in (*limits._asdict().items(), ("largest", largest))}
    where = 2 + np.flatnonzero(above["bonus"].any(axis=1))
    return {
        **named,
        "sum": found.bonus[-1].mean(),
        "bound": limits.bonus[-1].mean(),
        "bound_dim": limits.bonus_dim[-1, 0],
        "repaired": limits.repaired[-1].mean(),
        "largest_ratio": np.max(measured / limits.bonus[1:]),
        "largest_ratio_dim": np.max(measured / limits.bonus_dim[1:]),
        "largest_ratio_repaired": np.max(measured / limits.repaired[1:]),
        "above": int(above["bonus"].sum()),
        "above_with_largest_gain": int(above["largest"].sum()),
        "above_dim": int(above["bonus_dim"].sum()),
        "above_repaired": int(above["repaired"].sum()),
        "of": measured.size,
        "seeds_above": int(above["bonus"].any(axis=0).sum()),
        "N_above": f"{where.min()} to {where.max()}" if where.size else "",
    }


def tables(done: Done) -> Tables:
    """Yield `gain` and `bonus_sum`, each with a row for each run."""
    own = {job.where for job in jobs()}
    gains: Rows = []
    sums: Rows = []
    for job in done.jobs:
        if job.where not in own:
            continue
        problem, algorithm = build(job.config())
        assert isinstance(algorithm, PCMLP)
        phi, mdp, ridge, c = algorithm.features, problem.world.mdp, algorithm.ridge, 2 * algorithm.bonus_scale
        assert callable(phi)
        dim = feature_dim(phi, mdp)
        found = series(read_metrics(done.result(job)), len(job.seeds))
        limits = bounds(found.gain, dim, ridge, c, float(mdp.horizon))
        pairs = Pairs.of(mdp, phi) if isinstance(mdp.transition, FiniteTransition) else None
        named: Row = {"task": job.task, "run": job.label, "horizon": mdp.horizon, "ridge": ridge}
        named |= {"bonus_scale": algorithm.bonus_scale, "policies": len(found.gain), "dim": dim}
        gains.append(gain_row(named, found, limits, pairs and pairs.largest_gain(len(found.gain), ridge)))
        if len(found.gain) > 1:
            sums.append(bonus_row(named, found, limits, _printed_bound(found, limits, pairs, c, ridge)))
    yield "gain", gains
    yield "bonus_sum", sums


def _printed_bound(found: Series, limits: Bounds, pairs: "Pairs | None", c: float, ridge: float) -> np.ndarray:
    """Return c sqrt(2 N I_N) with the largest gain, at each N where a sum is above the bound with its own gain."""
    bound = np.full((len(found.gain), 1), np.inf)
    for n in np.flatnonzero(_above(found.bonus, limits.bonus).any(axis=1)).tolist():
        if pairs is not None:
            bound[n] = c * math.sqrt(2 * (n + 1) * pairs.largest_gain(n + 1, ridge))
    return bound


class Pairs(NamedTuple):
    """A finite MDP and its features: what the largest information gain depends on."""

    p: np.ndarray  # P(s' | s, a), [S, A, S]
    phi: np.ndarray  # [S, A, d]
    start: np.ndarray  # the initial distribution, [S]
    horizon: int

    @classmethod
    def of(cls, mdp: MDP, features: Features) -> "Pairs":
        """Return the tables of a finite MDP."""
        _, p = finite.tables(mdp)
        S, A, _ = p.shape
        phi = jax.vmap(lambda s: jax.vmap(lambda a: features(s, a))(jnp.arange(A)))(jnp.arange(S))
        start = finite.initial_distribution(mdp, S)
        tables = (np.asarray(x, np.float64) for x in (p, phi, start))
        return cls(*tables, horizon=mdp.horizon)

    def best_visits(self, reward: np.ndarray) -> np.ndarray:
        """Return d_pi of the policy with the largest sum of a reward [S, A], found by dynamic programming."""
        value, actions = np.zeros(len(self.p)), []
        for _ in range(self.horizon):
            of_action = reward + self.p @ value
            actions.append(of_action.argmax(axis=1))
            value = of_action.max(axis=1)
        state, states, visits = self.start, np.arange(len(self.p)), np.zeros(reward.shape)
        for action in reversed(actions):
            visits[states, action] += state / self.horizon
            state = state @ self.p[states, action]
        return visits

    def largest_gain(self, policies: int, ridge: float, updates: int = 100) -> float:
        """Return an upper bound on I_N of any N policies, near the maximum if the MDP is small.

        The mean of their distributions is the distribution of a mixture of policies, and ln det is concave in it. So
        each update of the Frank-Wolfe algorithm gives a bound: the gain, plus the largest increase that its gradient
        allows. Another bound is d ln(1 + N / (d lambda)). The smallest of all these bounds is returned.
        """
        phi, dim = self.phi.reshape(-1, self.phi.shape[-1]), self.phi.shape[-1]

        def information(visits: np.ndarray) -> np.ndarray:
            return np.eye(dim) + policies / ridge * (phi.T * visits.reshape(-1)) @ phi

        visits = self.best_visits(np.zeros(self.phi.shape[:2]))
        least = dim * math.log1p(policies / (dim * ridge))
        for _ in range(updates):
            inverse = np.linalg.inv(information(visits))
            gradient = policies / ridge * np.einsum("ij,jk,ik->i", phi, inverse, phi, optimize=True)
            better = self.best_visits(gradient.reshape(visits.shape))
            gain = np.linalg.slogdet(information(visits))[1]
            least = min(least, gain + float(gradient @ (better - visits).reshape(-1)))
            if least < 1.01 * gain:
                break
            mixed = [visits + share * (better - visits) for share in _SHARES]
            visits = max(mixed, key=lambda mix: np.linalg.slogdet(information(mix))[1])
        return least


def fresh_directions(scale: Scale) -> Rows:
    """Return the sum of the bonuses and its bounds if each of N = d policies visits one direction of its own. This is
    the worst case for the printed lemma. c is 1, and bonuses are not capped."""
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
