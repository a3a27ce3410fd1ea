"""Bounds on the env steps until a policy is near-optimal: the theorem's, and the best published ones.

They depend on a run's task: its H, d, |Upsilon|, F, sigma and d_s. Published bounds are known up to a constant and
logarithms, so only their growth can be compared.
"""

from typing import NamedTuple

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments.job import Job
from pcmlp.features import feature_dim
from pcmlp.models import KNR, LinearMDP
from pcmlp.runs.config import build
from pcmlp.tasks import CombinationLock
from pcmlp.types import Model

_DELTA = 0.1


class Setting(NamedTuple):
    """The quantities of a run that its bounds depend on."""

    model: Model
    horizon: int
    dim: int
    state_dim: int  # of a regulator; the number of states of a finite MDP


def setting_of(job: Job) -> Setting:
    """Return the setting of a run."""
    problem, algorithm = build(job.config())
    assert isinstance(algorithm, PCMLP)
    assert callable(algorithm.features)
    mdp = problem.world.mdp
    return Setting(algorithm.model, mdp.horizon, feature_dim(algorithm.features, mdp), mdp.states.size)


def theorem_steps(job: Job, epsilon: float) -> float:
    """Return the env steps of the corrected theorem. A lock and `linear-core` have no finite class, and are treated as
    if |Upsilon| were 1. This changes only M, which is much smaller than K."""
    model, horizon, dim, state_dim = setting_of(job)
    if isinstance(model, KNR):
        assert model.radius is not None
        made = theory.knr_corrected(horizon, dim, epsilon, _DELTA, model.radius, model.sigma, state_dim)
    else:
        members = model.upsilon.shape[0] if isinstance(model, LinearMDP) else 1
        made = theory.linear_mdp_corrected(horizon, dim, epsilon, _DELTA, members)
    return float(made.env_steps_bound(horizon))


def tabular_steps(job: Job, epsilon: float) -> float:
    """Return H^3 S A / epsilon^2, from UCBVI's regret of sqrt(H S A T) in T steps (Azar et al. 2017)."""
    task = job.config().task
    assert isinstance(task, CombinationLock)
    return task.horizon**3 * (task.horizon + 2) * task.actions / epsilon**2


def linear_mdp_steps(job: Job, epsilon: float) -> float:
    """Return d^2 H^4 / epsilon^2, from LSVI-UCB++'s regret of d sqrt(H^3 K) in K episodes (He et al. 2023)."""
    setting = setting_of(job)
    return setting.dim**2 * setting.horizon**4 / epsilon**2
