"""Ctrl-C, SIGTERM and SIGUSR1, answered at once wherever the program is.

Python runs a signal handler only when the main thread is back in Python, and a compiled call may take minutes. The
operating system also writes each signal into a socket at once (`signal.set_wakeup_fd`), so a thread that reads the
socket can answer, because JAX releases the interpreter while it compiles and computes. Two signals are two bytes there,
while two pending calls of a handler are merged into one.

The last signal that is waited for raises KeyboardInterrupt in the main thread. If the program has not ended `_GRACE_S`
later, the thread ends it, together with its worker processes: files are whole at every moment (`runs.durable`).
"""

import contextlib
import multiprocessing
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from pcmlp.errors import printable

EXIT_CODE = 130
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
_RESCUE_S = 0.4  # time for the main thread to end by itself
_GRACE_S = 1.4  # time until the process is ended
_PRINTING_S = 0.2  # time for the last line to be printed

Say = Callable[[str], None]


def print_to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(printable(line), file=sys.stderr, flush=True)


class Signals:
    """The signals that this process has got, and what happens at the next one; a context manager for the main
    thread."""

    def __init__(self, *, ends_process: bool, at_once: bool, numbers: Sequence[int] = SIGNALS):
        """Prepare; `__enter__` starts to answer. Without `ends_process`, signals only interrupt the main thread."""
        self._numbers = numbers
        self._fd_before = -1  # where signals were written to before, if anywhere
        self.heard = 0
        self.limit = 1  # the number of signals that ends the program
        self.at_once = at_once  # whether one signal also ends a run, which would otherwise finish its iteration
        self.say: Say = print_to_stderr
        self.rescue: Callable[[], object] | None = None  # called if the main thread does not end in time
        self._ends_process = ends_process
        self._ending: float | None = None  # time of the last signal
        self._rescued = self._raised = False
        self._lock = threading.RLock()  # reentrant, because a handler may interrupt a handler
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()  # its `put` is reentrant too

    @property
    def ending(self) -> bool:
        """Whether the last signal has come."""
        return self._ending is not None

    def __enter__(self) -> "Signals":
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        for work in (self._watch, self._work):
            threading.Thread(target=work, name="signals", daemon=True).start()
        self._before = {number: signal.signal(number, self._handle) for number in self._numbers}
        self._fd_before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            if handler is not None:  # None: not made by Python, so it cannot be put back
                signal.signal(number, handler)
        self._todo.put(None)
        self._write.close()  # ends `_watch`

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the main thread, once, when the last signal has come."""
        self._take()
        with contextlib.suppress(OSError):
            self._write.send(b"\0")  # wakes `_watch`, for which the socket may be empty now
        if self._ending is not None and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _take(self) -> bool:
        """Count the signals in the socket and answer each; return whether more may come."""
        with self._lock:
            try:
                numbers = self._read.recv(64)
            except BlockingIOError:
                return True
            except OSError:
                return False
            for number in numbers:
                if number in self._numbers:
                    self._answer("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
                elif number and self._fd_before >= 0:  # its handler may wait for it there, as asyncio's does
                    with contextlib.suppress(OSError):
                        os.write(self._fd_before, bytes([number]))
            return bool(numbers)

    def _answer(self, name: str) -> None:
        self.heard += 1
        if self._ending is None and self.heard >= self.limit:
            self._ending = time.monotonic()
            what = "stopping"
        elif self._ending is not None:
            return
        else:
            what = "stopping after this iteration; repeat to stop at once"
        say = self.say
        self._todo.put(lambda: say(f"{name}: {what}"))

    def wait_for_lines(self) -> None:
        """Wait until everything said so far is printed, unless the terminal blocks."""
        printed = threading.Event()
        self._todo.put(printed.set)
        printed.wait(_PRINTING_S)

    def _watch(self) -> None:
        """Read the socket; end the process if the main thread does not end in time."""
        more = True
        while more:
            ending, wait = self._ending, None
            if ending is not None and self._ends_process:
                since = time.monotonic() - ending
                if since >= _GRACE_S:
                    end_process()
                if since >= _RESCUE_S and not self._rescued:
                    self._rescued = True
                    if self.rescue is not None:
                        self._todo.put(self.rescue)
                wait = max(0.0, (_GRACE_S if self._rescued else _RESCUE_S) - since)
            select.select([self._read], [], [], wait)
            more = self._take()
        self._read.close()

    def _work(self) -> None:
        """Print lines and call `rescue`. Neither may keep `_watch` from its work: a terminal can block a writer."""
        while (task := self._todo.get()) is not None:
            with contextlib.suppress(Exception):
                task()


def end_process() -> NoReturn:
    """End the process and its worker processes; only the main thread waits, a moment, for its last line."""
    if _current is not None and _in_main_thread():
        _current.wait_for_lines()
    for child in multiprocessing.active_children():
        with contextlib.suppress(OSError, ValueError):  # closed by another thread in this moment
            child.kill()
    with contextlib.suppress(OSError, ValueError):
        if os.isatty(1) and select.select([], [1], [], 0)[1]:
            os.write(1, b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(EXIT_CODE)


_current: Signals | None = None


@contextlib.contextmanager
def handled(*, ends_process: bool, at_once: bool = True, numbers: Sequence[int] = SIGNALS) -> Iterator[None]:
    """Handle signals in this block. Nothing changes in another thread, which gets none, or inside of another block."""
    global _current
    if _current is not None or not _in_main_thread():
        yield
        return
    with Signals(ends_process=ends_process, at_once=at_once, numbers=numbers) as _current:
        try:
            yield
        finally:
            _current = None


@contextlib.contextmanager
def stop_when_asked(say: Say, rescue: Callable[[], object] | None = None) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether to stop. One signal ends a run after its iteration, a second one at once.
    Clusters send SIGUSR1 before they take a machine back, and SIGTERM when they do. `rescue` is called in another
    thread if the main thread does not end. Only the main thread receives signals; in others the function returns
    False."""
    with handled(ends_process=False, at_once=False):
        signals = _current
        if signals is None or not _in_main_thread():
            yield lambda: False
            return
        heard, say_before, signals.rescue = signals.heard, signals.say, rescue
        if not signals.at_once:
            signals.limit, signals.say = heard + 2, say
        try:
            yield lambda: signals.heard > heard
        finally:
            signals.limit, signals.say, signals.rescue = signals.heard + 1, say_before, None


def answer_ctrl_c() -> contextlib.AbstractContextManager[None]:
    """Return a context that answers Ctrl-C at once and raises KeyboardInterrupt when the compiled call returns. Nothing
    changes where the program has its own handler, or ignores Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return contextlib.nullcontext()
    return handled(ends_process=False, numbers=[signal.SIGINT])


def finish_iterations() -> None:
    """Let a run of this command finish its iteration after one signal; otherwise one signal ends every command."""
    if _current is not None:
        _current.at_once = False


def is_ending() -> bool:
    """Return whether the last signal has come."""
    return _current is not None and _current.ending


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
