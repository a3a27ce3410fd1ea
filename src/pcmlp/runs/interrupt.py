"""Ctrl-C once ends a run after its iteration, twice at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console


@contextmanager
def stop_when_asked(console: Console) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether to stop. Only the main thread hears signals; elsewhere it says no."""
    heard = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if heard:
            raise KeyboardInterrupt
        heard = True
        console.print("stopping after this iteration; Ctrl-C again stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: heard
    finally:
        signal.signal(signal.SIGINT, before)
