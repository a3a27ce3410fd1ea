"""Any transition between finitely many states: maximum likelihood is counting.

    P(s' | s, a) = n(s, a, s') / n(s, a),   and P(s | s, a) = 1 where n(s, a) = 0

paper: any maximiser of the likelihood / here: an unvisited pair, of which the likelihood says nothing, predicts staying
where it is, so that nothing but the bonus is optimistic about what has not been tried.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.types import AbstractModel, Metrics, Transitions


def count(data: Transitions, num_states: int, num_actions: int) -> Float[Array, "S A S"]:
    empty = jnp.zeros((num_states, num_actions, num_states))
    return empty.at[data.state, data.action, data.next_state].add(data.valid.astype(jnp.float32))


def mean_loss(counts: Float[Array, "S A S"], probabilities: Float[Array, "S A S"]) -> Float[Array, ""]:
    """The mean negative log-likelihood of what was counted."""
    tiny = jnp.finfo(jnp.float32).tiny
    total = jnp.sum(counts * jnp.log(jnp.maximum(probabilities, tiny)))
    return -total / jnp.maximum(jnp.sum(counts), 1.0)


class Tabular(AbstractModel):
    counts: Float[Array, "S A S"]

    @staticmethod
    def of(num_states: int, num_actions: int) -> "Tabular":
        return Tabular(jnp.zeros((num_states, num_actions, num_states)))

    def probabilities(self) -> Float[Array, "S A S"]:
        visits = jnp.sum(self.counts, axis=-1, keepdims=True)
        stay = jnp.broadcast_to(jnp.eye(self.counts.shape[0])[:, None, :], self.counts.shape)
        return jnp.where(visits > 0, self.counts / jnp.maximum(visits, 1.0), stay)

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        counts = self.counts[state, action]
        stay = jax.nn.one_hot(state, counts.shape[0])
        return jr.categorical(key, jnp.log(jnp.where(jnp.sum(counts) > 0, counts, stay)))

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["Tabular", Metrics]:
        num_states, num_actions, _ = self.counts.shape
        model = Tabular(count(data, num_states, num_actions))
        return model, {"model_loss": mean_loss(model.counts, model.probabilities())}
