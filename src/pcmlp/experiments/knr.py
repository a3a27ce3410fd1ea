"""Kernelized nonlinear regulators: PC-MLP against what planning in the true dynamics gets, and the SGD lemma.

(paper: section 5 and appendix A.1: E_{d_cover} |(W_n - W*) phi|^2 <= 3 (F^2 + F B) ln(2 / delta) / sqrt(M).)

    python -m pcmlp.experiments.knr
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from pcmlp import framework
from pcmlp.cover import Mixture
from pcmlp.experiments.kept import SEEDS, arguments, kept_run, write_table
from pcmlp.models.knr import state_bound
from pcmlp.planners import CEM, Shooting
from pcmlp.runs.build import build
from pcmlp.runs.config import resolve
from pcmlp.types import Box

NAME = "knr"
DELTA = 0.1
# SGD converges like 1 / sqrt(M): it gets fifty times the samples of the exact fit.
RUNS = {
    "exact": ("pcmlp-knr", 600, ()),
    "sgd": ("pcmlp-knr", 24_000, ("model.method=sgd", "samples_per_policy=2000")),
    "no-bonus": ("pcmlp-knr", 600, ("bonus_scale=0",)),
    "covariance-off": ("pcmlp-knr", 600, ("covariance=off",)),
    "random": ("random", 600, ()),
}


def true_optimum(task: str) -> tuple[float, float]:
    """The return of planning in the true dynamics: with the runs' own planner, and with four times the particles."""
    _, algo = build(resolve(task, "pcmlp-knr"))
    world, own = algo.world, algo.planner
    assert isinstance(own, Shooting)
    assert isinstance(own.shooter, CEM)
    assert isinstance(world.actions, Box)
    shooter = CEM(
        world.actions,
        num_plans=own.shooter.num_plans,
        plan_length=own.shooter.plan_length,
        iterations=own.shooter.iterations,
        elites=own.shooter.elites,
        noise_std=own.shooter.noise_std,
        correlation=own.shooter.correlation,
        particles=4,
    )

    def value(planner: Shooting) -> float:
        @eqx.filter_jit
        @eqx.filter_vmap
        def plan(key):
            return planner.plan(key, world.mdp, planner.init(key, world.mdp))[0]

        keys = jax.vmap(jr.key)(jnp.array(SEEDS))
        return float(jnp.mean(world.evaluate(keys, plan(keys), 20)))

    return value(own), value(Shooting(shooter))


def who_gets_there(places: argparse.Namespace, task: str, labels: tuple[str, ...]) -> None:
    own, stronger = true_optimum(task)
    optimum = max(own, stronger)
    rows = []
    for label in labels:
        algo, steps, settings = RUNS[label]
        if task == "knr-poly":
            steps = 2 * steps
        _, summary = kept_run(places, NAME, task, label, algo=algo, steps=steps, settings=settings)
        returns = np.array([seed["final_return"] for seed in summary["seeds"]])
        rows.append(
            {
                "algorithm": label,
                "env_steps": steps,
                "optimum_same_planner": own,
                "optimum_four_particles": stronger,
                "mean": returns.mean(),
                "worst_seed": returns.min(),
                "within_5_percent": f"{int(np.sum(returns >= 0.95 * optimum))} of {len(returns)}",
            }
        )
    write_table(places.results / NAME / f"{task}.csv", rows)


def sgd_lemma(places: argparse.Namespace, runs: int = 50) -> None:
    """The error of averaged SGD on M fresh draws from a cover, against the lemma."""
    _, algo = build(resolve("knr-lds", "pcmlp-knr", (0,), 200, ("model.method=sgd",)))
    learner = framework.start(jr.key(0)[None], algo)
    for n in range(1, 5):
        learner, _, _ = framework.iterate(jr.key(0)[None], algo, learner, n)
    one = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, learner)
    model, truth = algo.model, algo.world.mdp.transition
    mixture = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, Mixture(one.cover))

    def draws(key, count):
        data, _ = algo.world.draw(key[None], mixture, count)
        return jax.tree.map(lambda x: x[0], data)

    pool = draws(jr.key(1), 20_000)
    phi = jax.vmap(model.features)(pool.state, pool.action)
    target = jax.vmap(truth.mean)(pool.state, pool.action)

    @eqx.filter_jit
    def errors(key, samples):
        """From the pool rather than the world: as independent, and the planner runs once."""

        def one_run(run_key):
            pick_key, noise_key, fit_key = jr.split(run_key, 3)
            rows = jr.randint(pick_key, (samples,), 0, phi.shape[0])
            noise = model.sigma * jr.normal(noise_key, (samples, target.shape[1]))
            data = jax.tree.map(lambda x: x[rows], pool)
            data = eqx.tree_at(lambda t: t.next_state, data, target[rows] + noise)
            fitted, _ = model.fit(fit_key, data)
            return jnp.mean(jnp.sum((phi @ (fitted.W - truth.W).T) ** 2, axis=1))

        return jax.vmap(one_run)(jr.split(key, runs))

    rows = []
    for samples in (100, 1_000, 10_000):
        error = np.asarray(errors(jr.key(samples), samples))
        bound_b = float(state_bound(model.radius, model.sigma, target.shape[1], float(samples), DELTA / 2))
        bound = 3 * (model.radius**2 + model.radius * bound_b) * np.log(2 / DELTA) / np.sqrt(samples)
        rows.append(
            {
                "samples": samples,
                "mean_error": error.mean(),
                "largest_error": error.max(),
                "bound": bound,
                "share_under_bound": float(np.mean(error <= bound)),
            }
        )
    slope = np.polyfit(np.log([r["samples"] for r in rows]), np.log([r["mean_error"] for r in rows]), 1)[0]
    write_table(places.results / NAME / "sgd_lemma.csv", rows)
    print(f"F = {model.radius:.3g}, delta = {DELTA}, {runs} runs; log-log slope of the mean error: {slope:.2f}")


if __name__ == "__main__":
    chosen = arguments(__doc__ or "")
    sgd_lemma(chosen)
    who_gets_there(chosen, "knr-lds", tuple(RUNS))
    who_gets_there(chosen, "knr-poly", ("exact", "no-bonus", "covariance-off", "random"))
