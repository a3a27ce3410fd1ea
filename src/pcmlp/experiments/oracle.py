"""Two oracles: planning in one model with a bonus (PC-MLP), and planning that is optimistic over models (LC3).

    paper, sections 1 and 5: LC3 needs max over W in a ball, max over policies, which cannot be computed efficiently;
    PC-MLP needs only max over policies, in one model.

The tables compare the two on carts in 1 to 4 dimensions, whose W has 6 dims^2 parameters: the samples that each method
needs, and what each oracle finds in how many seconds.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.framework import PCMLP, CoverLearner
from pcmlp.experiments.experiment import Done, Row, Rows, Tables, known
from pcmlp.experiments.job import NO_BONUS, Job, Scale
from pcmlp.experiments.lemmas import planned_value
from pcmlp.imagine import imagine
from pcmlp.planners import CEM, Optimistic
from pcmlp.planners.optimistic import pair_returns
from pcmlp.planners.shooting import plan_returns
from pcmlp.report.reading import load
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_table
from pcmlp.types import MDP

_CART, _KNR, _LC3 = "knr-lds", "pcmlp-knr", "lc3-oracle"
_DIMS = (1, 2, 3, 4)
_STEPS = 400  # ten policies
_PLANS = ("planner.num_plans=100", "planner.elites=10")  # half of the presets', so that the runs take minutes
_FEW = ("eval_episodes=4",)
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pcmlp": (_KNR, (*_PLANS, *_FEW)),
    "optimistic": (_LC3, ("planner.search.num_plans=100", "planner.search.elites=10", *_FEW)),
    "thompson": (_LC3, ("preset=thompson", *_PLANS, *_FEW)),
    "no-bonus": (_KNR, (NO_BONUS, *_PLANS, *_FEW)),
}
NEAR = 0.9  # a policy with this share of the return of planning in the true dynamics is good
FOUND = 0.95  # share of the best known value that a search has to find
_POLICIES = 3  # number of policies in the learners for which the oracles are compared
_SEARCHES = 16  # of one oracle, from random plans
_LONGER = 4  # factor of the candidates of an update in a longer search, which also has twice the updates
_JUDGES = 64  # draws of the noise by which the plan that was found is judged


def jobs() -> list[Job]:
    """Return the runs of all methods, in every number of dimensions."""
    return [_job(dims, method) for dims in _DIMS for method in METHODS]


def _job(dims: int, method: str) -> Job:
    algo, settings = METHODS[method]
    return Job("theory", _CART, f"oracle-{dims}-{method}", algo, _STEPS, (f"task.dims={dims}", *settings))


def parameters(dims: int) -> int:
    """Return the number of parameters of W."""
    return 6 * dims**2


def tables(done: Done) -> Tables:
    """Yield `oracle_samples`: the env steps until the deployed policy is good, and what the oracle has promised."""
    file = done.results / "theory" / "oracle_reference.csv"
    found, rows = done.jobs_of(_CART), []
    for row in read_table(file) if file.exists() else ():
        dims, best = int(row["dims"]), float(row["planning_in_the_truth"])
        made = {method: found.get(_job(dims, method).label) for method in METHODS}
        rows += [_samples_row(done, job, dims, method, best) for method, job in made.items() if job]
    if rows:
        yield "oracle_samples", rows


def _samples_row(done: Done, job: Job, dims: int, method: str, reference: float) -> Row:
    run = load(done.result(job))
    returns, promised = run.curve("eval_return_mean"), run.curve("promised")
    good = (returns.values >= NEAR * reference) & (returns.iteration > 0)[:, None]  # the untrained policy may be lucky
    steps = np.where(good.any(axis=0), returns.env_steps[good.argmax(axis=0)], np.inf)
    spread = {"median_steps": np.median(steps), "least_steps": steps.min(), "most_steps": steps.max()}
    return {
        "dims": dims,
        "parameters": parameters(dims),
        "method": method,
        "near": f"{int(np.isfinite(steps).sum())} of {len(steps)}",
        **{name: known(float(value), 0) for name, value in spread.items()},
        "reference": round(reference, 3),
        "final_return": round(float(np.mean(returns.values[-1])), 3),
        "promised_first": round(float(np.median(promised.values[0])), 3),
        "promised_last": round(float(np.median(promised.values[-1])), 3),
    }


def reference(scale: Scale) -> Rows:
    """Measure planning in the true dynamics, with the planner of the runs and four more plans to begin with."""
    rows: Rows = []
    for dims in _DIMS[: scale.size("places", len(_DIMS))]:
        problem, algo = build(scale.apply(_job(dims, "pcmlp")).config())
        assert isinstance(algo, PCMLP)
        assert isinstance(algo.planner, CEM)
        value = planned_value(problem.world, dataclasses.replace(algo.planner, restarts=4), scale)
        rows.append({"dims": dims, "parameters": parameters(dims), "planning_in_the_truth": value})
    return rows


class Asked(NamedTuple):
    """An oracle, and the learners for whose models it plans; their arrays have a leading axis."""

    planner: CEM | Optimistic
    mdp: MDP
    learners: CoverLearner


def ask(dims: int, method: str, learners: int, scale: Scale) -> Asked:
    """Return the oracle of a method, and learners of several seeds after a few policies."""
    job = scale.apply(_job(dims, method))
    config = resolve(job.task, job.algo, tuple(range(learners)), job.steps, job.settings)
    problem, algo = build(config)
    assert isinstance(algo, PCMLP)
    assert isinstance(algo.planner, CEM | Optimistic)
    keys = jax.vmap(jr.key)(jnp.arange(learners))
    learner: Any = algo.start(keys, problem.world.mdp, _POLICIES + 1)
    for n in range(1, _POLICIES + 1):
        learner = algo.iterate(keys, problem.world, learner, n).learner
    return Asked(algo.planner, problem.world.mdp, learner)


def lengthen(planner: CEM | Optimistic) -> CEM | Optimistic:
    """Return the oracle with longer searches."""
    if isinstance(planner, CEM):
        more = {"num_plans": _LONGER * planner.num_plans, "elites": _LONGER * planner.elites}
        return dataclasses.replace(planner, warmup=2 * planner.warmup, **more)
    more = {"num_pairs": _LONGER * planner.num_pairs, "elites": _LONGER * planner.elites}
    return dataclasses.replace(planner, updates=2 * planner.updates, **more)


def search(key: Key[Array, ""], planner: CEM | Optimistic, mdp: MDP) -> Float[Array, ""]:
    """Search once, from a random plan; return the value of what was found."""
    start_key, search_key, judge_key = jr.split(key, 3)
    state = mdp.initial(jr.key(0))
    if isinstance(planner, Optimistic):
        pair = planner.climb(search_key, mdp, state, planner.inner.random_plan(start_key, mdp))
        return pair_returns(judge_key, mdp, state, jax.tree.map(lambda x: x[None], pair), _JUDGES)[0]
    keys = jr.split(search_key, planner.warmup)
    start = planner.random_plan(start_key, mdp)
    plan = jax.lax.fori_loop(0, planner.warmup, lambda i, p: planner.refine(keys[i], mdp, state, p), start)
    return plan_returns(judge_key, mdp, state, plan[None], _JUDGES)[0]


def run_searches(asked: Asked, searches: int, *, longer: bool = False) -> tuple[np.ndarray, float]:
    """Return the values that were found, [learners, searches], and the seconds of one search."""
    planner = lengthen(asked.planner) if longer else asked.planner
    learners = asked.learners.env_steps.shape[0]

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(0, eqx.if_array(0)))
    def one_each(key: Key[Array, ""], learner: CoverLearner) -> Float[Array, ""]:
        return search(key, planner, imagine(asked.mdp, learner.model, learner.bonus))

    keys = jr.split(jr.key(1 + longer), (searches + 1, learners))
    one_each(keys[0], asked.learners).block_until_ready()  # compiles
    began = time.perf_counter()
    values = np.stack([np.asarray(one_each(k, asked.learners)) for k in keys[1:]], axis=1)
    return values, (time.perf_counter() - began) / values.size


def best_of(values: np.ndarray, size: int) -> np.ndarray:
    """Return the mean, over disjoint groups of this many searches, of the best that a group has found; [learners]."""
    groups = values[:, : values.shape[1] // size * size].reshape(len(values), -1, size)
    return groups.max(axis=2).mean(axis=1)


def searches(scale: Scale) -> Rows:
    """Measure what both oracles find by one search, by the best of several, and by longer ones."""
    rows: Rows = []
    count, learners = scale.size("trials", _SEARCHES), scale.size("lemma_runs", 5)
    sizes = [size for size in (1, 4, 16) if size <= count]
    for dims in _DIMS[: scale.size("places", len(_DIMS))]:
        made = {}
        for oracle, method in (("ordinary", "pcmlp"), ("optimistic", "optimistic")):
            asked = ask(dims, method, learners, scale)
            values, seconds = run_searches(asked, count)
            longer, seconds_longer = run_searches(asked, max(1, count // 4), longer=True)
            best = np.maximum(values.max(axis=1), longer.max(axis=1))
            share = {size: float(np.mean(best_of(values, size) / best)) for size in sizes}
            enough = [size for size in sizes if share[size] >= FOUND]
            made[oracle] = seconds
            rows.append(
                {
                    "dims": dims,
                    "parameters": parameters(dims),
                    "oracle": oracle,
                    "best_known": round(float(best.mean()), 3),
                    **{f"share_of_{size}": round(share[size], 3) for size in sizes},
                    "share_of_a_longer": round(float(np.mean(longer.mean(axis=1) / best)), 3),
                    "searches_needed": enough[0] if enough else "",
                    "seconds": float(f"{seconds:.3g}"),
                    "seconds_of_a_longer": float(f"{seconds_longer:.3g}"),
                    "times_the_ordinary": round(seconds / made["ordinary"], 2),
                    "seconds_needed": float(f"{enough[0] * seconds:.3g}") if enough else "",
                }
            )
    return rows


MEASURED: dict[str, Callable[[Scale], Rows]] = {"oracle_reference": reference, "oracle_search": searches}
