"""A regulator drawn from its posterior: LC3 with Thompson sampling (Kakade et al. 2020).

    s' = s + mean_d + std_d * W phi(s, a),          phi is drawn once, differences are normalised
    Sigma = sum_i phi_i phi_i^T + ridge I,          W_mean = Sigma^-1 sum_i phi_i d_i^T
    W ~ N(W_mean, sigma^2 Sigma^-1)                 for each output

Planning in a W drawn from the posterior explores as optimism does: where there are few data, some draws of W promise a
high return. The fit is exact, so there is no training loop.
sigma is the root mean square of the residuals unless it is given.

paper: phi and sigma are known / here: phi is normalised by the first data, sigma is estimated, imagined steps
have no noise.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from pcmlp import linalg
from pcmlp.features.fourier import Fourier
from pcmlp.models.geometry import Chart
from pcmlp.models.neural import fit_units
from pcmlp.nets import Normaliser
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import setting
from pcmlp.trees import all_finite, select
from pcmlp.types import MDP, Action, FeatureMap, Features, FittedModel, Metrics, Model, State

_ROUNDING = 1e-6  # least ridge, as a share of the number of rows: below it Sigma is singular in float32
_LIMIT = 100.0  # normalised differences are clipped to +-100, so that diverging plans stay finite


class Regulator(FittedModel):
    """A draw from the posterior."""

    W: Float[Array, "d s"]
    mean: Float[Array, "d s"]
    change: Normaliser  # normalises s' - s
    features: Features
    has_units: Bool[Array, ""]  # whether phi was drawn in units of the data
    key: Key[Array, ""]  # the key that phi is drawn with

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        predicted = jnp.matmul(self.features(state, action), self.W, precision="highest")
        return state + self.change.inverse(jnp.clip(predicted, -_LIMIT, _LIMIT))

    def expected(self) -> "Regulator":
        """Return the posterior's mean."""
        return eqx.tree_at(lambda m: m.W, self, self.mean)


class Thompson(Model):
    """A linear model of features, drawn from its posterior."""

    randomised: ClassVar[bool] = True

    features: FeatureMap = setting(Fourier(dim=200), "features of the regulator")
    ridge: float = setting(0.1, "ridge of the regression", least=1e-6, most=1e6)
    sigma: float | None = setting(
        None, "std of the noise, in units of the differences' std; none: that of the residuals", least=0, most=1e6
    )

    def init(self, key: Key[Array, ""], mdp: MDP) -> Regulator:
        """Return the model s' = s."""
        example = Transitions.example(mdp.states, mdp.actions)
        features = self.features.draw(key, mdp, example)
        size = example.state.shape[1]
        W = jnp.zeros((features(example.state[0], example.action[0]).shape[0], size))
        return Regulator(W, W, Normaliser.identity(size), features, jnp.array(False), key)

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[Regulator, Metrics]:
        """Compute the posterior given all rows and draw from it."""
        assert isinstance(model, Regulator)
        data = replay.data
        features = select(model.has_units, model.features, self.features.draw(model.key, mdp, data))
        _, change = fit_units(data, Chart.plain(data.state.shape[1]))
        phi = jnp.where(data.valid[:, None], jax.vmap(features)(data.state, data.action), 0.0)
        target = jnp.where(data.valid[:, None], jax.vmap(change)(data.next_state - data.state), 0.0)
        rows = jnp.maximum(jnp.sum(data.valid, dtype=jnp.float32), 1.0)

        mean, root = posterior(phi, target, jnp.maximum(self.ridge, _ROUNDING * rows))
        error = jnp.sum((jnp.matmul(phi, mean, precision="highest") - target) ** 2)
        free = jnp.maximum(rows - mean.shape[0], 1.0)  # degrees of freedom: more rows than features
        residual = jnp.sqrt(error / (free * mean.shape[1]))
        sigma = residual if self.sigma is None else jnp.asarray(self.sigma)
        W = mean + sigma * jnp.matmul(root, jr.normal(key, mean.shape), precision="highest")

        fitted = Regulator(W, mean, change, features, jnp.array(True), model.key)
        sound = all_finite((W, mean))
        return select(sound, fitted, model), {
            "model_loss": residual,
            "model_skipped": 1.0 - sound.astype(jnp.float32),
        }


def posterior(
    phi: Float[Array, "n d"], target: Float[Array, "n s"], ridge: float | Float[Array, ""]
) -> tuple[Float[Array, "d s"], Float[Array, "d d"]]:
    """Return W_mean, and R with R R^T = Sigma^-1."""
    gram = jnp.matmul(phi.T, phi, precision="highest") + ridge * jnp.eye(phi.shape[1])
    root = linalg.whitener(linalg.cholesky(gram)).T
    moment = jnp.matmul(phi.T, target, precision="highest")
    return jnp.matmul(root, jnp.matmul(root.T, moment, precision="highest"), precision="highest"), root
