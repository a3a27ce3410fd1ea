"""Copies of an environment, in this process or in worker processes.

`Copies` holds the environments of one process; `Workers` runs processes that each hold `Copies`. Both answer `ask` with
an `Observed`, one row per lane. Neither raises if an environment fails: the fault code of the row says what
went wrong. A worker process that hangs or dies is ended with all its copies, and started again when one of them is made
again.

Workers are spawned, because a forked copy of JAX's threads deadlocks. Neither this module nor its package imports JAX,
so that workers start quickly.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from pcmlp.boundary import Layout, WrongStructure
from pcmlp.errors import describe
from pcmlp.observed import Fault, Observed
from pcmlp.signals import SIGNALS

Order = Literal["make", "reset", "step"]

_START_SECONDS = 60.0  # least time to start a process and make an environment: imports take time
_END_SECONDS = 2.0  # time that a process has to end after its pipe is closed


@runtime_checkable
class Batched(Protocol):
    """An environment of which several copies can be stepped in one call."""

    def batch_simulator(self) -> Callable[[list[Any], np.ndarray], Observed]:
        """Return a function that steps several environments of this kind at once."""
        ...


class Copies:
    """The environments of one process, by lane."""

    def __init__(self, make: Callable[[], Any], layout: Layout, first: Any = None, *, keep: bool = False):
        """Store the function `make`; `layout` makes an observation into a vector; `first`, if given, is the copy of
        lane 0, which `keep` never closes."""
        self._make, self._layout = make, layout
        self._held: dict[int, Any] = {} if first is None else {0: first}
        self._kept = first if keep else None
        self.ready = set(self._held)  # lanes that can be reset or stepped
        self._start_batch = first.batch_simulator if isinstance(first, Batched) else None
        self._batch: Callable[[list[Any], np.ndarray], Observed] | None = None

    def ask(self, order: Order, lanes: Sequence[int], arguments: Any, progress: Any = None) -> Observed:
        """Make, reset (with seeds) or step (with actions) the copies of `lanes`, and write the current row and its
        start time into `progress`."""
        if order == "step" and self._batch is None and self._start_batch is not None and len(lanes) > 1:
            self._batch = self._start_batch()
        if order == "step" and self._batch is not None:
            return self._batch([self._held[lane] for lane in lanes], arguments)
        observed, answers = Observed.blank(len(lanes), (self._layout.size,)), []
        for row, (lane, argument) in enumerate(zip(lanes, arguments, strict=True)):
            if progress is not None:
                progress[:] = row, time.monotonic()
            try:
                if order != "make":
                    env = self._held[lane]
                    answers.append((row, env.reset(seed=argument) if order == "reset" else env.step(argument)))
                elif not self._replace(lane):
                    observed.fail(row, Fault.SHARED, "made twice by its function")
            except Exception as error:  # the environment may raise anything
                observed.fail(row, Fault.RAISED, f"{order} raised {describe(error)}")
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is checked later
            for row, answer in answers:
                _write(observed, row, order, answer, self._layout)
        return observed

    def _replace(self, lane: int) -> bool:
        """Make a lane's copy, and return whether it is a new one."""
        self._discard(lane)  # done first: the old copy may hold a window, a port or a licence
        copy = self._make()
        if any(copy is other for other in self._held.values()):
            return False
        self._held[lane] = copy
        self.ready.add(lane)
        return True

    def _discard(self, lane: int) -> None:
        self.ready.discard(lane)
        old = self._held.pop(lane, None)
        if old is not None and old is not self._kept:
            with contextlib.suppress(Exception):  # a broken environment may fail to close
                old.close()

    def close(self) -> None:
        """Close all copies; later ones can still be made."""
        for lane in list(self._held):
            self._discard(lane)
        self._batch = None


