"""Linear MDPs of Yang and Wang (2019), the continuous class of the paper's section 3: phi and psi are known, M is not.

    P(s' | s, a) = phi(s, a)^T M psi(s'),     phi(s, a) in the simplex of R^d, each psi_w a distribution of s'

M ranges over all d x d' matrices whose rows are distributions: a latent z is drawn from phi(s, a), then w from row z of
M, then s' from psi_w. Then every M gives a distribution, P* is linear in M, and its likelihood is concave. M is fitted
in one of two ways, to the counts n(s, a, s'):

    likelihood  EM: M_zw <- M_zw G_zw / sum_w M_zw G_zw,   G_zw = sum n(s, a, s') phi_z psi_w / P(s' | s, a)
                from uniform rows, until it is certain to be within `TOLERANCE` of the maximum
    regression  M = (I + sum phi phi^T)^-1 (sum phi psi(s')^T) K^-1,   K = sum_s' psi(s') psi(s')^T,
                each row then projected onto the simplex

paper: a finite class; a footnote reduces this class to one / here: the class itself (docs/theory.md).
paper (Yang and Wang): the regression is used as it is, in optimistic value iteration / here: it is projected, because a
planning oracle needs distributions.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp import linalg
from pcmlp.errors import ConfigError
from pcmlp.features.given import TableFeatures
from pcmlp.models.finite import LinearTransition, count, mean_loss
from pcmlp.replay import Replay
from pcmlp.settings import setting
from pcmlp.types import MDP, Features, FittedModel, Metrics, Model, Problem

TOLERANCE = 0.1  # nats, for all data together, by which EM may stay below the largest log-likelihood
_ROUNDS = 20_000  # most rounds of EM; with very many data, rounding errors hide how near the maximum is


class LinearCore(Model):
    """Linear MDPs with known phi and psi, fitted by maximum likelihood or ridge regression."""

    # paper: maximum likelihood / here: also the regression of Yang and Wang, to compare
    method: Literal["likelihood", "regression"] = setting("likelihood", "how M is fitted")
    # These are set from the problem by `bind`.
    features: TableFeatures | None = None
    psi: Float[Array, "..."] | None = None  # [d', S]: psi[w] is a distribution of s'

    def check(self) -> None:
        """Raise unless every M gives distributions."""
        if self.features is not None and self.psi is not None:
            check_factors(self.features, self.psi)

    def bind(self, problem: Problem, phi: Features) -> Model:
        """Return the class with the problem's own phi and psi."""
        own = problem.model if isinstance(problem.model, LinearCore) else self
        features, psi = own.factors()
        return dataclasses.replace(self, features=features, psi=psi)

    def member(self, M: Float[Array, "d w"]) -> LinearTransition:
        """Return the transition of one M."""
        features, psi = self.factors()
        return LinearTransition(features, jnp.matmul(M, psi, precision="highest"))

    def init(self, key: Key[Array, ""], mdp: MDP) -> LinearTransition:
        """Return the transition with uniform rows, which both fits return without data."""
        features, psi = self.factors()
        return self.member(uniform(features.phi.shape[2], psi.shape[0]))

    def train(
        self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay
    ) -> tuple[LinearTransition, Metrics]:
        """Fit M to all rows of the replay; the previous M is not used."""
        features, psi = self.factors()
        num_states, num_actions, dim = features.phi.shape
        counts = count(replay.data, num_states, num_actions)
        rows = features.phi.reshape(-1, dim), psi, counts.reshape(-1, num_states)
        if self.method == "likelihood":
            M, gap = most_likely(*rows)
            known = {"likelihood_gap": gap}
        else:
            M, known = regression(*rows), {}
        fitted = self.member(M)
        return fitted, {"model_loss": mean_loss(counts, fitted.probabilities()), **known}

    def factors(self) -> tuple[TableFeatures, Float[Array, "w S"]]:
        """Return phi and psi, or raise if the task has none."""
        if self.features is None or self.psi is None:
            raise ConfigError("model.name=core: needs a task with a known phi and psi; choose linear-core")
        return self.features, self.psi


def uniform(dim: int, core_dim: int) -> Float[Array, "d w"]:
    """Return the M with uniform rows."""
    return jnp.full((dim, core_dim), 1.0 / core_dim)


