"""The probabilistic ensemble of PETS (Chua et al. 2018), which MBPO has too (Janner et al. 2019).

    s' = s + mean_d + std_d * y,    y ~ N(mu_m(x), diag(exp(v_m(x)))),    x = (s, a) normalised,    m a member
    v   = soft bounds of the net's own v between `least` and `most`, which are learned
    loss = mean over rows and coordinates of (y_i - mu(x_i))^2 exp(-v(x_i)) + v(x_i),  + 0.01 sum(most - least)

Each member is fitted to a bootstrap of the replay: every row counts Poisson(1) times for it. Noise that the world has
is in v; what is not known for want of data is in how the members differ. A rollout that draws a member at every step is
the paper's TS1; one that stays with a member (`member`) its TS-infinity.

The rows that a member's last bootstrap left out, about e^-1 of them, tell its error: `model_error` is of those, in the
units of `Neural`'s. Most were in an earlier one, so it flatters all members alike. They are sorted by it, so that the
first `elites` are the best (MBPO uses 5 of 7).

paper: so many epochs / here: `fitting.steps`, so that one program serves all iterations.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pcmlp.models.neural import Fitting, units_of
from pcmlp.nets import MLP, Gaussian, Normaliser, descend, one_by_one
from pcmlp.replay import Replay, numbers_only
from pcmlp.types import AbstractModel, ConfigError, Metrics, Transitions

_LIMIT = 100.0  # as in `Neural`: an imagination that diverges stays finite
_LEAST, _MOST = -10.0, 0.5  # of the log-variances at first
_PENALTY = 0.01  # of how far apart their bounds are
_ABSURD = 1e8  # the square error over a variance of e^-10 gives gradients of 1e5
_EXPLODED = 10.0  # times the error that a fit began with, or that of predicting the mean change
_LEFT_OUT = 1024  # rows that tell the error of a member
_POISSON = tuple(sum(math.exp(-1.0) / math.factorial(k) for k in range(n + 1)) for n in range(8))  # P(count <= n)


class Learned(eqx.Module):
    """What a gradient step moves."""

    net: MLP  # (s, a) -> mu, v
    least: Float[Array, " s"]
    most: Float[Array, " s"]


class GaussianNeural(AbstractModel):
    """A member."""

    learned: Learned
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # of (s, a)
    change: Normaliser  # of s' - s
    fitting: Fitting = eqx.field(static=True)

    @staticmethod
    def of(
        key: Key[Array, ""], states: int, actions: int, *, sizes: tuple[int, ...], fitting: Fitting
    ) -> "GaussianNeural":
        net = MLP.of(key, (states + actions, *sizes, 2 * states), "silu", last=0.5)
        learned = Learned(net, jnp.full(states, _LEAST, jnp.float32), jnp.full(states, _MOST, jnp.float32))
        inputs, change = Normaliser.identity(states + actions), Normaliser.identity(states)
        state = optimiser_of(fitting).init(eqx.filter(learned, eqx.is_array))
        return GaussianNeural(learned, state, inputs, change, fitting)

    def gaussian(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Gaussian:
        """Of the difference, normalised."""
        x = jnp.clip(self.inputs(jnp.concatenate([state, action])), -_LIMIT, _LIMIT)
        mean, v = jnp.split(self.learned.net(x), 2)
        v = self.learned.most - jax.nn.softplus(self.learned.most - v)
        v = self.learned.least + jax.nn.softplus(v - self.learned.least)
        return Gaussian(mean, 0.5 * v)

    def moved(self, state: Float[Array, " s"], difference: Float[Array, " s"]) -> Float[Array, " s"]:
        """Where a normalised difference leads."""
        mean, std = self.inputs.mean[: state.shape[0]], self.inputs.std[: state.shape[0]]
        return jnp.clip(state + self.change.inverse(difference), mean - _LIMIT * std, mean + _LIMIT * std)

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        return self.moved(state, self.gaussian(state, action).sample(key))

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["GaussianNeural", Metrics]:
        data, rejected = numbers_only(data)
        model, metrics = self.train(key, Replay(data, jnp.zeros((), int)))
        return model, metrics | rejected

    def train(self, key: Key[Array, ""], replay: Replay, steps: int | None = None) -> tuple["GaussianNeural", Metrics]:
        """As `Neural.train`: steps that cannot be right are skipped, a fit that has exploded is undone."""
        count_key, row_key, left_key = jr.split(key, 3)
        data, steps = replay.data, self.fitting.steps if steps is None else steps
        counts = bootstrap(count_key, data.valid)
        rows = drawn(row_key, counts, data.valid, steps * self.fitting.batch).reshape(steps, self.fitting.batch)
        unseen = data.valid & (counts == 0)
        left = drawn(left_key, unseen.astype(jnp.float32), data.valid, min(_LEFT_OUT, replay.capacity))
        model = eqx.tree_at(lambda m: (m.inputs, m.change), self, units_of(data, self.fitting.floor))
        optimiser = optimiser_of(self.fitting)

        def step(carry, rows):
            learned, state = carry
            value, gradient = jax.value_and_grad(
                lambda learned: loss(eqx.tree_at(lambda m: m.learned, model, learned), data, rows)
            )(learned)
            flat, _ = ravel_pytree(gradient)
            good = jnp.isfinite(value) & (flat @ flat <= _ABSURD**2)
            carry = jax.lax.cond(good, lambda: descend(optimiser, gradient, state, learned), lambda: (learned, state))
            return carry, (value, good)

        before = error_of(model, data, left)
        trained, (values, good) = jax.lax.scan(step, (model.learned, model.optimiser), rows)
        model = eqx.tree_at(lambda m: (m.learned, m.optimiser), model, trained)
        error = error_of(model, data, left)
        sound = error <= _EXPLODED * jnp.fmax(before, math.sqrt(data.state.shape[1]))
        skipped = jnp.where(sound, jnp.sum(~good, dtype=jnp.float32), float(steps))
        end = -(-steps // 10)
        metrics = {
            "model_loss": jnp.mean(values[-end:]),
            "model_loss_mean": jnp.mean(values),
            "model_error": jnp.where(sound, error, before),
            "model_skipped": skipped,
        }
        return jax.lax.cond(sound, lambda: model, lambda: self), metrics


class Probabilistic(AbstractModel):
    members: GaussianNeural  # one record, each array with a leading axis, the best first
    count: int = eqx.field(static=True)
    elites: int = eqx.field(static=True)  # of them that predict

    @property
    def size(self) -> int:
        return self.elites

    def member(self, index: Int[Array, ""] | int) -> GaussianNeural:
        """One of those that predict, for a rollout that stays with it."""
        return jax.tree.map(lambda x: x[index], self.members)

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        # Under vmap each state has a key: reading one prediction of each is cheap, reading the weights of each is not.
        member_key, noise_key = jr.split(key)
        chosen = jr.randint(member_key, (), 0, self.elites)
        predicting = jax.tree.map(lambda x: x[: self.elites], self.members)
        each = jax.vmap(lambda model: model.gaussian(state, action))(predicting)
        # With its units, which are not the others' where a fit was undone.
        gaussian, inputs, change = jax.tree.map(lambda x: x[chosen], (each, predicting.inputs, predicting.change))
        chosen_one = eqx.tree_at(lambda m: (m.inputs, m.change), self.member(0), (inputs, change))
        return chosen_one.moved(state, gaussian.sample(noise_key))

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Probabilistic", Metrics]:
        data, rejected = numbers_only(data)
        model, metrics = self.train(key, Replay(data, jnp.zeros((), int)))
        return model, metrics | rejected

    def train(self, key: Key[Array, ""], replay: Replay, steps: int | None = None) -> tuple["Probabilistic", Metrics]:
        """Each member on a bootstrap of its own; the metrics' means."""
        keys = jr.split(key, self.count)
        members, metrics = one_by_one(lambda pair: pair[0].train(pair[1], replay, steps), (self.members, keys))
        best_first = jnp.argsort(metrics["model_error"])
        members = jax.tree.map(lambda x: x[best_first], members)
        return Probabilistic(members, self.count, self.elites), jax.tree.map(jnp.mean, metrics)


