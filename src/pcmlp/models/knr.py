"""Kernelized nonlinear regulators (paper: section 3 and appendix A.1): s' = W phi(s, a) + N(0, sigma^2 I), |W|_F <= F.

With known sigma the likelihood is the squared error, and W is fitted in one of two ways:

    sgd    W <- Pi_F( W - eta (W phi_i - s'_i) phi_i^T ) from W = 0, once over the data; the iterates' average;
           eta = F^2 / ((F + B) sqrt(M)), B a bound on |s'| (appendix B, dimension-free SGD);
           sgd-corrected has F in place of F^2; then the appendix's bound holds for every F (docs/theory.md)
    exact  argmin over |W|_F <= F of sum_i |W phi_i - s'_i|^2: least squares, with the multiplier of the norm bound
           found by bisection

With other features than the task's own, the class need not contain the truth: `nearest_member` says how far away it is.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp import linalg
from pcmlp.errors import ConfigError
from pcmlp.replay import Replay
from pcmlp.settings import setting
from pcmlp.types import MDP, Action, Features, FittedModel, Metrics, Model, Problem, State

_FAILURE = 0.1  # delta in the state bound B
_POINTS = 1000  # pairs at which a class is compared with the truth, and two more for each feature
_WORTH = 1e-4  # penalty of a unit of |W|_F^2: it must reduce the mean squared error by this, in units of sigma^2
_ROUNDING = 1e-12  # ridge of a fit without noise
_EXACT = 0.01  # a member this near to the truth, in units of sigma, is the truth up to rounding
_BISECTIONS = 60


class KNRTransition(FittedModel):
    """s' = W phi(s, a) + N(0, sigma^2 I)."""

    W: Float[Array, "s d"]
    features: Features
    sigma: float | Float[Array, ""]

    def mean(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " s"]:
        """Return the expected next state."""
        return jnp.matmul(self.W, self.features(state, action), precision="highest")

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.mean(state, action) + self.sigma * jr.normal(key, state.shape)


class Regulators(Model):
    """Regulators of the task's features, with the task's noise."""

    # These are set from the problem by `bind`.
    features: Features | None = None
    sigma: float = 0.0
    radius: float | None = None  # F

    def bind(self, problem: Problem, phi: Features) -> Model:
        """Return the regulators of phi, with the noise of the problem's own. If F is not given, it is that of the
        problem; with another phi, it is that of the member that is nearest to the truth."""
        own, radius = problem.model, self.radius
        if not isinstance(own, Regulators):
            self.phi()  # raises if there is none
            return self
        if radius is None:
            near = None if phi is problem.features else nearest_member(problem.world.mdp, phi)
            radius = near.radius if near else own.radius
        return dataclasses.replace(self, features=phi, sigma=own.sigma, radius=radius)

    def phi(self) -> Features:
        """Return the features, or raise if the task has none."""
        if self.features is None:
            raise ConfigError("model: needs a task that is a regulator, such as knr-lds")
        return self.features


class KNR(Regulators):
    """Regulators of the task's features with |W|_F <= F, fitted by least squares or SGD."""

    # paper: SGD / here: one of three methods, by default exact least squares, which needs fewer samples
    method: Literal["exact", "sgd", "sgd-corrected"] = setting("exact", "how W is fitted")
    radius: float | None = setting(
        None, "F; none: 1.25 |W| of the class's member that is nearest to the truth", above=0
    )

    def init(self, key: Key[Array, ""], mdp: MDP) -> KNRTransition:
        """Return the model W = 0."""
        features = self.phi()
        example = jax.eval_shape(lambda: features(mdp.states.sample(key), mdp.actions.sample(key)))
        return KNRTransition(jnp.zeros((mdp.states.size, example.shape[0])), features, self.sigma)

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[KNRTransition, Metrics]:
        """Fit W to all rows of the replay; the previous W is not used."""
        features, radius, data = self.phi(), self.radius, replay.data
        assert radius is not None
        phi = jnp.where(data.valid[:, None], jax.vmap(features)(data.state, data.action), 0.0)
        target = jnp.where(data.valid[:, None], data.next_state, 0.0)
        if self.method == "exact":
            W = constrained_least_squares(phi, target, radius)
        else:
            corrected = self.method == "sgd-corrected"
            W = averaged_sgd(key, phi, target, data.valid, self.sigma, radius, corrected=corrected)
        predicted = jnp.matmul(phi, W.T, precision="highest")
        error = jnp.sum((predicted - target) ** 2) / jnp.maximum(jnp.sum(data.valid, dtype=jnp.float32), 1.0)
        return KNRTransition(W, features, self.sigma), {"model_loss": error}


