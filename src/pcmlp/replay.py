"""Transitions and a replay buffer of fixed size, first in first out.

(paper: the replay buffer D of Algorithm 2. Algorithm 1 uses it as the data of the whole cover: every policy has added
equally many samples, so its contents are a stratified sample from d_cover.)

Rows go through `drop_nonfinite` first: a single NaN would make every average that includes it NaN.
"""

from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from pcmlp.spaces import Finite, Space

_LARGEST = 1e15  # a sum of squares of such numbers, over any data, still fits in single precision


class Transitions(eqx.Module):
    """Samples (s, a, r, s') with a leading axis; rows that are not `valid` are padding."""

    state: Shaped[Array, "n *state"]
    action: Shaped[Array, "n *action"]
    reward: Float[Array, " n"]
    next_state: Shaped[Array, "n *state"]
    terminal: Bool[Array, " n"]  # the MDP ended here
    last: Bool[Array, " n"]  # the episode ended here, by the MDP or by its horizon
    valid: Bool[Array, " n"]

    @staticmethod
    def example(states: Space, actions: Space) -> "Transitions":
        """Return one row that is not valid, for its shapes and types."""
        key = jr.key(0)
        samples = states.sample(key)[None], actions.sample(key)[None]
        state, action = (jnp.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0) for x in samples)
        no = jnp.zeros(1, bool)
        return Transitions(state, action, jnp.zeros(1), state, no, no, no)

    @staticmethod
    def of_arrays(*fields: np.ndarray) -> "Transitions":
        """Return transitions of NumPy arrays, in the order of the fields, with any number of leading axes."""
        return jax.tree.unflatten(_structure(), fields)


@cache
def _structure() -> Any:
    return jax.tree.structure(jax.eval_shape(partial(Transitions.example, Finite(1), Finite(1))))


def drop_nonfinite(rows: Transitions) -> tuple[Transitions, dict[str, Float[Array, ""]]]:
    """Turn rows with a NaN, or a number too large to be squared, into padding; and count them.

    Padding is zero: a masked NaN still comes back through a gradient. No window continues after such a row, because
    the step is unknown. If only the reward is NaN or too large, it becomes 0 and the row stays, since models learn from
    states.
    """
    known = jnp.ones_like(rows.valid)
    for x in (rows.state, rows.action, rows.next_state):
        if jnp.issubdtype(x.dtype, jnp.inexact):  # the states of a finite MDP are integers
            known &= jnp.all(jnp.abs(x.reshape(x.shape[0], -1)) <= _LARGEST, axis=1)
    paid = jnp.abs(rows.reward) <= _LARGEST

    def keep(x: Shaped[Array, "n *shape"]) -> Shaped[Array, "n *shape"]:
        return jnp.where(jnp.expand_dims(known, range(1, x.ndim)), x, jnp.zeros_like(x))

    cleaned = Transitions(
        state=keep(rows.state),
        action=keep(rows.action),
        reward=jnp.where(paid, rows.reward, 0.0),
        next_state=keep(rows.next_state),
        terminal=rows.terminal,
        last=rows.last | ~known,
        valid=rows.valid & known,
    )
    return cleaned, {
        "rows_rejected": jnp.sum(rows.valid & ~known, dtype=jnp.float32),
        "rewards_rejected": jnp.sum(rows.valid & ~paid, dtype=jnp.float32),
    }


def pick_any(uniform: Float[Array, "*draws"], count: int) -> Int[Array, "*draws"]:
    """Turn uniform numbers in [0, 1) into draws from 0 ... count - 1."""
    return jnp.minimum(jnp.floor(uniform * count).astype(int), count - 1)


def pick_valid(uniform: Float[Array, "*draws"], valid: Bool[Array, " n"]) -> Int[Array, "*draws"]:
    """Turn uniform numbers in [0, 1) into draws from the valid rows; from the first row if none is valid."""
    before = jnp.cumsum(valid.astype(int))  # number of valid rows up to each row
    number = jnp.minimum(jnp.floor(uniform * before[-1].astype(jnp.float32)).astype(int), before[-1] - 1)
    found = jnp.searchsorted(before, number.reshape(-1), side="right").reshape(uniform.shape)
    return jnp.where(before[-1] > 0, found, 0)


class Replay(eqx.Module):
    """A ring buffer of transitions; rows that were never written are not valid."""

    data: Transitions
    head: Int[Array, ""]  # index of the next row to write

    @staticmethod
    def empty(example: Transitions, capacity: int) -> "Replay":
        """Return an empty buffer for rows like those of `example`."""
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
        return Replay(rows, jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        """The number of rows that the buffer holds."""
        return self.data.reward.shape[0]

    def add(self, rows: Transitions) -> "Replay":
        """Write rows in order, over the oldest ones once the buffer is full."""
        count = rows.reward.shape[0]
        skipped = max(count - self.capacity, 0)  # older rows would be overwritten at once
        rows = jax.tree.map(lambda x: x[skipped:], rows)
        where = (self.head + jnp.arange(skipped, count)) % self.capacity
        data = jax.tree.map(lambda xs, x: xs.at[where].set(x), self.data, rows)
        return Replay(data, (self.head + count) % self.capacity)

    def windows(self, key: Key[Array, ""], count: int, length: int) -> Transitions:
        """Draw `count` windows of `length` consecutive rows, [count, length, ...], that start at valid rows.

        Rows of a window after its episode's end, or past the newest row of the buffer, are marked as not valid.
        """
        rows, valid = self.window_rows(key, count, length)
        window = jax.tree.map(lambda x: x[rows], self.data)
        return eqx.tree_at(lambda t: t.valid, window, valid)

    def window_rows(
        self, key: Key[Array, ""], count: int, length: int
    ) -> tuple[Int[Array, "count length"], Bool[Array, "count length"]]:
        """Draw windows as row numbers, and which of these rows are valid. All windows of a fit are drawn at once,
        because a draw goes through the whole buffer; the rows are then read a batch at a time."""
        weight = self.data.valid.astype(jnp.float32)
        start = jr.choice(key, self.capacity, (count,), p=weight / jnp.maximum(jnp.sum(weight), 1.0))
        offset = jnp.arange(length)
        rows = (start[:, None] + offset[None, :]) % self.capacity
        ended = self.data.last[rows].astype(int)
        ended_before = jnp.cumsum(ended, axis=1) - ended
        newest = (self.head - 1) % self.capacity
        until_newest = (newest - start) % self.capacity
        inside = (ended_before == 0) & (offset[None, :] <= until_newest[:, None])
        return rows, self.data.valid[rows] & inside
