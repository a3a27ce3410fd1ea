"""Kernelized nonlinear regulators: PC-MLP against planning in the true dynamics, and the SGD lemma.

paper: section 5 and appendix A.1: E_{d_cover} |(W_n - W*) phi|^2 <= 3 (F^2 + F B) ln(2 / delta) / sqrt(M).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from pcmlp.algorithms.framework import PCMLP
from pcmlp.cover import Mixture
from pcmlp.experiments.experiment import Done, Experiment, Tables
from pcmlp.experiments.job import SEEDS, Job
from pcmlp.experiments.low_rank import grow_cover
from pcmlp.experiments.scales import Scale
from pcmlp.experiments.tables import Row, Rows
from pcmlp.models.knr import KNR, KNRTransition, target_bound
from pcmlp.planners import CEM
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.config import build, resolve
from pcmlp.runs.folder import read_table

NAME = "knr"
DELTA = 0.1
TASKS = ("knr-lds", "knr-poly")
# SGD converges like 1 / sqrt(M): it gets forty times the samples of the exact fit.
_SGD = ("model.method=sgd", "samples_per_policy=2000")
LINEAR: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "exact": ("pcmlp-knr", 600, ()),
    "sgd": ("pcmlp-knr", 24_000, _SGD),
    "sgd-longer": ("pcmlp-knr", 32_000, _SGD),
    "no-bonus": ("pcmlp-knr", 600, ("bonus_scale=0",)),
    "covariance-off": ("pcmlp-knr", 600, ("covariance=off",)),
    "random": ("random", 600, ()),
}
POLYNOMIAL = {label: (algo, 800, settings) for label, (algo, _, settings) in LINEAR.items() if "sgd" not in label}


def jobs() -> list[Job]:
    """Return the runs."""
    return [
        Job(NAME, task, label, algo, steps, settings)
        for task, labels in zip(TASKS, (LINEAR, POLYNOMIAL), strict=True)
        for label, (algo, steps, settings) in labels.items()
    ]


def optimum(scale: Scale) -> Rows:
    """Measure planning in the true dynamics: with the runs' own planner, and with four times its particles.

    Neither is the optimum over all policies, which is unknown; the better one is the reference.
    """
    return [optimum_row(scale.apply(job), scale) for job in jobs() if job.label == "exact" and scale.has(job)]


def optimum_row(job: Job, scale: Scale) -> Row:
    """Return the row of a task."""
    problem, algo = build(job.config())
    assert isinstance(algo, PCMLP)
    world, own = problem.world, algo.planner
    assert isinstance(own, CEM)

    def value(planner: CEM) -> float:
        @eqx.filter_jit
        @eqx.filter_vmap
        def plan(key):
            return planner.plan(key, world.mdp, planner.init(key, world.mdp))[0]

        keys = jax.vmap(jr.key)(jnp.array(SEEDS[: scale.seeds]))
        return float(jnp.mean(world.evaluate(keys, plan(keys), scale.size("trials", 20))))

    return {
        "task": job.task,
        "same_planner": value(own),
        "four_particles": value(dataclasses.replace(own, particles=4)),
    }


def tables(done: Done) -> Tables:
    """Yield `knr-lds` and `knr-poly`: how near each run gets to planning in the true dynamics."""
    known = done.results / NAME / "optimum.csv"
    for best in read_table(known) if known.exists() else ():
        own, stronger = float(best["same_planner"]), float(best["four_particles"])
        yield (
            best["task"],
            [regulator_row(job, done.summary(job), own, stronger) for job in done.jobs_of(best["task"]).values()],
        )


def regulator_row(job: Job, summary: dict[str, Any], own: float, stronger: float) -> Row:
    """Return the row of a run beside the two planners in the true dynamics."""
    returns = np.array([seed["final_return"] for seed in summary["seeds"]])
    return {
        "algorithm": job.label,
        "env_steps": job.steps,
        "optimum_same_planner": own,
        "optimum_four_particles": stronger,
        "mean": returns.mean(),
        "worst_seed": returns.min(),
        "within_5_percent": f"{int(np.sum(returns >= 0.95 * max(own, stronger)))} of {len(returns)}",
    }


def sgd_lemma(scale: Scale) -> Rows:
    """Return the error of averaged SGD on M fresh draws from a cover, beside the lemma's bound.

    F is outside the range in which the lemma holds with the printed step size, so the corrected one is also measured.
    From 4,000,000 samples on, the bound is less than the error of W = 0, so that it is informative.
    """
    runs = scale.size("lemma_runs", 50)
    pool = cover_pool(scale)
    sizes = dict.fromkeys((100, 1_000, 10_000), runs) | {4_000_000: min(runs, 3)}
    return [
        {"method": method, "samples": samples, **sgd_errors(method, samples, times, pool)}
        for method in ("sgd", "sgd-corrected")
        for samples, times in sizes.items()
        if samples <= scale.size("lemma_samples", samples)
    ]


def sgd_errors(method: str, samples: int, runs: int, pool: Transitions) -> dict[str, float]:
    """Return the errors of several fits, and the bound."""
    problem, algo = build(resolve("knr-lds", "pcmlp-knr", (0,), 200, (f"model.method={method}",)))
    mdp = problem.world.mdp
    truth = mdp.transition
    assert isinstance(algo, PCMLP)
    assert isinstance(truth, KNRTransition)
    model = algo.model
    assert isinstance(model, KNR)
    assert model.radius is not None
    radius = model.radius
    phi = jax.vmap(truth.features)(pool.state, pool.action)
    target = jax.vmap(truth.mean)(pool.state, pool.action)

    def error(key):
        """Return the error of one fit. Its rows come from the pool, not from the world: they are also independent, and
        the planner runs only once."""
        pick_key, noise_key, fit_key = jr.split(key, 3)
        rows = jr.randint(pick_key, (samples,), 0, phi.shape[0])
        noise = model.sigma * jr.normal(noise_key, (samples, target.shape[1]))
        data = jax.tree.map(lambda x: x[rows], pool)
        data = eqx.tree_at(lambda t: t.next_state, data, target[rows] + noise)
        fitted, _ = model.train(fit_key, mdp, model.init(fit_key, mdp), Replay(data, jnp.zeros((), int)))
        return jnp.mean(jnp.sum((phi @ (fitted.W - truth.W).T) ** 2, axis=1))

    errors = np.asarray(jax.jit(lambda keys: jax.lax.map(error, keys))(jr.split(jr.key(samples), runs)))
    bound_on_s = float(target_bound(radius, model.sigma, target.shape[1], float(samples), DELTA))
    bound = 3 * (radius**2 + radius * bound_on_s) * np.log(2 / DELTA) / np.sqrt(samples)
    learned_nothing = float(jnp.mean(jnp.sum(target**2, axis=1)))
    return {
        "F": radius,
        "mean_error": errors.mean(),
        "largest_error": errors.max(),
        "error_of_W_0": learned_nothing,
        "bound": bound,
        "share_under_bound": float(np.mean(errors <= bound)),
    }


def cover_pool(scale: Scale) -> Transitions:
    """Return draws from the cover of four iterations on `knr-lds`."""
    problem, algo = build(dataclasses.replace(scale.apply(jobs()[0]), steps=200, seeds=(0,)).config())
    assert isinstance(algo, PCMLP)
    cover = Mixture(grow_cover(algo, problem.world, 5))
    repeated = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, cover)
    rows, _ = problem.world.draw(jr.split(jr.key(1), 1), repeated, scale.size("lemma_samples", 5_000))
    return jax.tree.map(lambda x: x[0], rows)


KNR_TASKS = Experiment(
    name=NAME,
    title="Kernelized nonlinear regulators",
    place="section 5, appendix A.1",
    shows="two regulators against planning in their true dynamics, and the SGD lemma",
    jobs=jobs,
    tables=tables,
    measured={"sgd_lemma": sgd_lemma, "optimum": optimum},
)
