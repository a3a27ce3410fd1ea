"""The table of all jobs that run: live on a terminal, elsewhere a line for each of them at times."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pcmlp.experiments.job import Job
from pcmlp.experiments.job_process import Progress
from pcmlp.runs.callbacks import say, show_time

_EVERY_S = 300.0  # time between two lines about a job


@dataclass(eq=False)
class Row:
    """A job that runs."""

    job: Job
    began: float = field(default_factory=time.monotonic)
    latest: Progress | None = None
    result: float | None = None  # of the last evaluation
    _first: tuple[int, float] | None = None  # the first iteration that was learned here, and when it ended

    def update(self, progress: Progress) -> None:
        """Note an iteration."""
        self.latest = progress
        self.result = self.result if progress.result is None else progress.result
        if self._first is None and progress.iteration > 0:
            self._first = progress.iteration, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the process began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds until the end, from the iterations after the first one, which had to be compiled."""
        if self._first is None or self.latest is None or self.latest.iteration == self._first[0]:
            return None
        each = (time.monotonic() - self._first[1]) / (self.latest.iteration - self._first[0])
        return each * (self.latest.iterations - self.latest.iteration)

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return job, steps, return, time so far and time left."""
        steps = f"{self.latest.env_steps:,.0f}" if self.latest else "0"
        result = "–" if self.result is None else f"{self.result:.2f}"
        left = "–" if self.left is None else show_time(self.left)
        return str(self.job.where), f"{steps} of {self.job.steps:,}", result, show_time(self.elapsed), left


class JobTable(contextlib.AbstractContextManager):
    """The table of the rows that a function returns."""

    def __init__(self, console: Console, rows: Callable[[], list[Row]]):
        self._console, self._rows = console, rows
        self.counts = ""  # a line below the table
        self._live = Live(console=console, get_renderable=self.draw, refresh_per_second=1, transient=True)
        self._due = time.monotonic() + _EVERY_S

    def draw(self) -> Table:
        """Return the table as it is now."""
        table = Table("job", "steps", "return", "so far", "left", caption=self.counts, caption_justify="left")
        for row in self._rows():
            table.add_row(*row.cells())
        return table

    def print_at_times(self) -> None:
        """Print a line for each job, if that is due and no table is shown."""
        if self._console.is_terminal or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY_S
        for job, steps, result, elapsed, left in (row.cells() for row in self._rows()):
            say(self._console, f"{job}: {steps} steps, return {result}, {elapsed} so far, {left} left")

    def __enter__(self) -> "JobTable":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
