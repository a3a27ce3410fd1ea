"""A lock that allows one process per run folder: the process locks the file `lock` while it lives, and signs it.

The operating system releases the lock of a process that died, however it died, so a stale lock blocks no other process.
A file server can be wrong in both directions: it may keep the lock of a machine that died long ago (`once_free`), and
it may release a lock whose process is alive, or not support locks at all. So the lock is signed, and its holder checks
the signature before every write.
"""

import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

from pcmlp.errors import ConfigError, RunStopped

NAME = "lock"
_RETRY_S = 5.0  # seconds between two attempts

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so nothing is locked
    fcntl = None


class InUse(ConfigError):
    """A run whose lock another process holds."""


class Lock:
    """A lock that is taken and signed when it is made; a context manager. If two processes get it, it belongs to the
    later one."""

    def __init__(self, run: Path):
        self._run = run
        self._file = os.fdopen(os.open(run / NAME, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            _take(self._file, run)
            self._signature = _sign(self._file)
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Raise if another process has taken over the run."""
        try:
            mine = (self._run / NAME).read_bytes() == self._signature  # reopened, so that a file server is asked again
        except OSError:
            mine = False
        if not mine:
            raise RunStopped(f"{self._run}: another process has taken over this run; this process has stopped")

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def once_free(run: Path, do: Callable[[], object], seconds: float, dead: Callable[[], Collection[str]]) -> None:
    """Call `do`, which needs the run's lock, and repeat while the lock is in use; after `seconds`, remove the lock of a
    dead machine. `dead` is called only then, because finding dead machines may take time."""
    end = time.monotonic() + seconds
    while True:
        try:
            do()
            return
        except InUse:
            if time.monotonic() < end:
                time.sleep(_RETRY_S)
            elif _holder(run).get("host") in dead():
                (run / NAME).unlink(missing_ok=True)
            else:
                raise


def _take(file: IO[bytes], run: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise InUse(
            f"{run}: in use by {_describe_holder(run)}; wait for it or stop it, or give another --out"
        ) from error
    except OSError:  # a file system without locks, so nothing is locked
        pass


def _sign(file: IO[bytes]) -> bytes:
    """Write a signature over the old one in a single write: the file is never empty, and no cache keeps it."""
    holder = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T %Z")}
    signature = json.dumps({**holder, "signature": uuid.uuid4().hex}).encode()
    file.seek(0)
    file.write(signature)
    file.truncate()
    os.fsync(file.fileno())
    return signature


def _holder(run: Path) -> dict[str, Any]:
    """Return the record that the holder wrote; empty if it has not written yet."""
    try:
        holder = json.loads((run / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe_holder(run: Path) -> str:
    holder = _holder(run)
    if not {"process", "host", "since"} <= holder.keys():
        return "another process"
    return f"process {holder['process']} on {holder['host']} since {holder['since']}"
