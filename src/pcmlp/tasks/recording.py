"""The recording of the steps in lanes of environments: `Transitions` as NumPy arrays that are written in place.

A field has the axes [seeds, lanes, steps, ...]. The first field marks the steps that report success. The others are the
fields of `Transitions`, in order.
"""

import equinox as eqx
import jax
import numpy as np

from pcmlp.replay import Transitions

LAST = -2  # the index of `last` among the fields


def blank(shape: tuple[int, ...], states: int, actions: int) -> Transitions:
    """Return transitions of zeros, none of them valid; `shape` is [seeds, lanes, horizon]."""
    state, next_state = np.zeros((2, *shape, states), np.float32)
    action, reward = np.zeros((*shape, actions), np.float32), np.zeros(shape, np.float32)
    return Transitions.of_arrays(state, action, reward, next_state, *np.zeros((3, *shape), bool))


def write(fields: list[np.ndarray], t: int, valid: np.ndarray, *values: np.ndarray) -> None:
    """Write a step at time t into the `fields` of a recording, in the lanes where it is `valid`. `values` are those of
    the other fields, in order. Lanes beyond the recorded ones are idle and left out."""
    count = fields[-1].shape[1]
    valid = valid[:, :count]
    for_vectors = valid[..., None]
    for field, value in zip(fields, (*values, valid), strict=True):
        np.copyto(field[:, :, t], value[:, :count], where=valid if value.ndim == 2 else for_vectors)


def erase(fields: list[np.ndarray], lanes: np.ndarray, begun: np.ndarray, t: int) -> None:
    """Erase the steps of the marked lanes from the time `begun`, at which the episode began, to t."""
    for seed, lane in np.argwhere(lanes):
        for field in fields:
            field[seed, lane, begun[seed, lane] : t] = 0


def steps_at(recording: Transitions, time: np.ndarray) -> Transitions:
    """Return one step of each lane, marked as last, because no step follows it in the sample."""
    seed, lane = np.indices(time.shape)
    steps = jax.tree.map(lambda x: x[seed, lane, time][:, :, None], recording)
    return eqx.tree_at(lambda t: t.last, steps, np.ones_like(steps.last))