class DrawProbabilistic(eqx.Module):
    """key -> an untrained ensemble."""

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    fitting: Fitting = eqx.field(static=True)
    members: int = eqx.field(static=True)
    elites: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not 1 <= self.elites <= self.members:
            raise ConfigError(f"model.elites={self.elites}: give 1 to model.members={self.members}")

    def __call__(self, key: Key[Array, ""]) -> Probabilistic:
        def one(key: Key[Array, ""]) -> GaussianNeural:
            return GaussianNeural.of(key, self.states, self.actions, sizes=self.sizes, fitting=self.fitting)

        return Probabilistic(jax.vmap(one)(jr.split(key, self.members)), self.members, self.elites)


def optimiser_of(fitting: Fitting) -> optax.GradientTransformation:
    """As that of `Neural`, with a decay of the weights alone: the bounds have a penalty of their own."""
    decay = optax.add_decayed_weights(fitting.decay, mask=lambda params: jax.tree.map(lambda x: x.ndim == 2, params))
    return optax.chain(optax.clip_by_global_norm(fitting.clip), decay, optax.adam(fitting.rate))


def bootstrap(key: Key[Array, ""], valid: Bool[Array, " n"]) -> Float[Array, " n"]:
    """How often each row counts: Poisson(1), as in a bootstrap of many rows."""
    counts = jnp.searchsorted(jnp.array(_POISSON), jr.uniform(key, valid.shape)).astype(jnp.float32)
    return jnp.where(valid, counts, 0.0)


