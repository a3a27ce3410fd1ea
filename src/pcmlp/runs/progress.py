"""How a run shows where it is: a live line on a terminal, about twenty plain lines elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINES = 20


def status_line(env_steps: float, mean_return: float, bonus: float | None) -> str:
    spent = "" if bonus is None else f"  bonus {bonus:.3g}"
    return f"env steps {env_steps:,.0f}  return {mean_return:.3f}{spent}"


class LiveProgress:
    def __init__(self, console: Console, total: int):
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=10),  # the line must fit into 80 columns
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("compiling", total=total)

    def update(self, iteration: int, line: str, wall_s: float) -> None:
        self._bar.update(self._task, completed=iteration, description=line)

    def note(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "LiveProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class PlainProgress:
    def __init__(self, console: Console, total: int):
        self._file = console.file
        self._total = total
        self._every = -(-total // _LINES)

    def update(self, iteration: int, line: str, wall_s: float) -> None:
        if iteration % self._every == 0 or iteration == self._total:
            self.note(f"iteration {iteration}/{self._total}  {line}  {wall_s:.1f} s")

    def note(self, line: str) -> None:
        print(line, file=self._file, flush=True)

    def __enter__(self) -> "PlainProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def show_progress(console: Console, total: int) -> LiveProgress | PlainProgress:
    return LiveProgress(console, total) if console.is_terminal else PlainProgress(console, total)
