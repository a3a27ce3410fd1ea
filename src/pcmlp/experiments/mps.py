"""NVIDIA's Multi-Process Service (MPS): with it, kernels of several processes run on a GPU at the same time; without
it, processes take turns.

The daemon of a command is private: its folder is new and can be entered by the user only. Another process hosts the
daemon (`python -m pcmlp.experiments.mps`) and holds a pipe from the command. However the command ends, the pipe closes;
then the host ends the daemon and removes the folder. If the host was killed too, the next command cleans up after it.
A daemon that somebody else has started is used if it answers, and it is never stopped.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pcmlp.errors import RunStopped
from pcmlp.signals import SIGNALS

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_DEFAULT_PIPES = "/tmp/nvidia-mps"
_ROOM = "/tmp"  # a short path, because the path of a socket has at most 107 characters
_NAME = "pcmlp-mps"
_READY = "ready "
# Time limits in seconds:
_ANSWER_S = 5.0  # for a daemon to answer
_START_S = 20.0  # for a daemon to start
_QUIT_S = 5  # for the processes of a daemon to end
_POLL_S = 0.2


def why_missing() -> str:
    """Return why there can be no daemon on this machine; empty if there can be one."""
    return "" if shutil.which(CONTROL) else f"{CONTROL}, a part of NVIDIA's driver, is not on PATH"


def find_other() -> str | None:
    """Return the pipe directory of a daemon that somebody else has started and that answers; None if there is none."""
    pipes = os.environ.get(PIPES) or _DEFAULT_PIPES
    return pipes if not why_missing() and Path(pipes).is_dir() and answers(pipes) else None


def answers(pipes: str) -> bool:
    """Return whether a daemon answers at a pipe directory."""
    return _order(pipes, "get_server_list")


def _order(pipes: str, order: str, seconds: float = _ANSWER_S) -> bool:
    """Give an order to a daemon; return whether it was taken."""
    env = {**os.environ, PIPES: pipes}
    try:
        done = subprocess.run([CONTROL], input=f"{order}\n", env=env, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Daemon(contextlib.AbstractContextManager):
    """A private daemon, for as long as this context lasts."""

    def __init__(self) -> None:
        self._host: subprocess.Popen[str] | None = None
        self._folder = ""

    def environment(self) -> dict[str, str]:
        """Return the variables for a process that uses the daemon; start another daemon if it has died. A daemon that
        has outlived its host still serves the processes that use it."""
        is_hosted = self._host is not None and self._host.poll() is None and Path(self._folder).is_dir()
        if not (is_hosted or (self._folder and answers(f"{self._folder}/pipes"))):
            self._start()
        return {PIPES: f"{self._folder}/pipes", LOGS: f"{self._folder}/logs"}

    def _start(self) -> None:
        self._end()
        remove_stale()
        self._host = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,  # closed when this process ends, in any way; this ends the daemon
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process
        )
        assert self._host.stdout is not None
        line = self._host.stdout.readline().strip()
        if not line.startswith(_READY):
            raise RunStopped(f"the MPS daemon does not start ({line or 'its host died'}); give --jobs 1")
        self._folder = line.removeprefix(_READY)

    def _end(self) -> None:
        if self._host is not None:
            self._host.communicate()  # closes the pipe, and waits

    def __exit__(self, *_: object) -> None:
        self._end()


def remove_stale() -> None:
    """End the daemons of hosts that were killed, and remove their folders."""
    for folder in Path(_ROOM).glob(f"{_NAME}-*-*"):
        with contextlib.suppress(OSError, ValueError):
            is_mine = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            if is_mine and not _is_alive(int(folder.name.split("-")[2])):
                _order(f"{folder}/pipes", f"quit -t {_QUIT_S}", 3.0 * _QUIT_S)
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def host() -> None:
    """Run a daemon until stdin is closed; print one line, when the daemon answers or why it does not."""
    folder = tempfile.mkdtemp(prefix=f"{_NAME}-{os.getpid()}-", dir=_ROOM)  # only this user may enter it
    pipes, logs = f"{folder}/pipes", f"{folder}/logs"
    os.mkdir(pipes)
    os.mkdir(logs)
    # The daemon sees all GPUs: a process chooses among those that the daemon sees.
    hidden = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    env = {**hidden, PIPES: pipes, LOGS: logs}
    for number in SIGNALS:  # if they are sent to all processes, the command answers them, and ends this host
        signal.signal(number, lambda *_: None)
    try:
        with open(f"{logs}/host.log", "w") as said:
            daemon = subprocess.Popen([CONTROL, "-f"], env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{CONTROL}: {error.strerror}", flush=True)
        return
    try:
        end = time.monotonic() + _START_S
        while daemon.poll() is None and time.monotonic() < end and not answers(pipes):
            time.sleep(_POLL_S)
        if daemon.poll() is not None or time.monotonic() >= end:
            lines = Path(f"{logs}/host.log").read_text(errors="replace").strip().splitlines()
            print(lines[-1][:200] if lines else f"it does not answer in {_START_S:.0f} s", flush=True)
            return
        print(f"{_READY}{folder}", flush=True)
        closed = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
        while daemon.poll() is None and not closed.wait(_POLL_S):
            pass
    finally:
        _end(daemon, pipes)
        shutil.rmtree(folder, ignore_errors=True)


def _end(daemon: "subprocess.Popen[bytes]", pipes: str) -> None:
    """End a daemon and the server that it has started, politely and then by force."""
    if daemon.poll() is None:
        _order(pipes, f"quit -t {_QUIT_S}", 3.0 * _QUIT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(_QUIT_S)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of this group too
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGTERM)  # the server may have survived its daemon
    if daemon.poll() is None:
        daemon.kill()


if __name__ == "__main__":
    host()
