"""The standing of a run's certificate (bound, estimate or heuristic), and `--stop-when-certified`.

The number comes from `algorithms.certificate`. It is a bound if optimism is proved for this run and planning is exact,
an estimate if a theorem's c is used but the planner does not find the maximum, and a heuristic otherwise.
"""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from pcmlp import covering, finite, theory
from pcmlp.algorithms.certificate import exact_values
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.random import RandomPlay
from pcmlp.algorithms.stages import round_up
from pcmlp.errors import ConfigError
from pcmlp.features import OneHotFeatures, TaskFeatures, feature_dim
from pcmlp.finite import FiniteTransition
from pcmlp.models import KNR, LinearCore, LinearMDP, Tabular
from pcmlp.models.linear_core import TOLERANCE
from pcmlp.runs.config import RunConfig
from pcmlp.runs.metrics import Row
from pcmlp.spaces import Finite
from pcmlp.types import MDP, Algorithm, Policy, Problem

DELTA = 0.1  # the largest probability that a bound fails, over all iterations of a seed


class Standing(NamedTuple):
    """The standing of a certificate, and the reason."""

    kind: Literal["bound", "estimate", "heuristic"]
    why: str


def standing(config: RunConfig, algo: Algorithm, problem: Problem, rows: Iterable[Row] = ()) -> Standing | None:
    """Return the standing of a run's certificate, given its rows so far; None if it has none."""
    if why_none(config):
        return None
    if not (isinstance(algo, PCMLP) and isinstance(config.algorithm, PCMLP)):
        return Standing("heuristic", "no theorem covers a neural model and a planner that only improves a policy")
    if not pays_at_most_one(config, problem.world.mdp):
        return Standing("heuristic", "the theorems are about rewards in [0, 1], and this task has others")
    own = isinstance(config.algorithm.features, TaskFeatures)
    c, needed = algo.bonus_scale, proved_scale(algo, problem.world.mdp, config.num_iterations, own_features=own)
    if needed is None:
        return Standing("heuristic", "no theorem covers this model, these features and these samples")
    if c < needed * (1 - 1e-9):  # tolerates rounding of the square root
        return Standing("heuristic", f"optimism is proved for a bonus_scale of {needed:.4g} or more, not for {c:g}")
    if max((row.get("likelihood_gap") or 0.0 for row in rows), default=0.0) > TOLERANCE * (1 + 1e-6):
        return Standing("heuristic", f"a fit may be more than {TOLERANCE:g} nats below the largest likelihood")
    if isinstance(algo.model, KNR):
        return Standing("estimate", "the bonus_scale is the theorem's, but the planner may find less than the maximum")
    return Standing("bound", f"with probability {1 - DELTA:g} at least, for all iterations of a seed")


def pays_at_most_one(config: RunConfig, mdp: MDP) -> bool:
    """Return whether rewards are in [0, 1]: all of them in a finite MDP; elsewhere, whether nothing scales them up."""
    if needs_evaluation(mdp):
        return config.task.reward_scale <= 1
    paid = np.asarray(finite.rewards(mdp))
    return bool(np.all((paid >= 0) & (paid <= 1 + 1e-6)))  # tolerates rounding


def why_none(config: RunConfig) -> str:
    """Return why a run has no certificate, or an empty string if it has one."""
    algorithm = config.algorithm
    if isinstance(algorithm, RandomPlay):
        return "random play promises nothing; give another algo"
    if not isinstance(algorithm, Deep | PCMLP):
        return f"{config.algo} has no model to compute a promise with; give another algo"
    if isinstance(algorithm, Deep) and not algorithm.bonus.pays:
        return f"{config.algo} has no bonus, so its promise may be below the optimum; give another algo"
    if isinstance(algorithm, Deep) and algorithm.reward_free:
        return "a reward-free run promises nothing about the reward; explore for it as well"
    return ""


