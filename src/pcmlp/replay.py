"""A buffer of fixed size for transitions, first in first out, and windows that never cross an episode's end.

(paper: the replay buffer D of Algorithm 2. Algorithm 1 uses it as the data of the whole cover: every policy has put
in equally many samples, so its contents are a stratified sample from d_cover.)

Rows go through `numbers_only` first: a NaN among them would spread to all that is averaged with it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from pcmlp.types import Metrics, Transitions

_LARGEST = 1e15  # what a sum of squares over any data still has room for in single precision


def numbers_only(rows: Transitions) -> tuple[Transitions, Metrics]:
    """The rows without those that have a NaN or something too large to be squared, and how many those were.

    They become padding, of zeros: a NaN that is masked still comes back through a gradient. No window goes on after
    one, because what led on from it is not known. A reward alone that is not a number, or absurd, counts as 0 and its
    row stays: models learn from states.
    """
    known = jnp.ones_like(rows.valid)
    for x in (rows.state, rows.action, rows.next_state):
        if jnp.issubdtype(x.dtype, jnp.inexact):  # the states of a finite MDP are integers
            known &= jnp.all(jnp.abs(x.reshape(x.shape[0], -1)) <= _LARGEST, axis=1)
    paid = jnp.abs(rows.reward) <= _LARGEST

    def kept(x: Shaped[Array, "n *shape"]) -> Shaped[Array, "n *shape"]:
        return jnp.where(jnp.expand_dims(known, range(1, x.ndim)), x, jnp.zeros_like(x))

    cleaned = Transitions(
        state=kept(rows.state),
        action=kept(rows.action),
        reward=jnp.where(paid, rows.reward, 0.0),
        next_state=kept(rows.next_state),
        terminal=rows.terminal,
        last=rows.last | ~known,
        valid=rows.valid & known,
    )
    return cleaned, {
        "rows_rejected": jnp.sum(rows.valid & ~known, dtype=jnp.float32),
        "rewards_rejected": jnp.sum(rows.valid & ~paid, dtype=jnp.float32),
    }


def among_all(uniform: Float[Array, "*draws"], count: int) -> Int[Array, "*draws"]:
    """Draws from 0 ... count - 1, of numbers that are uniform in [0, 1)."""
    return jnp.minimum(jnp.floor(uniform * count).astype(int), count - 1)


def among_valid(uniform: Float[Array, "*draws"], valid: Bool[Array, " n"]) -> Int[Array, "*draws"]:
    """Draws from the rows that are valid; of the first row, where none is."""
    before = jnp.cumsum(valid.astype(int))  # valid rows up to each
    number = jnp.minimum(jnp.floor(uniform * before[-1].astype(jnp.float32)).astype(int), before[-1] - 1)
    found = jnp.searchsorted(before, number.reshape(-1), side="right").reshape(uniform.shape)
    return jnp.where(before[-1] > 0, found, 0)


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