def most_likely(
    phi: Float[Array, "x d"], psi: Float[Array, "w S"], counts: Float[Array, "x S"]
) -> tuple[Float[Array, "d w"], Float[Array, ""]]:
    """Return an M whose log-likelihood is within `TOLERANCE` of the maximum, by EM; and a bound on its distance.

    No round makes the likelihood smaller. A latent without data keeps its row.
    """

    # The gap is a part of the carry, because under vmap JAX calls `far` twice in a round: if it computed the gap and
    # rounding made the two differ, the loop might never end.
    def far(carry: tuple) -> Bool[Array, ""]:
        _, _, gap, rounds = carry
        return (gap > TOLERANCE) & (rounds < _ROUNDS)

    def round_of_em(carry: tuple) -> tuple:
        M, slope, _, rounds = carry
        expected = M * slope  # how often z was followed by w, given the data
        total = jnp.sum(expected, axis=1, keepdims=True)
        return at(jnp.where(total > 0, expected / jnp.maximum(total, jnp.finfo(jnp.float32).tiny), M), rounds + 1)

    def at(M: Float[Array, "d w"], rounds: Int[Array, ""]) -> tuple:
        slope = _slope(M, phi, psi, counts)
        return M, slope, _gap(M, slope), rounds

    M, _, gap, _ = jax.lax.while_loop(far, round_of_em, at(uniform(phi.shape[1], psi.shape[0]), jnp.array(0)))
    return M, gap


def _slope(
    M: Float[Array, "d w"], phi: Float[Array, "x d"], psi: Float[Array, "w S"], counts: Float[Array, "x S"]
) -> Float[Array, "d w"]:
    """Return G, the gradient of the log-likelihood."""
    p = jnp.matmul(phi, jnp.matmul(M, psi, precision="highest"), precision="highest")
    share = jnp.where(counts > 0, counts / jnp.maximum(p, jnp.finfo(jnp.float32).tiny), 0.0)
    return jnp.matmul(phi.T, jnp.matmul(share, psi.T, precision="highest"), precision="highest")


def _gap(M: Float[Array, "d w"], slope: Float[Array, "d w"]) -> Float[Array, ""]:
    """Return max_M' <G, M' - M>: by concavity, no log-likelihood is larger than that of M by more than this."""
    return jnp.sum(jnp.max(slope, axis=1) - jnp.sum(M * slope, axis=1))


def regression(phi: Float[Array, "x d"], psi: Float[Array, "w S"], counts: Float[Array, "x S"]) -> Float[Array, "d w"]:
    """Return the ridge regression of Yang and Wang, each row projected onto the simplex."""
    visits = jnp.sum(counts, axis=1, keepdims=True)
    gram = jnp.eye(phi.shape[1]) + jnp.matmul(phi.T, visits * phi, precision="highest")
    seen = jnp.matmul(phi.T, jnp.matmul(counts, psi.T, precision="highest"), precision="highest")
    K = jnp.matmul(psi, psi.T, precision="highest")
    M = jnp.matmul(inverse(gram), jnp.matmul(seen, inverse(K), precision="highest"), precision="highest")
    return jax.vmap(onto_simplex)(M)


def inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return the inverse of a positive definite matrix."""
    whitener = linalg.whitener(linalg.cholesky(matrix))
    return jnp.matmul(whitener.T, whitener, precision="highest")


def onto_simplex(row: Float[Array, " w"]) -> Float[Array, " w"]:
    """Return the distribution nearest to the row: max(row - t, 0) with the t for which it sums to 1."""
    falling = jnp.sort(row)[::-1]
    excess = jnp.cumsum(falling) - 1.0
    size = jnp.arange(1, row.shape[0] + 1)
    kept = jnp.sum(falling * size.astype(jnp.float32) > excess)
    return jnp.maximum(row - excess[kept - 1] / kept.astype(jnp.float32), 0.0)


def check_factors(features: TableFeatures, psi: Float[Array, "..."]) -> None:
    """Raise unless every phi(s, a) and every psi_w is a distribution, and the psi_w are independent."""
    num_states = features.phi.shape[0]
    if psi.ndim != 2 or psi.shape[0] == 0 or psi.shape[1] != num_states:
        raise ConfigError(f"psi has shape {psi.shape}: give [d', {num_states}], a distribution of s' in each row")
    phi, after = np.asarray(features.phi, np.float64), np.asarray(psi, np.float64)
    bad = ~are_distributions(phi)
    if bad.any():
        s, a = np.argwhere(bad)[0]
        norm = np.linalg.norm(phi[s, a])
        raise ConfigError(
            f"phi({s}, {a}) has norm {norm:.4g} and sum {phi[s, a].sum():.4g}, and is not a distribution "
            f"({int(bad.sum())} of {bad.size} pairs are not): give numbers that are not negative and sum to 1"
        )
    bad = ~are_distributions(after)
    if bad.any():
        raise ConfigError(
            f"psi[{int(bad.argmax())}] is not a distribution of s' ({int(bad.sum())} of {len(bad)} are not): "
            "give numbers that are not negative and sum to 1"
        )
    if (rank := int(np.linalg.matrix_rank(after, tol=1e-3))) < len(after):
        raise ConfigError(
            f"psi has {len(after)} distributions of which {rank} are independent, so data cannot determine M: "
            f"give at most {num_states} independent ones"
        )


def are_distributions(table: np.ndarray) -> np.ndarray:
    """Return whether the numbers along the last axis are a distribution, up to rounding."""
    return np.isfinite(table).all(-1) & (table.min(-1) >= -1e-6) & (np.abs(table.sum(-1) - 1) < 1e-4)
