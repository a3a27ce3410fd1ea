"""What a run's certificate is worth, and `--stop-when-certified`.

The number is `pcmlp.certificate`'s. It is a bound where optimism is proved for this very run and planning is exact, an
estimate where a theorem's c is used but the planner only finds much of the maximum, and a heuristic elsewhere.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from pcmlp import theory
from pcmlp.certificate import exact_values
from pcmlp.features import feature_dim
from pcmlp.framework import PCMLP
from pcmlp.models import KNR, LinearMDP, Tabular
from pcmlp.runs.folder import Row
from pcmlp.runs.options import NO_BONUS, RECORDS, DeepConfig, FrameworkConfig, RunConfig, TaskFeatures
from pcmlp.types import AbstractAlgorithm, AbstractPolicy, ConfigError, FiniteTransition, Task

DELTA = 0.1  # the probability with which a bound may fail, over all iterations of a seed


class Standing(NamedTuple):
    kind: Literal["bound", "estimate", "heuristic"]
    why: str


def standing(config: RunConfig, algo: AbstractAlgorithm) -> Standing | None:
    """What the run's certificate is; none where it has none."""
    if without(config):
        return None
    if not (isinstance(algo, PCMLP) and isinstance(config, FrameworkConfig)):
        return Standing("heuristic", "no theorem covers a neural model and a planner that only improves a policy")
    c, needed = algo.bonus_scale, proved_scale(algo, own_features=isinstance(config.features, TaskFeatures))
    if needed is None:
        return Standing("heuristic", "no theorem covers this model, these features and these samples")
    if c < needed * (1 - 1e-9):  # not for the last bit of a root
        return Standing("heuristic", f"optimism is proved for a bonus_scale of {needed:.4g} or more, not for {c:g}")
    if isinstance(algo.model, KNR):
        return Standing("estimate", "the theorem's bonus_scale, but a planner that finds less than the maximum")
    return Standing("bound", f"with probability {1 - DELTA:g} at least, for all iterations of a seed")


def without(config: RunConfig) -> str:
    """Why a run has no certificate, if it has none."""
    if config.algo == "random":
        return "random plays and promises nothing; give another --algo"
    if config.algo in RECORDS:
        return f"{config.algo} has no model to promise anything by; give another --algo"
    if config.algo in NO_BONUS:
        return f"{config.algo} has no bonus, so that what it promises may be less than the best; give another --algo"
    if isinstance(config, DeepConfig) and config.reward_free:
        return "a reward-free run promises nothing of the reward; explore for it as well"
    return ""


def proved_scale(algo: PCMLP, *, own_features: bool = True) -> float | None:
    """The least c at which every promise of the run is proved to be at least J* (docs/theory.md, the certificate); for
    a KNR the lemma's, though a run has not the samples it asks for; none where nothing is proved."""
    mdp, model = algo.world.mdp, algo.model
    H, N = mdp.horizon, algo.num_iterations
    if isinstance(model, KNR):
        return theory.knr_scale(H, model.radius, model.sigma, algo.ridge) if own_features else None
    if not isinstance(model, LinearMDP | Tabular) or not isinstance(mdp.transition, FiniteTransition):
        return None
    dim = feature_dim(algo.features, algo.world.states, algo.world.actions)
    if isinstance(model, Tabular):
        # Counting is maximum likelihood over the deterministic tables, and right wherever it has counted once.
        table = np.asarray(mdp.transition.probabilities())
        sure = algo.fit_samples is None and own_features and bool(np.all((table == 0) | (table == 1)))
        return H * math.sqrt(algo.ridge) / 2 if sure else None
    members = model.upsilon.shape[0]
    K = algo.samples_per_policy
    if algo.fit_samples is None:
        K = K if algo.draws == "iid" else -(-K // H) * H
        return theory.linear_mdp_run_scale(H, dim, algo.ridge, N, K, DELTA, math.log(members))
    if algo.draws != "iid" or theory.covariance_samples(N, dim, DELTA / 2, algo.ridge) > K:
        return None
    error = theory.linear_mdp_error(N, algo.fit_samples, DELTA / 2, members)
    return theory.linear_mdp_scale(H, dim, algo.ridge, error)


def check_threshold(config: RunConfig, threshold: float | None) -> None:
    if threshold is None:
        return
    if not 0 <= threshold < math.inf:  # NaN neither
        raise ConfigError(f"stop_when_certified={threshold:g}: what may be left to gain; give 0 or more")
    if why := without(config):
        raise ConfigError(f"stop_when_certified={threshold:g}: there is no certificate, {why}, or leave it out")


def note(threshold: float, stands: Standing | None) -> str:
    """What to expect of a run that its certificate ends."""
    assert stands is not None
    shown = f"a {stands.kind} ({stands.why})" if stands.kind != "estimate" else f"an estimate ({stands.why})"
    return f"ends when the certificate of every seed is at most {threshold:g}; it is {shown}"


def certificates(
    task: Task, policies: AbstractPolicy, metrics: dict[str, np.ndarray], returns: np.ndarray
) -> dict[str, np.ndarray]:
    """The column `certificate`: what was promised less what the deployed policies get, exactly where the MDP is finite,
    by their evaluation's `returns` [seeds, episodes] elsewhere. A promise that is no number certifies nothing."""
    if "promised" not in metrics:
        return {}
    exact = exact_values(task.world.mdp, policies)
    value = np.mean(returns, axis=1) if exact is None else np.asarray(exact)
    promised = metrics["promised"]
    return {"certificate": np.where(np.isfinite(promised), promised, np.nan) - value}


def is_certified(rows: list[Row], iteration: int | None, threshold: float | None) -> bool:
    """Whether every seed's certificate of an iteration is at most the threshold."""
    if threshold is None or not iteration:
        return False
    found = [row.get("certificate") for row in rows if row["iteration"] == iteration]
    return bool(found) and all(value is not None and value <= threshold for value in found)
