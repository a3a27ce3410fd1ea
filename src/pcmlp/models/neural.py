"""Neural dynamics (paper: section 6, Eq. 3, after Luo et al. 2018, Eq. 6.1).

    P(s, a) = s + delta(s, a),      delta = mean_d + std_d * net((s, a) normalised)
    loss    = mean over windows i and steps l < L of | (delta(s^_{i+l}, a_{i+l}) - (s_{i+l+1} - s_{i+l})) / std_d |,
              s^_i = s_i,  s^_{i+l+1} = P(s^_{i+l}, a_{i+l}),   without steps after the end of an episode

Inputs and outputs of the net are of order 1, whatever the units of a state. It predicts differences because a step
changes a state little. L > 1 also trains the net on its own predictions, which a planner feeds back into it.

The optimiser's state is part of the fitted model: training again continues where it stopped. A step with an
absurd gradient is skipped, and a fit that has exploded is undone, so the parameters stay finite; `model_skipped` counts
the lost steps.

With `geometry`, s and s' - s are described by a chart of what the task declares about its coordinates (geometry.py).

With several `members`, each net has its own initial weights and its own windows (not in the paper; PETS, Chua et al.
2018). The members agree where there are data, and disagree elsewhere:

    P(s, a) = P_m(s, a),  m uniform for each call;     disagreement = | std_m delta_m(s, a) / std_d |
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pcmlp.models.geometry import Chart, pose_error
from pcmlp.nets import MLP, Normaliser, adam_with_decay, guarded_sgd
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import setting
from pcmlp.trees import map_leading, take
from pcmlp.types import MDP, Action, FittedModel, Metrics, Model, State

_LIMIT = 100.0  # normalised states are clipped to +-100, so that diverging predictions stay finite
_FLOOR = 1e-3  # the least std of a difference, as a share of the std of its coordinate
# Steps whose gradient has a larger norm are skipped. The gradient of an error's norm does not grow with the error, only
# with the net and its inputs, which are of order 1: it was at most 20 on the classic tasks, with windows of 8 steps. A
# gradient as large as this comes from one window that diverges; after clipping, only that window would count.
_ABSURD = 1e6
_EXPLODED = 10.0  # a fit is undone at this multiple of its first loss, or of the loss of predicting the mean


class NeuralModel(FittedModel):
    """One network.

    paper: P is Gaussian with covariance sigma^2 I, sigma not given / here: only the mean, without noise.
    """

    net: MLP
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # normalises (s, a)
    change: Normaliser  # normalises s' - s
    chart: Chart = eqx.field(static=True)  # what the net is told of s, and what s' - s means for it

    def difference(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        """Predict s' - s."""
        x = jnp.clip(self.inputs(jnp.concatenate([self.chart.encode(state), action])), -_LIMIT, _LIMIT)
        return self.change.inverse(self.net(x))

    def move(self, state: Float[Array, " s"], difference: Float[Array, " d"]) -> Float[Array, " s"]:
        """Return the state that a difference leads to, within finite bounds."""
        return self.chart.apply(state, difference, lambda levels: clip_state(self.inputs, levels))

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.move(state, self.difference(state, action))

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the error of one step, in the units of `model_error`, and that of each body."""

        def predict(state, action, next_state):
            difference = self.difference(state, action)
            error = jnp.linalg.norm((difference - self.chart.change(state, next_state)) / self.change.std)
            return error, self.move(state, difference)

        errors, predicted = jax.vmap(predict)(rows.state, rows.action, rows.next_state)
        return unseen_errors(mdp, rows, was_fitted(self.optimiser), errors, predicted)


class NeuralEnsemble(FittedModel):
    """Several networks, stored as one pytree whose arrays have a leading axis of members."""

    members: NeuralModel
    size: int = eqx.field(static=True)

    def member(self, index: Int[Array, ""] | int) -> NeuralModel:
        """Return one network, for a rollout with one member; a call of the ensemble computes all members."""
        return take(self.members, index)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        """Predict the next state with a random member."""
        # Under vmap each state has its own key: selecting a prediction is cheap, selecting the weights of a net is not.
        predictions = jax.vmap(lambda model: model(key, state, action))(self.members)
        return predictions[jr.randint(key, (), 0, self.size)]

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the means of the members' errors."""
        return jax.tree.map(jnp.mean, map_leading(lambda one: one.measure(mdp, rows), self.members))

    def disagreement(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, ""]:
        """Return the spread of the members' predictions, in the units of `model_error`."""
        differences = jax.vmap(lambda model: model.difference(state, action))(self.members)
        units = self.members.change.std[0]  # all members were fitted to the same data
        return jnp.linalg.norm(jnp.std(differences, axis=0) / units)


