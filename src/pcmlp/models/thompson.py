"""A regulator drawn from its posterior: LC3 with Thompson sampling (Kakade et al. 2020).

    s' = s + mean_d + std_d * W phi(s, a),          phi drawn once, differences in units of their own spread
    Sigma = sum_i phi_i phi_i^T + ridge I,          W_mean = Sigma^-1 sum_i phi_i d_i^T
    W ~ N(W_mean, sigma^2 Sigma^-1)                 for each output alike

Planning in a W that is likely explores as optimism does: where there are few data, W is at times one that pays. The fit
is exact, so nothing is left to be trained. sigma is the root mean square of the residuals unless it is given.

paper: phi and sigma are known / here: phi in units of the first data, sigma estimated, no noise in an imagined step.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from pcmlp import linalg
from pcmlp.models.neural import Fitting
from pcmlp.nets import Normaliser
from pcmlp.replay import Replay, numbers_only
from pcmlp.types import AbstractModel, Features, Metrics, Transitions

_FLOOR = 1e-3  # the least std of a difference, as a share of its coordinate's own
_ROUNDING = 1e-6  # the least ridge, as a share of the rows: single precision has no more to tell Sigma from singular
_LIMIT = 100.0  # differences stay within so many of their spread: a plan that diverges stays finite


class Thompson(AbstractModel):
    W: Float[Array, "d s"]  # the draw
    mean: Float[Array, "d s"]
    change: Normaliser  # of s' - s
    features: Features
    drawn: Bool[Array, ""]  # whether phi has its units from data
    key: Key[Array, ""]  # that phi is drawn with
    draw: Callable  # key, first samples -> phi
    ridge: float | Float[Array, ""]
    sigma: float | None  # of the noise, in units of the differences' spread; none: estimated

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        predicted = jnp.matmul(self.features(state, action), self.W, precision="highest")
        return state + self.change.inverse(jnp.clip(predicted, -_LIMIT, _LIMIT))

    def expected(self) -> "Thompson":
        return eqx.tree_at(lambda m: m.W, self, self.mean)

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Thompson", Metrics]:
        data, rejected = numbers_only(data)
        model, metrics = self.train(key, Replay(data, jnp.zeros((), int)))
        return model, metrics | rejected

    def train(self, key: Key[Array, ""], replay: Replay) -> tuple["Thompson", Metrics]:
        """The posterior of all rows, which must be numbers, and a draw from it."""
        data = replay.data
        phi_of = jax.tree.map(
            lambda old, new: jnp.where(self.drawn, old, new) if eqx.is_array(old) else old,
            self.features,
            self.draw(self.key, data),
        )
        spread = Normaliser.fit(data.state, data.valid).std
        change = Normaliser.fit(data.next_state - data.state, data.valid, _FLOOR * spread)
        phi = jnp.where(data.valid[:, None], jax.vmap(phi_of)(data.state, data.action), 0.0)
        target = jnp.where(data.valid[:, None], jax.vmap(change)(data.next_state - data.state), 0.0)
        rows = jnp.maximum(jnp.sum(data.valid, dtype=jnp.float32), 1.0)

        mean, root = posterior(phi, target, jnp.maximum(self.ridge, _ROUNDING * rows))
        error = jnp.sum((jnp.matmul(phi, mean, precision="highest") - target) ** 2)
        free = jnp.maximum(rows - mean.shape[0], 1.0)  # rows that the fit cannot bend to
        residual = jnp.sqrt(error / (free * mean.shape[1]))
        sigma = residual if self.sigma is None else jnp.asarray(self.sigma)
        W = mean + sigma * jnp.matmul(root, jr.normal(key, mean.shape), precision="highest")

        fitted = W, mean, change, phi_of, jnp.array(True)
        sound = jnp.all(jnp.isfinite(W)) & jnp.all(jnp.isfinite(mean))
        old = parts(self)
        kept = jax.tree.map(lambda x, y: jnp.where(sound, x, y) if eqx.is_array(x) else x, fitted, old)
        metrics = {"model_loss": residual, "model_skipped": 1.0 - sound.astype(jnp.float32)}
        return eqx.tree_at(parts, self, kept), metrics


def parts(model: Thompson) -> tuple:
    """All that a fit changes."""
    return model.W, model.mean, model.change, model.features, model.drawn


def posterior(
    phi: Float[Array, "n d"], target: Float[Array, "n s"], ridge: float | Float[Array, ""]
) -> tuple[Float[Array, "d s"], Float[Array, "d d"]]:
    """W_mean, and R with R R^T = Sigma^-1."""
    gram = jnp.matmul(phi.T, phi, precision="highest") + ridge * jnp.eye(phi.shape[1])
    root = linalg.whitener(linalg.cholesky(gram)).T
    moment = jnp.matmul(phi.T, target, precision="highest")
    return jnp.matmul(root, jnp.matmul(root.T, moment, precision="highest"), precision="highest"), root


class DrawThompson(eqx.Module):
    """key -> a model that nothing was fitted to: s' = s."""

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    draw: Callable  # key, first samples -> phi
    ridge: float | Float[Array, ""] = 0.1
    sigma: float | None = None
    fitting: Fitting = eqx.field(static=True, default=Fitting())  # of what else is learned, reward and end

    def __call__(self, key: Key[Array, ""]) -> Thompson:
        state, action, no = jnp.zeros((1, self.states)), jnp.zeros((1, self.actions)), jnp.zeros(1, bool)
        nothing = Transitions(state, action, jnp.zeros(1), state, no, no, no)
        features = self.draw(key, nothing)
        W = jnp.zeros((features(nothing.state[0], nothing.action[0]).shape[0], self.states))
        change = Normaliser.identity(self.states)
        return Thompson(W, W, change, features, jnp.array(False), key, self.draw, self.ridge, self.sigma)
