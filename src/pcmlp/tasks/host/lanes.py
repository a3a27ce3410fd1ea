"""The lanes of a walk: the randomness of each, and the recording of their steps."""

from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.replay import Transitions
from pcmlp.tasks.host.environments import derive_seed


class Lanes(NamedTuple):
    """Which episodes to walk: what is random about each lane, and when it ends."""

    keys: Key[Array, " seeds"]  # of the policies, into which a lane folds its number
    number: np.ndarray  # [lanes]
    seed: np.ndarray  # [seeds, lanes], of the environment
    final: np.ndarray  # [seeds, lanes], the last step to take
    restart: bool  # whether another episode begins where one ends before the final step
    fixed: bool  # whether an episode with a fault is walked again with the same seed

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
        """Return `count` lanes for each key, as long as the horizon, or for `draws` up to a time drawn from it.

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


class Recording(NamedTuple):
    """The arrays of `Transitions` for whole walks, [seeds, lanes, horizon, ...], written in place."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_state: np.ndarray
    terminal: np.ndarray
    last: np.ndarray
    valid: np.ndarray

    @staticmethod
    def blank(shape: tuple[int, ...], states: int, actions: int) -> "Recording":
        """Return a recording of no steps."""
        state, next_state = np.zeros((2, *shape, states), np.float32)
        action, reward = np.zeros((*shape, actions), np.float32), np.zeros(shape, np.float32)
        return Recording(state, action, reward, next_state, *np.zeros((3, *shape), bool))

    def view(self, lanes: slice) -> "Recording":
        """Return a view of some lanes."""
        return Recording(*(values[:, lanes] for values in self))

    def write(self, t: int, valid: np.ndarray, *values: np.ndarray) -> None:
        """Record a step at time t in the lanes where it is `valid`; `values` are the fields before that one. Idle lanes
        beyond the recorded ones are left out."""
        count = self.valid.shape[1]
        valid = valid[:, :count]
        for_vectors = valid[..., None]
        for field, value in zip(self, (*values, valid), strict=True):
            np.copyto(field[:, :, t], value[:, :count], where=valid if value.ndim == 2 else for_vectors)

    def erase(self, lanes: np.ndarray, begun: np.ndarray, t: int) -> None:
        """Erase the steps of the marked lanes, from the time that each episode has `begun` to t."""
        for seed, lane in np.argwhere(lanes):
            for values in self:
                values[seed, lane, begun[seed, lane] : t] = 0

    def at(self, time: np.ndarray) -> "Recording":
        """Return one step of each lane, as draws that no other step follows."""
        seed, lane = np.indices(time.shape)
        steps = Recording(*(values[seed, lane, time][:, :, None] for values in self))
        return steps._replace(last=np.ones_like(steps.last))

    def transitions(self) -> Transitions:
        """Return the rows of all lanes, with a leading axis of seeds."""
        return _flatten(tuple(self))


@jax.jit
@jax.vmap
def _flatten(arrays):
    return Transitions(*(x.reshape(-1, *x.shape[2:]) for x in arrays))


__all__ = ["Lanes", "Recording"]
