"""Features that use only some coordinates of the state.

    phi(s, a) = psi(s_i1, ..., s_ik, a)

The bonus then pays for new values of those coordinates: in a maze, for new positions and not for new postures of a leg.
Each coordinate has the unit that it has in phi of the whole state, and psi is scaled to the same norm, in the same way:
over the boxes of the spaces if all bounds of states and actions are finite, else over the first data. The place of an
ant has bounds and its joints have none, so both are in units of the first data, with dims=0,1 as without.

A copy of a coordinate counts it twice, and a goal is not explored: a task that declares them (`spaces.Coordinates`) can
have them left out.

paper: phi of the whole (s, a) / here: the same unless coordinates are chosen.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from pcmlp.replay import Transitions
from pcmlp.settings import SettingError
from pcmlp.spaces import Box, Vectors
from pcmlp.types import MDP, Features

Boxes = tuple[Box, Vectors]  # of states and actions


class SubsetFeatures(eqx.Module):
    """phi as a function of some coordinates of the state."""

    features: Features  # psi
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        return self.features(state[jnp.array(self.dims)], action)


def draw_over(
    dims: tuple[int, ...] | None,
    distinct: bool,
    draw: Callable[[Key[Array, ""], Boxes | None, Transitions], Features],
    key: Key[Array, ""],
    mdp: MDP,
    samples: Transitions,
) -> Features:
    """Return `draw(key, boxes, samples)`, with only the coordinates `dims` of the states unless these are None.
    If they are None and `distinct`, those that the task declares as copies or goals are left out.

    Units are taken from the boxes of states and actions or, if any coordinate of these has no bounds, from the samples;
    then `boxes` is None. This is decided for the whole state, so a choice of coordinates does not change it.
    """
    states, actions = mdp.boxes
    bounded = states.is_bounded() and actions.is_bounded()
    if dims is None and distinct and states.coordinates.repeated:
        dims = tuple(i for i in range(states.size) if i not in states.coordinates.repeated)
    if dims is None:
        return draw(key, (states, actions) if bounded else None, samples)
    if len(set(dims)) < len(dims) or not all(0 <= dim < states.size for dim in dims):
        raise SettingError("dims", dims, f"give coordinates of the state, 0 to {states.size - 1}, each once, or none")
    chosen = jnp.array(dims)
    smaller = eqx.tree_at(lambda t: (t.state, t.next_state), samples, replace_fn=lambda x: x[:, chosen])
    return SubsetFeatures(draw(key, (states.choose(dims), actions) if bounded else None, smaller), dims)
