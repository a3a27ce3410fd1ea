"""Neural dynamics (paper: section 6, Eq. 3, after Luo et al. 2018, Eq. 6.1).

    P(s, a) = s + delta(s, a),      delta = mean_d + std_d * net((s, a) normalised)
    loss    = mean over windows i and steps l < L of | (delta(s^_{i+l}, a_{i+l}) - (s_{i+l+1} - s_{i+l})) / std_d |,
              s^_i = s_i,  s^_{i+l+1} = P(s^_{i+l}, a_{i+l}),   steps after an episode's end left out

The net sees and predicts numbers of order 1 whatever the units of a state; it learns differences because a step changes
a state little. L > 1 also trains the net on the states it predicts itself, which are those that a planner asks about.

The optimiser's state is a field: training again continues where it stopped, and the model is one pytree that a
compiled stage takes and returns.

A step that cannot be right is skipped, and a fit that has exploded is undone: the model that comes out is made of
numbers if the one that went in was, and `model_skipped` says how many steps it lost.
"""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pcmlp.nets import MLP, Normaliser, descend
from pcmlp.replay import Replay, numbers_only
from pcmlp.types import AbstractModel, ConfigError, Metrics, Transitions

_LIMIT = 100.0  # normalised states stay within +-100: an imagination that diverges stays finite
# The gradient of an error's norm does not grow with the error, only with the net and its inputs, which are of order 1:
# its own norm was at most 20 on the classic tasks, with windows of 8 steps. Of one like this, clipping leaves nothing
# but the window that has gone astray.
_ABSURD = 1e6
_EXPLODED = 10.0  # times the loss that a fit began with, or that of predicting the mean change


@dataclasses.dataclass(frozen=True)
class Fitting:
    """How the net is trained; the defaults are the paper's tables, where they say it, and the release's."""

    steps: int = 100  # SGD steps of one `fit`
    batch: int = 128
    unroll: int = 2  # L
    rate: float = 1e-3
    decay: float = 1e-5
    clip: float = 2.0  # of the gradient's norm
    floor: float = 1e-3  # the least std of a difference, as a share of its coordinate's own

    def __post_init__(self):
        for name in ("steps", "batch", "unroll"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name}={getattr(self, name)}: give 1 or more")
        for name in ("rate", "clip", "floor"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"model.{name}={getattr(self, name)}: give a positive number")

    def optimiser(self) -> optax.GradientTransformation:
        """The decay is part of the gradient, as in the papers before AdamW; AdamW's 1e-5 would do nothing."""
        return optax.chain(
            optax.clip_by_global_norm(self.clip), optax.add_decayed_weights(self.decay), optax.adam(self.rate)
        )


class Neural(AbstractModel):
    """paper: P is Gaussian with covariance sigma^2 I, sigma not given / here: its mean, with no noise."""

    net: MLP
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # of (s, a)
    change: Normaliser  # of s' - s
    fitting: Fitting = eqx.field(static=True)

    @staticmethod
    def of(
        key: Key[Array, ""],
        states: int,
        actions: int,
        *,
        sizes: tuple[int, ...] = (500, 500),
        fitting: Fitting = Fitting(),  # noqa: B008 (frozen)
    ) -> "Neural":
        """For states and actions of these sizes; nothing was fitted yet."""
        net = MLP.of(key, (states + actions, *sizes, states), "relu")
        inputs, change = Normaliser.identity(states + actions), Normaliser.identity(states)
        return Neural(net, fitting.optimiser().init(eqx.filter(net, eqx.is_array)), inputs, change, fitting)

    def difference(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " s"]:
        x = jnp.clip(self.inputs(jnp.concatenate([state, action])), -_LIMIT, _LIMIT)
        return self.change.inverse(self.net(x))

    def bound(self, state: Float[Array, " s"]) -> Float[Array, " s"]:
        mean, std = self.inputs.mean[: state.shape[0]], self.inputs.std[: state.shape[0]]
        return jnp.clip(state, mean - _LIMIT * std, mean + _LIMIT * std)

    def mean(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " s"]:
        return self.bound(state + self.difference(state, action))

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        return self.mean(state, action)

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Neural", Metrics]:
        """`data` in the order it was collected, oldest first; a ring buffer goes to `train`, which knows its head."""
        data, rejected = numbers_only(data)
        model, metrics = self.train(key, Replay(data, jnp.zeros((), int)))
        return model, metrics | rejected

    def train(self, key: Key[Array, ""], replay: Replay, steps: int | None = None) -> tuple["Neural", Metrics]:
        """`steps` of SGD (by default those of `fitting`) on windows of the replay, whose units are taken first; its
        rows must be numbers (`numbers_only`)."""
        model = self.normalised_by(replay.data)
        steps = self.fitting.steps if steps is None else steps
        rows, valid = window_rows(key, replay, steps * self.fitting.batch, self.fitting.unroll)
        rows, valid = (x.reshape(steps, self.fitting.batch, -1) for x in (rows, valid))
        optimiser = self.fitting.optimiser()

        def step(carry, drawn):
            net, state = carry
            (value, error), gradient = jax.value_and_grad(
                lambda net: loss(eqx.tree_at(lambda m: m.net, model, net), replay.data, *drawn), has_aux=True
            )(net)
            # Not optax.apply_if_finite, which takes a NaN when it comes often enough.
            flat, _ = ravel_pytree(gradient)  # one sum, not one for each layer: those take long to compile
            good = jnp.isfinite(value) & (flat @ flat <= _ABSURD**2)
            # A branch, not a `where`: that would keep the compiler from rounding the step as it rounds one without it.
            carry = jax.lax.cond(good, lambda: descend(optimiser, gradient, state, net), lambda: (net, state))
            return carry, (error, value, good)

        trained, (errors, values, good) = jax.lax.scan(step, (model.net, model.optimiser), (rows, valid))
        model = eqx.tree_at(lambda m: (m.net, m.optimiser), model, trained)
        metrics = summary(errors, valid)
        worst = _EXPLODED * jnp.maximum(values[0], math.sqrt(model.change.mean.shape[0]))
        sound = metrics["model_loss"] <= worst
        skipped = jnp.where(sound, jnp.sum(~good, dtype=jnp.float32), float(steps))
        return jax.lax.cond(sound, lambda: model, lambda: self), metrics | {"model_skipped": skipped}

    def normalised_by(self, data: Transitions) -> "Neural":
        """The same net in the units of `data`."""
        return eqx.tree_at(lambda m: (m.inputs, m.change), self, units_of(data, self.fitting.floor))


