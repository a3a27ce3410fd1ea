"""How uncertain a regulator is: LC3's confidence ball, and draws from the posterior (Kakade et al. 2020).

    Sigma_n = sum_i phi_i phi_i^T + ridge I = L L^T,    What = (sum_i s'_i phi_i^T) Sigma_n^-1        all rows so far
    ball    { W : |(W - What) L|_F <= beta_n } = { What + beta_n U L^-1 : |U|_F <= 1 }
    beta_n  sqrt(ridge) F + sigma sqrt( d_s ln(det Sigma_n / ridge^d) + 2 ln(1 / delta) ),      delta = 0.1
    draw    W = What + sigma G L^-1,  entries of G ~ N(0, 1), which is N(What, sigma^2 Sigma_n^-1) for each output

With this beta_n, W* is in the balls of all iterations at once with probability 1 - delta (docs/rivals/lc3-oracle.md).
LC3 explores because it plans in the best W of the ball; Thompson sampling because a drawn W may promise as much.

paper (LC3): the spectral norm, a constant in beta that is not given, ridge = (sigma / |W*|)^2 / here: the Frobenius
norm, the beta that is proved for it, and a larger ridge, because a smaller one is lost in single precision.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.models.knr import KNRTransition, Regulators
from pcmlp.models.thompson import posterior
from pcmlp.replay import Replay
from pcmlp.settings import setting
from pcmlp.trees import all_finite, select
from pcmlp.types import MDP, Action, Features, FittedModel, Metrics, State

_DELTA = 0.1  # probability that W* is ever outside the ball


class Belief(eqx.Module):
    """The estimate and its uncertainty: What and Sigma_n."""

    mean: Float[Array, "s d"]  # What
    root: Float[Array, "d d"]  # L^-1
    log_det: Float[Array, ""]  # ln(det Sigma_n / ridge^d)

    def at(self, direction: Float[Array, "s d"]) -> Float[Array, "s d"]:
        """Return What + direction L^-1."""
        return self.mean + jnp.matmul(direction, self.root, precision="highest")


class Ball(FittedModel):
    """A ball of regulators. As a transition, it is its centre."""

    belief: Belief
    beta: Float[Array, ""]
    features: Features
    sigma: float | Float[Array, ""]

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.member(jnp.zeros_like(self.belief.mean))(key, state, action)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of W."""
        return self.belief.mean.shape

    def member(self, direction: Float[Array, "s d"]) -> KNRTransition:
        """Return the regulator at What + beta U L^-1; U is the direction, shortened if it is longer than 1."""
        U = direction / jnp.maximum(1.0, jnp.linalg.norm(direction))
        return KNRTransition(self.belief.at(self.beta * U), self.features, self.sigma)


class RidgeRegulator(Regulators):
    """Regulators of the task's features, by ridge regression on all rows."""

    ridge: float = setting(1e-3, "ridge of the regression", least=1e-6, most=1e6)

    @abc.abstractmethod
    def choose(self, key: Key[Array, ""], belief: Belief) -> FittedModel:
        """Return the model for the planner."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> FittedModel:
        """Return the model before there are data."""
        phi = jax.eval_shape(lambda: self.phi()(mdp.states.sample(key), mdp.actions.sample(key)))
        root = jnp.eye(phi.shape[0]) / jnp.sqrt(self.ridge)
        return self.choose(key, Belief(jnp.zeros((mdp.states.size, phi.shape[0])), root, jnp.zeros(())))

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Compute What and Sigma_n from all rows; if rounding makes them infinite or NaN, return `model`."""
        data = replay.data
        phi = jnp.where(data.valid[:, None], jax.vmap(self.phi())(data.state, data.action), 0.0)
        target = jnp.where(data.valid[:, None], data.next_state, 0.0)
        mean, root = posterior(phi, target, self.ridge)
        log_det = -2.0 * jnp.sum(jnp.log(jnp.diag(root))) - phi.shape[1] * jnp.log(self.ridge)
        fitted = self.choose(key, Belief(mean.T, root.T, log_det))
        errors = (jnp.matmul(phi, mean, precision="highest") - target) ** 2
        sound = all_finite((mean, root))
        return select(sound, fitted, model), {
            "model_loss": jnp.sum(errors) / jnp.maximum(jnp.sum(data.valid, dtype=jnp.float32), 1.0),
            "model_skipped": 1.0 - sound.astype(jnp.float32),
        }


class ConfidenceBall(RidgeRegulator):
    """LC3's ball around the ridge regression, for a planner that is optimistic over it."""

    beta: float | None = setting(None, "radius of the ball; none: the one that is proved", above=0)

    def choose(self, key: Key[Array, ""], belief: Belief) -> Ball:
        """Return the ball."""
        features, radius = self.phi(), self.radius
        assert radius is not None
        noise = belief.mean.shape[0] * belief.log_det + 2.0 * math.log(1.0 / _DELTA)
        proved = jnp.sqrt(self.ridge) * radius + self.sigma * jnp.sqrt(noise)
        return Ball(belief, proved if self.beta is None else jnp.asarray(self.beta), features, self.sigma)


class PosteriorDraw(RidgeRegulator):
    """A regulator that is drawn from its posterior: Thompson sampling."""

    def choose(self, key: Key[Array, ""], belief: Belief) -> KNRTransition:
        """Return the draw."""
        noise = jr.normal(key, belief.mean.shape)
        return KNRTransition(belief.at(self.sigma * noise), self.phi(), self.sigma)
