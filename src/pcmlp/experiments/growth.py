"""How the steps to a near-optimal policy grow (paper: section 5 and appendix A.4, polynomial sample complexity).

    steps(x)  =  the env steps after which the learner first has a policy within epsilon of the optimum
    degree    =  the slope of ln(median steps) against ln x, where x alone is changed: H, d, 1/epsilon, d_s or 1/sigma

A polynomial has a finite degree. The degree of a theorem is the slope of its own number of env steps over the same x. A
seed that never has such a policy counts as slower than any other, so the median is infinite if more than half of the
seeds are like this. The interval of a slope is found by resampling seeds; a resample with an infinite median counts as
the largest slope.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pcmlp import finite
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments import linear_core
from pcmlp.experiments.experiment import Done, Row, Rows, Tables, known, steps_to_success
from pcmlp.experiments.job import NO_BONUS, NO_COVER, Job, Scale
from pcmlp.experiments.lemmas import planned_value
from pcmlp.experiments.sample_bounds import linear_mdp_steps, tabular_steps, theorem_steps
from pcmlp.experiments.theorems import lock_jobs, optimum
from pcmlp.planners import CEM
from pcmlp.report.statistics import growth
from pcmlp.runs.config import build
from pcmlp.runs.metrics import read_metrics, read_table
from pcmlp.tasks import CombinationLock, LinearSystem

_PLANNED = "planned_in_the_truth"  # a table

# When a policy is near-optimal: if it succeeds; if its value is within epsilon of the optimum (both are exact); if its
# certificate is at most epsilon; if its return is at least 1 - epsilon times that of planning in the true dynamics.
Rule = Literal["success", "gap", "certificate", "share"]


class Point(NamedTuple):
    """A run with one value x of the quantity that is changed."""

    x: float
    job: Job
    epsilon: float


class Sweep(NamedTuple):
    """A series of runs in which one quantity is changed."""

    factor: str
    rule: Rule
    points: tuple[Point, ...]
    published: Callable[[Job, float], float] | None = None  # env steps of the best published bound, up to a factor
    with_controls: bool = False


# The lock: any policy opens it always or never, so every epsilon below 1 gives the same result. d = (H + 2) A.

_LOCK, _LINEAR = "combination-lock", "pcmlp-linear"
_EPISODES = 10_000  # of a control
_FEW_DIGITS = 5


def _lock(label: str) -> Job:
    return next(job for job in lock_jobs() if job.label == label)


def _many_actions(actions: int) -> Job:
    settings = (f"task.horizon={_FEW_DIGITS}", f"task.actions={actions}")
    return Job("theory", _LOCK, f"actions-{actions}", _LINEAR, (actions + 1) * _FEW_DIGITS**2, settings)


_LOCKS = {5: _lock("horizon-5"), 10: _lock("horizon-10"), 20: _lock(_LINEAR), 40: _lock("horizon-40")}
_ACTIONS = {5: _LOCKS[5], **{actions: _many_actions(actions) for actions in (10, 20, 40)}}
_BY_DIM = {(_FEW_DIGITS + 2) * actions: job for actions, job in _ACTIONS.items()}

# low-rank: for each d, the first seed of the task whose optimum lies between 0.8 and 1.2. With one episode for each
# policy and a fifth of the preset's bonus, seeds 100 to 109 needed far fewer steps than with the preset. The
# certificate becomes smaller with the number of policies, so these runs have many policies.

_RANKS = {4: 76, 6: 5, 8: 5, 12: 0, 16: 2}
_EPSILON = 0.1
_EPSILONS = (0.4, 0.2, 0.1, 0.05, 0.025)


def _rank(rank: int) -> Job:
    settings = (f"task.rank={rank}", f"task.seed={_RANKS[rank]}", "samples_per_policy=10", "bonus_scale=0.01")
    return Job("theory", "low-rank", f"rank-{rank}", _LINEAR, 4_000, (*settings, "eval_episodes=2"))


# knr-lds, with fewer plans than its preset, and one episode for each policy, so that small numbers of steps differ.

_KNR, _CART = "pcmlp-knr", "knr-lds"
_ONE_EPISODE = ("samples_per_policy=20", "eval_episodes=2")
_PLANS = (*_ONE_EPISODE, "planner.num_plans=100", "planner.elites=10")
_SHARE = 0.1
_DIMS = {1: 100, 2: 200, 3: 300, 4: 500}  # steps
_SIGMAS = (0.1, 0.05, 0.01)


def _cart(dims: int) -> Job:
    return Job("theory", _CART, f"dims-{dims}", _KNR, _DIMS[dims], (*_PLANS, f"task.dims={dims}"))


def _noisy_cart(sigma: float) -> Job:
    if sigma == LinearSystem.sigma:
        return _cart(LinearSystem.dims)
    return Job("theory", _CART, f"sigma-{sigma}", _KNR, _DIMS[LinearSystem.dims], (*_PLANS, f"task.sigma={sigma}"))


_CARTS = {float(2 * dims): _cart(dims) for dims in _DIMS}
_NOISY = {1 / sigma: _noisy_cart(sigma) for sigma in sorted((*_SIGMAS, LinearSystem.sigma), reverse=True)}


def _points(jobs: Mapping[int, Job] | Mapping[float, Job], epsilon: float) -> tuple[Point, ...]:
    return tuple(Point(float(x), job, epsilon) for x, job in jobs.items())


# linear-core, which has a continuous class, with its preset.

_CORE = linear_core.learning_job("likelihood")

_RANK_JOBS = {rank: _rank(rank) for rank in _RANKS}
_BY_EPSILON = tuple(Point(1 / epsilon, _rank(8), epsilon) for epsilon in _EPSILONS)
SWEEPS = (
    Sweep("H", "success", _points(_LOCKS, 0.5), tabular_steps, with_controls=True),
    Sweep("d", "success", _points(_BY_DIM, 0.5), tabular_steps),
    Sweep("d", "gap", _points(_RANK_JOBS, _EPSILON), linear_mdp_steps, with_controls=True),
    Sweep("d", "certificate", _points(_RANK_JOBS, _EPSILON), linear_mdp_steps),
    Sweep("1/epsilon", "gap", _BY_EPSILON, linear_mdp_steps),
    Sweep("1/epsilon", "certificate", _BY_EPSILON, linear_mdp_steps),
    Sweep("1/epsilon", "gap", tuple(Point(1 / epsilon, _CORE, epsilon) for epsilon in _EPSILONS), linear_mdp_steps),
    Sweep("d_s", "share", _points(_CARTS, _SHARE), with_controls=True),
    Sweep("1/sigma", "share", _points(_NOISY, _SHARE)),
)


def _without(job: Job, label: str, steps: int, *settings: str) -> Job:
    """Return a control of a run, with its settings replaced or added."""
    changed = dict(setting.split("=", 1) for setting in (*job.settings, *settings))
    given = tuple(f"{key}={value}" for key, value in changed.items())
    return Job("theory", job.task, f"{job.label}-{label}", job.algo, steps, given)


def controls_of(job: Job) -> list[Job]:
    """Return the controls of a run of the method. Those of a lock get ten thousand episodes."""
    switches = {"no-bonus": NO_BONUS, "covariance-off": NO_COVER}
    if job == _LOCKS[20]:
        return [_lock(label) for label in ("random", *switches)]
    if job in (_LOCKS[5], _LOCKS[10]):
        horizon = job.config().task.horizon
        steps, fifty = _EPISODES * horizon, f"samples_per_policy={50 * horizon}"
        return [_without(job, label, steps, off, fifty) for label, off in switches.items()]
    if job in _RANK_JOBS.values():
        settings = tuple(text for text in job.settings if not text.startswith("bonus_scale"))
        play = Job("theory", job.task, f"{job.label}-random", "random", 1_000, settings)
        return [play, *(_without(job, label, 1_000, off) for label, off in switches.items())]
    for dims in (1, 2):
        if job == _cart(dims):
            settings = (*_ONE_EPISODE, f"task.dims={dims}")
            play = Job("theory", _CART, f"{job.label}-random", "random", job.steps, settings)
            return [play, *(_without(job, label, job.steps, off) for label, off in switches.items())]
    return []


def jobs() -> list[Job]:
    """Return all runs of the sweeps, each followed by its controls."""
    swept = [(point.job, sweep.with_controls) for sweep in SWEEPS for point in sweep.points]
    return list(dict.fromkeys(one for job, beside in swept for one in (job, *(controls_of(job) if beside else ()))))


# Steps


def _first(reached: np.ndarray, env_steps: np.ndarray) -> np.ndarray:
    """Return each seed's env steps at the first iteration at which it has reached the goal; infinite if it never
    has."""
    return np.where(reached.any(axis=0), env_steps[reached.argmax(axis=0), np.arange(reached.shape[1])], np.inf)


def steps_needed(done: Done, job: Job, rule: Rule, epsilon: float) -> np.ndarray:
    """Return the env steps that each seed needs. The untrained policy does not count."""
    if rule == "success":
        return steps_to_success(done.summary(job))
    metrics, seeds = read_metrics(done.result(job)), len(job.seeds)

    def column(name: str) -> np.ndarray:
        return np.reshape(metrics[name], (-1, seeds))[1:]

    if rule == "share":
        enough = (1 - epsilon) * _planned_value(done, job)
        return _first(column("eval_return_mean") >= enough, column("env_steps"))
    if rule == "certificate":
        return _first(column("certificate") <= epsilon, column("env_steps"))
    mdp, steps = build(job.config())[0].world.mdp, column("env_steps")
    if job.algo == "random":  # it has no certificate, and its value never changes
        value = np.full(steps.shape, float(finite.uniform_value(mdp)))
    else:
        value = column("promised") - column("certificate")
    return _first(optimum(mdp) - value <= epsilon, steps)


def _planned_value(done: Done, job: Job) -> float:
    """Return the value of planning in the true dynamics of a run's task; infinite if it was not measured."""
    task, path = job.config().task, done.results / "theory" / f"{_PLANNED}.csv"
    assert isinstance(task, LinearSystem)
    for row in read_table(path) if path.exists() else ():
        if (int(row["dims"]), float(row["sigma"])) == (task.dims, task.sigma):
            return float(row["value"])
    return np.inf