def project(W: Float[Array, "s d"], radius: float) -> Float[Array, "s d"]:
    """Project W onto the ball |W|_F <= F.

    paper: the appendix writes |W|_2, section 3 defines the class by |W|_F / here: Frobenius, as the class is defined.
    """
    return W * jnp.minimum(1.0, radius / jnp.maximum(jnp.linalg.norm(W), 1e-30))


def target_bound(
    radius: float, sigma: float | Float[Array, ""], size: int, samples: Float[Array, ""] | float, delta: float
) -> Float[Array, ""]:
    """Return B with |s'_i| <= B for all M samples with probability 1 - delta/2: `theory.state_bound` at delta/2.

    paper: sigma sqrt(d_s ln(2 d_s M / delta)) / here: sqrt(2 ...), as the Gaussian tail exp(-t^2 / 2 sigma^2) needs.
    """
    log = jnp.log(2.0 * size * jnp.maximum(samples, 1.0) / delta)
    return radius + sigma * jnp.sqrt(2.0 * size * log)


def averaged_sgd(
    key: Key[Array, ""],
    phi: Float[Array, "n d"],
    target: Float[Array, "n s"],
    valid: Array,
    sigma: float | Float[Array, ""],
    radius: float,
    *,
    corrected: bool = False,
) -> Float[Array, "s d"]:
    """Take one projected step for each valid row, in random order; return the average of the iterates before each step.

    paper: the step has a factor F^2, with which the lemma is false for F far from 1 / here: F^2, or F if `corrected`.
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
    """Return the least-squares W with |W|_F <= F.

    In the eigenbasis of sum phi phi^T, with eigenvalues e and moments z, W_j(nu) = z_j / (e_j + nu), and nu >= 0 is the
    smallest with |W(nu)|_F <= F. Directions without data stay 0: the solution of least norm.
    """
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


def known_radius(W: Float[np.ndarray, "s d"]) -> float:
    """Return F for a learner that knows the norm of W to within a quarter."""
    return 1.25 * float(np.linalg.norm(W))


class Nearest(NamedTuple):
    """The member of a class that is nearest to the truth, over random pairs of the task's box."""

    W: Float[np.ndarray, "s d"]
    error: float  # root mean square of |W phi - mean of s'| / sigma
    largest: float  # the largest of these errors

    @property
    def is_truth(self) -> bool:
        """Whether the member is the truth, up to rounding."""
        return self.error < _EXACT

    @property
    def radius(self) -> float:
        """F of a learner that is told this member's norm."""
        return known_radius(self.W)


def nearest_member(mdp: MDP, features: Features, radius: float | None = None) -> Nearest | None:
    """Return the W with |W|_F <= F that minimises E |W phi - mean of s'|^2; None if the true mean is not known, or the
    box has no bounds.

    If no radius is given, it minimises E |W phi - mean of s'|^2 / sigma^2 + 1e-4 |W|_F^2: nearly collinear features
    allow any norm, and among members that are about equally near this one has a small norm.
    """
    truth = mdp.transition
    if not (isinstance(truth, KNRTransition) and all(box.is_bounded() for box in mdp.boxes)):
        return None
    sigma, norm = float(truth.sigma), float(jnp.linalg.norm(truth.W))
    if features is truth.features and radius is not None and norm <= radius:
        return Nearest(np.asarray(truth.W), 0.0, 0.0)
    states, actions = (jnp.asarray(b.sample(jr.key(0))) for b in mdp.boxes)
    count = _POINTS + 2 * jax.eval_shape(features, states, actions).shape[0]
    generator = np.random.default_rng(0)
    pairs = [jnp.asarray(generator.uniform(b.low, b.high, (2 * count, b.size)), jnp.float32) for b in mdp.boxes]
    phi, mean = (np.asarray(jax.vmap(f)(*pairs), np.float64) for f in (features, truth.mean))
    # The first half of the pairs is fitted to, the second is held out.
    values, vectors = np.linalg.eigh(phi[:count].T @ phi[:count] / count)
    moment = vectors.T @ (phi[:count].T @ mean[:count]) / count

    def solution(ridge: float) -> np.ndarray:
        return vectors @ (moment / (np.maximum(values, 0.0) + ridge)[:, None])

    ridge = _WORTH * sigma**2
    if radius is not None:
        low, high = _ROUNDING, max(_ROUNDING, float(np.linalg.norm(moment)) / radius)  # |W| <= |moment| / ridge
        for _ in range(_BISECTIONS if np.linalg.norm(solution(low)) > radius else 0):
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if np.linalg.norm(solution(middle)) <= radius else (middle, high)
        ridge = high if np.linalg.norm(solution(_ROUNDING)) > radius else _ROUNDING
    W = solution(ridge).T
    errors = np.linalg.norm(phi[count:] @ W.T - mean[count:], axis=1) / sigma
    return Nearest(W, float(np.sqrt(np.mean(errors**2))), float(errors.max()))
