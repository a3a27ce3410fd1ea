"""The append-only log of every real step: `episodes/log` in the run folder.

    record = b"PCEP" | payload length, 8 bytes | CRC-32 of the payload, 4 bytes | payload      (little-endian)
    payload = a safetensors file: the arrays of `Transitions`, [seeds, rows, ...], the iteration and seeds as metadata

A run may be cut off in the middle of a record, so reading stops at the first record that cannot be read, and writing
starts over from there. A manifest has the size and hash of the log, which tell damage from a torn end.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import jax
import numpy as np

from pcmlp.replay import Transitions
from pcmlp.runs.arrays import pack, unpack
from pcmlp.runs.durable import Damaged, check_type, open_regular, room_for

_MAGIC = b"PCEP"
_PART = 2**24  # number of bytes that are read at a time
_HEADER = struct.Struct("<4sQI")
_FIELDS = tuple(field.name for field in fields(Transitions))


@dataclass(frozen=True)
class Record:
    """The steps of all seeds in one iteration."""

    iteration: int
    seeds: tuple[int, ...]
    rows: Transitions  # of NumPy arrays, [seeds, rows, ...]


class EpisodeLog:
    """The writer of a log; a context manager."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        path = log_path(folder)
        # No buffer: `close` must not repeat a failed write.
        self._file = open_regular(path, "ab", os.O_WRONLY | os.O_APPEND | os.O_CREAT, buffering=0)
        self.size, _ = measure(folder)  # bytes so far
        self._hash = _hash_of(path, self.size)
        self._file.truncate(self.size)
        self.seal = self.size, self._hash.hexdigest()  # in one assignment: another thread may read it

    def append(self, iteration: int, seeds: Sequence[int], rows: Transitions) -> None:
        """Append a record; `rows` have a leading axis of seeds."""
        arrays = {name: np.asarray(x, order="C") for name, x in zip(_FIELDS, jax.tree.leaves(rows), strict=True)}
        payload = pack(arrays, {"iteration": iteration, "seeds": list(seeds)})
        with room_for(f"the episodes of iteration {iteration}", self._folder, len(payload)):
            record = _HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload
            left = memoryview(record)
            while left:  # a nearly full disk may write only a part
                left = left[self._file.write(left) :]
        self._hash.update(record)
        self.size += len(record)
        self.seal = self.size, self._hash.hexdigest()

    def sync(self) -> None:
        """Force all records to disk, before a checkpoint refers to them."""
        with room_for("the episodes", self._folder, self.size):
            os.fsync(self._file.fileno())

    def __enter__(self) -> "EpisodeLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def is_unchanged(folder: Path, size: int, sha256: str) -> bool:
    """Return whether the log still begins with `size` bytes of this hash."""
    path = log_path(folder)
    try:
        return path.stat().st_size >= size and _hash_of(path, size).hexdigest() == sha256
    except (FileNotFoundError, Damaged):
        return False


def log_path(folder: Path) -> Path:
    """Return the file of the log."""
    return folder / "log"


def read(folder: Path, most: int | None = None) -> Iterator[Record]:
    """Yield the records in the first `most` bytes of a log, or in all of it, in the order they were written, up to the
    first one that cannot be read."""
    for record, end in _records(folder):
        if most is not None and end > most:
            return
        yield record


def measure(folder: Path) -> tuple[int, int | None]:
    """Return how many bytes of a log can be read, and the iteration of the last record in them."""
    end, last = 0, None
    for record, size in _records(folder):
        end, last = size, record.iteration
    return end, last


def cut(folder: Path, size: int) -> None:
    """Drop everything after the first `size` bytes of a log."""
    if log_path(folder).exists():
        with open_regular(log_path(folder), "r+b", os.O_RDWR) as file:
            file.truncate(size)


def _records(folder: Path) -> Iterator[tuple[Record, int]]:
    """Yield the records that can be read, each with the number of bytes up to its end."""
    end, last, kinds = 0, 0, None
    for payload in _payloads(folder):
        try:
            header, arrays = unpack(payload)
            seeds = check_type(header.get("seeds"), list[int], "seeds")
            record = Record(check_type(header.get("iteration"), int, "iteration"), tuple(seeds), _transitions(arrays))
        except Damaged:
            return
        found = [seeds, *((array.shape[2:], array.dtype) for array in jax.tree.leaves(record.rows))]
        if record.rows.valid.shape[0] != len(seeds) or kinds not in (None, found) or record.iteration < last:
            return  # not a record of this run
        kinds, last, end = found, record.iteration, end + _HEADER.size + len(payload)
        yield record, end


def _transitions(arrays: dict[str, np.ndarray]) -> Transitions:
    """Return the arrays as rows; raise `Damaged` unless each has a row for each seed and step."""
    if arrays.keys() != set(_FIELDS) or len({array.shape[:2] for array in arrays.values()}) != 1:
        raise Damaged("edited")
    rows = Transitions.of_arrays(*(arrays[name] for name in _FIELDS))
    flat, flags = (rows.reward, rows.terminal, rows.last, rows.valid), (rows.terminal, rows.last, rows.valid)
    kinds = {array.dtype.kind for array in (rows.state, rows.action, rows.reward)}
    if (
        rows.state.shape != rows.next_state.shape
        or rows.state.dtype != rows.next_state.dtype
        or any(array.ndim != 2 for array in flat)
        or any(array.dtype != bool for array in flags)
        or not kinds <= set("fiu")
    ):
        raise Damaged("edited")
    return rows


def _payloads(folder: Path) -> Iterator[bytes]:
    """Yield the payloads of a log up to the first one that is incomplete; none if there is no log."""
    try:
        file = open_regular(log_path(folder))
    except (FileNotFoundError, NotADirectoryError, Damaged):
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            magic, length, checksum = _HEADER.unpack(header)
            if magic != _MAGIC or length > size - file.tell():
                return
            payload = file.read(length)
            if zlib.crc32(payload) != checksum:
                return
            yield payload


def _hash_of(path: Path, size: int) -> "hashlib._Hash":
    hashed = hashlib.sha256()
    with open_regular(path) as file:
        while size > 0 and (part := file.read(min(size, _PART))):
            hashed.update(part)
            size -= len(part)
    return hashed
