"""Features that look at some coordinates of the state only.

    phi(s, a) = psi(s_i1, ..., s_ik, a)

The bonus is then for places that are new in those coordinates: in a maze, new ground and not new ways to hold a leg.

paper: phi of the whole (s, a) / here: the same where no coordinates are chosen.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from pcmlp.types import Box, ConfigError, Features, Transitions


class Chosen(eqx.Module):
    features: Features  # psi
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        return self.features(state[jnp.array(self.dims)], action)

    def inputs(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " n"]:
        """What psi sees, where it is a network."""
        return self.features.inputs(state[jnp.array(self.dims)], action)


class DrawChosen(eqx.Module):
    """key, first samples -> phi, where psi is drawn for those coordinates alone."""

    draw: Callable  # key, samples of the chosen coordinates -> psi
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, key: Key[Array, ""], data: Transitions) -> Chosen:
        seen = eqx.tree_at(lambda d: (d.state, d.next_state), data, replace_fn=lambda x: x[:, jnp.array(self.dims)])
        return Chosen(self.draw(key, seen), self.dims)


def chosen_box(states: Box, dims: tuple[int, ...]) -> Box:
    """The range of those coordinates, which has to have them."""
    missing = [dim for dim in dims if not 0 <= dim < states.size]
    if missing or not dims:
        shown = ",".join(map(str, dims))
        why = f"a state of the task has no coordinate {missing[0]}" if missing else "a phi of no coordinate"
        raise ConfigError(f"features.dims={shown}: {why}; give some of 0 to {states.size - 1}, or none for all")
    return Box(states.low[jnp.array(dims)], states.high[jnp.array(dims)])


__all__ = ["Chosen", "DrawChosen", "chosen_box"]
