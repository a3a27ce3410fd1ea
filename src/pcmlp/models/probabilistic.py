"""The probabilistic ensemble of PETS (Chua et al. 2018), also used by MBPO (Janner et al. 2019).

    s' = s + mean_d + std_d * y,    y ~ N(mu_m(x), diag(exp(v_m(x)))),    x = (s, a) normalised,    m a member
    v   = the net's output, softly bounded by `least` and `most`, which are learned
    loss = mean over rows and coordinates of (y_i - mu(x_i))^2 exp(-v(x_i)) + v(x_i),  + 0.01 sum(most - least)

Each member is fitted to a bootstrap of the replay, in which every row counts Poisson(1) times. The noise of the world
is modelled by v; uncertainty for lack of data shows in how the members differ. A rollout that draws a member at every
step is the paper's TS1; one that stays with a member (`member`) is its TS-infinity.

`model_error` is the error on rows that a member's last bootstrap left out, about e^-1 of them, in the same
units as for `Neural`. Most of these rows were in an earlier bootstrap, so the error is too low, but for all members
alike. Members are sorted by it: the first `elites` are the best (MBPO uses 5 of 7).

paper: a number of epochs / here: a number of steps, so that one compiled program serves all iterations.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pcmlp.models.geometry import Chart
from pcmlp.models.neural import clip_state, fit_units, masked_mean, unseen_errors, was_fitted
from pcmlp.nets import MLP, Gaussian, Normaliser, guarded_sgd, tail_mean
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import SettingError, setting
from pcmlp.trees import map_leading, take
from pcmlp.types import MDP, Action, FittedModel, Metrics, Model, State

_LIMIT = 100.0  # normalised inputs are clipped to +-100
_LEAST, _MOST = -10.0, 0.5  # initial bounds of the log-variances
_PENALTY = 0.01  # weight of the penalty on the distance between these bounds
_CLIP = 100.0  # largest norm of the gradient
_ABSURD = 1e8  # steps with a larger gradient are skipped; a variance of e^-10 gives gradients of 1e5
_EXPLODED = 10.0  # a fit is undone at this multiple of its first error, or of the error of predicting the mean
_LEFT_OUT = 1024  # number of rows that the error of a member is measured on
_POISSON = tuple(sum(math.exp(-1.0) / math.factorial(k) for k in range(n + 1)) for n in range(8))  # P(count <= n)


class GaussianNet(eqx.Module):
    """The trained parameters of a member."""

    net: MLP  # (s, a) -> mu, v
    least: Float[Array, " s"]
    most: Float[Array, " s"]


class GaussianModel(FittedModel):
    """A member: a Gaussian over the change of the state."""

    learned: GaussianNet
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # normalises (s, a)
    change: Normaliser  # normalises s' - s

    def gaussian(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Gaussian:
        """Return the distribution of the normalised difference."""
        x = jnp.clip(self.inputs(jnp.concatenate([state, action])), -_LIMIT, _LIMIT)
        mean, v = jnp.split(self.learned.net(x), 2)
        v = self.learned.most - jax.nn.softplus(self.learned.most - v)
        v = self.learned.least + jax.nn.softplus(v - self.learned.least)
        return Gaussian(mean, 0.5 * v)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return apply_change(self.inputs, self.change, state, self.gaussian(state, action).sample(key))

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the error of the mean of one step, in the units of `model_error`, and that of each body."""
        mean = jax.vmap(self.gaussian)(rows.state, rows.action).mean
        errors = jnp.linalg.norm(mean - jax.vmap(self.change)(rows.next_state - rows.state), axis=1)
        predicted = jax.vmap(lambda s, d: apply_change(self.inputs, self.change, s, d))(rows.state, mean)
        return unseen_errors(mdp, rows, was_fitted(self.optimiser), errors, predicted)


def apply_change(
    inputs: Normaliser, change: Normaliser, state: Float[Array, " s"], difference: Float[Array, " s"]
) -> Float[Array, " s"]:
    """Return the state that a normalised difference leads to."""
    return clip_state(inputs, state + change.inverse(difference))


