"""Kernelized nonlinear regulators (paper: section 3 and appendix A.1): s' = W phi(s, a) + N(0, sigma^2 I), |W|_F <= F.

With known sigma the likelihood is the squared error, and W is fitted in one of two ways:

    sgd    W <- Pi_F( W - eta (W phi_i - s'_i) phi_i^T ) from W = 0, once over the data; the iterates' average;
           eta = F^2 / ((F + B) sqrt(M)), B a bound on |s'| (appendix B, dimension-free SGD);
           sgd-corrected has F for F^2, with which the appendix's bound holds for every F (docs/theory.md)
    exact  argmin over |W|_F <= F of sum_i |W phi_i - s'_i|^2: least squares, with the multiplier of the norm bound
           found by bisection
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp import linalg
from pcmlp.types import AbstractModel, ConfigError, Features, Metrics, Transitions

_FAILURE = 0.1  # delta of the state bound B
_BISECTIONS = 60


class KNR(AbstractModel):
    W: Float[Array, "s d"]
    features: Features
    sigma: float
    radius: float  # F
    # paper: SGD / here: any of three, by default exact least squares, which needs fewer samples
    method: Literal["exact", "sgd", "sgd-corrected"] = eqx.field(static=True, default="exact")

    @staticmethod
    def of(
        features: Features, size: int, dim: int, *, sigma: float, radius: float, W: Float[Array, "s d"] | None = None
    ) -> "KNR":
        if W is None:
            W = jnp.zeros((size, dim))
        if W.shape != (size, dim):
            raise ConfigError(f"W has shape {W.shape}, the task has {size} states and phi {dim}: give [{size}, {dim}]")
        if not float(jnp.linalg.norm(W)) <= radius * (1 + 1e-5):
            raise ConfigError(f"model.radius={radius}: W has norm {float(jnp.linalg.norm(W)):.4g}; give at least that")
        return KNR(W, features, sigma, radius)

    def mean(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " s"]:
        return jnp.matmul(self.W, self.features(state, action), precision="highest")

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        return self.mean(state, action) + self.sigma * jr.normal(key, state.shape)

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["KNR", Metrics]:
        phi = jnp.where(data.valid[:, None], jax.vmap(self.features)(data.state, data.action), 0.0)
        target = jnp.where(data.valid[:, None], data.next_state, 0.0)
        if self.method != "exact":
            W = averaged_sgd(
                key, phi, target, data.valid, self.sigma, self.radius, corrected=self.method == "sgd-corrected"
            )
        else:
            W = constrained_least_squares(phi, target, self.radius)
        predicted = jnp.matmul(phi, W.T, precision="highest")
        error = jnp.sum((predicted - target) ** 2) / jnp.maximum(jnp.sum(data.valid, dtype=jnp.float32), 1.0)
        return eqx.tree_at(lambda m: m.W, self, W), {"model_loss": error}


def project(W: Float[Array, "s d"], radius: float) -> Float[Array, "s d"]:
    """Onto the ball |W|_F <= F.

    paper: the appendix writes |W|_2, section 3 defines the class by |W|_F / here: Frobenius, as the class is defined.
    """
    return W * jnp.minimum(1.0, radius / jnp.maximum(jnp.linalg.norm(W), 1e-30))


def target_bound(
    radius: float, sigma: float, size: int, samples: Float[Array, ""] | float, delta: float
) -> Float[Array, ""]:
    """B with |s'_i| <= B for all M samples with probability 1 - delta/2: `theory.state_bound` at half of delta.

    paper: sigma sqrt(d_s ln(2 d_s M / delta)) / here: sqrt(2 ...), as the Gaussian tail exp(-t^2 / 2 sigma^2) needs.
    """
    log = jnp.log(2.0 * size * jnp.maximum(samples, 1.0) / delta)
    return radius + sigma * jnp.sqrt(2.0 * size * log)


def averaged_sgd(
    key: Key[Array, ""],
    phi: Float[Array, "n d"],
    target: Float[Array, "n s"],
    valid: Array,
    sigma: float,
    radius: float,
    *,
    corrected: bool = False,
) -> Float[Array, "s d"]:
    """One projected step for each valid row, in random order; the average of the iterates before each step.

    paper: the step has F^2 in it, with which the lemma is false for F far from 1 / here: that, or F if `corrected`.
    """
    samples = jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
    bound = target_bound(radius, sigma, target.shape[1], samples, _FAILURE)
    rate = (radius if corrected else radius**2) / ((radius + bound) * jnp.sqrt(samples))
    order = jr.permutation(key, phi.shape[0])

    def step(carry, row):
        W, total = carry
        x, y, used = row
        total = total + jnp.where(used, W, 0.0)
        W = jnp.where(used, project(W - rate * jnp.outer(jnp.matmul(W, x, precision="highest") - y, x), radius), W)
        return (W, total), None

    zero = jnp.zeros((target.shape[1], phi.shape[1]))
    (_, total), _ = jax.lax.scan(step, (zero, zero), (phi[order], target[order], valid[order]))
    return total / samples


def constrained_least_squares(
    phi: Float[Array, "n d"], target: Float[Array, "n s"], radius: float
) -> Float[Array, "s d"]:
    """In the eigenbasis of sum phi phi^T, with eigenvalues e and moments z, W_j(nu) = z_j / (e_j + nu), and nu >= 0 is
    the smallest with |W(nu)|_F <= F. Directions that the data do not have stay 0: the solution of least norm."""
    gram = jnp.matmul(phi.T, phi, precision="highest")
    values, vectors = linalg.eigh(gram)
    present = values > 1e-6 * jnp.maximum(values[-1], 1e-30)
    moment = jnp.matmul(vectors.T, jnp.matmul(phi.T, target, precision="highest"), precision="highest")

    def solution(nu: Float[Array, ""]) -> Float[Array, "d s"]:
        return jnp.where(present[:, None], moment / jnp.where(present, values + nu, 1.0)[:, None], 0.0)

    def halve(bracket, _):
        low, high = bracket
        middle = 0.5 * (low + high)
        inside = jnp.linalg.norm(solution(middle)) <= radius
        return (jnp.where(inside, low, middle), jnp.where(inside, middle, high)), None

    # |W(nu)| <= |z| / nu, so |z| / F is always inside the ball.
    top = jnp.linalg.norm(moment) / radius
    (_, high), _ = jax.lax.scan(halve, (jnp.zeros(()), top), None, length=_BISECTIONS)
    free = jnp.linalg.norm(solution(jnp.zeros(()))) <= radius
    W = jnp.matmul(vectors, solution(jnp.where(free, 0.0, high)), precision="highest")
    return W.T
