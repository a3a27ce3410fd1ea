"""Files that are there whole or not at all, even if the machine stops, and files that are read only where they belong.

A file is written under another name, forced to disk, renamed, and the folder that names it forced to disk as well: a
rename alone is known to the machine, not to its disk.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pcmlp.types import ConfigError, RunStopped

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_durably(path: Path, data: bytes) -> None:
    """All of it or nothing."""
    fresh = path.with_name(path.name + ".new")
    write_and_sync(fresh, data)
    os.replace(fresh, path)
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    write_durably(path, text.encode())


def write_and_sync(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def room_for(what: str, folder: Path, needed: int) -> Iterator[None]:
    """A full disk under what is written here ends the run with a line that says how much room it needs."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(folder).free
        limit = " (or more than a file may have)" if error.errno == errno.EFBIG else ""
        raise RunStopped(
            f"{folder}: no space for {what}{limit}: {_shown(needed)} needed, {_shown(free)} free; "
            "nothing that was there is lost: make room and go on with --resume"
        ) from error


def check_own(file: Path, inside: Path) -> None:
    """That a file of the folder `inside` really lies there: a link could lead anywhere."""
    if file.resolve() != inside.resolve() / file.relative_to(inside):
        raise ConfigError(f"{file}: is a link, or lies behind one, out of {inside}; put the file itself there")


def _shown(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
