"""What environments do wrong: found in what they observe, counted, and said when it is too much.

An observation may leave its space by a rounding. One that is not finite, or beyond its bounds by more than a thousandth
of their range, is a fault, as what raises, hangs or dies is; the episode it happens in is no sample of anything.
"""

import dataclasses
from typing import Any

import numpy as np

from pcmlp.types import EnvironmentFault
from pcmlp.workers import DIED, HUNG, MALFORMED, RAISED, Answer, Rows

NOT_FINITE, SHAPE, OUTSIDE = "not finite", "shape", "outside"

_ROOM = 1e-3  # of a range, beyond its ends
_ROUNDING = 1e-6  # of a bound: what 32 bits make of it

_REMEDIES = {
    RAISED: "mend what raises",
    MALFORMED: "return (observation, info) from reset and (observation, reward, terminated, truncated, info) from step",
    NOT_FINITE: "keep its simulation from diverging, with bounded forces or smaller time steps",
    SHAPE: "return observations of its observation_space's shape",
    OUTSIDE: "widen its observation_space if such values are right",
    HUNG: "mend what hangs, or give a longer timeout if it is only slow",
    DIED: "see what it wrote to stderr, and whether there is memory for as many copies",
}


@dataclasses.dataclass
class Faults:
    """What went wrong since the environments were made."""

    rejected: int = 0  # transitions that were taken and are in no data: the faulty ones, and their episodes before them
    restarts: int = 0  # environments that were made anew
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)  # how many faults of each kind
    last: str = ""

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    def add(self, kind: str, said: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.last = said

    def __str__(self) -> str:
        if not self.total:
            return "no environment faults"
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds.items())
        return f"environment faults: {kinds}; {self.rejected} transitions rejected, {self.restarts} restarts"


def too_many(env: Any, faults: Faults, kind: str, why: str, also: str = "") -> EnvironmentFault:
    words = f"environment {env}: {why}; the last time, {faults.last} ({faults}); {_REMEDIES[kind]}{also}"
    return EnvironmentFault(" ".join(words.split()))


class Sight:
    """What can be an observation of a space, in 32 bits."""

    def __init__(self, space: Any):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        most = np.finfo(np.float32).max
        with np.errstate(invalid="ignore"):
            span = high - low
        for bound, other in ((low, high), (high, low)):  # a bound on one side only has no range
            span = np.where(np.isfinite(bound) & ~np.isfinite(other), np.maximum(1.0, np.abs(bound)), span)
        size = np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
        room = np.where(np.isfinite(span), _ROOM * span, 0.0) + _ROUNDING * size
        self.shape = space.shape
        self.space = space
        # Within what is finite, so that one comparison tells numbers from what is none as well.
        self.low = np.clip(low - room, -most, most).astype(np.float32)
        self.high = np.clip(high + room, -most, most).astype(np.float32)

    def judged(self, what: str, answers: list[Answer] | Rows) -> Rows:
        """The answers, with the faults that some observations are; all at once, because a comparison of a few numbers
        takes longer than a step of a small environment."""
        rows = answers if isinstance(answers, Rows) else self._rows(what, answers)
        seen = rows.observation
        if ((seen >= self.low) & (seen <= self.high)).all():  # nearly always, and then nothing is too large for 32 bits
            return rows._replace(observation=seen.astype(np.float32))
        with np.errstate(over="ignore"):
            values = seen.astype(np.float32)
        fits = (values >= self.low) & (values <= self.high)  # what is rounded may fit where it did not
        found = {int(i): self._fault(what, values[i]) for i in np.flatnonzero(~fits.all(axis=1))}
        return rows._replace(observation=values, faults={**found, **rows.faults})

    def _rows(self, what: str, answers: list[Answer]) -> Rows:
        """Where there is no observation of the right shape, one that is nothing but right."""
        values = np.empty((len(answers), *self.shape), np.float32)
        values[:] = self.low
        faults: dict[int, Answer] = {}
        with np.errstate(over="ignore"):
            for i, answer in enumerate(answers):
                if answer.fault:
                    faults[i] = answer
                elif answer.observation.shape == self.shape:
                    values[i] = answer.observation
                else:
                    said = f"{what} gave an observation of shape {answer.observation.shape}, not {self.shape}"
                    faults[i] = Answer(fault=SHAPE, said=said)
        columns = ([getattr(a, name) for a in answers] for name in ("reward", "terminated", "truncated"))
        reward, terminated, truncated = (np.array(x) for x in columns)
        return Rows(values, reward, terminated.astype(bool), truncated.astype(bool), faults)

    def _fault(self, what: str, values: np.ndarray) -> Answer:
        if not np.isfinite(values).all():
            where = int(np.argmin(np.isfinite(values)))
            return Answer(fault=NOT_FINITE, said=f"{what} gave an observation with {values[where]} at {where}")
        where = int(np.argmax((values < self.low) | (values > self.high)))
        bounds = f"{self.space.low[where]:g} to {self.space.high[where]:g}"
        said = f"{what} gave an observation outside of its space: {values[where]:g} at {where}, which is {bounds}"
        return Answer(fault=OUTSIDE, said=said)


__all__ = ["NOT_FINITE", "OUTSIDE", "SHAPE", "Faults", "Sight", "too_many"]
