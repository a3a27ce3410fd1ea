"""Features that use only some coordinates of the state.

    phi(s, a) = psi(s_i1, ..., s_ik, a)

The bonus then pays for new values of those coordinates: in a maze, for new positions and not for new postures of a leg.

A copy of a coordinate counts it twice, and a goal is not explored: a task that declares them (`spaces.Coordinates`) can
have them left out.

paper: phi of the whole (s, a) / here: the same unless coordinates are chosen.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from pcmlp.replay import Transitions
from pcmlp.settings import SettingError
from pcmlp.spaces import Box
from pcmlp.types import MDP, Features


class SubsetFeatures(eqx.Module):
    """phi as a function of some coordinates of the state."""

    features: Features  # psi
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        return self.features(state[jnp.array(self.dims)], action)


def draw_over(
    dims: tuple[int, ...] | None, distinct: bool, draw: Callable, key: Key[Array, ""], mdp: MDP, samples: Transitions
) -> Features:
    """Return `draw(key, mdp, samples)`, with only some coordinates of MDP and samples: `dims`, or all where these are
    None. If `distinct`, "all" leaves out those that the task declares as copies or goals."""
    if dims is None and not (distinct and isinstance(mdp.states, Box) and mdp.states.coordinates.repeated):
        return draw(key, mdp, samples)
    states, _ = mdp.boxes
    if dims is None:
        dims = tuple(i for i in range(states.size) if i not in states.coordinates.repeated)
    if len(set(dims)) < len(dims) or not all(0 <= dim < states.size for dim in dims):
        raise SettingError("dims", dims, f"give coordinates of the state, 0 to {states.size - 1}, each once, or none")
    chosen = jnp.array(dims)
    smaller = eqx.tree_at(lambda t: (t.state, t.next_state), samples, replace_fn=lambda x: x[:, chosen])
    return SubsetFeatures(draw(key, dataclasses.replace(mdp, states=states.choose(dims)), smaller), dims)
