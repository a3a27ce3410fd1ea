"""The theorems in practice: polynomial sample complexity on the combination lock, and the certificate.

paper: section 5, and the optimism lemmas of appendix A.3. docs/theory.md says what is proved here and what is not.
"""

import functools
import math
from typing import NamedTuple

import jax.random as jr
import numpy as np

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.experiment import Done, Experiment, Row, Rows, Tables, slope, solved_columns, steps_to_success
from pcmlp.experiments.job import NO_BONUS, NO_COVER, Job
from pcmlp.features import feature_dim
from pcmlp.models import KNR
from pcmlp.models.knr import KNRTransition
from pcmlp.planners import ValueIteration
from pcmlp.runs.certificate import proved_scale
from pcmlp.runs.config import RunConfig, build, resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.tasks import CombinationLock
from pcmlp.tasks.knr import GoalReward
from pcmlp.types import MDP

# combination_lock (section 5, polynomial sample complexity): uniform play opens a lock of H digits with probability
# A^-H. The controls get the whole budget, with fifty episodes per policy, which makes two hundred policies.

_LOCK, _LINEAR = "combination-lock", "pcmlp-linear"
_HORIZONS, _ACTIONS = (5, 10, 20, 40), 5
_FIFTY = "samples_per_policy=1000"
_LOCK_CONTROLS = {
    "random": ("random", (_FIFTY,)),
    "no-bonus": (_LINEAR, (NO_BONUS, _FIFTY)),
    "covariance-off": (_LINEAR, (NO_COVER, _FIFTY)),
}


def lock_jobs() -> list[Job]:
    """Return the runs of `combination_lock`."""
    controls = [(label, algo, 200_000, settings) for label, (algo, settings) in _LOCK_CONTROLS.items()]
    return [*map(_lock_job, _HORIZONS), *(Job("combination_lock", _LOCK, *made) for made in controls)]


def _lock_job(horizon: int) -> Job:
    own = horizon == CombinationLock.horizon
    label, settings = (_LINEAR, ()) if own else (f"horizon-{horizon}", (f"task.horizon={horizon}",))
    return Job("combination_lock", _LOCK, label, _LINEAR, 2 * _ACTIONS * horizon**2, settings)


def lock_tables(done: Done) -> Tables:
    """Yield the table of solved locks, and the growth of the steps: the slope of their logarithms is the degree."""
    found = done.jobs_of(_LOCK)
    opened = [job for label in (_LINEAR, *_LOCK_CONTROLS) if (job := found.get(label))]
    yield "who_opens_it", [solved_columns(job, done.summary(job)) for job in opened]
    rows: Rows = []
    for horizon in _HORIZONS:
        if job := found.get(_lock_job(horizon).label):
            needed = steps_to_success(done.summary(job))
            rows.append(
                {
                    "horizon": horizon,
                    "seeds_opened": int(np.isfinite(needed).sum()),
                    "median_steps": np.median(needed),
                    "least_steps": needed.min(),
                    "most_steps": needed.max(),
                    "steps_of_uniform_play": float(_ACTIONS) ** horizon * horizon,
                }
            )
    degree = slope(rows, "horizon", "median_steps")
    yield "growth", [{**row, "log_log_slope": degree} for row in rows]


COMBINATION_LOCK = Experiment(
    name="combination_lock",
    title="The combination lock",
    place="section 5, polynomial sample complexity",
    shows="who opens a lock of 20 digits; steps by number of digits",
    jobs=lock_jobs,
    tables=lock_tables,
)

# certificate: how often it is below the true gap, and how loose it is, on the three tasks with a theorem.

_HUNDRED = tuple(range(100))  # seeds
_ROUNDING = 1e-5  # relative rounding error of a promise in 32 bits

# The lock of 5 digits opens within 20 policies. The regulator has half the plans of its preset and a fifth of the
# episodes of an evaluation, so that a hundred runs of it take minutes.
SMALL = {  # method, steps, settings
    "combination-lock": ("pcmlp-linear", 250, ("task.horizon=5",)),
    "low-rank": ("pcmlp-linear", 20_000, ()),
    "knr-lds": ("pcmlp-knr", 160, ("planner.num_plans=100", "planner.elites=10", "eval_episodes=4")),
}
LABELS = ("theorem", "proved", "preset", "no-bonus", "covariance-off")
_CART_LABELS = ("theorem", "preset", "covariance-off")


def certificate_jobs() -> list[Job]:
    """Return the runs of `certificate`."""
    return [certificate_job(task, label) for task in SMALL for label in (_CART_LABELS if task == "knr-lds" else LABELS)]


