"""Signals are answered at once, by a real process in a pseudo-terminal, also while its main thread is in compiled code.

`python -m pytest -m slow tests/test_signals.py -s` prints the table of docs/resuming.md.
"""

import contextlib
import ctypes
import os
import pty
import queue
import random
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import pytest
from same_run import assert_same_run
from waiting import wait_until

from pcmlp import signals
from pcmlp.agent import DeepPCMLP
from pcmlp.algorithms.deep import Deep
from pcmlp.runs.summary import read_summary

ANSWER_S, END_S = 1.0, 2.0  # what docs/resuming.md promises
CTTY = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
TRAIN = ("-m", "pcmlp.cli", "train")
LOCK = ("combination-lock", "--seeds", "0", "--steps", "30000", "--set", "task.horizon=3", "task.actions=2")
CAR = ("mountain-car", "--seeds", "0", "--steps", "800", "--set", "eval_episodes=4", "rounds=2")
PETS = ("pendulum", "--algo", "pets", "--seeds", "0")  # one compiled call takes minutes


class Terminal:
    """A Python program in a terminal of its own."""

    def __init__(self, *words, cwd=None, env=None):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CTTY, sys.executable, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            cwd=cwd,
            env={**os.environ, "COLUMNS": "200", **(env or {})},
        )
        os.close(theirs)
        self.said = ""

    def wait_for(self, pattern, seconds):
        """Return the seconds until the pattern is said after this call, or None."""
        begun, heard = time.monotonic(), len(self.said)
        while (left := begun + seconds - time.monotonic()) > 0:
            if select.select([self.ours], [], [], left)[0]:
                try:
                    self.said += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:  # it has ended
                    left = 0.0
            if re.search(pattern, self.said[heard:]):
                return time.monotonic() - begun
            if left == 0.0:
                return None
        return None

    def press_ctrl_c(self):
        os.write(self.ours, b"\x03")

    def end(self, seconds):
        """Return the seconds until the process has ended."""
        begun = time.monotonic()
        self.wait_for("(?!)", seconds)
        self.process.wait(max(0.0, begun + seconds - time.monotonic()))
        return time.monotonic() - begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.ours)


# A mutex that is locked twice never returns to Python, and a signal does not wake it up.
STUCK = """if True:
    import ctypes, multiprocessing, sys, time
    from pathlib import Path
    from pcmlp import signals
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()
    mutex, libc = ctypes.create_string_buffer(128), ctypes.CDLL(None)
    def get_stuck():
        for _ in range(2):
            libc.pthread_mutex_lock(mutex)
    with signals.handled(ends_process=True, at_once=False):
        with signals.stop_when_asked(print, lambda: Path("rescued").touch()):
            try:
                print("child", child.pid, flush=True)
                get_stuck()
            except KeyboardInterrupt:  # on a busy machine both signals may come before the lock
                get_stuck()
"""


@pytest.mark.fault("two signals during compiled code", "answered in 1 s, ended in 2 s with the worker processes")
def test_a_stuck_process_answers_and_ends(tmp_path):
    with Terminal("-c", STUCK, cwd=tmp_path) as terminal:
        assert terminal.wait_for(r"child \d+", 30)
        child = int(re.search(r"child (\d+)", terminal.said)[1])
        terminal.press_ctrl_c()
        assert terminal.wait_for("Ctrl-C: stopping after this iteration; repeat to stop at once", ANSWER_S)
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.end(END_S) < END_S
    assert terminal.process.returncode == 130
    assert "SIGTERM: stopping" in terminal.said
    assert (tmp_path / "rescued").exists()
    wait_until(lambda: not is_alive(child), 5.0)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"


def send(*numbers):
    """Send signals to this process that it gets all at once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        for number in numbers:
            os.kill(os.getpid(), number)  # another thread may get it at once
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    pytest.fail("went on")


def test_two_signals_at_once_are_two():
    with pytest.raises(KeyboardInterrupt), signals.stop_when_asked(print):
        send(signal.SIGTERM, signal.SIGINT)


def test_a_signal_interrupts_only_once_and_everything_is_restored():
    """What the program does about the first interrupt, such as a summary, is not interrupted by a third signal."""
    before = signal.getsignal(signal.SIGTERM)
    with signals.handled(ends_process=False):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("signals")], 5.0)


def test_other_signals_are_not_counted():
    """A program that trains may use signals of its own, such as a timer's."""
    heard, before = [], signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))
    try:
        with signals.stop_when_asked(print) as asked:
            signal.raise_signal(signal.SIGUSR2)
            signal.raise_signal(signal.SIGUSR1)  # would interrupt as the second one
            assert asked()
        assert heard == [1]
    finally:
        signal.signal(signal.SIGUSR2, before)


class SlowQueue(queue.SimpleQueue):
    """A queue whose reader is late."""

    def get(self):
        time.sleep(0.05)
        return super().get()


def test_the_last_line_is_printed_before_the_process_ends(monkeypatch):
    said = []

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(queue, "SimpleQueue", SlowQueue)
    monkeypatch.setattr(os, "_exit", leave)
    with signals.stop_when_asked(said.append):
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(SystemExit):
            signals.end_process()
    assert said == ["SIGUSR1: stopping after this iteration; repeat to stop at once"]


def test_one_signal_ends_a_command_with_many_runs():
    with signals.handled(ends_process=False):
        with pytest.raises(KeyboardInterrupt), signals.stop_when_asked(print):
            signal.raise_signal(signal.SIGUSR1)
        assert signals.is_ending()


