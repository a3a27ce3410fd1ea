"""Copies of an environment, in this process or in processes of their own, and what they answer.

`Copies` are those of one process; `Workers` are processes that hold `Copies`. Both take orders, each for one lane's
copy, and neither raises for what an environment does: an answer says what went wrong. A worker that does not answer in
time, or that is no more, is ended with all copies in it, and started again when the next one of them is made.

Workers are spawned, because a fork of JAX's threads deadlocks, and this module imports none of it, so that they start
quickly.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

Order = tuple[str, int, Any]  # ("make", lane, None), ("reset", lane, seed) or ("step", lane, action)

RAISED, MALFORMED, SHARED = "raised", "malformed", "shared"
HUNG, DIED = "hung", "died"
LOST = "lost"  # no fault of its own: its process was ended for another copy's

_START = 60.0  # seconds, at least, for a process to start and an environment to be made: what they import takes time
_END = 2.0  # seconds for a process to end before it is killed


class Answer(NamedTuple):
    observation: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    fault: str = ""  # its kind; empty where there is none
    said: str = ""  # what went wrong, in words


class Rows(NamedTuple):
    """The answers of several copies as arrays, [n, ...]; what those say that have a fault does not count."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    faults: dict[int, Answer]  # by row

    @staticmethod
    def of(observation: np.ndarray, faults: dict[int, Answer]) -> "Rows":
        """Of steps that pay nothing and end nothing."""
        count = len(observation)
        return Rows(observation, np.zeros(count), np.zeros(count, bool), np.zeros(count, bool), faults)


class Copies:
    """The environments of some lanes, one after another."""

    def __init__(self, make: Callable[[], Any], first: Any = None, *, keep: bool = False):
        """`first` is lane 0's, where there is one already; `keep` leaves it open when it is not needed any more."""
        self._make = make
        self._held: dict[int, Any] = {} if first is None else {0: first}
        self._kept = first if keep else None
        self.whole = set(self._held)  # lanes that can be stepped
        self._flock: Any = None  # what steps them together

    def forget(self, lane: int) -> None:
        """It is not to be stepped again before it is made anew."""
        self.whole.discard(lane)

    def ask(self, orders: Sequence[Order]) -> list[Answer]:
        return [self.answer(*order) for order in orders]

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> list[Answer] | Rows:
        """An environment with a method `together` has something that steps several of its kind at once: a function of
        environments and actions that gives the rows."""
        environments = [self._held[lane] for lane in lanes]
        if self._flock is None and len(lanes) > 1 and hasattr(environments[0], "together"):
            self._flock = environments[0].together()
        if self._flock is None:
            return self.ask([("step", *order) for order in zip(lanes, actions, strict=True)])
        return self._flock(environments, actions)  # which answers for each of them, as `answer` does

    def answer(self, what: str, lane: int, argument: Any) -> Answer:
        try:
            if what == "make":
                return self._renew(lane)
            env = self._held[lane]
            returned = env.reset(seed=argument) if what == "reset" else env.step(argument)
        except Exception as error:  # whatever the environment raises
            return Answer(fault=RAISED, said=f"{what} raised {_words(error)}")
        try:
            return _read(what, returned)
        except Exception as error:
            return Answer(fault=MALFORMED, said=f"{what} returned something that cannot be read ({_words(error)})")

    def _renew(self, lane: int) -> Answer:
        self._discard(lane)  # before another one wants its window, port or licence
        copy = self._make()
        if any(copy is other for other in self._held.values()):
            return Answer(fault=SHARED, said="made twice by its function")
        self._held[lane] = copy
        self.whole.add(lane)
        return Answer()

    def _discard(self, lane: int) -> None:
        self.whole.discard(lane)
        old = self._held.pop(lane, None)
        if old is not None and old is not self._kept:
            with contextlib.suppress(Exception):  # what is broken may not close either
                old.close()

    def close(self) -> None:
        for lane in list(self._held):
            self._discard(lane)
        if self._flock is not None:
            self._flock.close()
            self._flock = None