def certificate_job(task: str, label: str) -> Job:
    """Return a run of `certificate`.

    The label `theorem` has the theorem's c and ridge 1; `proved` has the least c that is proved for the run, with the
    preset's ridge; `preset` has the defaults.
    """
    algo, steps, small = SMALL[task]
    own = {"preset": (), "no-bonus": (NO_BONUS,), "covariance-off": (NO_COVER,)}
    changed = own[label] if label in own else _proved_settings(task, label)
    return Job("certificate", task, label, algo, steps, (*small, *changed), _HUNDRED)


@functools.cache  # building a problem takes half a second, and the jobs are asked for often
def _proved_settings(task: str, label: str) -> tuple[str, ...]:
    algo, steps, small = SMALL[task]
    config = resolve(task, algo, (0,), steps, small)
    if label == "proved":
        problem, algorithm = build(config)
        assert isinstance(algorithm, PCMLP)
        c = proved_scale(algorithm, problem.world.mdp, config.num_iterations)
        assert c is not None
        return (f"bonus_scale={math.nextafter(c, math.inf)!r}",)
    return theorem_settings(config)


def theorem_settings(config: RunConfig) -> tuple[str, ...]:
    """Return the settings that give a run the c and the ridge of its theorem."""
    problem, algorithm = build(config)
    assert isinstance(algorithm, PCMLP)
    model, mdp = algorithm.model, problem.world.mdp
    if isinstance(model, KNR):
        assert model.radius is not None
        c = theory.knr_scale(mdp.horizon, model.radius, model.sigma)
    else:
        assert callable(algorithm.features)
        c = theory.linear_mdp_scale(mdp.horizon, feature_dim(algorithm.features, mdp))
    return (f"bonus_scale={c!r}", "ridge=1")


class Gap(NamedTuple):
    """Certificates and true gaps, [iterations, seeds], from the first iteration on."""

    certificate: np.ndarray
    true: np.ndarray
    promised: np.ndarray

    @property
    def below(self) -> np.ndarray:
        """Whether the certificate is not a bound, because the promise is less than the optimum."""
        return self.certificate < self.true - _ROUNDING * np.maximum(1.0, np.abs(self.promised))


def optimum(mdp: MDP) -> float:
    """Return J*, exactly in a finite MDP; an upper bound of it for the cart."""
    if isinstance(mdp.transition, KNRTransition):
        return cart_bound(mdp)
    planner = ValueIteration()
    value = planner.promise(jr.key(0), mdp, planner.init(jr.key(0), mdp))
    return float(value)


def cart_bound(mdp: MDP) -> float:
    """Return an upper bound of J* on `knr-lds`: the expected number of steps at which full throttle is close enough.

    Position is (effect of the actions) + (effect of the noise), and the second does not depend on the policy. Along the
    way to the goal the first is at most that of full throttle, so a cart that is in the circle at step t has

        u . noise_t >= |goal| - radius - sqrt(dims) p_t,    u = goal / |goal|,    p_t: full throttle in one coordinate
    """
    truth, reward = mdp.transition, mdp.reward
    assert isinstance(truth, KNRTransition)
    assert isinstance(reward, GoalReward)
    needed = float(np.linalg.norm(np.asarray(reward.goal))) - reward.radius
    position = velocity = total = 0.0
    step, spread = np.array([[1.0, 0.3], [0.0, 0.7]]), np.zeros((2, 2))
    for _ in range(mdp.horizon):
        position, velocity = position + 0.3 * velocity, 0.7 * velocity + 0.3
        spread = step @ spread @ step.T + truth.sigma**2 * np.eye(2)
        short = (needed - math.sqrt(reward.goal.size) * position) / math.sqrt(spread[0, 0])
        total += 0.99 * 0.5 * math.erfc(short / math.sqrt(2)) + 0.01
    return total


def gaps(metrics: dict[str, list[float]], seeds: int, best: float) -> Gap:
    """Return certificates and true gaps. The value of the deployed policy is promised - certificate."""
    promised, certificate = (np.reshape(metrics[name], (-1, seeds))[1:] for name in ("promised", "certificate"))
    return Gap(certificate, best - (promised - certificate), promised)


def make_row(job: Job, gap: Gap, kind: str, best: float) -> Row:
    """Return the row of a run."""
    algo = job.config().algorithm
    assert isinstance(algo, PCMLP)
    row: Row = {
        "task": job.task,
        "run": job.label,
        "bonus_scale": algo.bonus_scale,
        "ridge": algo.ridge,
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


def certificate_tables(done: Done) -> Tables:
    """Yield the table of certificates."""
    rows: Rows = []
    for job in done.jobs:
        best = optimum(build(job.config())[0].world.mdp)
        gap = gaps(read_metrics(done.result(job)), len(job.seeds), best)
        rows.append(make_row(job, gap, done.summary(job)["certificate"]["kind"], best))
    yield "certificate", rows


CERTIFICATE = Experiment(
    name="certificate",
    title="The certificate",
    place="appendix A.3, optimism",
    shows="how often the certificate is below the true gap, and how loose it is",
    jobs=certificate_jobs,
    tables=certificate_tables,
)
