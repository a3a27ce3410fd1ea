"""One process for a run folder: `lock` in it is locked for as long as its process lives.

The operating system drops the lock of a process that died, however it died, so a lock that is left behind holds nobody
up. What the file says is for whoever is refused.
"""

import json
import os
import platform
import time
from pathlib import Path
from typing import IO

from pcmlp.types import ConfigError

NAME = "lock"

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None


class Lock:
    """A context manager; taken when it is made, and signed once its run begins to write."""

    def __init__(self, run: Path):
        self._file: IO[str] = (run / NAME).open("a+")
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(self._file)
            self._file.close()
            raise ConfigError(f"{run}: in use by {holder}; wait for it or stop it, or give another --out") from error

    def sign(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        json.dump({"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T %Z")}, self._file)
        self._file.flush()

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        told = json.loads(file.read())
        return f"process {told['process']} on {told['host']} since {told['since']}"
    except (ValueError, KeyError, TypeError):  # it is being written
        return "another process"
