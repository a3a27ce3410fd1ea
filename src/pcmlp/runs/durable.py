"""Files of a run: read with care, and written completely or not at all.

A run folder may come from anywhere. So a file is read only if it is a regular file of a plausible size, and never
through a link, which could lead anywhere. JSON is read strictly: no key twice, no NaN, no nesting without end.
Everything that is wrong with a file raises `Damaged`.

A file is written under another name, synced to disk and renamed, and then its folder is synced: otherwise the rename
may not be on disk yet. A sealed file contains the hash of its own contents.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import stat
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import typeguard

from pcmlp.errors import RunStopped

FRESH = ".new"  # the end of a file's name until it is complete
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LARGEST = 2**28  # bytes of a file, unless more are allowed
_DEEPEST = 20  # levels of nested JSON
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its other end
_SEAL = "sha256"

Kind = TypeVar("Kind")


class Damaged(ValueError):
    """A file that is truncated, edited, a link, or of another kind; the message says which."""


def open_regular(path: Path, mode: str = "rb", flags: int = os.O_RDONLY, buffering: int = -1) -> BinaryIO:
    """Open a regular file; raise `Damaged` for a link, a folder, a pipe or a device."""
    try:
        handle = os.open(path, flags | _NO_LINK | _NO_WAIT, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            kind = "a link" if error.errno == errno.ELOOP else "not a file"
            raise Damaged(f"{kind}; put the file itself there") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Damaged("not a file; put the file itself there")
    return cast(BinaryIO, os.fdopen(handle, mode, buffering))


def read_bytes(path: Path, most: int = _LARGEST) -> bytes:
    """Return the contents of a regular file of at most `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise Damaged(f"too large: {show_size(size)}, at most {show_size(most)} are allowed")
        return file.read()


def read_text(path: Path) -> str:
    """Return the contents of a text file."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise Damaged("not text in UTF-8") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    return parse_json(read_text(path))


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object that a text holds."""
    try:
        record = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite, parse_int=_whole
        )
    except RecursionError as error:
        raise Damaged("nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Damaged(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise Damaged("not a JSON object")
    _check_depth(record, _DEEPEST)
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise Damaged(f"the key {key[:40]!r} occurs twice")
        record[key] = value
    return record


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise Damaged(f"{text} is not a finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > len(str(-(2**63))) or not -(2**63) <= int(text) < 2**63:
        raise Damaged(f"{text[:30]} is too large a number")
    return int(text)


def _check_depth(value: Any, left: int) -> None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inner and not left:
        raise Damaged("nested too deeply")
    for each in inner:
        _check_depth(each, left - 1)


def check_type(value: Any, kind: type[Kind] | Any, what: str) -> Kind:
    """Return a value from a file, of a type such as `list[int]` or a TypedDict; raise `Damaged` if it is of another."""
    strategy = typeguard.CollectionCheckStrategy.ALL_ITEMS
    try:
        return typeguard.check_type(value, kind, collection_check_strategy=strategy)
    except typeguard.TypeCheckError as error:
        raise Damaged(f"{what}: {' '.join(str(error).split())}") from error


def from_record(kind: type[Kind], record: dict[str, Any]) -> Kind:
    """Return the dataclass that a record describes; raise `Damaged` if an entry is missing, unknown or of a wrong
    type."""
    hints = typing.get_type_hints(kind)
    if record.keys() != hints.keys():
        raise Damaged("edited")
    return kind(**{name: check_type(value, hints[name], name) for name, value in record.items()})


def write_durably(path: Path, data: bytes) -> None:
    """Write all of the data or nothing, and never through a link: a link at `path` is replaced by the file."""
    fresh = path.with_name(path.name + FRESH)
    fresh.unlink(missing_ok=True)
    with open_regular(fresh, "wb", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write all of the text or nothing."""
    write_durably(path, text.encode())


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, all or nothing; null stands for a number that is not finite."""
    write_text(path, json.dumps(_without_nan(record), indent=2, allow_nan=False) + "\n")


def write_sealed(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON with the hash of its contents."""
    record = _without_nan(record)
    write_json(path, {**record, _SEAL: hash_record(record)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a record that `write_sealed` wrote; raise `Damaged` if it has changed."""
    record = read_json(path)
    if record.pop(_SEAL, None) != hash_record(record):
        raise Damaged("edited")
    return record


def hash_record(record: dict[str, Any]) -> str:
    """Return the hash of a record of JSON values."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
            f"{folder}: no space for {what}{limit}: {show_size(needed)} needed, {show_size(free)} free; "
            "nothing that was saved is lost: free some space and continue with resume=True"
        ) from error


def show_size(size: int | float) -> str:
    """Return a number of bytes as text, such as 1.5 MB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} bytes"