def drawn(
    key: Key[Array, ""], counts: Float[Array, " n"], valid: Bool[Array, " n"], number: int
) -> Int[Array, " number"]:
    """Rows in proportion to their counts; of all that are valid where nothing counts."""
    weight = jnp.where(jnp.sum(counts) > 0, counts, valid.astype(jnp.float32))
    return jr.choice(key, counts.shape[0], (number,), p=weight / jnp.maximum(jnp.sum(weight), 1.0))


def predicted(
    model: GaussianNeural, data: Transitions, rows: Int[Array, " n"]
) -> tuple[Gaussian, Float[Array, "n s"], Bool[Array, " n"]]:
    """The Gaussians of rows, the differences that were, normalised, and which rows count."""
    state = data.state[rows]
    actual = jax.vmap(model.change)(data.next_state[rows] - state)
    return jax.vmap(model.gaussian)(state, data.action[rows]), actual, data.valid[rows]


def loss(model: GaussianNeural, data: Transitions, rows: Int[Array, " n"]) -> Float[Array, ""]:
    gaussian, actual, valid = predicted(model, data, rows)
    z = (actual - gaussian.mean) * jnp.exp(-gaussian.log_std)
    likelihood = jnp.mean(z**2 + 2.0 * gaussian.log_std, axis=1)
    total = jnp.sum(jnp.where(valid, likelihood, 0.0)) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
    return total + _PENALTY * jnp.sum(model.learned.most - model.learned.least)


def error_of(model: GaussianNeural, data: Transitions, rows: Int[Array, " n"]) -> Float[Array, ""]:
    """How far means are off, in units of the differences' std: the norm, averaged over rows."""
    gaussian, actual, valid = predicted(model, data, rows)
    error = jnp.where(valid, jnp.linalg.norm(gaussian.mean - actual, axis=1), 0.0)
    return jnp.sum(error) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
