"""Linear MDPs of Yang and Wang (2019): the errors of both fits, the runs, and the certificate over a continuous class.

With probability 1 - delta, for M samples of the mixture of the cover and maximum likelihood (docs/theory.md):

    E_{d_cover} |P_n - P*|_tv^2 <= 2 (D + ln(1 / delta)) / M,    D: ln |Upsilon|, or what replaces it
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp import covering, finite, theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.experiment import Done, Rows, Tables, slope
from pcmlp.experiments.job import NO_BONUS, NO_COVER, Job, Scale
from pcmlp.experiments.lemmas import cover_distribution, exact_values, grow_cover
from pcmlp.experiments.theorems import gaps, make_row, optimum
from pcmlp.features import feature_dim
from pcmlp.models import LinearCore, LinearMDP
from pcmlp.models.finite import LinearTransition
from pcmlp.models.linear_core import TOLERANCE
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.certificate import proved_scale
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import load_run
from pcmlp.tasks.finite import neighbours
from pcmlp.types import MDP, Model

_TASK, _LINEAR = "linear-core", "pcmlp-linear"
_DELTA = 0.1
_SAMPLES = (100, 300, 1_000, 3_000, 10_000)
_MEMBERS = 1_024  # members of the finite class to compare with
_STEPS, _CERTIFIED_STEPS = 8_000, 2_000
_REGRESSION = "model.method=regression"
_RUNS = {
    "likelihood": (_LINEAR, ()),
    "regression": (_LINEAR, (_REGRESSION,)),
    "no-bonus": (_LINEAR, (NO_BONUS,)),
    "covariance-off": (_LINEAR, (NO_COVER,)),
    "random": ("random", ()),
}
_HUNDRED = tuple(range(100))  # seeds


def jobs() -> list[Job]:
    """Return the runs of both fits and their controls, and those whose certificates are counted."""
    return [
        *map(learning_job, _RUNS),
        *map(certificate_job, ("theorem", "proved", "many-samples", "preset", "regression", "no-bonus")),
    ]


def learning_job(label: str) -> Job:
    """Return the run of a fit or a control."""
    algo, settings = _RUNS[label]
    return Job("theory", _TASK, label, algo, _STEPS, settings)


def certificate_job(label: str) -> Job:
    """Return a run of a hundred seeds.

    The label `theorem` has the theorem's c and ridge 1; `proved` the least c that is proved for the run, and
    `many-samples` that of a run with twenty times the samples of each policy, and a smaller ridge.
    """
    fixed = {"preset": (), "regression": (_REGRESSION,), "no-bonus": (NO_BONUS,)}
    steps, settings = (_CERTIFIED_STEPS, fixed.get(label, ()))
    if label == "theorem":
        mdp, algo = _bound(steps, ())
        assert callable(algo.features)
        c = theory.linear_mdp_scale(mdp.horizon, feature_dim(algo.features, mdp))
        settings = (f"bonus_scale={c!r}", "ridge=1")
    elif label in ("proved", "many-samples"):
        many = label == "many-samples"
        steps = 20 * steps if many else steps
        settings = ("samples_per_policy=2000", "ridge=0.001") if many else ()
        settings = (*settings, f"bonus_scale={least_proved(steps, settings)!r}")
    return Job("theory", _TASK, f"certificate-{label}", _LINEAR, steps, settings, _HUNDRED)


def least_proved(steps: int, settings: tuple[str, ...]) -> float:
    """Return the least c that is proved for a run, rounded up."""
    mdp, algo = _bound(steps, settings)
    c = proved_scale(algo, mdp, resolve(_TASK, _LINEAR, (0,), steps, settings).num_iterations)
    assert c is not None
    return math.nextafter(c, math.inf)


def _bound(steps: int, settings: tuple[str, ...]) -> tuple[MDP, PCMLP]:
    problem, algo = build(resolve(_TASK, _LINEAR, (0,), steps, settings))
    assert isinstance(algo, PCMLP)
    return problem.world.mdp, algo


def tables(done: Done) -> Tables:
    """Yield the exact value of each seed's deployed policy beside the optimum, and the table of certificates."""
    found = done.jobs_of(_TASK)
    folders = {label: folder for label in _RUNS if label in found and (folder := done.run(found[label]))}
    if len(folders) == sum(label in found for label in _RUNS):  # else some run has only its kept files
        yield "linear_core", deployed_rows({label: (found[label], folder) for label, folder in folders.items()})
    rows: Rows = []
    for label, job in found.items():
        if not label.startswith("certificate-"):
            continue
        best = optimum(build(job.config())[0].world.mdp)
        metrics, summary = read_metrics(done.result(job)), done.summary(job)
        row = make_row(job, gaps(metrics, len(job.seeds), best), summary["certificate"]["kind"], best)
        fit = np.nanmax(metrics["likelihood_gap"]) if "likelihood_gap" in metrics else ""
        rows.append({**row, "largest_likelihood_gap": fit})
    if rows:
        yield "linear_core_certificate", rows


