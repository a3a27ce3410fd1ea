"""What a step pays and whether it ends the episode, learned from samples where the user has no function for it.

    (r, z) = net(s, a, s' - s), all normalised,     an imagined step ends where z > 0
    loss   = mean over rows of  (r - r_i)^2 / var(r)  +  cross-entropy(z, ended_i)

paper: reward and termination are known / here: or learned, beside the dynamics and from the same replay. A planner
looks for what is wrong with a reward as it does with a model, so what is imagined to be paid stays between the least
and the most that the replay has.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.imagine import expected
from pcmlp.models.ensemble import DrawNeural, Ensemble
from pcmlp.models.neural import Fitting, Neural, window_rows
from pcmlp.models.probabilistic import DrawProbabilistic, Probabilistic
from pcmlp.models.thompson import DrawThompson, Thompson
from pcmlp.nets import MLP, Normaliser, descend
from pcmlp.replay import Replay
from pcmlp.types import Metrics, Transitions

_LIMIT = 10.0  # normalised inputs stay within it: far off, the net would be a straight line from what it knows
_SIZES = (128, 128)
_STEPS = 4  # times those of the dynamics: ends are few among the rows, and a step of so small a net is cheap


class Outcome(eqx.Module):
    net: MLP
    optimiser: PyTree  # the state of Adam
    inputs: Normaliser  # of (s, a, s' - s)
    paid: Normaliser  # of r
    least: Float[Array, ""]  # of the rewards in the replay
    most: Float[Array, ""]
    fitting: Fitting = eqx.field(static=True)

    @staticmethod
    def of(key: Key[Array, ""], states: int, actions: int, fitting: Fitting) -> "Outcome":
        size = 2 * states + actions
        net = MLP.of(key, (size, *_SIZES, 2), "relu")
        state = fitting.optimiser().init(eqx.filter(net, eqx.is_array))
        zero = jnp.zeros(())
        return Outcome(net, state, Normaliser.identity(size), Normaliser.identity(1), zero, zero, fitting)

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, " 2"]:
        """The reward in units of its spread, and the logit of the end."""
        x = jnp.concatenate([state, action, next_state - state])
        return self.net(jnp.clip(self.inputs(x), -_LIMIT, _LIMIT))

    def reward(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, ""]:
        predicted = self.paid.inverse(self(state, action, next_state)[:1])[0]
        return jnp.clip(predicted, self.least, self.most)

    def terminal(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Bool[Array, ""]:
        return self(state, action, next_state)[1] > 0

    def train(self, key: Key[Array, ""], replay: Replay) -> tuple["Outcome", Metrics]:
        """Steps of SGD on single rows; all is undone where the outcome would not be made of numbers."""
        outcome, optimiser = self.normalised_by(replay.data), self.fitting.optimiser()
        steps, batch = _STEPS * self.fitting.steps, self.fitting.batch
        rows, _ = window_rows(key, replay, steps * batch, 1)

        def step(carry, rows):
            net, state = carry
            drawn = jax.tree.map(lambda x: x[rows], replay.data)
            gradient, errors = jax.grad(
                lambda net: errors_of(eqx.tree_at(lambda o: o.net, outcome, net), drawn), has_aux=True
            )(net)
            return descend(optimiser, gradient, state, net), errors

        trained, errors = jax.lax.scan(step, (outcome.net, outcome.optimiser), rows.reshape(steps, batch))
        outcome = eqx.tree_at(lambda o: (o.net, o.optimiser), outcome, trained)
        end = -(-steps // 10)
        error, wrong = (jnp.mean(x[-end:]) for x in errors)
        sound = jnp.isfinite(error + wrong)
        skipped = 1.0 - sound.astype(jnp.float32)
        metrics = {"reward_error": error, "end_error": wrong, "outcome_skipped": skipped}
        return jax.lax.cond(sound, lambda: outcome, lambda: self), metrics

    def normalised_by(self, data: Transitions) -> "Outcome":
        """The same net in the units of `data`."""
        x = jnp.concatenate([data.state, data.action, data.next_state - data.state], axis=1)
        inputs, paid = Normaliser.fit(x, data.valid), Normaliser.fit(data.reward[:, None], data.valid)
        least = jnp.min(jnp.where(data.valid, data.reward, jnp.inf))
        most = jnp.max(jnp.where(data.valid, data.reward, -jnp.inf))
        return eqx.tree_at(lambda o: (o.inputs, o.paid, o.least, o.most), self, (inputs, paid, least, most))


def errors_of(
    outcome: Outcome, rows: Transitions
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
    """The loss; and the reward's root mean square error in units of its spread, and the share of ends and
    continuations that are taken for each other, each half."""
    predicted = jax.vmap(outcome)(rows.state, rows.action, rows.next_state)
    paid = jax.vmap(outcome.paid)(rows.reward[:, None])[:, 0]
    square = jnp.mean((predicted[:, 0] - paid) ** 2)
    ended = rows.terminal.astype(jnp.float32)
    entropy = jnp.mean(optax.sigmoid_binary_cross_entropy(predicted[:, 1], ended))
    wrong = (predicted[:, 1] > 0) != rows.terminal
    missed = jnp.sum(wrong & rows.terminal) / jnp.maximum(jnp.sum(rows.terminal), 1)
    false = jnp.sum(wrong & ~rows.terminal) / jnp.maximum(jnp.sum(~rows.terminal), 1)
    return square + entropy, (jnp.sqrt(square), 0.5 * (missed + false))


class NeuralWithOutcome(eqx.Module):
    """Neural dynamics, or others, and what was not known of the world."""

    dynamics: Neural | Ensemble | Probabilistic | Thompson
    outcome: Outcome

    def __call__(
        self, key: Key[Array, ""], state: Float[Array, " s"], action: Float[Array, " a"]
    ) -> Float[Array, " s"]:
        return self.dynamics(key, state, action)

    def train(self, key: Key[Array, ""], replay: Replay) -> tuple["NeuralWithOutcome", Metrics]:
        dynamics_key, outcome_key = jr.split(key)
        dynamics, metrics = self.dynamics.train(dynamics_key, replay)
        outcome, errors = self.outcome.train(outcome_key, replay)
        return NeuralWithOutcome(dynamics, outcome), metrics | errors

    def expected(self) -> "NeuralWithOutcome":
        return eqx.tree_at(lambda m: m.dynamics, self, expected(self.dynamics))


class DrawWithOutcome(eqx.Module):
    """key -> an untrained model."""

    dynamics: DrawNeural | DrawProbabilistic | DrawThompson

    def __call__(self, key: Key[Array, ""]) -> NeuralWithOutcome:
        dynamics_key, outcome_key = jr.split(key)
        draw = self.dynamics
        return NeuralWithOutcome(draw(dynamics_key), Outcome.of(outcome_key, draw.states, draw.actions, draw.fitting))
