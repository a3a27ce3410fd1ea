"""Random network distillation (Burda et al. 2018) as the novelty of Algorithm 2: a bonus where a net predicts badly.

    e(s, a) = |g(s, a) - f(s, a)|^2 / d,      f drawn once and never trained, g trained on the replay to be f
    b(s, a) = min{ c e(s, a) / rms, H },      rms the running root mean square of e at the data, before g is trained

Near data g has learned f and pays nothing; elsewhere nothing makes the two agree. Nothing is counted or inverted, so
there is no covariance behind it: how fast the bonus falls is how fast g learns.

paper: f and g see observations / here: (s, a), with the units of phi, which is f; and errors are divided by their own
root mean square, not by the spread of their discounted sums.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from pcmlp.bonus import AbstractBonus
from pcmlp.features import Chosen, RandomNetwork
from pcmlp.nets import MLP, descend
from pcmlp.replay import Replay
from pcmlp.types import Action, State

_LEAST = 1e-6  # of the unit: where all errors are nothing, nothing is new
_MEASURED = 8  # batches that the unit is measured on


class RNDBonus(AbstractBonus):
    """b as a function of (s, a), in [0, H] at any state: one that is no number pays nothing."""

    features: RandomNetwork | Chosen  # f
    predictor: MLP  # g
    optimiser: PyTree  # the state of its Adam
    square: Float[Array, ""]  # the running mean of e^2
    times: Float[Array, ""]  # how many iterations are in it
    scale: float | Float[Array, ""]  # c
    cap: float  # H

    def error(self, state: State, action: Action) -> Float[Array, ""]:
        target = self.features(state, action)
        unit = math.sqrt(target.shape[0])  # |phi| is about 1, so each of its d coordinates is about 1 / sqrt(d)
        return jnp.mean((self.predictor(self.features.inputs(state, action)) - unit * target) ** 2)

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        bonus = self.scale * self.error(state, action) / jnp.maximum(jnp.sqrt(self.square), _LEAST)
        return jnp.where(jnp.isnan(bonus), 0.0, jnp.minimum(bonus, self.cap))


class RND(eqx.Module):
    """The bonus of an iteration from that of the last one: its predictor goes on learning."""

    steps: int = eqx.field(static=True, default=200)  # of SGD in an iteration
    batch: int = eqx.field(static=True, default=128)
    rate: float = eqx.field(static=True, default=1e-3)
    sizes: tuple[int, ...] = eqx.field(static=True, default=(500, 500))  # of the predictor's hidden layers

    def __call__(
        self,
        key: Key[Array, ""],
        last: AbstractBonus | None,
        features: RandomNetwork | Chosen,
        covariance: Float[Array, "d d"],
        replay: Replay,
        scale: float | Float[Array, ""],
        cap: int,
    ) -> RNDBonus:
        if last is None:
            return self.first(key, features, replay, scale, cap)
        assert isinstance(last, RNDBonus)
        bonus = eqx.tree_at(lambda b: (b.features, b.scale), last, (features, scale))
        windows = replay.windows(key, self.steps * self.batch, 1)
        rows = windows.state[:, 0], windows.action[:, 0], windows.valid[:, 0]
        rows = jax.tree.map(lambda x: x.reshape(self.steps, self.batch, *x.shape[1:]), rows)
        # paper: the error of what was just collected / here: of the replay, of which that is a part
        state, action, valid = (x[:_MEASURED].reshape(-1, *x.shape[2:]) for x in rows)
        errors = jax.vmap(bonus.error)(state, action)
        times = bonus.times + 1.0
        square = bonus.square + (jnp.mean(errors**2, where=valid) - bonus.square) / times
        trained = eqx.tree_at(learned, bonus, (*self.train(bonus, rows), square, times))
        sound = jnp.isfinite(square) & jnp.isfinite(jnp.sum(jax.vmap(trained.error)(state, action)))
        return eqx.tree_at(learned, bonus, jax.lax.cond(sound, lambda: learned(trained), lambda: learned(bonus)))

    def first(
        self,
        key: Key[Array, ""],
        features: RandomNetwork | Chosen,
        replay: Replay,
        scale: float | Float[Array, ""],
        cap: int,
    ) -> RNDBonus:
        """With a predictor that has seen nothing, in units of 1."""
        state, action = replay.data.state[0], replay.data.action[0]
        inputs, dim = features.inputs(state, action).shape[0], features(state, action).shape[0]
        predictor = MLP.of(key, (inputs, *self.sizes, dim), "relu")
        optimiser = optax.adam(self.rate).init(eqx.filter(predictor, eqx.is_array))
        return RNDBonus(features, predictor, optimiser, jnp.ones(()), jnp.zeros(()), scale, float(cap))

    def train(self, bonus: RNDBonus, rows: PyTree) -> tuple[MLP, PyTree]:
        optimiser = optax.adam(self.rate)

        def loss(predictor: MLP, drawn: PyTree) -> Float[Array, ""]:
            state, action, valid = drawn
            errors = jax.vmap(eqx.tree_at(lambda b: b.predictor, bonus, predictor).error)(state, action)
            return jnp.sum(jnp.where(valid, errors, 0.0)) / self.batch

        def step(carry, drawn):
            predictor, state = carry
            return descend(optimiser, jax.grad(loss)(predictor, drawn), state, predictor), None

        return jax.lax.scan(step, (bonus.predictor, bonus.optimiser), rows)[0]


def learned(bonus: RNDBonus) -> tuple:
    """All that changes of it."""
    return bonus.predictor, bonus.optimiser, bonus.square, bonus.times
