"""A table of transition probabilities for a finite MDP: maximum likelihood is counting.

    P(s' | s, a) = n(s, a, s') / n(s, a),   and P(s | s, a) = 1 where n(s, a) = 0

paper: any maximiser of the likelihood / here: for an unvisited pair, about which the likelihood says nothing, the
model predicts that the state stays the same, so that only the bonus is optimistic about untried actions.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.replay import Replay, Transitions
from pcmlp.types import MDP, FittedModel, Metrics, Model


class CountedTransition(FittedModel):
    """The transition estimated from visit counts."""

    counts: Float[Array, "S A S"]

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table P(s' | s, a)."""
        visits = jnp.sum(self.counts, axis=-1, keepdims=True)
        stay = jnp.broadcast_to(jnp.eye(self.counts.shape[0])[:, None, :], self.counts.shape)
        return jnp.where(visits > 0, self.counts / jnp.maximum(visits, 1.0), stay)

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the next state."""
        counts = self.counts[state, action]
        stay = jax.nn.one_hot(state, counts.shape[0])
        return jr.categorical(key, jnp.log(jnp.where(jnp.sum(counts) > 0, counts, stay)))


class Tabular(Model):
    """All transitions of a finite MDP, fitted by counting."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> CountedTransition:
        """Return a model without counts."""
        return CountedTransition(jnp.zeros((mdp.states.size, mdp.actions.size, mdp.states.size)))

    def train(
        self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay
    ) -> tuple[CountedTransition, Metrics]:
        """Count the transitions of the replay."""
        fitted = CountedTransition(count(replay.data, mdp.states.size, mdp.actions.size))
        return fitted, {"model_loss": mean_loss(fitted.counts, fitted.probabilities())}


def count(data: Transitions, num_states: int, num_actions: int) -> Float[Array, "S A S"]:
    """Count the valid transitions."""
    empty = jnp.zeros((num_states, num_actions, num_states))
    return empty.at[data.state, data.action, data.next_state].add(data.valid.astype(jnp.float32))


def mean_loss(counts: Float[Array, "S A S"], probabilities: Float[Array, "S A S"]) -> Float[Array, ""]:
    """Return the mean negative log-likelihood of counted transitions."""
    tiny = jnp.finfo(jnp.float32).tiny
    total = jnp.sum(counts * jnp.log(jnp.maximum(probabilities, tiny)))
    return -total / jnp.maximum(jnp.sum(counts), 1.0)