def planned_in_the_truth(scale: Scale) -> Rows:
    """Return the value of planning in the true dynamics of `knr-lds`, with the planner of the runs."""
    rows: Rows = []
    for job in dict.fromkeys((*_CARTS.values(), *_NOISY.values())):
        if scale.has(job):
            config = scale.apply(job).config()
            problem, algorithm = build(config)
            assert isinstance(config.task, LinearSystem)
            assert isinstance(algorithm, PCMLP)
            assert isinstance(algorithm.planner, CEM)
            value = planned_value(problem.world, algorithm.planner, scale)
            rows.append({"dims": config.task.dims, "sigma": config.task.sigma, "value": value})
    return rows


# Tables


def _step_row(named: Row, job: Job, needed: np.ndarray) -> Row:
    task = job.config().task
    uniform = float(task.actions) ** task.horizon * task.horizon if isinstance(task, CombinationLock) else ""
    return {
        **named,
        "run": f"{job.experiment}/{job.name}",
        "env_steps": job.steps,
        "reached": f"{np.isfinite(needed).sum()} of {len(needed)}",
        "median_steps": known(float(np.median(needed)), 0),
        "least_steps": known(float(needed.min()), 0),
        "most_steps": known(float(needed.max()), 0),
        "steps_of_uniform_play": uniform,  # until it first opens the lock, on average
    }


