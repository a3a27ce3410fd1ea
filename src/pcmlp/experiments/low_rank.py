"""A linear MDP with a finite class: the error of maximum likelihood against its lemma, and the best policy.

paper: section 5, appendix A.1: with probability 1 - delta, E_{d_cover} |P_n - P*|_1^2 <= 2 ln(|Upsilon| / delta) / M.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from pcmlp import finite
from pcmlp.algorithms.framework import PCMLP, CoverLearner
from pcmlp.cover import Cover, Mixture
from pcmlp.experiments.experiment import Done, Experiment, Tables
from pcmlp.experiments.job import Job
from pcmlp.experiments.scales import Scale
from pcmlp.experiments.tables import Row, Rows, slope
from pcmlp.models import LinearMDP
from pcmlp.planners import FinitePolicy, ValueIteration
from pcmlp.replay import Replay
from pcmlp.runs.config import build, resolve
from pcmlp.runs.policy import load_run
from pcmlp.trees import take
from pcmlp.types import MDP, Policy, World

NAME = "low_rank"
TASK, ALGO = "low-rank", "pcmlp-linear"
DELTA = 0.1
RUNS = 100
SAMPLES = (100, 300, 1_000, 3_000, 10_000)
COVER = 10  # policies in the cover under which the error is measured
LABELS: dict[str, tuple[str, tuple[str, ...]]] = {
    ALGO: (ALGO, ()),
    "random": ("random", ()),
    "no-bonus": (ALGO, ("bonus_scale=0",)),
    "covariance-off": (ALGO, ("covariance=off",)),
}


def jobs() -> list[Job]:
    """Return the runs."""
    return [Job(NAME, TASK, label, algo, 50_000, settings) for label, (algo, settings) in LABELS.items()]


def cover_distribution(mdp: MDP, cover: Cover) -> Float[Array, "S A"]:
    """Return d_cover, exactly."""

    def visit(index: Array) -> Float[Array, "S A"]:
        policy = cover[index]
        assert isinstance(policy, FinitePolicy)
        return jnp.mean(finite.occupancy(mdp, policy.probabilities()), axis=0)

    return jnp.mean(jax.vmap(visit)(jnp.arange(COVER)), axis=0)


def likelihood_error(scale: Scale) -> Rows:
    """Return the error of the fit to M independent draws from the cover of ten policies, a hundred times, for growing
    M."""
    runs = scale.size("lemma_runs", RUNS)
    problem, algo = build(resolve(TASK, ALGO, (0,), 10_000, ("samples_per_policy=1000",)))
    assert isinstance(algo, PCMLP)
    world, mdp = problem.world, problem.world.mdp
    cover = grow_cover(algo, problem.world, COVER)
    likelihood = algo.model
    assert isinstance(likelihood, LinearMDP)
    weight = cover_distribution(mdp, cover)
    truth = mdp.transition.probabilities()
    repeated = jax.tree.map(lambda x: jnp.stack([x] * runs) if eqx.is_array(x) else x, Mixture(cover))
    members = likelihood.upsilon.shape[0]

    @jax.jit
    @jax.vmap
    def error(data):
        replay = Replay(data, jnp.zeros((), int))
        model, _ = likelihood.train(jr.key(0), mdp, likelihood.init(jr.key(0), mdp), replay)
        distance = jnp.sum(jnp.abs(model.probabilities() - truth), axis=-1)
        return jnp.sum(weight * distance**2)

    rows = []
    for samples in SAMPLES:
        if samples > scale.size("lemma_samples", samples):
            break
        data, _ = world.draw(jr.split(jr.key(samples), runs), repeated, samples)
        errors = np.asarray(error(data))
        bound = 2 * np.log(members / DELTA) / samples
        rows.append(
            {
                "samples": samples,
                "mean_error": errors.mean(),
                "largest_error": errors.max(),
                "bound": bound,  # as printed; docs/theory.md proves its constant for a quarter of the error, the TV
                "share_under_bound": float(np.mean(errors <= bound)),
                "proved_bound": 4 * bound,
                "found_the_truth": float(np.mean(errors == 0)),
            }
        )
    degree = slope(rows, "samples", "mean_error")
    return [{**row, "log_log_slope": degree, "members": members, "delta": DELTA, "runs": runs} for row in rows]


def grow_cover(algo: PCMLP, world: World, size: int) -> Cover:
    """Return a cover of this many policies, of one seed."""
    keys = jr.key(0)[None]
    learner = algo.start(keys, world.mdp, size)
    for n in range(1, size):
        iterated = algo.iterate(keys, world, learner, n).learner
        assert isinstance(iterated, CoverLearner)
        learner = iterated
    return take(learner.cover, 0)


def tables(done: Done) -> Tables:
    """Yield the exact value of each seed's best policy of the cover beside the exact optimum. This needs the saved
    policies: if a run has only its kept files, the table stays unchanged."""
    folders = {job: folder for job in done.jobs if (folder := done.run(job))}
    if len(folders) < len(done.jobs):
        return
    mdp = build(resolve(TASK, ALGO))[0].world.mdp
    planner = ValueIteration()
    best, _ = planner.plan(jr.key(0), mdp, planner.init(jr.key(0), mdp))
    optimum = float(finite.value(mdp, best.probabilities()))
    yield "best_policies", [best_row(job, folder, mdp, optimum) for job, folder in folders.items()]


def best_row(job: Job, run: Path, mdp: MDP, optimum: float) -> Row:
    """Return the row of a run."""
    values = exact_values(mdp, load_run(run).policies, len(job.seeds))
    return {
        "algorithm": job.label,
        "optimum": optimum,
        "worst_seed": values.min(),
        "mean": values.mean(),
        "within_0.05": f"{int(np.sum(values >= optimum - 0.05))} of {len(values)}",
    }


def exact_values(mdp: MDP, policies: Policy, seeds: int) -> np.ndarray:
    """Return J of each seed's policy; uniform play has no table of its own."""
    if isinstance(policies, FinitePolicy):
        return np.asarray(eqx.filter_vmap(lambda p: finite.value(mdp, p.deterministic().probabilities()))(policies))
    reward, _ = finite.tables(mdp)
    uniform = jnp.full((mdp.horizon, *reward.shape), 1 / reward.shape[1])
    return np.full(seeds, float(finite.value(mdp, uniform)))


LOW_RANK = Experiment(
    name=NAME,
    title="A linear MDP",
    place="section 5, appendix A.1",
    shows="the error of maximum likelihood against its lemma; the best policy's value",
    jobs=jobs,
    tables=tables,
    measured={"likelihood_error": likelihood_error},
)