class Workers:
    """Processes with the lanes dealt out among them. What waits for one waits for a limited time."""

    def __init__(self, factory: bytes, count: int, timeout: float):
        """`factory` is the pickled function that makes an environment."""
        self._factory = factory
        self.count = count
        self._timeout = timeout
        self.whole: set[int] = set()  # lanes that can be stepped
        self._running: dict[int, tuple[Any, Connection]] = {}
        self._ended = weakref.finalize(self, _end_all, self._running)  # also when the interpreter ends

    def forget(self, lane: int) -> None:
        self.whole.discard(lane)

    def ask(self, orders: Sequence[Order]) -> list[Answer]:
        """All processes work at the same time. Each answers order by order, so that the one it failed at is known."""
        shares: dict[int, list[Order]] = {}
        for order in orders:
            shares.setdefault(order[1] % self.count, []).append(order)
        answers: dict[int, Answer] = {}
        try:
            for worker, share in shares.items():
                self._send(worker, share)
            for worker, share in shares.items():
                for what, lane, _ in share:
                    answers[lane] = self._receive(worker, what)
                    if what == "make" and not answers[lane].fault:
                        self.whole.add(lane)
        except BaseException:  # an interrupt: an answer left in a pipe would be taken for the next one
            self.close()
            raise
        return [answers[lane] for _, lane, _ in orders]

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> list[Answer]:
        return self.ask([("step", *order) for order in zip(lanes, actions, strict=True)])

    def _send(self, worker: int, share: list[Order]) -> None:
        if worker not in self._running:
            self._running[worker] = _start(worker, self._factory)
        with contextlib.suppress(OSError):  # it is dead: to receive will tell
            self._running[worker][1].send(share)

    def _receive(self, worker: int, what: str) -> Answer:
        if worker not in self._running:
            return Answer(fault=LOST, said="its process was ended")
        process, pipe = self._running[worker]
        patience = max(self._timeout, _START) if what == "make" else self._timeout
        try:
            if pipe.poll(patience):
                return pipe.recv()
            failed = Answer(fault=HUNG, said=f"{what} took more than {patience:g} s")
        except (EOFError, OSError):
            process.join(_END)
            failed = Answer(fault=DIED, said=f"its process died in {what} ({_exit(process.exitcode)})")
        self._end(worker)
        return failed

    def _end(self, worker: int) -> None:
        self.whole = {lane for lane in self.whole if lane % self.count != worker}
        _end(*self._running.pop(worker))

    def close(self) -> None:
        for worker in list(self._running):
            self._end(worker)


def serve(pipe: Connection, factory: bytes) -> None:
    """What a worker does: answer orders until nobody is there to give any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which may want to end an iteration first
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        make = pickle.loads(factory)
    except Exception as error:  # said when it is asked to make one
        make = partial(_refuse, f"cannot be imported there: {_words(error)}")
    copies = Copies(make)
    with contextlib.suppress(EOFError, OSError):
        while True:
            for order in pipe.recv():
                pipe.send(copies.answer(*order))


def _end_with_parent() -> None:
    """An environment that hangs would outlive a run that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _refuse(why: str) -> Any:
    raise RuntimeError(why)


def _start(worker: int, factory: bytes) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, factory), name=f"environments-{worker}", daemon=True)
    try:
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()  # else a worker's death would not end its pipe
    return process, ours


def _end(process: Any, pipe: Connection) -> None:
    pipe.close()
    process.terminate()
    process.join(_END)
    if process.is_alive():  # it does not listen
        process.kill()
        process.join()
    process.close()


def _end_all(running: dict[int, tuple[Any, Connection]]) -> None:
    while running:
        _end(*running.popitem()[1])


def _read(what: str, returned: Any) -> Answer:
    if what == "reset":
        (observation, _), reward, terminated, truncated = returned, 0.0, False, False
    else:
        observation, reward, terminated, truncated, _ = returned
    values = np.asarray(observation)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"an observation of {type(observation).__name__} is not an array of numbers")
    return Answer(values, float(reward), bool(terminated), bool(truncated))


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"exit code {code}"


__all__ = [
    "DIED",
    "HUNG",
    "LOST",
    "MALFORMED",
    "RAISED",
    "SHARED",
    "Answer",
    "Copies",
    "Order",
    "Rows",
    "Workers",
    "serve",
]
