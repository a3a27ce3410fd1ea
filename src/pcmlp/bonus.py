"""The covariance of the policy cover and the elliptical bonus (paper: Algorithm 1, lines 5, 6, 8; Eq. 2).

    moment      Sigma_pi = sum_i phi_i phi_i^T / K
    covariance  Sigma_n  = sum_{i<=n} Sigma_pi_i + lambda I
    bonus       b_n(s,a) = min{ 2 c sqrt(phi^T Sigma_n^-1 phi), H }

Directions of phi that the cover has not visited have small eigenvalues in Sigma_n, so they give the highest bonus. With
the Cholesky factor Sigma = L L^T the quadratic form is |L^-1 phi|^2. Sigma^-1 is never formed: L^-1 is computed once
per iteration, has the square root of Sigma's condition number, and turns the bonus in a planner's inner loop into one
matrix product.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from pcmlp import linalg
from pcmlp.replay import Transitions
from pcmlp.types import Action, Bonus, Features, FittedBonus, Metrics, State

Number = float | Float[Array, ""]
CONTROL = "off: the bonus has the same size but does not know the policy cover; a control"  # of setting `covariance`


def second_moment(features: Features, data: Transitions) -> Float[Array, "d d"]:
    """Return Sigma_pi.

    paper: episodes do not end before H / here: a draw after its episode's end counts in K as phi = 0.
    """
    phi = jax.vmap(features)(data.state, data.action)
    phi = jnp.where(data.valid[:, None], phi, 0.0)
    return jnp.matmul(phi.T, phi, precision="highest") / phi.shape[0]


class Covariance(eqx.Module):
    """Sigma_n, summed with Kahan's compensation.

    Without compensation, adding a hundred moments in single precision loses as much as a ridge of 1e-3. That matters in
    directions that the cover has not visited, where Sigma_n is only the ridge.
    """

    matrix: Float[Array, "*seeds d d"]
    kahan_error: Float[Array, "*seeds d d"]
    skipped: Bool[Array, "*seeds"]  # whether the last moment was left out

    @staticmethod
    def ridge_only(ridge: Number, dim: int) -> "Covariance":
        """Return lambda I."""
        matrix = ridge * jnp.eye(dim)
        return Covariance(matrix, jnp.zeros_like(matrix), jnp.array(False))

    def kahan_sum(self, moment: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
        """Return the matrix with a moment added, and the error that rounding has left in it."""
        wanted = moment - self.kahan_error
        total = self.matrix + wanted
        return total, (total - self.matrix) - wanted

    def add(self, moment: Float[Array, "d d"]) -> "Covariance":
        """Add a moment, unless the sum has no Cholesky factor.

        Sigma only grows: a moment that is NaN, or so large that rounding leaves the sum indefinite, would stay in it
        forever, and no bonus could be computed from it.
        """
        total, lost = self.kahan_sum(moment)
        good = jnp.all(jnp.isfinite(linalg.cholesky(total)))
        return Covariance(jnp.where(good, total, self.matrix), jnp.where(good, lost, self.kahan_error), ~good)

    def metrics(self, ridge: Number) -> Metrics:
        """Return the columns that a run logs."""
        return {
            "info_gain": information_gain(self.matrix, ridge),
            "covariance_skipped": self.skipped.astype(jnp.float32),
        }


def choose_covariance(
    knows_cover: Bool[Array, ""] | bool, covariance: Float[Array, "d d"], features: Features, data: Transitions
) -> Float[Array, "d d"]:
    """Return the covariance that the bonus uses: Sigma_n or, for the control that does not know the cover, mu I.

    mu is chosen such that the mean over the samples of sqrt(phi^T Sigma^-1 phi) is the same for Sigma = Sigma_n and for
    Sigma = mu I. So the control pays as much as the method, but in other places.
    """

    def blind() -> Float[Array, "d d"]:
        phi = jnp.where(data.valid[:, None], jax.vmap(features)(data.state, data.action), 0.0)
        whitened = jnp.matmul(phi, linalg.whitener(linalg.cholesky(covariance)).T, precision="highest")
        static, paid = (jnp.sum(jnp.linalg.norm(x, axis=1)) for x in (phi, whitened))
        mu = (static / paid) ** 2
        return jnp.where(jnp.isfinite(mu) & (mu > 0), mu * jnp.eye(covariance.shape[0]), covariance)

    return jax.lax.cond(jnp.asarray(knows_cover), lambda: covariance, blind)


class Ellipse(FittedBonus):
    """2 sqrt(phi^T Sigma^-1 phi) as a function of (s, a)."""

    features: Features
    whitener: Float[Array, "d d"]  # L^-T: under `vmap` phi @ L^-T is one product without copies

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        whitened = jnp.matmul(self.features(state, action), self.whitener, precision="highest")
        return 2.0 * jnp.sqrt(jnp.sum(whitened**2))


class Elliptical(Bonus):
    """A bonus for directions of phi that the policy cover has not visited (Eq. 2)."""

    def init(self, key: Key[Array, ""], features: Features, covariance: Float[Array, "d d"]) -> Ellipse:
        """Return the bonus of a covariance."""
        return Ellipse(features, linalg.whitener(linalg.cholesky(covariance)).T)


class Nothing(FittedBonus):
    """0 everywhere."""

    features: Features

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        return jnp.zeros(())


class NoBonus(Bonus):
    """No bonus: plans are for the reward alone."""

    pays: ClassVar[bool] = False

    def init(self, key: Key[Array, ""], features: Features, covariance: Float[Array, "d d"]) -> Nothing:
        """Return the bonus that is 0 everywhere."""
        return Nothing(features)


class CappedBonus(eqx.Module):
    """The bonus that a planner uses: min{c b(s, a), H}, and 0 where b is NaN (Eq. 2)."""

    bonus: FittedBonus
    scale: Number  # c
    cap: Number  # H

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        scaled = self.scale * self.bonus(state, action)
        return jnp.where(jnp.isnan(scaled), 0.0, jnp.minimum(scaled, self.cap))


def information_gain(covariance: Float[Array, "d d"], ridge: Number) -> Float[Array, ""]:
    """Return ln det(I + Sigma / lambda), with Sigma without its ridge: the information gain of the cover, in nats."""
    factor = linalg.cholesky(covariance)
    return 2.0 * jnp.sum(jnp.log(jnp.diag(factor)) - 0.5 * jnp.log(ridge))
