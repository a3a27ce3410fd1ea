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

    @staticmethod
    def nothing(shape: tuple[int, ...], states: int, actions: int) -> "Step":
        """Steps that were not taken."""
        state, next_state = np.zeros((2, *shape, states), np.float32)
        action, reward = np.zeros((*shape, actions), np.float32), np.zeros(shape, np.float32)
        return Step(state, action, reward, next_state, *np.zeros((3, *shape), bool))

    def part(self, lanes: slice) -> "Step":
        """Of those lanes; what is recorded there is recorded here."""
        return Step(*(values[:, lanes] for values in self))

    def record(self, t: int, step: "Step") -> None:
        """What is valid of one `step`, at time t; lanes that there are no more of here are left out."""
        count = self.valid.shape[1]
        of_numbers = step.valid[:, :count]
        of_vectors = of_numbers[..., None]
        for whole, values in zip(self, step, strict=True):
            np.copyto(whole[:, :, t], values[:, :count], where=of_numbers if values.ndim == 2 else of_vectors)

    def forget(self, spoilt: np.ndarray, begun: np.ndarray, t: int) -> None:
        """The steps before t of the episodes that are `spoilt`, [seeds, lanes], each from when it was `begun` on."""
        for seed, lane in np.argwhere(spoilt):
            for values in self:
                values[seed, lane, begun[seed, lane] : t] = 0
