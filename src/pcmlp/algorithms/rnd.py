"""RND (Burda et al. 2018) as the bonus of Algorithm 2: a pair is novel where a trained network predicts a random one
badly.

    e(s, a) = |g(s, a) - f(s, a)|^2 / d,      f is drawn once and never trained, g is trained to predict f on the replay
    b(s, a) = e(s, a) / rms,                  rms is the running root mean square of e on the data, before g is trained

Near data, g has learned f and the bonus is near 0; elsewhere nothing makes the two agree. There is no covariance: the
bonus falls as fast as g learns.

paper: the inputs of f and g are observations / here: they are (s, a), normalised as for phi, and phi is f; errors are
divided by their own root mean square, not by the std of their discounted sums.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.method import NO_COVARIANCE, Method
from pcmlp.algorithms.pcmlp import ANY, ROBOT, SMALL
from pcmlp.errors import ConfigError
from pcmlp.features import NetworkFeatures, SubsetFeatures
from pcmlp.nets import MLP, guarded_sgd
from pcmlp.replay import Replay
from pcmlp.settings import setting
from pcmlp.trees import select
from pcmlp.types import Action, Bonus, Features, FittedBonus, State

_LEAST = 1e-6  # least unit of the error, so that the bonus is 0 where all errors are 0
_MEASURED = 8  # number of batches that the unit is measured on


class DistilledBonus(FittedBonus):
    """The prediction error of g, in units of its root mean square."""

    features: Features  # f
    predictor: MLP  # g
    optimiser: PyTree  # the state of Adam
    mean_square: Float[Array, ""]  # the running mean of e^2
    count: Float[Array, ""]  # number of iterations in `mean_square`

    def error(self, state: State, action: Action) -> Float[Array, ""]:
        """Return e of one pair."""
        target = self.features(state, action)
        unit = math.sqrt(target.shape[0])  # |phi| is about 1, so each of its d coordinates is about 1 / sqrt(d)
        return jnp.mean((self.predictor(normalise_pair(self.features, state, action)) - unit * target) ** 2)

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        return self.error(state, action) / jnp.maximum(jnp.sqrt(self.mean_square), _LEAST)


def network_of(features: Features) -> NetworkFeatures:
    """Return the random network behind phi, or raise if there is none."""
    network = features.features if isinstance(features, SubsetFeatures) else features
    if not isinstance(network, NetworkFeatures):
        raise ConfigError("features.name: this bonus needs the features of a random network; give random-network")
    return network


def normalise_pair(features: Features, state: State, action: Action) -> Float[Array, " n"]:
    """Return the normalised (s, a), which is the input of the network behind phi."""
    chosen = state[jnp.array(features.dims)] if isinstance(features, SubsetFeatures) else state
    return network_of(features).normaliser(jnp.concatenate([chosen, action]))


class Distillation(Bonus):
    """A bonus for pairs at which a trained network predicts a random one badly."""

    steps: int = setting(200, "SGD steps of one iteration", least=1, most=1_000_000, tiny=2)
    batch: int = setting(128, "rows of one SGD step", least=1, tiny=16)
    rate: float = setting(1e-3, "learning rate of Adam", above=0)
    sizes: tuple[int, ...] = setting((500, 500), "hidden layers of the predictor", least=1, tiny=(16, 16))

    def init(self, key: Key[Array, ""], features: Features, covariance: Float[Array, "d d"]) -> DistilledBonus:
        """Return an untrained predictor, with 1 as the unit of its error."""
        inputs = network_of(features).normaliser.mean.shape[0]
        predictor = MLP.of(key, (inputs, *self.sizes, covariance.shape[0]), "relu")
        state = optax.adam(self.rate).init(eqx.filter(predictor, eqx.is_array))
        return DistilledBonus(features, predictor, state, jnp.ones(()), jnp.zeros(()))

    def update(
        self,
        key: Key[Array, ""],
        old: FittedBonus,
        features: Features,
        covariance: Float[Array, "d d"],
        replay: Replay,
    ) -> DistilledBonus:
        """Measure the unit, then train the predictor on the replay; keep the old bonus if an error is not finite."""
        assert isinstance(old, DistilledBonus)
        bonus = dataclasses.replace(old, features=features)
        windows = replay.windows(key, self.steps * self.batch, 1)
        rows = windows.state[:, 0], windows.action[:, 0], windows.valid[:, 0]
        batches = jax.tree.map(lambda x: x.reshape(self.steps, self.batch, *x.shape[1:]), rows)
        # paper: the error on the newest samples / here: the error on the replay, which contains them
        state, action, valid = (x[:_MEASURED].reshape(-1, *x.shape[2:]) for x in batches)
        errors = jax.vmap(bonus.error)(state, action)
        count = bonus.count + 1.0
        mean_square = bonus.mean_square + (jnp.mean(errors**2, where=valid) - bonus.mean_square) / count

        def loss(predictor: MLP, batch: tuple) -> tuple[Float[Array, ""], None]:
            state, action, valid = batch
            errors = jax.vmap(dataclasses.replace(bonus, predictor=predictor).error)(state, action)
            return jnp.sum(jnp.where(valid, errors, 0.0)) / self.batch, None

        net, optimiser, _ = guarded_sgd(loss, optax.adam(self.rate), bonus.predictor, bonus.optimiser, batches)
        trained = DistilledBonus(features, net, optimiser, mean_square, count)
        sound = jnp.isfinite(mean_square) & jnp.isfinite(jnp.sum(jax.vmap(trained.error)(state, action)))
        return select(sound, trained, bonus)


METHOD = Method(
    about="Deep PC-MLP with random network distillation as its bonus: no covariance",
    algorithm=Deep(bonus=Distillation(), bonus_scale=1.0),
    presets={
        "ours": {
            **SMALL,
            "robot": {**ROBOT, "bonus_scale": 0.1, "bonus.steps": 2_000, "deploys": "imagined"},
            "gym": ANY,
        }
    },
    choices={"planner": ("trpo", "sac"), "features": ("random-network",), "bonus": ("distillation",)},
    unused=NO_COVARIANCE,
)
