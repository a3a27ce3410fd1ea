"""The lanes of a walk: what is random about each copy of an environment, and a step of all of them as arrays."""

from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.tasks.copies import another_seed


class Lanes(NamedTuple):
    """What is random about each lane."""

    keys: Key[Array, " seeds"]  # of the policies, into which a lane folds its number
    number: np.ndarray  # [lanes]
    seed: np.ndarray  # [seeds, lanes], of the environment
    time: np.ndarray  # [seeds, lanes], uniform in the horizon: when to take a draw from d_pi
    fixed: bool  # whether an episode that was spoilt is walked again with its own seed, not with another

    @staticmethod
    def of(keys: Key[Array, " seeds"], count: int, horizon: int, fixed: bool = False) -> "Lanes":
        """By NumPy, seeded with the keys: nothing to compile for another `count`."""
        each = [np.random.default_rng(words) for words in np.asarray(jr.key_data(keys))]
        seed, time = (np.stack([rng.integers(most, size=count) for rng in each]) for most in (2**31, horizon))
        return Lanes(keys, np.arange(count), seed, time, fixed)

    def part(self, chosen: np.ndarray) -> "Lanes":
        return self._replace(number=self.number[chosen], seed=self.seed[:, chosen], time=self.time[:, chosen])

    def again(self, attempt: int) -> "Lanes":
        if attempt == 0 or self.fixed:
            return self
        seeds = [another_seed(int(seed), 0, attempt) for seed in self.seed.flat]
        return self._replace(seed=np.reshape(seeds, self.seed.shape))


class Step(NamedTuple):
    """One step of all lanes, [seeds, lanes, ...], or several, [seeds, lanes, steps, ...], with the fields of
    `Transitions`."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_state: np.ndarray
    terminal: np.ndarray
    last: np.ndarray
    valid: np.ndarray
