"""The covariance of the policy cover and the elliptical bonus (paper: Algorithm 1, lines 5, 6, 8; Eq. 2).

    moment      Sigma_pi = sum_i phi_i phi_i^T / K
    covariance  Sigma_n  = sum_{i<=n} Sigma_pi_i + lambda I
    bonus       b_n(s,a) = min{ 2 c sqrt(phi^T Sigma_n^-1 phi), H }

Directions of phi that the cover has not been to have small eigenvalues in Sigma_n, so they pay the most. With the
Cholesky factor Sigma = L L^T the quadratic form is |L^-1 phi|^2. Sigma^-1 is never formed: L^-1 is solved for once a
stage, has the square root of Sigma's condition number, and makes the bonus in a planner's inner loop one product.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from pcmlp import linalg
from pcmlp.replay import Replay
from pcmlp.types import Action, Features, State, Transitions


def second_moment(features: Features, data: Transitions) -> Float[Array, "d d"]:
    """Sigma_pi.

    paper: episodes do not end before H / here: a draw after its episode's end counts in K as phi = 0.
    """
    phi = jax.vmap(features)(data.state, data.action)
    phi = jnp.where(data.valid[:, None], phi, 0.0)
    return jnp.matmul(phi.T, phi, precision="highest") / phi.shape[0]


def accumulate(
    covariance: Float[Array, "d d"], moment: Float[Array, "d d"], rounding: Float[Array, "d d"]
) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    """covariance + moment, and what rounding has cost so far (Kahan's summation).

    A hundred moments added in single precision lose as much as a ridge of 1e-3 can bear, in the directions that matter:
    those the cover has not been to, where the ridge is all there is.
    """
    wanted = moment - rounding
    total = covariance + wanted
    return total, (total - covariance) - wanted


def add_moment(
    covariance: Float[Array, "d d"], moment: Float[Array, "d d"], rounding: Float[Array, "d d"]
) -> tuple[Float[Array, "d d"], Float[Array, "d d"], Float[Array, ""]]:
    """`accumulate`, and 0; or all as it was, and 1, where the sum has no Cholesky factor.

    Sigma only grows: a moment that is not a number, or so large that rounding leaves the sum indefinite, would stay in
    it for ever, and no bonus could be made of it.
    """
    total, lost = accumulate(covariance, moment, rounding)
    good = jnp.all(jnp.isfinite(linalg.cholesky(total)))
    kept = jnp.where(good, total, covariance), jnp.where(good, lost, rounding)
    return *kept, 1.0 - good.astype(jnp.float32)


class AbstractBonus(eqx.Module):
    """What a pair (s, a) pays for being new, by what is known of phi there."""

    features: eqx.AbstractVar[Features]

    @abc.abstractmethod
    def __call__(self, state: State, action: Action) -> Float[Array, ""]: ...


class EllipticalBonus(AbstractBonus):
    """b_n as a function of (s, a), in [0, H] at any state: one that is no number pays nothing."""

    features: Features
    whitener: Float[Array, "d d"]  # L^-T: under `vmap` phi @ L^-T is one product, L^-1 @ phi makes copies as well
    scale: float | Float[Array, ""]  # c
    cap: float  # H

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        whitened = jnp.matmul(self.features(state, action), self.whitener, precision="highest")
        bonus = 2.0 * self.scale * jnp.sqrt(jnp.sum(whitened**2))
        return jnp.where(jnp.isnan(bonus), 0.0, jnp.minimum(bonus, self.cap))


def elliptical_bonus(
    features: Features, covariance: Float[Array, "d d"], scale: float | Float[Array, ""], cap: float | int
) -> EllipticalBonus:
    return EllipticalBonus(features, linalg.whitener(linalg.cholesky(covariance)).T, scale, float(cap))


def elliptical(
    key: Key[Array, ""],
    last: AbstractBonus | None,
    features: Features,
    covariance: Float[Array, "d d"],
    replay: Replay,
    scale: float | Float[Array, ""],
    cap: int,
) -> EllipticalBonus:
    """`elliptical_bonus` as what Algorithm 2 is told of novelty: it needs neither the last bonus nor the data."""
    return elliptical_bonus(features, covariance, scale, cap)


def information_gain(covariance: Float[Array, "d d"], ridge: float | Float[Array, ""]) -> Float[Array, ""]:
    """ln det(I + Sigma / lambda), Sigma without its ridge: how much the cover has seen, in nats."""
    factor = linalg.cholesky(covariance)
    return 2.0 * jnp.sum(jnp.log(jnp.diag(factor)) - 0.5 * jnp.log(ridge))
