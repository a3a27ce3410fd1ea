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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pcmlp.runs.folder import Row

Callback = Callable[[Any, dict[str, float]], bool | None]

_LINES = 20  # number of lines that plain progress prints
_AXES = ("iteration", "seed", "env_steps")  # columns that are not curves


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
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def status_line(metrics: dict[str, float]) -> str:
    """Return a line with the steps, return and bonus of an iteration."""
    bonus = f"  bonus {metrics['bonus_mean']:.3g}" if "bonus_mean" in metrics else ""
    return f"env steps {metrics['env_steps']:,.0f}  return {metrics['eval_return_mean']:.3f}{bonus}"


class LiveProgress(contextlib.AbstractContextManager):
    """A progress bar on a terminal."""

    def __init__(self, console: Console, total: int):
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=10),  # the line must fit into 80 columns
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("compiling", total=total)

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Show the iteration."""
        self._bar.update(self._task, completed=int(metrics["iteration"]), description=status_line(metrics))

    def __enter__(self) -> "LiveProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class PlainProgress:
    """About twenty lines over the whole run, for output that is not a terminal."""

    def __init__(self, console: Console, total: int):
        self._file = console.file
        self._total = total
        self._every = -(-total // _LINES)

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Print the iteration if it is due."""
        iteration = int(metrics["iteration"])
        if iteration % self._every == 0 or iteration == self._total:
            line = f"iteration {iteration}/{self._total}  {status_line(metrics)}  {metrics['wall_s']:.1f} s"
            print(line, file=self._file, flush=True)


def show_progress(console: Console, total: int) -> Callback:
    """Return the progress that suits the console."""
    return LiveProgress(console, total) if console.is_terminal else PlainProgress(console, total)


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
            say(console, "--tensorboard: needs tensorboardX, continuing without it; pip install 'pcmlp[tensorboard]'")
        except OSError as error:
            self._give_up(error)

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Write the newest rows of the run."""
        try:
            for row in source.latest if self._writers else ():
                for name, value in row.items():
                    if name not in _AXES and value is not None:
                        self._writers[row["seed"]].add_scalar(name, value, row["env_steps"])
                self._writers[row["seed"]].flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writers = {}
        where = f" ({error.filename})" if error.filename else ""
        say(self._console, f"--tensorboard: {error.strerror}{where}, continuing without; metrics.csv has it all")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
