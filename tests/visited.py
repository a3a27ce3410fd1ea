"""A replay that holds given states, for planners that take their units from it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Box


def visited(states: Float[Array, "n s"], space: Box, actions: Box) -> Replay:
    """Return a replay of rows that begin at the states."""
    row, count = Transitions.example(space, actions), states.shape[0]
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape[1:])), row)
    yes = jnp.ones(count, bool)
    full = Transitions(states, rows.action, rows.reward, states, rows.terminal, rows.last, yes)
    return Replay.empty(row, count).add(full)
