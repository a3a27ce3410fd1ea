"""The outcome of a reset or a step of environments on the host: arrays that cross pipes and threads.

Worker processes import this module, which therefore must not import JAX.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Fault(enum.IntEnum):
    """Kinds of faults: the codes of `Observed.fault`."""

    NONE = 0
    RAISED = 1
    MALFORMED = 2  # reset or step returned something that cannot be read
    SHAPE = 3
    NOT_FINITE = 4
    OUTSIDE = 5  # an observation is outside of the observation space
    HUNG = 6
    DIED = 7
    SHARED = 8  # the make function returned an environment that another lane has
    LOST = 9  # not counted as a fault: its process was ended because of another lane

    @property
    def label(self) -> str:
        """The readable name."""
        return self.name.lower().replace("_", " ")


class Observed(NamedTuple):
    """The outcome of a reset or a step, as arrays with an axis of lanes first."""

    observation: np.ndarray  # 32-bit floats
    reward: np.ndarray  # the environment's own
    terminated: np.ndarray
    truncated: np.ndarray
    fault: np.ndarray  # codes of `Fault`
    messages: dict[int, str]  # what went wrong, by row

    @staticmethod
    def blank(count: int, shape: tuple[int, ...], fault: Fault = Fault.NONE) -> "Observed":
        """Return zeros for `count` lanes with observations of `shape`."""
        observation, reward = np.zeros((count, *shape), np.float32), np.zeros(count, np.float32)
        terminated, truncated = np.zeros((2, count), bool)
        return Observed(observation, reward, terminated, truncated, np.full(count, fault, np.int8), {})

    def put(self, rows: Sequence[int], other: "Observed") -> None:
        """Write `other` into `rows`."""
        for ours, theirs in zip(self[:-1], other[:-1], strict=True):
            ours[rows] = theirs
        self.messages.update({rows[i]: message for i, message in other.messages.items()})

    def reshape(self, shape: tuple[int, ...]) -> "Observed":
        """Return the same with its axis of lanes split into `shape`; messages stay by flat index."""
        arrays = (values.reshape(*shape, *values.shape[1:]) for values in self[:-1])
        return Observed(*arrays, messages=self.messages)

    def fail(self, row: int, fault: Fault, message: str) -> None:
        """Mark `row` as faulty."""
        self.fault[row] = fault
        self.messages[row] = message


__all__ = ["Fault", "Observed"]