class GaussianEnsemble(FittedModel):
    """The members as one pytree whose arrays have a leading axis of members, the best first."""

    members: GaussianModel
    size: int = eqx.field(static=True)  # number of elites, which are the members that predict

    def member(self, index: Int[Array, ""] | int) -> GaussianModel:
        """Return one elite member, for a rollout that stays with it."""
        return take(self.members, index)

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        """Draw the next state from a random elite member."""
        # Under vmap each state has its own key: selecting a prediction is cheap, selecting the weights of a net is not.
        member_key, noise_key = jr.split(key)
        chosen = jr.randint(member_key, (), 0, self.size)
        elite = jax.tree.map(lambda x: x[: self.size], self.members)
        gaussians = jax.vmap(lambda model: model.gaussian(state, action))(elite)
        # Use the units of the chosen member: they differ between members if a fit was undone.
        gaussian, inputs, change = take((gaussians, elite.inputs, elite.change), chosen)
        return apply_change(inputs, change, state, gaussian.sample(noise_key))

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the means of the elites' errors."""
        elite = jax.tree.map(lambda x: x[: self.size], self.members)
        return jax.tree.map(jnp.mean, map_leading(lambda one: one.measure(mdp, rows), elite))


class Probabilistic(Model):
    """An ensemble of Gaussian networks, each fitted to a bootstrap of the data."""

    sizes: tuple[int, ...] = setting((200, 200, 200, 200), "hidden layers", least=1, tiny=(16, 16))
    members: int = setting(5, "networks", least=1)
    elites: int | None = setting(None, "number of best networks, which predict; none: all", least=1)
    steps: int = setting(1_000, "SGD steps of one round, for each network", least=1, tiny=2)
    batch: int = setting(32, "rows of one SGD step", least=1, tiny=16)
    rate: float = setting(1e-3, "learning rate of Adam", above=0, tune="0.0003:0.003:log")
    decay: float = setting(1e-4, "weight decay, as a part of the gradient", least=0)

    def check(self) -> None:
        """Raise if settings contradict each other."""
        if self.elites is not None and self.elites > self.members:
            raise SettingError("elites", self.elites, f"give 1 to {{members}}={self.members}, or none for all")

    def init(self, key: Key[Array, ""], mdp: MDP) -> GaussianEnsemble:
        """Return untrained networks."""
        members = jax.vmap(lambda k: self._init_one(k, mdp))(jr.split(key, self.members))
        return GaussianEnsemble(members, self.elites or self.members)

    def _init_one(self, key: Key[Array, ""], mdp: MDP) -> GaussianModel:
        states, actions = (box.size for box in mdp.boxes)
        net = MLP.of(key, (states + actions, *self.sizes, 2 * states), "silu", last=0.5)
        learned = GaussianNet(net, jnp.full(states, _LEAST, jnp.float32), jnp.full(states, _MOST, jnp.float32))
        state = self._optimiser().init(eqx.filter(learned, eqx.is_array))
        return GaussianModel(learned, state, Normaliser.identity(states + actions), Normaliser.identity(states))

    def _optimiser(self) -> optax.GradientTransformation:
        """Return Adam with weight decay only for the weight matrices: the variance bounds have a separate penalty."""
        decay = optax.add_decayed_weights(self.decay, mask=lambda params: jax.tree.map(lambda x: x.ndim == 2, params))
        return optax.chain(optax.clip_by_global_norm(_CLIP), decay, optax.adam(self.rate))

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Fit each member to its own bootstrap and sort the members by their error; metrics are means over members."""
        assert isinstance(model, GaussianEnsemble)
        keys = jr.split(key, self.members)
        members, metrics = map_leading(lambda one, k: self._train_one(k, one, replay), model.members, keys)
        members = take(members, jnp.argsort(metrics["model_error"]))
        return GaussianEnsemble(members, model.size), jax.tree.map(jnp.mean, metrics)

    def _train_one(self, key: Key[Array, ""], model: GaussianModel, replay: Replay) -> tuple[GaussianModel, Metrics]:
        count_key, row_key, left_key = jr.split(key, 3)
        data = replay.data
        counts = bootstrap(count_key, data.valid)
        rows = draw_rows(row_key, counts, data.valid, self.steps * self.batch).reshape(self.steps, self.batch)
        unseen = (data.valid & (counts == 0)).astype(jnp.float32)
        left = draw_rows(left_key, unseen, data.valid, min(_LEFT_OUT, replay.capacity))
        inputs, change = fit_units(data, Chart.plain(data.state.shape[1]))
        began = GaussianModel(model.learned, model.optimiser, inputs, change)

        def loss(learned: GaussianNet, rows: Int[Array, " n"]) -> tuple[Float[Array, ""], None]:
            return likelihood_loss(eqx.tree_at(lambda m: m.learned, began, learned), data, rows), None

        learned, state, (values, _, sound) = guarded_sgd(
            loss, self._optimiser(), began.learned, began.optimiser, rows, largest=_ABSURD
        )
        trained = GaussianModel(learned, state, inputs, change)
        before, error = mean_error(began, data, left), mean_error(trained, data, left)
        kept = error <= _EXPLODED * jnp.fmax(before, math.sqrt(data.state.shape[1]))
        metrics = {
            "model_loss": tail_mean(values, 10),
            "model_loss_mean": jnp.mean(values),
            "model_error": jnp.where(kept, error, before),
            "model_skipped": jnp.where(kept, jnp.sum(~sound, dtype=jnp.float32), float(self.steps)),
        }
        return jax.lax.cond(kept, lambda: trained, lambda: model), metrics


def bootstrap(key: Key[Array, ""], valid: Bool[Array, " n"]) -> Float[Array, " n"]:
    """Draw how often each row counts: Poisson(1), the limit of a bootstrap of many rows."""
    counts = jnp.searchsorted(jnp.array(_POISSON), jr.uniform(key, valid.shape)).astype(jnp.float32)
    return jnp.where(valid, counts, 0.0)


def draw_rows(
    key: Key[Array, ""], counts: Float[Array, " n"], valid: Bool[Array, " n"], number: int
) -> Int[Array, " number"]:
    """Draw rows in proportion to their counts, or from all valid rows if all counts are 0."""
    weight = jnp.where(jnp.sum(counts) > 0, counts, valid.astype(jnp.float32))
    return jr.choice(key, counts.shape[0], (number,), p=weight / jnp.maximum(jnp.sum(weight), 1.0))


def predict_rows(
    model: GaussianModel, data: Transitions, rows: Int[Array, " n"]
) -> tuple[Gaussian, Float[Array, "n s"], Bool[Array, " n"]]:
    """Return the predicted Gaussians of rows, their normalised differences, and which rows are valid."""
    state = data.state[rows]
    actual = jax.vmap(model.change)(data.next_state[rows] - state)
    return jax.vmap(model.gaussian)(state, data.action[rows]), actual, data.valid[rows]


def likelihood_loss(model: GaussianModel, data: Transitions, rows: Int[Array, " n"]) -> Float[Array, ""]:
    """Return the negative log-likelihood, with the penalty on the variance bounds."""
    gaussian, actual, valid = predict_rows(model, data, rows)
    z = (actual - gaussian.mean) * jnp.exp(-gaussian.log_std)
    likelihood = jnp.mean(z**2 + 2.0 * gaussian.log_std, axis=1)
    total = masked_mean(jnp.where(valid, likelihood, 0.0), valid)
    return total + _PENALTY * jnp.sum(model.learned.most - model.learned.least)


def mean_error(model: GaussianModel, data: Transitions, rows: Int[Array, " n"]) -> Float[Array, ""]:
    """Return the mean norm of the errors of the predicted means, in units of the differences' std."""
    gaussian, actual, valid = predict_rows(model, data, rows)
    return masked_mean(jnp.where(valid, jnp.linalg.norm(gaussian.mean - actual, axis=1), 0.0), valid)
