"""The certificate on the three tasks with a theorem: how often it is below the true gap, and how loose it is.

(paper: the optimism lemmas of appendix A.3; what is proved here and what is not: docs/theory.md, the certificate.)

    pcmlp paper certificate                                 # all of it
    pcmlp paper certificate --only low-rank/proved          # one run
"""

import math
from typing import NamedTuple

import jax.random as jr
import numpy as np

from pcmlp import theory
from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import Job
from pcmlp.experiments.tables import Row
from pcmlp.features import feature_dim
from pcmlp.framework import PCMLP
from pcmlp.models import KNR
from pcmlp.planners import ValueIteration
from pcmlp.runs.build import algorithm_1
from pcmlp.runs.certificate import proved_scale
from pcmlp.runs.config import resolve
from pcmlp.runs.folder import read_metrics
from pcmlp.runs.presets import default_algorithm
from pcmlp.tasks.knr import GoalReward
from pcmlp.types import MDP

NAME = "certificate"
SEEDS = tuple(range(100))
_ROUNDING = 1e-5  # of a promise, in 32-bit numbers

# The lock of 5 digits opens within 20 policies. The regulator has half the plans of its preset and a fifth of the
# episodes of an evaluation, so that a hundred runs of it take minutes.
SMALL = {
    "combination-lock": (250, ("task.horizon=5",)),
    "low-rank": (20_000, ()),
    "knr-lds": (160, ("planner.num_plans=100", "planner.elites=10", "eval_episodes=4")),
}
LABELS = ("theorem", "proved", "preset", "no-bonus", "covariance-off")
_OF_THE_CART = ("theorem", "preset", "covariance-off")


def jobs() -> list[Job]:
    return [job(task, label) for task in SMALL for label in (_OF_THE_CART if task == "knr-lds" else LABELS)]


def job(task: str, label: str) -> Job:
    return Job(NAME, task, label, default_algorithm(task), SMALL[task][0], settings_of(task, label), SEEDS)


class Gap(NamedTuple):
    """[iterations, seeds], from the first iteration on."""

    certificate: np.ndarray
    true: np.ndarray
    promised: np.ndarray

    @property
    def below(self) -> np.ndarray:
        """Where the certificate is no bound: what was promised is less than the optimum."""
        return self.certificate < self.true - _ROUNDING * np.maximum(1.0, np.abs(self.promised))


def settings_of(task: str, label: str) -> tuple[str, ...]:
    """theorem: the theorem's c and its ridge of 1. proved: the least c that is proved for the run, at the preset's
    ridge. preset: what a run has by default."""
    steps, small = SMALL[task]
    if label == "preset":
        return small
    if label == "no-bonus":
        return (*small, "bonus_scale=0")
    if label == "covariance-off":
        return (*small, "covariance=off")
    if label == "proved":
        c = proved_scale(algorithm_1(resolve(task, None, (0,), steps, small)))
        assert c is not None
        return (*small, f"bonus_scale={math.nextafter(c, math.inf)!r}")
    return (*small, f"bonus_scale={theorem_scale(algorithm_1(resolve(task, None, (0,), steps, small)))!r}", "ridge=1")


def theorem_scale(algo: PCMLP) -> float:
    horizon, model = algo.world.mdp.horizon, algo.model
    if isinstance(model, KNR):
        return theory.knr_scale(horizon, model.radius, model.sigma)
    return theory.linear_mdp_scale(horizon, feature_dim(algo.features, algo.world.states, algo.world.actions))


def optimum(mdp: MDP) -> float:
    """J*, exactly in a finite MDP; of the cart an upper bound of it."""
    if isinstance(mdp.transition, KNR):
        return cart_bound(mdp)
    planner = ValueIteration()
    value = planner.promise(jr.key(0), mdp, planner.init(jr.key(0), mdp))
    return float(value)


def cart_bound(mdp: MDP) -> float:
    """An upper bound of J* on `knr-lds`: at each step, the probability that full throttle is close enough by then.

    Position is (what the actions do) + (what the noise does), and the second does not depend on any policy. Along the
    way to the goal the first is at most that of full throttle, so whoever is in the circle at step t has

        u . noise_t >= |goal| - radius - sqrt(2) p_t,    u = goal / |goal|,    p_t: full throttle in one coordinate
    """
    truth, reward = mdp.transition, mdp.reward
    assert isinstance(truth, KNR)
    assert isinstance(reward, GoalReward)
    needed = float(np.linalg.norm(np.asarray(reward.goal))) - reward.radius
    position = velocity = total = 0.0
    step, spread = np.array([[1.0, 0.3], [0.0, 0.7]]), np.zeros((2, 2))
    for _ in range(mdp.horizon):
        position, velocity = position + 0.3 * velocity, 0.7 * velocity + 0.3
        spread = step @ spread @ step.T + truth.sigma**2 * np.eye(2)
        short = (needed - math.sqrt(2) * position) / math.sqrt(spread[0, 0])
        total += 0.99 * 0.5 * math.erfc(short / math.sqrt(2)) + 0.01
    return total


def gaps(metrics: dict[str, list[float]], seeds: int, best: float) -> Gap:
    """The deployed policy's value is what the certificate was made with: promised - certificate."""
    promised, certificate = (np.reshape(metrics[name], (-1, seeds))[1:] for name in ("promised", "certificate"))
    return Gap(certificate, best - (promised - certificate), promised)


def row_of(job: Job, gap: Gap, kind: str, best: float) -> Row:
    config = job.config()
    row: Row = {
        "task": job.task,
        "run": job.label,
        "bonus_scale": config.bonus_scale,
        "ridge": config.ridge,
        "kind": kind,
        "runs": gap.true.shape[1],
        "iterations": gap.true.shape[0],
        "optimum": best,
        "below_the_gap": int(gap.below.sum()),
        "of": gap.below.size,
        "runs_ever_below": int(gap.below.any(axis=0).sum()),
    }
    for when, n in (("first", 0), ("last", -1)):
        certificate, true = float(np.median(gap.certificate[n])), float(np.median(gap.true[n]))
        ratio = certificate / true if true > 1e-3 else ""
        row |= {f"certificate_{when}": certificate, f"gap_{when}": true, f"ratio_{when}": ratio}
    return row


def tables(done: Done) -> Tables:
    yield NAME, [finished_row(job, done) for job in done.jobs]


def finished_row(job: Job, done: Done) -> Row:
    best = optimum(algorithm_1(job.config()).world.mdp)
    gap = gaps(read_metrics(done.result(job)), len(job.seeds), best)
    return row_of(job, gap, done.summary(job)["certificate"]["kind"], best)


EXPERIMENT = Experiment(
    name=NAME,
    title="The certificate",
    place="appendix A.3, optimism",
    shows="how often the certificate is below the true gap, and how loose it is, where there are theorems",
    jobs=jobs,
    tables=tables,
)

if __name__ == "__main__":
    main(EXPERIMENT)