@pytest.fixture
def default_ctrl_c():
    """Python's own handler; a shell ignores Ctrl-C in background jobs."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def test_ctrl_c_in_python_leaves_the_last_whole_iteration(tiny_trpo, default_ctrl_c, monkeypatch):
    agent = DeepPCMLP("mountain-car", horizon=20, settings=tiny_trpo)
    before = agent.learner

    def interrupted(*_):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("went on")

    monkeypatch.setattr(Deep, "iterate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(100)
    assert agent.learner is before
    assert agent.iteration == 0


def test_ctrl_c_in_python_is_answered_during_a_compiled_call(default_ctrl_c, monkeypatch):
    libc, mutex, said = ctypes.CDLL(None), ctypes.create_string_buffer(128), []

    def answer(line):  # ends the compiled call, which is stuck
        said.append(line)
        libc.pthread_mutex_unlock(mutex)

    monkeypatch.setattr(signals, "print_to_stderr", answer)

    def call():
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        for _ in range(2):
            libc.pthread_mutex_lock(mutex)

    give_up = threading.Timer(20.0, answer, ("no answer",))
    give_up.start()
    with pytest.raises(KeyboardInterrupt), signals.answer_ctrl_c():
        call()
    give_up.cancel()
    assert said == ["Ctrl-C: stopping"]


def test_python_keeps_a_handler_of_its_own(default_ctrl_c):
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with signals.answer_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert heard == [1]


def test_other_signals_reach_those_who_wait_for_them(default_ctrl_c):
    """An event loop of asyncio learns about signals from its own socket."""
    read, write = socket.socketpair()
    write.setblocking(False)
    read.settimeout(5.0)
    handler, fd = signal.signal(signal.SIGUSR2, lambda *_: None), signal.set_wakeup_fd(write.fileno())
    try:
        with signals.answer_ctrl_c():
            signal.raise_signal(signal.SIGUSR2)
            assert read.recv(8) == bytes([signal.SIGUSR2])
        assert signal.set_wakeup_fd(fd) == write.fileno()
    finally:
        signal.set_wakeup_fd(fd)
        signal.signal(signal.SIGUSR2, handler)
        read.close()
        write.close()


@pytest.mark.fault("Ctrl-C twice in a terminal", "answered in 1 s, ended in 2 s with exit code 130, resumable")
def test_a_run_in_a_terminal(tmp_path):
    with Terminal(*TRAIN, *LOCK, "--out", "run", cwd=tmp_path) as terminal:
        assert terminal.wait_for(r"env steps [1-9]", 100)
        terminal.press_ctrl_c()
        assert terminal.wait_for("Ctrl-C: stopping after this iteration", ANSWER_S)
        terminal.press_ctrl_c()
        assert terminal.end(END_S) < END_S
    assert terminal.process.returncode == 130
    assert read_summary(tmp_path / "run")["status"] == "interrupted"


class Trials:
    """Runs, each ended by two signals at a random moment and taken up by the next."""

    def __init__(self, folder):
        self.folder, self.rows = folder, []
        self.random = random.Random(0)

    def try_once(self, words, moment, cache):
        """Signal twice; note the phase and the seconds until the answer and until the end."""
        numbers = self.random.choices([signal.SIGINT, signal.SIGTERM, signal.SIGUSR1], k=2)
        command = (*TRAIN, *words, "--out", words[0], "--resume")
        with Terminal(*command, cwd=self.folder, env={"PCMLP_CACHE": cache}) as terminal:
            terminal.wait_for("(?!)", moment)
            phase = "start, imports"
            if f"env steps, into {words[0]}" in terminal.said:
                later = re.search(r"env steps [1-9]|continuing", terminal.said)
                phase = "pets on pendulum" if words == PETS else "iterations" if later else "compiling, iteration 1"
            if terminal.process.poll() is not None:
                return
            os.kill(terminal.process.pid, numbers[0])
            answered = terminal.wait_for("stopping", 60)
            begun = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(terminal.process.pid, numbers[1])
            terminal.end(60)
            ended = time.monotonic() - begun
        assert terminal.process.returncode in (75, 130), terminal.said
        self.rows.append((phase, answered, ended))

    def table(self):
        """Return the table of docs/resuming.md."""
        lines = ["| when | signals | answered: median, slowest | ended: median, slowest |", "|---|---|---|---|"]
        for phase in dict.fromkeys(row[0] for row in self.rows):
            answered, ended = zip(*(row[1:] for row in self.rows if row[0] == phase), strict=True)
            cells = [f"{statistics.median(x):.2f} s, {max(x):.2f} s" for x in (answered, ended)]
            lines.append(f"| {phase} | {len(answered)} | {' | '.join(cells)} |")
        return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.fault("two signals at a random moment", "answered in 1 s, ended in 2 s; `--resume` continues, bit for bit")
def test_signals_at_random_moments(tmp_path):
    trials = Trials(tmp_path)
    for number in range(16):
        moment = trials.random.uniform(0.1, 3.0 if number % 4 == 0 else 25.0)
        trials.try_once(CAR, moment, str(tmp_path / "cache") if number % 4 == 1 else "off")
    for _ in range(4):
        trials.try_once(PETS, trials.random.uniform(10.0, 40.0), "off")
    print(f"\n{trials.table()}")
    for out in (CAR[0], "whole"):
        with Terminal(*TRAIN, *CAR, "--out", out, "--resume", cwd=tmp_path) as terminal:
            terminal.end(600)
            assert terminal.process.returncode == 0, terminal.said
    assert_same_run(tmp_path / "whole", tmp_path / CAR[0])
    assert max(row[1] for row in trials.rows) < ANSWER_S
    assert max(row[2] for row in trials.rows) < END_S
