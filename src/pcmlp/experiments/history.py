"""Runs of Algorithm 1 in finite MDPs, with all quantities in the lemmas of appendix A, computed exactly.

A run itself has only samples. The lemmas are about expectations: the distribution of each policy, the true Sigma_n and
b_n, the value of each policy. In a finite MDP these are finite sums, so both sides of each inequality can be compared
without errors of measurement.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp import finite
from pcmlp.algorithms.framework import PCMLP, learn
from pcmlp.theory import Real
from pcmlp.types import MDP, FittedModel, Problem


class History(NamedTuple):
    """A run's arrays, [iterations, seeds, ...]; index 0 is the paper's n = 1."""

    horizon: int
    phi: np.ndarray  # [S, A, d]
    reward: np.ndarray  # [S, A, S]
    truth: np.ndarray  # P* [S, A, S]
    policies: np.ndarray  # pi_1 ... pi_N+1 [N+1, seeds, H, S, A]
    models: np.ndarray  # P-hat_1 ... P-hat_N [N, seeds, S, A, S]
    covariances: np.ndarray  # Sigma-hat_n [N, seeds, d, d]
    planned: np.ndarray  # V-hat(s_0) of pi_n+1 [N, seeds]
    occupancy: np.ndarray  # d_h of pi_1 ... pi_N+1 [N+1, seeds, H, S, A]
    values: np.ndarray  # J(pi_n) [N+1, seeds]

    @property
    def visits(self) -> np.ndarray:
        """The distributions d^pi of pi_1 ... pi_N+1, [N+1, seeds, S, A]."""
        return self.occupancy.mean(2)

    @property
    def moments(self) -> np.ndarray:
        """The true Sigma_pi of every policy."""
        return np.einsum("nkxa,xai,xaj->nkij", self.visits, self.phi, self.phi)

    def true_covariances(self, ridge: Real) -> np.ndarray:
        """Return Sigma_n = sum_{i <= n} Sigma_pi_i + lambda I for n = 1 ... N."""
        return np.cumsum(self.moments[:-1], axis=0) + ridge * np.eye(self.phi.shape[-1])

    def model_errors(self) -> np.ndarray:
        """Return E_{d_cover} |P-hat_n - P*|_1^2 for n = 1 ... N, [N, seeds]."""
        count = np.arange(1, len(self.models) + 1)[:, None, None, None]
        cover = np.cumsum(self.visits[:-1], axis=0) / count
        return np.sum(cover * np.abs(self.models - self.truth).sum(-1) ** 2, axis=(2, 3))

    def expected_bonuses(self, scale: Real, ridge: Real) -> np.ndarray:
        """Return E_{d^pi_n+1} b_n for n = 1 ... N, [N, seeds], where b_n = min{c |phi|_{Sigma_n^-1}, H} has the true
        Sigma_n and no factor 2."""
        bonuses = bonus_table(self.phi, self.true_covariances(ridge), scale, self.horizon)
        return np.sum(self.visits[1:] * bonuses, axis=(2, 3))


def bonus_table(phi: np.ndarray, covariance: np.ndarray, scale: Real, cap: Real) -> np.ndarray:
    """Return min{ scale |phi|_{Sigma^-1}, cap } at every pair, [..., S, A], for covariances [..., d, d]."""
    squares = np.einsum("xai,...ij,xaj->...xa", phi, np.linalg.inv(covariance), phi)
    return np.minimum(scale * np.sqrt(np.maximum(squares, 0.0)), cap)


def play(problem: Problem, algo: PCMLP, keys: Key[Array, " seeds"], num_iterations: int) -> History:
    """Run Algorithm 1 and return its history."""
    mdp = problem.world.mdp
    models, covariances, planned = [], [], []
    learner = None
    for learner, metrics, _ in learn(keys, algo, problem, num_iterations):
        models.append(np.asarray(_probabilities(learner.model)))
        covariances.append(np.asarray(learner.covariance.matrix))
        planned.append(np.asarray(metrics["planned_value"]))
    assert learner is not None
    members = jnp.arange(num_iterations + 1)
    policies = eqx.filter_vmap(lambda cover: jax.vmap(lambda i: cover[i].probabilities())(members))(learner.cover)
    policies = jnp.swapaxes(policies, 0, 1)
    phi, reward, truth = tables(mdp, problem)
    arrays = (phi, reward, truth, policies, models, covariances, planned, *_exact(mdp, policies))
    return History(mdp.horizon, *(np.asarray(x, np.float64) for x in arrays))


def tables(mdp: MDP, problem: Problem) -> tuple[Float[Array, "S A d"], Float[Array, "S A S"], Float[Array, "S A S"]]:
    """Return phi, r and P* at every pair."""
    assert isinstance(mdp.transition, finite.FiniteTransition)
    assert problem.features is not None
    truth = mdp.transition.probabilities()
    s, a = jnp.arange(truth.shape[0]), jnp.arange(truth.shape[1])
    over_pairs = lambda f: jax.vmap(lambda x: jax.vmap(lambda u: f(x, u))(a))(s)  # noqa: E731
    return over_pairs(problem.features), finite.rewards(mdp), truth


@eqx.filter_jit
def _exact(mdp: MDP, policies: Float[Array, "n seeds H S A"]) -> tuple[Array, Array]:
    return jax.vmap(jax.vmap(lambda p: (finite.occupancy(mdp, p), finite.value(mdp, p))))(policies)


@eqx.filter_jit
@eqx.filter_vmap
def _probabilities(model: FittedModel) -> Array:
    assert isinstance(model, finite.FiniteTransition)
    return model.probabilities()
