"""A buffer of fixed size for transitions, first in first out, and windows that never cross an episode's end.

(paper: the replay buffer D of Algorithm 2. Algorithm 1 uses it as the data of the whole cover: every policy has put
in equally many samples, so its contents are a stratified sample from d_cover.)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key

from pcmlp.types import Transitions


class Replay(eqx.Module):
    data: Transitions  # rows that were never written are not valid
    head: Int[Array, ""]  # where the next row goes

    @staticmethod
    def like(example: Transitions, capacity: int) -> "Replay":
        """An empty buffer for rows like those of `example`."""
        empty = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
        return Replay(empty, jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        return self.data.reward.shape[0]

    def add(self, rows: Transitions) -> "Replay":
        """Written in order, over the oldest rows once the buffer is full."""
        count = rows.reward.shape[0]
        skipped = max(count - self.capacity, 0)  # only the newest would survive
        rows = jax.tree.map(lambda x: x[skipped:], rows)
        where = (self.head + jnp.arange(skipped, count)) % self.capacity
        data = jax.tree.map(lambda xs, x: xs.at[where].set(x), self.data, rows)
        return Replay(data, (self.head + count) % self.capacity)

    def windows(self, key: Key[Array, ""], count: int, length: int) -> Transitions:
        """`count` windows of `length` consecutive rows, [count, length, ...], with starts uniform over valid rows.

        Rows of a window after its episode's end, or past the newest row of the buffer, are marked as not valid.
        """
        weight = self.data.valid.astype(jnp.float32)
        start = jr.choice(key, self.capacity, (count,), p=weight / jnp.maximum(jnp.sum(weight), 1.0))
        offset = jnp.arange(length)
        where = (start[:, None] + offset[None, :]) % self.capacity
        window = jax.tree.map(lambda x: x[where], self.data)
        ended = window.last.astype(int)
        ended_before = jnp.cumsum(ended, axis=1) - ended
        newest = (self.head - 1) % self.capacity
        until_newest = (newest - start) % self.capacity
        inside = (ended_before == 0) & (offset[None, :] <= until_newest[:, None])
        return eqx.tree_at(lambda t: t.valid, window, window.valid & inside)
