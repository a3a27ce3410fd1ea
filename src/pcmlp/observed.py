"""The outcome of a reset or a step of environments on the host, and its faults.

An observation may leave its space by a rounding error. An observation that is not finite, or beyond a bound by more
than a thousandth of its range, is a fault; so is an environment that raises, hangs or dies. No transition of an episode
with a fault is used.

Worker processes import this module, which therefore must not import JAX.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pcmlp.errors import EnvironmentFault

# Tolerated excess over a bound, as a share of the range: some environments leave their bounds a little, as the angle of
# LunarLander does. Values farther outside are those of a broken simulation.
_TOLERANCE = 1.0
_ROUNDING = 1e-6  # tolerated excess over a bound, as a share of the bound: the relative error of 32-bit floats


class Fault(enum.IntEnum):
    """Kinds of faults: the codes of `Observed.fault`."""

    NONE = 0
    RAISED = 1
    MALFORMED = 2  # reset or step returned something that cannot be read
    SHAPE = 3
    NOT_FINITE = 4
    OUTSIDE = 5  # an observation is far outside of the observation space
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
    success: np.ndarray  # 1 or 0 where the environment reports whether the goal is reached, -1 elsewhere
    fault: np.ndarray  # codes of `Fault`
    messages: dict[int, str]  # what went wrong, by row

    @staticmethod
    def blank(count: int, shape: tuple[int, ...], fault: Fault = Fault.NONE) -> "Observed":
        """Return zeros for `count` lanes with observations of `shape`."""
        observation, reward = np.zeros((count, *shape), np.float32), np.zeros(count, np.float32)
        terminated, truncated = np.zeros((2, count), bool)
        success, faults = np.full(count, -1, np.int8), np.full(count, fault, np.int8)
        return Observed(observation, reward, terminated, truncated, success, faults, {})

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


REMEDIES = {
    Fault.RAISED: "fix the error that it raises",
    Fault.MALFORMED: (
        "return (observation, info) from reset and (observation, reward, terminated, truncated, info) from step"
    ),
    Fault.NOT_FINITE: "keep its simulation from diverging, with bounded forces or smaller time steps",
    Fault.SHAPE: "return observations of its observation_space's shape, keys and types",
    Fault.OUTSIDE: "widen its observation_space if such values are right",
    Fault.HUNG: "fix what hangs, or give a longer timeout if it is only slow",
    Fault.DIED: "look at its output on stderr, and check that there is enough memory for all copies",
}


@dataclasses.dataclass
class Faults:
    """The faults of a world's environments so far."""

    rejected: int = 0  # discarded transitions: the faulty ones, and those before them in their episodes
    restarts: int = 0  # environments that were made again
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)  # kind -> number of faults
    last: str = ""

    @property
    def total(self) -> int:
        """The number of faults."""
        return sum(self.kinds.values())

    def add(self, kind: Fault, message: str) -> None:
        """Count a fault."""
        self.kinds[kind.label] = self.kinds.get(kind.label, 0) + 1
        self.last = message

    def error(self, env: Any, kind: Fault, reason: str, remedy: str = "") -> EnvironmentFault:
        """Return the error that ends a run, given the kind of the last fault."""
        line = f"environment {env}: {reason}; the last time, {self.last} ({self}); {REMEDIES[kind]}{remedy}"
        return EnvironmentFault(" ".join(line.split()))

    def __str__(self) -> str:
        if not self.total:
            return "no environment faults"
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds.items())
        return f"environment faults: {kinds}; {self.rejected} transitions rejected, {self.restarts} restarts"


class ObservationCheck:
    """A test of whether 32-bit floats can be an observation of a space."""

    def __init__(self, low: np.ndarray, high: np.ndarray, names: Sequence[str] = ()):
        """Store the bounds, in 64 bits, and the names of the coordinates, if there are names."""
        largest = np.finfo(np.float32).max
        with np.errstate(invalid="ignore"):
            span = high - low
        for bound, other in ((low, high), (high, low)):  # a space with only one bound has no range
            span = np.where(np.isfinite(bound) & ~np.isfinite(other), np.maximum(1.0, np.abs(bound)), span)
        size = np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
        room = np.where(np.isfinite(span), _TOLERANCE * span, 0.0) + _ROUNDING * size
        self.shape = low.shape
        self._bounds, self._names = (low, high), names
        # Finite bounds, so that one comparison also finds NaN and infinity.
        self._low = np.clip(low - room, -largest, largest).astype(np.float32)
        self._high = np.clip(high + room, -largest, largest).astype(np.float32)

    def __call__(self, order: str, observed: Observed) -> Observed:
        """Mark the rows with bad observations as faulty; `order` names the call that returned them."""
        # Compare all rows at once: one call per row would take longer than a step of a small environment.
        inside = (observed.observation >= self._low) & (observed.observation <= self._high)
        if not inside.all():
            for row in np.flatnonzero(~inside.all(axis=1) & (observed.fault == Fault.NONE)).tolist():
                observed.fail(row, *self._explain(order, observed.observation[row]))
        return observed

    def _explain(self, order: str, values: np.ndarray) -> tuple[Fault, str]:
        if not np.isfinite(values).all():
            index = int(np.argmin(np.isfinite(values)))
            return Fault.NOT_FINITE, f"{order} gave an observation with {values[index]} at {self._name(index)}"
        index = int(np.argmax((values < self._low) | (values > self._high)))
        bounds = " to ".join(f"{bound[index]:g}" for bound in self._bounds)
        message = (
            f"{order} gave {values[index]:g} at {self._name(index)}, far outside of the observation space: {bounds}"
        )
        return Fault.OUTSIDE, message

    def _name(self, index: int) -> str:
        return self._names[index] if self._names else f"coordinate {index}"