def units_of(data: Transitions, floor: float) -> tuple[Normaliser, Normaliser]:
    """Of (s, a) and of s' - s; `floor` is the least std of a difference, as a share of its coordinate's own."""
    inputs = Normaliser.fit(jnp.concatenate([data.state, data.action], axis=1), data.valid)
    least = floor * inputs.std[: data.state.shape[1]]
    return inputs, Normaliser.fit(data.next_state - data.state, data.valid, least)


def safe_norm(x: Float[Array, " n"]) -> Float[Array, ""]:
    """|x| with the gradient 0 at 0, where that of the square root is not a number."""
    square = jnp.sum(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def window_rows(
    key: Key[Array, ""], replay: Replay, count: int, length: int
) -> tuple[Int[Array, "count length"], Bool[Array, "count length"]]:
    """The row numbers of `Replay.windows` in place of the rows, and which of them are valid.

    All windows of a fit are drawn at once: the draw goes through the whole buffer, the rows are read a batch at a time.
    """
    number = jnp.arange(replay.capacity)
    numbers = Transitions(
        number, number, replay.data.reward, number, replay.data.terminal, replay.data.last, replay.data.valid
    )
    drawn = Replay(numbers, replay.head).windows(key, count, length)
    return drawn.state, drawn.valid


def window_error(
    model: Neural, state: Float[Array, " s"], actions: Float[Array, "l a"], differences: Float[Array, "l s"]
) -> Float[Array, " l"]:
    """How far each predicted difference is off, in units of the differences' std, predicted from `state` onwards."""

    def step(state, row):
        action, difference = row
        predicted = model.difference(state, action)
        error = safe_norm((predicted - difference) / model.change.std)
        return model.bound(state + predicted), error

    return jax.lax.scan(step, state, (actions, differences), unroll=min(actions.shape[0], 4))[1]


def loss(
    model: Neural, data: Transitions, rows: Int[Array, "n l"], valid: Bool[Array, "n l"]
) -> tuple[Float[Array, ""], Float[Array, "n l"]]:
    """The mean error over valid steps of windows, and the errors, 0 where they do not count.

    paper: the sum over windows and steps of the norm in the state's own units / here: the mean, over std.
    """
    state = data.state[rows]
    error = jax.vmap(functools.partial(window_error, model))(
        state[:, 0], data.action[rows], data.next_state[rows] - state
    )
    error = jnp.where(valid, error, 0.0)
    return jnp.sum(error) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0), error


def summary(errors: Float[Array, "steps n l"], valid: Bool[Array, "steps n l"]) -> Metrics:
    """The loss over the last tenth of the steps and over all of them, and the one-step error over the last tenth."""

    def mean(errors: Array, valid: Array) -> Array:
        return jnp.sum(errors) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)

    end = -(-errors.shape[0] // 10)
    return {
        "model_loss": mean(errors[-end:], valid[-end:]),
        "model_loss_mean": mean(errors, valid),
        "model_error": mean(errors[-end:, :, 0], valid[-end:, :, 0]),
    }