def proved_scale(algo: PCMLP, mdp: MDP, num_iterations: int, *, own_features: bool = True) -> float | None:
    """Return the least c at which every promise of the run is proved to be at least J* (docs/theory.md, the
    certificate); for a KNR this is the lemma's c, although a run has fewer samples than the lemma requires; None if
    nothing is proved."""
    model, H, N = algo.model, mdp.horizon, num_iterations
    if isinstance(model, KNR):
        assert model.radius is not None
        return theory.knr_scale(H, model.radius, model.sigma, algo.ridge) if own_features else None
    if not isinstance(model, LinearCore | LinearMDP | Tabular) or not isinstance(mdp.transition, FiniteTransition):
        return None
    assert callable(algo.features)
    if not (own_features or isinstance(algo.features, OneHotFeatures)):
        return None  # the class need not be linear in these features
    dim = feature_dim(algo.features, mdp)
    if isinstance(model, Tabular):
        # For a deterministic table, counting is maximum likelihood and is exact for every pair that was visited.
        table = np.asarray(mdp.transition.probabilities())
        sure = algo.fit_samples is None and own_features and bool(np.all((table == 0) | (table == 1)))
        return H * math.sqrt(algo.ridge) / 2 if sure else None
    if isinstance(model, LinearCore) and model.method == "regression":
        return None
    K = algo.samples_per_policy
    if algo.fit_samples is None:
        K = K if algo.draws == "iid" else round_up(K, H)
        return theory.linear_mdp_run_scale(H, dim, algo.ridge, N, K, DELTA, class_size(model, N * K, N, DELTA))
    if algo.draws != "iid" or theory.covariance_samples(N, dim, DELTA / 2, algo.ridge) > K:
        return None
    M = algo.fit_samples
    error = theory.model_error(N, M, DELTA / 2, class_size(model, M, N, DELTA / 2))
    return theory.linear_mdp_scale(H, dim, algo.ridge, error)


def class_size(model: LinearCore | LinearMDP, samples: int, N: int, delta: float) -> float:
    """Return ln |Upsilon|, or what replaces it for a continuous class that is fitted to so many samples."""
    if isinstance(model, LinearMDP):
        return math.log(model.upsilon.shape[0])
    features, psi = model.factors()
    return covering.log_members(samples, N, features.phi.shape[2], psi.shape[0], delta, TOLERANCE)


def check_threshold(config: RunConfig, threshold: float | None) -> None:
    """Raise unless the run has a certificate that can fall below the threshold."""
    if threshold is None:
        return
    if not 0 <= threshold < math.inf:  # refuses NaN too
        raise ConfigError(f"stop_when_certified={threshold:g}: not a possible gain; give 0 or more")
    if why := why_none(config):
        raise ConfigError(f"stop_when_certified={threshold:g}: the run has no certificate: {why}, or leave it out")


def describe_threshold(threshold: float, stands: Standing | None) -> str:
    """Return a line that says when the certificate ends the run and how reliable it is."""
    assert stands is not None
    shown = f"a {stands.kind} ({stands.why})" if stands.kind != "estimate" else f"an estimate ({stands.why})"
    return f"the run ends when the certificate of every seed is at most {threshold:g}; the certificate is {shown}"


def needs_evaluation(mdp: MDP) -> bool:
    """Return whether a certificate takes the value of the deployed policy from an evaluation; in a finite MDP the value
    is computed."""
    return not (isinstance(mdp.states, Finite) and isinstance(mdp.transition, FiniteTransition))


def has_certificate(config: RunConfig, mdp: MDP, *, evaluated: bool) -> bool:
    """Return whether an iteration has a certificate: where the value of the deployed policy is known. Other iterations
    need no promise, which costs long imagined episodes."""
    return not why_none(config) and (evaluated or not needs_evaluation(mdp))


def certificates(
    problem: Problem, policies: Policy, metrics: dict[str, np.ndarray], returns: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return the column `certificate`: the promise minus the value of the deployed policies. The value is exact if the
    MDP is finite, else the mean of `returns` [seeds, episodes]. A promise of NaN certifies nothing."""
    if "promised" not in metrics:
        return {}
    value = exact_values(problem.world.mdp, policies)
    if value is None:
        assert returns is not None  # see `has_certificate`
        value = np.mean(returns, axis=1)
    promised = metrics["promised"]
    return {"certificate": np.where(np.isfinite(promised), promised, np.nan) - np.asarray(value)}


def is_certified(rows: list[Row], iteration: int | None, threshold: float | None) -> bool:
    """Return whether every seed's certificate of an iteration is at most the threshold."""
    if threshold is None or not iteration:
        return False
    found = [row.get("certificate") for row in rows if row["iteration"] == iteration]
    return bool(found) and all(value is not None and value <= threshold for value in found)
