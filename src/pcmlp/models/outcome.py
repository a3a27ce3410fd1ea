"""Reward and end of an episode, learned from samples where the user has no function for them.

    (r, z) = net(s, a, s' - s), all normalised,     an imagined step ends where z > 0
    loss   = mean over rows of  (r - r_i)^2 / var(r)  +  cross-entropy(z, ended_i)

paper: reward and termination are known / here: they can also be learned, from the same replay as the dynamics. A
planner exploits the errors of a reward as it does those of a model, so an imagined reward is clipped to the range of
the rewards in the replay.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.imagine import Unknown
from pcmlp.nets import MLP, Normaliser, adam_with_decay, guarded_sgd, tail_mean
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import Part, setting
from pcmlp.types import MDP, Action, FittedModel, Metrics, Model, State

_LIMIT = 10.0  # normalised inputs are clipped to +-10: further out, a ReLU net extrapolates linearly


class Outcome(eqx.Module):
    """Learned reward and terminal functions."""

    net: MLP
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # normalises (s, a, s' - s)
    paid: Normaliser  # normalises r
    least: Float[Array, ""]  # smallest reward in the replay
    most: Float[Array, ""]

    def predict(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, " 2"]:
        """Return the normalised reward, and the logit of the end."""
        x = jnp.concatenate([state, action, next_state - state])
        return self.net(jnp.clip(self.inputs(x), -_LIMIT, _LIMIT))

    def reward(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, ""]:
        """Return the predicted reward, clipped to the range of the replay."""
        predicted = self.paid.inverse(self.predict(state, action, next_state)[:1])[0]
        return jnp.clip(predicted, self.least, self.most)

    def terminal(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Bool[Array, ""]:
        """Return whether the step is predicted to end the episode."""
        return self.predict(state, action, next_state)[1] > 0


class OutcomeNet(Part):
    """A network for rewards and ends that are not given as functions."""

    sizes: tuple[int, ...] = setting((128, 128), "hidden layers", least=1, tiny=(16, 16))
    # Ends are rare, and a step of a small net is cheap, so there are four times as many steps as for the dynamics.
    steps: int = setting(400, "SGD steps of one round", least=1, tiny=2)
    batch: int = setting(128, "rows of one SGD step", least=1, tiny=16)
    rate: float = setting(1e-3, "learning rate of Adam", above=0)
    decay: float = setting(1e-5, "weight decay, as a part of the gradient", least=0)
    clip: float = setting(2.0, "largest norm of the gradient", above=0)

    def init(self, key: Key[Array, ""], mdp: MDP) -> Outcome:
        """Return an untrained network."""
        states, actions = (box.size for box in mdp.boxes)
        size, zero = 2 * states + actions, jnp.zeros(())
        net = MLP.of(key, (size, *self.sizes, 2), "relu")
        state = adam_with_decay(self.rate, self.decay).init(eqx.filter(net, eqx.is_array))
        return Outcome(net, state, Normaliser.identity(size), Normaliser.identity(1), zero, zero)

    def train(self, key: Key[Array, ""], outcome: Outcome, replay: Replay) -> tuple[Outcome, Metrics]:
        """Take SGD steps on single rows; keep the old network if an error is not finite."""
        began = renormalise(outcome, replay.data)
        rows, _ = replay.window_rows(key, self.steps * self.batch, 1)

        def loss(net: MLP, rows: Array) -> tuple[Float[Array, ""], PyTree]:
            batch = jax.tree.map(lambda x: x[rows], replay.data)
            return outcome_loss(eqx.tree_at(lambda o: o.net, began, net), batch)

        net, state, (_, errors, _) = guarded_sgd(
            loss,
            adam_with_decay(self.rate, self.decay),
            began.net,
            began.optimiser,
            rows.reshape(self.steps, self.batch),
            clip=self.clip,
        )
        trained = eqx.tree_at(lambda o: (o.net, o.optimiser), began, (net, state))
        error, wrong = (tail_mean(x, 10) for x in errors)
        sound = jnp.isfinite(error + wrong)
        skipped = 1.0 - sound.astype(jnp.float32)
        # NaN, an empty cell of metrics.csv, if the samples cannot show an error: all rewards are equal, or none ends.
        paid, ended = began.least < began.most, jnp.any(replay.data.valid & replay.data.terminal)
        seen = {"reward_error": jnp.where(paid, error, jnp.nan), "end_error": jnp.where(ended, wrong, jnp.nan)}
        metrics = {**seen, "outcome_skipped": skipped}
        return jax.lax.cond(sound, lambda: trained, lambda: outcome), metrics


def renormalise(outcome: Outcome, data: Transitions) -> Outcome:
    """Return the same net in the units of `data`."""
    x = jnp.concatenate([data.state, data.action, data.next_state - data.state], axis=1)
    inputs, paid = Normaliser.fit(x, data.valid), Normaliser.fit(data.reward[:, None], data.valid)
    least = jnp.min(jnp.where(data.valid, data.reward, jnp.inf))
    most = jnp.max(jnp.where(data.valid, data.reward, -jnp.inf))
    return eqx.tree_at(lambda o: (o.inputs, o.paid, o.least, o.most), outcome, (inputs, paid, least, most))


def outcome_loss(
    outcome: Outcome, rows: Transitions
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
    """Return the loss, the root mean square error of the normalised reward, and the error rate of ends: the mean of
    the share of ends that were missed and the share of continuations that were predicted to end."""
    predicted = jax.vmap(outcome.predict)(rows.state, rows.action, rows.next_state)
    paid = jax.vmap(outcome.paid)(rows.reward[:, None])[:, 0]
    square = jnp.mean((predicted[:, 0] - paid) ** 2)
    ended = rows.terminal.astype(jnp.float32)
    entropy = jnp.mean(optax.sigmoid_binary_cross_entropy(predicted[:, 1], ended))
    wrong = (predicted[:, 1] > 0) != rows.terminal
    missed = jnp.sum(wrong & rows.terminal) / jnp.maximum(jnp.sum(rows.terminal), 1)
    false = jnp.sum(wrong & ~rows.terminal) / jnp.maximum(jnp.sum(~rows.terminal), 1)
    return square + entropy, (jnp.sqrt(square), 0.5 * (missed + false))


class CompleteModel(FittedModel):
    """A fitted model of the dynamics, and of the reward and end if these are unknown."""

    dynamics: FittedModel
    outcome: Outcome

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.dynamics(key, state, action)

    def expected(self) -> "CompleteModel":
        """Return the most likely dynamics with the same outcome."""
        return CompleteModel(self.dynamics.expected(), self.outcome)

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the errors of the dynamics."""
        return self.dynamics.measure(mdp, rows)

    def complete(self, mdp: MDP) -> MDP:
        """Return the MDP with the learned functions in place of the unknown ones."""
        reward = self.outcome.reward if isinstance(mdp.reward, Unknown) else mdp.reward
        terminal = self.outcome.terminal if isinstance(mdp.terminal, Unknown) else mdp.terminal
        return dataclasses.replace(mdp, reward=reward, terminal=terminal)


class WithOutcome(Model):
    """Dynamics together with a network for unknown rewards and ends."""

    dynamics: Model
    outcome: OutcomeNet

    def init(self, key: Key[Array, ""], mdp: MDP) -> CompleteModel:
        """Return both parts untrained."""
        dynamics_key, outcome_key = jr.split(key)
        return CompleteModel(self.dynamics.init(dynamics_key, mdp), self.outcome.init(outcome_key, mdp))

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[CompleteModel, Metrics]:
        """Train both parts on the replay."""
        assert isinstance(model, CompleteModel)
        dynamics_key, outcome_key = jr.split(key)
        dynamics, metrics = self.dynamics.train(dynamics_key, mdp, model.dynamics, replay)
        outcome, errors = self.outcome.train(outcome_key, model.outcome, replay)
        return CompleteModel(dynamics, outcome), metrics | errors
