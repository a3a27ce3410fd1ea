"""Who steps the copies of an environment: this process, others, or whichever of the two is faster.

Others take over once steps have taken long, and keep it if they are faster. No result depends on it: a copy is told
its random numbers at the start of every walk.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pcmlp.workers import Answer, Copies, Rows, Workers

T = TypeVar("T")

_LONG = 10.0  # seconds of steps after which it is worth trying to do them elsewhere, and to compare
_MOST = 16  # workers


class Steppers:
    """Copies or workers, timed. With `others`, it has yet to be found out who is faster."""

    def __init__(self, now: Copies | Workers, others: Callable[[], Workers] | None = None):
        self.now = now
        self.seconds = 0.0  # in resets and steps so far
        self._others = others
        self._first = now
        self._taken, self._asked = 0.0, 0  # seconds and orders of those that step them now
        self._pace = 0.0  # seconds of an order that the first have taken

    @property
    def workers(self) -> int:
        """Processes that step them besides this one."""
        return self.now.count if isinstance(self.now, Workers) else 0

    @property
    def whole(self) -> set[int]:
        """The lanes that have a copy."""
        return self.now.whole

    def forget(self, lane: int) -> None:
        self.now.forget(lane)

    def make(self, lanes: Sequence[int]) -> list[Answer]:
        return self.now.ask([("make", lane, None) for lane in lanes])

    def reset(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Answer]:
        return self._timed(lambda: self.now.ask([("reset", *order) for order in zip(lanes, seeds, strict=True)]), lanes)

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> list[Answer] | Rows:
        return self._timed(lambda: self.now.step(lanes, actions), lanes)

    def _timed(self, work: Callable[[], T], lanes: Sequence[int]) -> T:
        begun = time.perf_counter()
        answers = work()
        taken = time.perf_counter() - begun
        self.seconds, self._taken, self._asked = self.seconds + taken, self._taken + taken, self._asked + len(lanes)
        return answers

    def change(self) -> bool:
        """Between two walks: whether others step them from now on, and have no copies yet."""
        if self._others is None or self._asked == 0 or self._taken < _LONG:
            return False
        pace = self._taken / self._asked
        if self.now is self._first:
            return self._try(self._others(), pace)
        slow = pace > self._pace
        (self.now if slow else self._first).close()
        self.now, self._others = self._first if slow else self.now, None
        return slow

    def _try(self, others: Workers, pace: float) -> bool:
        if others.ask([("make", 0, None)])[0].fault:  # what works here may not work there
            others.close()
            self._others = None
            return False
        self.now, self._pace, self._taken, self._asked = others, pace, 0.0, 0
        return True

    def close(self) -> None:
        self.now.close()
        self._first.close()


def most_workers() -> int:
    """As many as this process may use cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST)


__all__ = ["Steppers", "most_workers"]
