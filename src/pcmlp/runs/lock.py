"""One process for a run folder: `lock` in it is locked for as long as its process lives.

The operating system drops the lock of a process that died, however it died, so a lock that is left behind holds nobody
up. A file server that holds it for a machine that died may not hear of that for long: `wait_for` is for those who
know. What the file says is for whoever is refused.
"""

import json
import os
import platform
import time
from collections.abc import Collection
from pathlib import Path
from typing import IO

from pcmlp.types import ConfigError, RunStopped

NAME = "lock"
_LOOK_S = 0.5

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None


class Lock:
    """A context manager; taken when it is made, and signed once its run begins to write."""

    def __init__(self, run: Path):
        self._run = run
        self._file: IO[str] = (run / NAME).open("a+")
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = _holder(self._file)
            self._file.close()
            raise ConfigError(f"{run}: in use by {holder}; wait for it or stop it, or give another --out") from error
        except OSError:  # a file system without locks: nothing is locked there
            pass

    def sign(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        json.dump({"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T %Z")}, self._file)
        self._file.flush()

    def check(self) -> None:
        """That nobody took this process for dead and went on in its place."""
        try:
            with (self._run / NAME).open() as file:  # opened, as a file server is then asked
                mine = os.path.sameopenfile(file.fileno(), self._file.fileno())
        except OSError:
            mine = False
        if not mine:
            raise RunStopped(f"{self._run}: another process went on with it; this one has stopped")

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


def wait_for(run: Path, seconds: float, living: Collection[str]) -> None:
    """Until nobody has it, or some seconds; then it is taken from a holder whose machine is not among the living."""
    end = time.monotonic() + seconds
    while is_held(run) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    if is_held(run) and _host(run) not in living:
        (run / NAME).unlink()


def is_held(run: Path) -> bool:
    if not (run / NAME).exists():
        return False
    try:
        Lock(run).close()
    except ConfigError:
        return True
    return False


def _host(run: Path) -> str | None:
    try:
        return json.loads((run / NAME).read_text())["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        told = json.loads(file.read())
        return f"process {told['process']} on {told['host']} since {told['since']}"
    except (ValueError, KeyError, TypeError):  # it is being written
        return "another process"
