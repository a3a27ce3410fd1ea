"""Ctrl-C, SIGTERM and SIGUSR1 once end a run after its iteration, twice at once.

SIGTERM is how a cluster takes its machine back, SIGUSR1 how it says that it soon will.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


@contextmanager
def stop_when_asked(console: Console) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether to stop. Only the main thread hears signals; elsewhere it says no."""
    heard = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if heard:
            raise KeyboardInterrupt
        heard = True
        said = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        console.print(f"{said}: stopping after this iteration; once more stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield lambda: heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