def _degree_row(sweep: Sweep, points: Sequence[Point], needed: np.ndarray) -> Row:
    x = [point.x for point in points]
    found = growth(x, needed)
    bounds = [
        "" if steps is None else growth(x, np.array([[steps(job, goal)] for _, job, goal in points])).value
        for steps in (theorem_steps, sweep.published)
    ]
    return {
        "factor": sweep.factor,
        "task": points[0].job.task,
        "near_optimal": sweep.rule,
        "from": x[0],
        "to": x[-1],
        "reached": f"{np.isfinite(needed).sum()} of {needed.size}",
        "degree": known(found.value, 2),
        "low": known(found.low + 0.0, 2),  # no -0.0
        "high": "inf" if np.isposinf(found.high) else known(found.high, 2),
        "degree_of_theorem": bounds[0],
        "degree_published": bounds[1],
    }


def tables(done: Done) -> Tables:
    """Yield `growth`, with the degree of each sweep, and `growth_steps`, with a row for each of its runs and their
    controls."""
    made = {job.where: job for job in done.jobs}  # at this scale
    degrees: Rows = []
    rows: Rows = []
    for sweep in SWEEPS:
        found = [point for point in sweep.points if point.job.where in made]
        needed = [steps_needed(done, made[job.where], sweep.rule, goal) for _, job, goal in found]
        for (x, job, goal), steps in zip(found, needed, strict=True):
            named = {"factor": sweep.factor, "task": job.task, "near_optimal": sweep.rule, "x": x, "epsilon": goal}
            rows.append(_step_row(named, made[job.where], steps))
            for one in controls_of(job) if sweep.with_controls else ():
                if beside := made.get(one.where):
                    rows.append(_step_row(named, beside, steps_needed(done, beside, sweep.rule, goal)))
        if len(found) > 1:
            degrees.append(_degree_row(sweep, found, np.array(needed)))
    yield "growth", degrees
    yield "growth_steps", rows


MEASURED: Mapping[str, Callable[[Scale], Rows]] = {_PLANNED: planned_in_the_truth}
