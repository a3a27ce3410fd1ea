"""Files that are written completely or not at all, even if the machine stops, and a check against links to other files.

A file is written under another name, synced to disk and renamed, and then its folder is synced: otherwise the rename
may not be on disk yet.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError, RunStopped

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_durably(path: Path, data: bytes) -> None:
    """Write all of the data or nothing."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write all of the text or nothing."""
    write_durably(path, text.encode())


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, all or nothing."""
    write_text(path, json.dumps(record, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise a `ValueError` if the file does not hold one."""
    record = json.loads(path.read_text())
    if not isinstance(record, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return record


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def room_for(what: str, folder: Path, needed: int) -> Iterator[None]:
    """Turn a full disk into `RunStopped`, with a message that says how much space is needed."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(folder).free
        limit = " (or the file would exceed the size limit)" if error.errno == errno.EFBIG else ""
        raise RunStopped(
            f"{folder}: no space for {what}{limit}: {_megabytes(needed)} needed, {_megabytes(free)} free; "
            "nothing that was saved is lost: free some space and continue with --resume"
        ) from error


def check_own(file: Path, inside: Path) -> None:
    """Raise unless a file is really inside the folder `inside`: a link could lead anywhere."""
    if file.resolve() != inside.resolve() / file.relative_to(inside):
        raise ConfigError(f"{file}: is a link, or behind one, to a place outside {inside}; put the file itself there")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
