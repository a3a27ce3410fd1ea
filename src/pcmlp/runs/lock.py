"""One process per run folder: the file `lock` is locked as long as its process lives, and names it.

The operating system releases the lock of a process that died, however it died, so a stale lock blocks nobody. A file
server can be wrong in both directions: it may keep a lock for a machine that died long ago (`once_free`), and may give
away one whose process is alive, or have no locks at all. So the lock is signed, and its holder checks the signature
before every write.
"""

import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

from pcmlp.settings import ConfigError
from pcmlp.types import RunStopped

NAME = "lock"
_RETRY_S = 5.0  # seconds between two tries

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None


class InUse(ConfigError):
    """A run whose lock another process holds."""


class Lock:
    """A lock that is taken and signed when it is made; a context manager. If two processes get it, the later one holds
    it."""

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
        """Raise if another process took this one for dead and went on in its place."""
        try:
            mine = (self._run / NAME).read_bytes() == self._signature  # opened anew, so that a file server is asked
        except OSError:
            mine = False
        if not mine:
            raise RunStopped(f"{self._run}: another process went on with it; this one has stopped")

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def once_free(run: Path, do: Callable[[], object], seconds: float, dead: Callable[[], Collection[str]]) -> None:
    """Call `do`, which needs the run's lock, again and again while the lock is in use; after `seconds` a dead machine
    loses it. Which machines are dead is asked only then, because finding out may take time."""
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
    except OSError:  # a file system without locks: nothing is locked there
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
    """Return what the holder wrote about itself; nothing if it has not written yet."""
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