class Workers:
    """Worker processes; lane i belongs to process i modulo their number."""

    def __init__(self, factory: bytes, layout: Layout, count: int, timeout: float):
        """Start no process yet; `factory` is the pickled function that makes an environment, `layout` makes an
        observation into a vector, and `timeout` is the seconds that one reset or step may take."""
        self._factory, self._layout, self._timeout = factory, layout, timeout
        self.count = count
        self.ready: set[int] = set()  # lanes that can be reset or stepped
        self._running: dict[int, _Worker] = {}
        self._finalizer = weakref.finalize(self, _end_all, self._running)  # also when the interpreter exits

    def ask(self, order: Order, lanes: Sequence[int], arguments: Any) -> Observed:
        """Make, reset (with seeds) or step (with actions) the copies of `lanes`, each process its share of them."""
        shares: dict[int, list[int]] = {}
        for row, lane in enumerate(lanes):
            shares.setdefault(lane % self.count, []).append(row)
        observed = Observed.blank(len(lanes), (self._layout.size,))
        try:
            for worker, rows in shares.items():
                self._send(worker, order, [lanes[row] for row in rows], [arguments[row] for row in rows])
            for worker, rows in shares.items():
                observed.put(rows, self._receive(worker, order, len(rows)))
        except BaseException:  # for example an interrupt: an answer left in a pipe would be read as the next one
            self.close()
            raise
        if order == "make":
            self.ready.update(lane for lane, fault in zip(lanes, observed.fault, strict=True) if not fault)
        return observed

    def _send(self, worker: int, order: Order, lanes: list[int], arguments: list[Any]) -> None:
        if worker not in self._running:
            self._running[worker] = _Worker(f"environments-{worker}", self._factory, self._layout)
        running = self._running[worker]
        running.progress[:] = 0, time.monotonic()
        with contextlib.suppress(OSError):  # the process is dead, which `_receive` will notice
            running.pipe.send((order, lanes, arguments))

    def _receive(self, worker: int, order: Order, count: int) -> Observed:
        """Return the answer for a share of `count` lanes. If the process fails, the lane it was working on has the
        fault and the others are lost."""
        running = self._running[worker]
        limit = max(self._timeout, _START_SECONDS) if order == "make" else self._timeout
        left = limit
        try:
            while left > 0:
                left = running.progress[1] + limit - time.monotonic()
                if running.pipe.poll(max(left, 0.0)):
                    return running.pipe.recv()
            fault, message = Fault.HUNG, f"{order} took more than {limit:g} s"
        except (EOFError, OSError):
            fault, message = Fault.DIED, f"its process died in {order} ({running.exit_reason()})"
        observed = Observed.blank(count, (self._layout.size,), Fault.LOST)
        observed.fail(int(running.progress[0]), fault, message)
        self.ready = {lane for lane in self.ready if lane % self.count != worker}
        self._running.pop(worker).end()
        return observed

    def close(self) -> None:
        """End all processes; a later `make` starts them again."""
        _end_all(self._running)
        self.ready.clear()


class _Worker:
    """A worker process, and the pipe to it."""

    def __init__(self, name: str, factory: bytes, layout: Layout):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.progress = context.RawArray("d", 2)  # the current row and its start time
        arguments = theirs, factory, layout, self.progress
        self._process = context.Process(target=serve, args=arguments, name=name, daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()  # otherwise the death of the process would not close the pipe

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return self._process.pid

    def exit_reason(self) -> str:
        """Describe how the process ended."""
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.kill()  # it ignores other signals
        self._process.join()
        self._process.close()


def _end_all(running: dict[int, _Worker]) -> None:
    while running:
        running.popitem()[1].end()


def serve(pipe: Connection, factory: bytes, layout: Layout, progress: Any) -> None:
    """Answer orders in a worker process until the pipe is closed."""
    for number in SIGNALS:  # handled by the run, which may finish an iteration first
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    copies = Copies(
        lambda: pickle.loads(factory)(), layout
    )  # the import happens when a copy is made, where errors are reported
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(copies.ask(*pipe.recv(), progress=progress))


def exit_with_parent() -> None:
    """Wait until the process that started this one has ended, in any way, and then end this process at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _write(observed: Observed, row: int, order: Order, answer: Any, layout: Layout) -> None:
    """Write what an environment returned into its row, or mark the row as faulty."""
    try:
        size = {"reset": 2, "step": 5}[order]
        if not isinstance(answer, tuple | list) or len(answer) != size:
            found = f"{len(answer)} values" if isinstance(answer, tuple | list) else f"a {type(answer).__name__}"
            observed.fail(row, Fault.MALFORMED, f"{order} returned {found}")
            return
        if order == "reset":
            (observation, info), reward, terminated, truncated = answer, 0.0, False, False
        else:
            observation, reward, terminated, truncated, info = answer
        values = layout.read(observation)
        reward, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        success = _reported_success(info)
    except WrongStructure as error:
        observed.fail(row, Fault.SHAPE, f"{order} gave {error}")
        return
    except Exception as error:
        message = f"{order} returned something that cannot be read ({describe(error)})"
        observed.fail(row, Fault.MALFORMED, message)
        return
    observed.observation[row], observed.reward[row] = values, reward
    observed.terminated[row], observed.truncated[row], observed.success[row] = terminated, truncated, success


def _reported_success(info: Any) -> int:
    """Return 1 or 0 if the environment reports whether its goal is reached, and -1 if it does not report it."""
    if isinstance(info, dict):
        for key in ("is_success", "success"):
            value = info.get(key)  # something else, such as a text or one number for each agent, is no fault
            if isinstance(value, bool | int | float | np.generic | np.ndarray) and np.size(value) == 1:
                return int(bool(value))
    return -1