class Neural(Model):
    """A network, or several, that predicts the change of the state; trained by a multi-step loss."""

    sizes: tuple[int, ...] = setting((500, 500), "hidden layers", least=1, tiny=(16, 16))
    members: int = setting(1, "networks; each imagined step uses one of them", least=1)
    steps: int = setting(100, "C: SGD steps of one round", least=1, tiny=2, tune="50:400:log")
    batch: int = setting(128, "windows of one SGD step", least=1, tiny=16)
    unroll: int = setting(2, "L: steps of the loss", least=1)
    rate: float = setting(1e-3, "learning rate of Adam", above=0, tune="0.0003:0.003:log")
    decay: float = setting(1e-5, "weight decay, as a part of the gradient", least=0)
    clip: float = setting(2.0, "largest norm of the gradient", above=0)
    geometry: bool = setting(False, "whether what a task declares of its coordinates is used and not learned")

    def init(self, key: Key[Array, ""], mdp: MDP) -> NeuralModel | NeuralEnsemble:
        """Return untrained networks."""
        if self.members == 1:
            return self._init_one(key, mdp)
        return NeuralEnsemble(jax.vmap(lambda k: self._init_one(k, mdp))(jr.split(key, self.members)), self.members)

    def _init_one(self, key: Key[Array, ""], mdp: MDP) -> NeuralModel:
        states, actions = mdp.boxes
        chart = Chart(states.size, states.coordinates) if self.geometry else Chart.plain(states.size)
        _, encoded, changes = chart.sizes
        net = MLP.of(key, (encoded + actions.size, *self.sizes, changes), "relu")
        state = adam_with_decay(self.rate, self.decay).init(eqx.filter(net, eqx.is_array))
        units = Normaliser.identity(encoded + actions.size), Normaliser.identity(changes)
        return NeuralModel(net, state, *units, chart)

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Fit the units to the replay, then take `steps` SGD steps on its windows; metrics are means over members."""
        if isinstance(model, NeuralModel):
            return self.train_network(key, model, replay, fit_units(replay.data, model.chart))
        assert isinstance(model, NeuralEnsemble)
        keys = jr.split(key, model.size)

        def train_member(member: NeuralModel, key: Key[Array, ""]) -> tuple[NeuralModel, Metrics]:
            return self.train_network(key, member, replay, fit_units(replay.data, member.chart))

        members, metrics = map_leading(train_member, model.members, keys)
        return NeuralEnsemble(members, model.size), jax.tree.map(jnp.mean, metrics)

    def train_network(
        self, key: Key[Array, ""], model: NeuralModel, replay: Replay, units: tuple[Normaliser, Normaliser]
    ) -> tuple[NeuralModel, Metrics]:
        """Take `steps` SGD steps with one network, in given units of (s, a) and of s' - s."""
        inputs, change = units
        began = NeuralModel(model.net, model.optimiser, inputs, change, model.chart)
        drawn = replay.window_rows(key, self.steps * self.batch, self.unroll)
        rows, valid = (x.reshape(self.steps, self.batch, -1) for x in drawn)

        def loss(net: MLP, batch: tuple) -> tuple[Float[Array, ""], Float[Array, "n l"]]:
            return window_loss(eqx.tree_at(lambda m: m.net, began, net), replay.data, *batch)

        net, state, (values, errors, sound) = guarded_sgd(
            loss,
            adam_with_decay(self.rate, self.decay),
            began.net,
            began.optimiser,
            (rows, valid),
            clip=self.clip,
            largest=_ABSURD,
        )
        trained = NeuralModel(net, state, inputs, change, model.chart)
        metrics = summarise_errors(errors, valid)
        kept = metrics["model_loss"] <= _EXPLODED * jnp.maximum(values[0], math.sqrt(change.mean.shape[0]))
        skipped = jnp.where(kept, jnp.sum(~sound, dtype=jnp.float32), float(self.steps))
        return jax.lax.cond(kept, lambda: trained, lambda: model), metrics | {"model_skipped": skipped}


