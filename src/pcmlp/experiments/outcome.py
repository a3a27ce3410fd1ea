"""The outcome of each job of a sweep, on this machine or on a cluster: one fails, the others continue."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pcmlp.errors import ConfigError, RunStopped

CONTINUES = "saved results are kept, and the same command continues"


class Outcome(NamedTuple):
    """The outcome of a job."""

    place: str
    status: str  # "finished", "stopped", "refused" (bad input) or "failed" (a run that cannot continue)
    line: str = ""  # the error message, if there is one


def attempt(place: str, do: Callable[[], object]) -> Outcome:
    """Call a function that runs a job, and return the outcome. A run that is in use by another process raises."""
    from pcmlp.runs.folder import InUse  # here, because this module is loaded before JAX is set up

    try:
        do()
    except KeyboardInterrupt:
        return Outcome(place, "stopped")
    except InUse:
        raise
    except ConfigError as error:
        return Outcome(place, "refused", str(error))
    except RunStopped as error:
        return Outcome(place, "failed", str(error))
    return Outcome(place, "finished")


@dataclass
class Tally:
    """The outcomes of a sweep so far."""

    say: Callable[[str], None]
    ended: Counter[str] = field(default_factory=Counter)  # number of jobs by status
    failed: list[Path] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def add(self, where: Path, outcome: Outcome, after: str = "") -> None:
        """Add an outcome and print it."""
        self.ended[outcome.status] += 1
        line = f": {outcome.line.removeprefix(f'{where}: ')}" if outcome.line else ""
        self.say(f"{where}: {outcome.status}{f' on {outcome.place}' if outcome.place else ''}{after}{line}")
        if outcome.line:
            self.failed.append(where)
            self.errors.append((ConfigError if outcome.status == "refused" else RunStopped)(outcome.line))

    def close(self, seconds: float, again: int) -> None:
        """Print the numbers; raise the first error, or KeyboardInterrupt if a job was stopped."""
        counts = ", ".join(f"{count} {status}" for status, count in self.ended.items())
        self.say(f"{counts}; {again} begun again; {seconds:.0f} s")
        if len(self.failed) > 1:
            self.say(f"not finished: {', '.join(map(str, self.failed))}")
        if self.errors:
            raise self.errors[0]
        if self.ended["stopped"]:
            raise KeyboardInterrupt