def deployed_rows(runs: dict) -> Rows:
    """Return a row for each run: the spread over seeds of the deployed policies' exact values."""
    rows: Rows = []
    for label, (job, folder) in runs.items():
        mdp = build(job.config())[0].world.mdp
        best = optimum(mdp)
        values = exact_values(mdp, load_run(folder).policies, len(job.seeds))
        near = f"{int(np.sum(values >= 0.95 * best))} of {len(values)}"
        spread = {"worst_seed": values.min(), "mean": values.mean(), "within_5_percent": near}
        rows.append({"algorithm": label, "env_steps": job.steps, "optimum": best, **spread})
    return rows


def fit_error(scale: Scale) -> Rows:
    """Return the errors of likelihood and regression over all M, and of likelihood over a finite class around M*, on
    the same independent draws from a cover of ten policies, a hundred times, for growing numbers of samples."""
    runs = scale.size("lemma_runs", 100)
    problem, algo = build(resolve(_TASK, _LINEAR, (0,), 2_000))
    assert isinstance(algo, PCMLP)
    own, world = algo.model, problem.world
    assert isinstance(own, LinearCore)
    features, psi = own.factors()
    M = true_core(world.mdp, own)
    # A member with a positive entry where M* is 0 is told from M* at once, so all members have the zeros of M*.
    near = neighbours(np.random.default_rng(0), M, _MEMBERS) * (M > 0)
    members = near / near.sum(-1, keepdims=True) @ np.asarray(psi, np.float64)
    finite_class = LinearMDP(features, jnp.asarray(members, jnp.float32), prior=_MEMBERS - 1)
    classes: dict[str, Model] = {
        "likelihood": own,
        "regression": dataclasses.replace(own, method="regression"),
        "likelihood, 1,024 members": finite_class,
    }
    weight = cover_distribution(world.mdp, grow_cover(algo, world, 10))
    rows: Rows = []
    for name, model in classes.items():
        error, own_rows = error_of(model, world.mdp, weight), []
        for samples in _SAMPLES:
            if samples > scale.size("lemma_samples", samples):
                break
            data = jax.vmap(lambda key, n=samples: draws(key, world.mdp, weight, n))(jr.split(jr.key(samples), runs))
            errors = np.asarray(error(data))
            bound = proved_bound(name, samples, *M.shape)
            under = float(np.mean(errors <= bound)) if bound else ""
            spread = {"mean_error": errors.mean(), "largest_error": errors.max()}
            against = {"bound": bound or "", "share_under_bound": under}
            own_rows.append({"fit": name, "samples": samples, **spread, **against})
        degree = slope(own_rows, "samples", "mean_error")
        rows += [{**row, "log_log_slope": degree, "delta": _DELTA, "runs": runs} for row in own_rows]
    return rows


def draws(key: Key[Array, ""], mdp: MDP, weight: Float[Array, "S A"], samples: int) -> Transitions:
    """Return independent pairs with these probabilities, and their next states: draws from d_cover, without playing the
    episode up to them."""
    assert isinstance(mdp.transition, finite.FiniteTransition)
    pair_key, next_key = jr.split(key)
    pair = jr.categorical(pair_key, jnp.log(weight.reshape(-1)), shape=(samples,))
    state, action = jnp.divmod(pair, weight.shape[1])
    table = jnp.log(jnp.maximum(mdp.transition.probabilities(), 0.0))
    after = jr.categorical(next_key, table[state, action])
    no = jnp.zeros(samples, bool)
    return Transitions(state, action, jnp.zeros(samples), after, no, no, ~no)


def error_of(model: Model, mdp: MDP, weight: Float[Array, "S A"]) -> Callable[[Transitions], Array]:
    """Return a function of many data sets that gives the error E |P - P*|_tv^2 of the fit to each."""
    assert isinstance(mdp.transition, finite.FiniteTransition)
    truth = mdp.transition.probabilities()

    @jax.jit
    @jax.vmap
    def error(data):
        fitted, _ = model.train(jr.key(0), mdp, model.init(jr.key(0), mdp), Replay(data, jnp.zeros((), int)))
        assert isinstance(fitted, finite.FiniteTransition)
        distance = 0.5 * jnp.sum(jnp.abs(fitted.probabilities() - truth), axis=-1)
        return jnp.sum(weight * distance**2)

    return error


def proved_bound(name: str, samples: int, dim: int, core_dim: int) -> float | None:
    """Return the bound on E |P - P*|_tv^2 that is proved for one fit; None if there is no proved bound."""
    if name == "regression":
        return None
    continuous = name == "likelihood"
    size = covering.log_members(samples, 1, dim, core_dim, _DELTA, TOLERANCE) if continuous else math.log(_MEMBERS)
    return theory.model_error(1, samples, _DELTA, size)


def true_core(mdp: MDP, model: LinearCore) -> np.ndarray:
    """Return M* of a world whose transition has mu = M* psi."""
    _, psi = model.factors()
    assert isinstance(mdp.transition, LinearTransition)
    M = np.asarray(mdp.transition.mu, np.float64) @ np.linalg.pinv(np.asarray(psi, np.float64))
    return np.where(M > 1e-5, M, 0.0)  # rounding


MEASURED = {"linear_core_errors": fit_error}
