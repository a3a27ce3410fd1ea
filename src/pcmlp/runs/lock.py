"""One process for a run folder: `lock` in it is locked for as long as its process lives, and says whose it is.

The operating system drops the lock of a process that died, however it died, so a lock that is left behind holds nobody
up. A file server can be wrong in both directions: it may hold a lock for a machine that died long ago (`once_free`),
and may give away one whose process is alive, or have none to give. So the lock is signed, and whoever has it looks at
the signature before it writes.
"""

import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

from pcmlp.types import ConfigError, RunStopped

NAME = "lock"
_LOOK_S = 5.0  # between two tries

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None


class InUse(ConfigError):
    """Another process has the run's lock."""


class Lock:
    """A context manager; taken and signed when it is made. Of two that were given it, the later one has it."""

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
        """That nobody took this process for dead and went on in its place."""
        try:
            mine = (self._run / NAME).read_bytes() == self._signature  # opened anew, as a file server is then asked
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


def once_free(run: Path, do: Callable[[], object], seconds: float, dead: Callable[[], Collection[str]]) -> None:
    """Does what needs the run's lock, and again while it is in use; after some seconds a dead machine loses it.

    Which machines are dead is asked only then, as whoever knows may have to find out first."""
    end = time.monotonic() + seconds
    while True:
        try:
            do()
            return
        except InUse:
            if time.monotonic() < end:
                time.sleep(_LOOK_S)
            elif _told(run).get("host") in dead():
                (run / NAME).unlink(missing_ok=True)
            else:
                raise


def _take(file: IO[bytes], run: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise InUse(f"{run}: in use by {_holder(run)}; wait for it or stop it, or give another --out") from error
    except OSError:  # a file system without locks: nothing is locked there
        pass


def _sign(file: IO[bytes]) -> bytes:
    """Written over what is there, in one piece and at once: the file is never empty, and no cache keeps it."""
    told = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T %Z")}
    signature = json.dumps({**told, "signature": uuid.uuid4().hex}).encode()
    file.seek(0)
    file.write(signature)
    file.truncate()
    os.fsync(file.fileno())
    return signature


def _told(run: Path) -> dict[str, Any]:
    """What the holder says of itself; nothing where it is just about to."""
    try:
        told = json.loads((run / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _holder(run: Path) -> str:
    told = _told(run)
    if not {"process", "host", "since"} <= told.keys():
        return "another process"
    return f"process {told['process']} on {told['host']} since {told['since']}"
