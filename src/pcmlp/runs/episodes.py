"""The append-only log of every real step: `episodes/log` in the run folder.

    record = b"PCEP" | payload length, 8 bytes | CRC-32 of the payload, 4 bytes | payload      (little-endian)
    payload = a safetensors file: the arrays of `Transitions`, [seeds, rows, ...], the iteration and seeds as metadata

A run may be cut off in the middle of a record, so reading stops at the first incomplete record, and writing
starts over from there. A checkpoint stores the size and hash of the log that its replay is rebuilt from.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO

import jax
import numpy as np
from safetensors.numpy import load, save

from pcmlp.replay import Transitions
from pcmlp.runs.durable import room_for

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
        self._file = path.open("ab", buffering=0)  # no buffer: `close` must not repeat a failed write
        with path.open("rb") as written:
            self.size = sum(_HEADER.size + len(payload) for payload in _payloads(written))  # bytes so far
        self._hash = _hash_of(path, self.size)
        self._file.truncate(self.size)

    @property
    def sha256(self) -> str:
        """The hash of the log so far."""
        return self._hash.hexdigest()

    def append(self, iteration: int, seeds: Sequence[int], rows: Transitions) -> None:
        """Append a record; `rows` have a leading axis of seeds."""
        arrays = {name: np.asarray(x, order="C") for name, x in zip(_FIELDS, jax.tree.leaves(rows), strict=True)}
        payload = save(arrays, {"iteration": str(iteration), "seeds": " ".join(map(str, seeds))})
        with room_for(f"the episodes of iteration {iteration}", self._folder, len(payload)):
            record = _HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload
            left = memoryview(record)
            while left:  # a nearly full disk may write only a part
                left = left[self._file.write(left) :]
        self.size += len(record)
        self._hash.update(record)

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
    return path.exists() and path.stat().st_size >= size and _hash_of(path, size).hexdigest() == sha256


def log_path(folder: Path) -> Path:
    """Return the file of the log."""
    return folder / "log"


def read(folder: Path) -> Iterator[Record]:
    """Yield the complete records of a log, in the order they were written."""
    path = log_path(folder)
    if not path.exists():
        return
    with path.open("rb") as file:
        for payload in _payloads(file):
            metadata = _metadata(payload)
            seeds = tuple(int(seed) for seed in metadata["seeds"].split())
            arrays = load(payload)
            yield Record(int(metadata["iteration"]), seeds, Transitions.of_arrays(*(arrays[x] for x in _FIELDS)))


def cut(folder: Path, iteration: int) -> None:
    """Drop the records after an iteration."""
    path = log_path(folder)
    if not path.exists():
        return
    with path.open("r+b") as file:
        kept = 0
        for payload in _payloads(file):
            if int(_metadata(payload)["iteration"]) > iteration:
                break
            kept += _HEADER.size + len(payload)
        file.truncate(kept)


def _payloads(file: BinaryIO) -> Iterator[bytes]:
    size = file.seek(0, 2)
    file.seek(0)
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
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, _PART))):
            hashed.update(part)
            size -= len(part)
    return hashed


def _metadata(payload: bytes) -> dict[str, str]:
    """Return the metadata from the JSON header of a safetensors file; its own reader does not return them."""
    (length,) = struct.unpack_from("<Q", payload)
    return json.loads(payload[8 : 8 + length])["__metadata__"]