def clip_state(inputs: Normaliser, state: Float[Array, " s"]) -> Float[Array, " s"]:
    """Clip a predicted state, or its levels, to 100 std around the mean of the data."""
    mean, std = inputs.mean[: state.shape[0]], inputs.std[: state.shape[0]]
    return jnp.clip(state, mean - _LIMIT * std, mean + _LIMIT * std)


def fit_units(data: Transitions, chart: Chart) -> tuple[Normaliser, Normaliser]:
    """Return the units of (s, a) and of s' - s."""
    inputs = Normaliser.fit(jnp.concatenate([jax.vmap(chart.encode)(data.state), data.action], axis=1), data.valid)
    levels, _, changes = chart.sizes
    least = _FLOOR * jnp.concatenate([inputs.std[:levels], jnp.ones(changes - levels)])  # a body may turn by a radian
    return inputs, Normaliser.fit(jax.vmap(chart.change)(data.state, data.next_state), data.valid, least)


def safe_norm(x: Float[Array, " n"]) -> Float[Array, ""]:
    """Return |x|, with gradient 0 at 0, where the gradient of the square root is NaN."""
    square = jnp.sum(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def window_errors(
    model: NeuralModel, state: Float[Array, " s"], actions: Float[Array, "l a"], differences: Float[Array, "l d"]
) -> Float[Array, " l"]:
    """Return the error of each difference, in units of the differences' std, when predicting from `state` onwards."""

    def step(state, row):
        action, difference = row
        predicted = model.difference(state, action)
        error = safe_norm((predicted - difference) / model.change.std)
        return model.move(state, predicted), error

    return jax.lax.scan(step, state, (actions, differences), unroll=min(actions.shape[0], 4))[1]


def window_loss(
    model: NeuralModel, data: Transitions, rows: Int[Array, "n l"], valid: Bool[Array, "n l"]
) -> tuple[Float[Array, ""], Float[Array, "n l"]]:
    """Return the mean error over the valid steps of windows, and all errors, 0 at invalid steps.

    paper: the sum over windows and steps of the norm in the state's own units / here: the mean, over std.
    """
    state = data.state[rows]
    differences = jax.vmap(jax.vmap(model.chart.change))(state, data.next_state[rows])
    error = jax.vmap(lambda s, a, d: window_errors(model, s, a, d))(state[:, 0], data.action[rows], differences)
    error = jnp.where(valid, error, 0.0)
    return masked_mean(error, valid), error


def masked_mean(errors: Float[Array, "..."], valid: Bool[Array, "..."]) -> Float[Array, ""]:
    """Return the mean over valid entries of errors that are 0 at invalid ones."""
    return jnp.sum(errors) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)


def was_fitted(optimiser: PyTree) -> Bool[Array, ""]:
    """Return whether an optimiser has taken a step."""
    return optax.tree_utils.tree_get(optimiser, "count") > 0


def unseen_errors(
    mdp: MDP, rows: Transitions, fitted: Bool[Array, ""], errors: Float[Array, " n"], predicted: Float[Array, "n s"]
) -> Metrics:
    """Return the mean error, and how far and how much bodies are misplaced and turned in the predicted states; NaN, an
    empty cell of metrics.csv, if the model was not fitted or there are no rows."""
    measured = {"held_out_error": errors}
    for body in mdp.boxes[0].coordinates.bodies:
        apart, turned = jax.vmap(lambda s, t, body=body: pose_error(body, s, t))(predicted, rows.next_state)
        measured |= {f"held_out_{body.name}_mm": 1e3 * apart, f"held_out_{body.name}_rad": turned}
    known = fitted & jnp.any(rows.valid)
    means = {name: masked_mean(jnp.where(rows.valid, x, 0.0), rows.valid) for name, x in measured.items()}
    return {name: jnp.where(known, mean, jnp.nan) for name, mean in means.items()}


def summarise_errors(errors: Float[Array, "steps n l"], valid: Bool[Array, "steps n l"]) -> Metrics:
    """Return the loss over the last tenth of the steps and over all, and the one-step error over the last tenth."""
    end = -(-errors.shape[0] // 10)
    return {
        "model_loss": masked_mean(errors[-end:], valid[-end:]),
        "model_loss_mean": masked_mean(errors, valid),
        "model_error": masked_mean(errors[-end:, :, 0], valid[-end:, :, 0]),
    }
