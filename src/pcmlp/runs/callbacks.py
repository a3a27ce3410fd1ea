"""Callbacks of a run: progress on the terminal, TensorBoard, and functions of the user.

A callback is called after every iteration as `callback(source, metrics)`. `source` is the run, or the agent in Python;
`metrics` are the numbers of the iteration, averaged over seeds. If one returns False, learning ends. A callback
that is a context manager is entered before the first iteration and left at the end.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pcmlp.errors import printable
from pcmlp.runs.metrics import Row

Callback = Callable[[Any, dict[str, float]], bool | None]

_LONG_S = 24 * 3600.0  # iterations within this time are used to estimate the remaining time
_CLOCK = 9  # columns of the clock beside a note
_LINES = 20  # number of lines that plain progress prints
AXES = ("iteration", "seed", "env_steps")  # columns that are not curves


@contextlib.contextmanager
def listening(callbacks: Iterable[Callback]) -> Iterator[None]:
    """Enter the callbacks that are context managers; leave them at the end."""
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        yield


def notify(callbacks: Iterable[Callback], source: Any, metrics: dict[str, float]) -> bool:
    """Call every callback; return whether none of them asks to stop."""
    answers = [callback(source, metrics) for callback in callbacks]
    return all(answer is not False for answer in answers)


def say(console: Console, line: str) -> None:
    """Print a line without markup or wrapping."""
    console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


class StatusLine:
    """A line with the steps and the bonus of an iteration, and the return of the last evaluation so far."""

    def __init__(self) -> None:
        self._result = ""

    def __call__(self, metrics: dict[str, float]) -> str:
        """Return the line of an iteration."""
        if "eval_return_mean" in metrics:
            self._result = f"  return {metrics['eval_return_mean']:.3f}"
        bonus = f"  bonus {metrics['bonus_mean']:.3g}" if "bonus_mean" in metrics else ""
        return f"env steps {metrics['env_steps']:,.0f}{self._result}{bonus}"


class LiveProgress(contextlib.AbstractContextManager):
    """A line on a terminal: the wait for the compiler with a clock, then a progress bar with the remaining time."""

    def __init__(self, console: Console, total: int, done: int = 0, note: str | None = None):
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=10),  # the line must fit into 80 columns
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[after]}"),
            console=console,
            speed_estimate_period=_LONG_S,
        )
        self._wait = Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True)
        self._task = self._bar.add_task("", total=total, completed=done, after="")
        self._note, self._done, self._status_line = note, done, StatusLine()

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Show the iteration. The wait ends with the first one that learns."""
        iteration = int(metrics["iteration"])
        if iteration > self._done:
            self._begin()
        left = "left" if iteration < (self._bar.tasks[0].total or 0) else ""
        self._bar.update(self._task, completed=iteration, description=self._status_line(metrics), after=left)

    def _begin(self) -> None:
        """Replace the wait by the bar."""
        self._wait.stop()
        self._bar.start()

    def __enter__(self) -> "LiveProgress":
        if self._note is None:
            self._bar.start()
        else:
            if len(self._note) > self._wait.console.width - _CLOCK:
                say(self._wait.console, self._note)
                self._note = "compiling"
            self._wait.add_task(self._note)
            self._wait.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait.stop()
        self._bar.stop()


class PlainProgress(contextlib.AbstractContextManager):
    """A line for every so many iterations, for output that is not a terminal; by default about twenty in all."""

    def __init__(self, console: Console, total: int, done: int = 0, note: str | None = None, every: int | None = None):
        self._file = console.file
        self._total, self._done, self._note = total, done, note
        self._every = every or -(-(total - done) // _LINES)
        self._status_line = StatusLine()
        self._first: tuple[int, float] | None = None  # the first iteration that was learned, and the seconds until then

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Print the iteration if it is due."""
        iteration, seconds, status = int(metrics["iteration"]), metrics["wall_s"], self._status_line(metrics)
        if self._first is None and iteration > self._done:
            self._first = iteration, seconds
        if iteration % self._every == 0 or iteration == self._total:
            line = f"iteration {iteration}/{self._total}  {status}  {seconds:.1f} s"
            print(f"{line}{self._show_left(iteration, seconds)}", file=self._file, flush=True)

    def _show_left(self, iteration: int, seconds: float) -> str:
        """Return the remaining time, from the iterations after the first one, which had to be compiled."""
        first, before = self._first or (iteration, seconds)
        if iteration == first:
            return ""
        left = (seconds - before) / (iteration - first) * (self._total - iteration)
        return f", about {show_time(left)} left" if left > 0 else ""

    def __enter__(self) -> "PlainProgress":
        if self._note is not None:
            print(self._note, file=self._file, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def show_progress(
    console: Console, total: int, done: int = 0, note: str | None = None, every: int | None = None
) -> Callback:
    """Return a callback that shows progress on the console; `done` of `total` iterations are done already. `note` is
    shown until the first one ends. With `every`, it prints a line after so many iterations, on a terminal too."""
    if console.is_terminal and every is None:
        return LiveProgress(console, total, done, note)
    return PlainProgress(console, total, done, note, every)


def show_time(seconds: float) -> str:
    """Return a rough time, such as 5 s, 60 s, 3 min, 2 h or 5 days."""
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 150:
        return f"{seconds / 60:.0f} min"
    unit = 1 if seconds < 10 else 5
    return f"{max(1, unit * round(seconds / unit))} s"


class TensorBoard(contextlib.AbstractContextManager):
    """The numbers of `metrics.csv` for TensorBoard: `tensorboard/seed-N` in the run folder, against env steps."""

    def __init__(self, folder: Path, seeds: Sequence[int], kept: Sequence[Row], console: Console):
        """Open a writer for each seed. `kept` are the rows that a resumed run keeps; TensorBoard hides later points of
        the old run."""
        self._console = console
        self._writers: dict[int, Any] = {}
        try:
            from tensorboardX import SummaryWriter

            last = {row["seed"]: row["env_steps"] for row in kept}
            for seed in seeds:
                purge = last[seed] + 1 if seed in last else None
                self._writers[seed] = SummaryWriter(str(folder / f"seed-{seed}"), purge_step=purge)
        except ImportError:
            say(console, "tensorboard: needs tensorboardX, continuing without it; pip install 'pcmlp[tensorboard]'")
        except OSError as error:
            self._give_up(error)

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Write the newest rows of the run."""
        try:
            for row in source.latest if self._writers else ():
                for name, value in row.items():
                    if name not in AXES and value is not None:
                        self._writers[row["seed"]].add_scalar(name, value, row["env_steps"])
                self._writers[row["seed"]].flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writers = {}
        where = f" ({error.filename})" if error.filename else ""
        say(self._console, f"tensorboard: {error.strerror}{where}, continuing without; metrics.csv has it all")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
