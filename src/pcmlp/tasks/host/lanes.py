"""The lanes of a collection of episodes: their random numbers, and the recording of their steps.

A recording is a `Transitions` of NumPy arrays, [seeds, lanes, horizon, ...], which are written in place.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.replay import Transitions
from pcmlp.tasks.host.environments import derive_seed


class Lanes(NamedTuple):
    """The episodes to collect: the random numbers of each lane, and its last step."""

    keys: Key[Array, " seeds"]  # keys of the policies, into which a lane folds its number
    number: np.ndarray  # [lanes]
    seed: np.ndarray  # [seeds, lanes], the seed of the environment
    final: np.ndarray  # [seeds, lanes], the last step to take
    restart: bool  # whether a new episode begins when one ends before the final step
    fixed: bool  # whether an episode with a fault is repeated with the same seed

    @staticmethod
    def of(
        keys: Key[Array, " seeds"],
        count: int,
        horizon: int,
        *,
        draws: bool = False,
        restart: bool = False,
        fixed: bool = False,
    ) -> "Lanes":
        """Return `count` lanes for each key, with the horizon as final step, or for `draws` a random time up to it.

        NumPy draws seeds and times, so that another `count` compiles nothing.
        """
        generators = [np.random.default_rng(words) for words in np.asarray(jr.key_data(keys))]
        seed, time = (np.stack([rng.integers(high, size=count) for rng in generators]) for high in (2**31, horizon))
        return Lanes(keys, np.arange(count), seed, time if draws else np.full_like(time, horizon - 1), restart, fixed)

    def select(self, chosen: np.ndarray) -> "Lanes":
        """Return some of the lanes."""
        return self._replace(number=self.number[chosen], seed=self.seed[:, chosen], final=self.final[:, chosen])

    def reseed(self, attempt: int) -> "Lanes":
        """Return the lanes with seeds for another attempt, unless their seeds are fixed."""
        if attempt == 0 or self.fixed:
            return self
        seeds = [derive_seed(int(seed), 0, attempt) for seed in self.seed.flat]
        return self._replace(seed=np.reshape(seeds, self.seed.shape))


def blank(shape: tuple[int, ...], states: int, actions: int) -> Transitions:
    """Return transitions of zeros, none of them valid; `shape` is [seeds, lanes, horizon]."""
    state, next_state = np.zeros((2, *shape, states), np.float32)
    action, reward = np.zeros((*shape, actions), np.float32), np.zeros(shape, np.float32)
    return Transitions.of_arrays(state, action, reward, next_state, *np.zeros((3, *shape), bool))


def write(fields: list[np.ndarray], t: int, valid: np.ndarray, *values: np.ndarray) -> None:
    """Write a step at time t into the `fields` of a recording, in the lanes where it is `valid`; `values` are the other
    fields, in order. Idle lanes beyond the recorded ones are left out."""
    count = fields[-1].shape[1]
    valid = valid[:, :count]
    for_vectors = valid[..., None]
    for field, value in zip(fields, (*values, valid), strict=True):
        np.copyto(field[:, :, t], value[:, :count], where=valid if value.ndim == 2 else for_vectors)


def erase(fields: list[np.ndarray], lanes: np.ndarray, begun: np.ndarray, t: int) -> None:
    """Erase the steps of the marked lanes, from the time at which the episode has `begun` to t."""
    for seed, lane in np.argwhere(lanes):
        for field in fields:
            field[seed, lane, begun[seed, lane] : t] = 0


def steps_at(recording: Transitions, time: np.ndarray) -> Transitions:
    """Return one step of each lane, as a separate draw: no other step follows it."""
    seed, lane = np.indices(time.shape)
    steps = jax.tree.map(lambda x: x[seed, lane, time][:, :, None], recording)
    return eqx.tree_at(lambda t: t.last, steps, np.ones_like(steps.last))


@jax.jit
@jax.vmap
def flatten(recording: Transitions) -> Transitions:
    """Return the rows of all lanes, with a leading axis of seeds."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), recording)


__all__ = ["Lanes", "blank", "erase", "flatten", "steps_at", "write"]
