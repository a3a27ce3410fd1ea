"""Damage to safetensors files and to the episode log that knows their format: functions of (data, rng).

safetensors = length of the header, 8 bytes | header: JSON | bytes of the arrays
record      = b"PCEP" | length of the payload, 8 bytes | its CRC-32, 4 bytes | payload: safetensors
"""

import json
import struct
import zlib

import numpy as np
from damaged_bytes import BYTES, flip
from damaged_text import JSON
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pcmlp.runs.arrays import _digest

HEADER = struct.Struct("<4sQI")  # of a record
TYPES = ("F64", "F16", "BF16", "I32", "I64", "U8", "BOOL", "F8_E4M3", "C64", "X9", 5)
KINDS = ("f8", "f4", "f2", "i8", "i4", "u1", "?")
SEEDS = ([], [0], [0, 7, 9], ["0", "7"], [7, 0], [0.0, 7.0], [-1, 2**70], {}, None, "0 7", [[0], [7]])


# -- safetensors -------------------------------------------------------------------------------------------------------


def split(data):
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header, arrays):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + arrays


def length_lies(data, rng):
    lie = rng.choice([0, 1, 7, len(data), len(data) * 2, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", lie) + data[8:], lie


def header_edited(data, rng):
    """Any change of the header's JSON, with a length that fits."""
    (length,) = struct.unpack_from("<Q", data)
    way = rng.choice(JSON)
    changed = way(data[8 : 8 + length], rng)
    text, said = changed if isinstance(changed, tuple) else (changed, "")
    return join(text, data[8 + length :]), f"{way.__name__} {said}"


def entry_lies(data, rng):
    """An array of another type, shape or place than it has."""
    header, arrays = split(data)
    name = rng.choice([name for name in header if name != "__metadata__"] or [None])
    if name is None:
        return flip(data, rng)
    entry, field = header[name], rng.choice(["dtype", "shape", "data_offsets"])
    if field == "dtype":
        entry[field] = rng.choice(TYPES)
    elif field == "shape":
        shape = entry[field]
        entry[field] = rng.choice([[*shape, 1], shape[::-1], shape[1:], [2**40, *shape], [-1], [0], [1e3], "x"])
    else:
        begin, end = entry[field]
        entry[field] = rng.choice([[end, begin], [begin, end + 8], [0, end], [begin + 4, end], [2**62, 2**63], [begin]])
    return join(header, arrays), f"{name} {field} {entry[field]}"


def other_arrays(arrays, rng):
    """Arrays of which one is gone, more, or of another type or shape."""
    arrays, name = dict(arrays), rng.choice(sorted(arrays))
    array, how = arrays[name], rng.choice(["gone", "more", "type", "shape", "empty", "shorter", "wider"])
    if how == "gone":
        del arrays[name]
    elif how == "more":
        arrays["more"] = array
    elif how == "type":
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(rng.choice([kind for kind in KINDS if kind != array.dtype]))
    elif how == "shape":
        arrays[name] = array.reshape(rng.choice([(-1,), (1, *array.shape), (*array.shape, 1)]))
    elif how == "empty":
        arrays[name] = array[..., :0] if array.ndim else np.zeros(0, array.dtype)
    elif how == "shorter":
        arrays[name] = array[:1] if array.ndim else array[None]
    else:
        arrays[name] = np.stack([array, array])
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}, f"{name} {how}"


def metadata(data):
    """The JSON text in the metadata, and what it holds."""
    text = split(data)[0]["__metadata__"]["header"]
    return text, json.loads(text)


def pack(arrays, text):
    return save(arrays, {"header": text})


def arrays_forged(data, rng):
    """Other arrays with a hash that fits them. (Other numbers with a hash that fits would be another file.)"""
    facts = metadata(data)[1]["facts"]
    arrays, said = other_arrays(load(data), rng)
    return pack(arrays, json.dumps({"facts": facts, "sha256": _digest(arrays, facts)})), said


def facts_forged(data, rng):
    """Facts of other types with a hash that fits them."""
    held, arrays = metadata(data)[1], load(data)
    text, said = edit_json(json.dumps(held["facts"]), rng)
    try:
        claimed = _digest(arrays, json.loads(text))
    except (ValueError, RecursionError):
        claimed = held["sha256"]
    return pack(arrays, f'{{"facts": {text}, "sha256": "{claimed}"}}'), said


def header_text_edited(data, rng):
    """Another text in the metadata, with the hash that was there."""
    text, said = edit_json(metadata(data)[0], rng)
    return pack(load(data), text), said


def edit_json(text, rng):
    way = rng.choice(JSON)
    changed = way(text.encode(), rng)
    changed, said = changed if isinstance(changed, tuple) else (changed, "")
    return changed.decode("utf-8", "replace"), f"{way.__name__} {said}"


def numbers_edited(data, rng):
    """Other numbers in an array, with the hash that was there."""
    arrays = load(data)
    name, said = edit_numbers(arrays, rng)
    return pack(arrays, metadata(data)[0]), f"{name} {said}"


def edit_numbers(arrays, rng):
    name = rng.choice(sorted(name for name, array in arrays.items() if array.size))
    flat = arrays[name].reshape(-1).copy()
    value = rng.choice([0, 1, 7, -1, np.nan, np.inf, -np.inf, 1e30] if flat.dtype.kind == "f" else [0, 1, 7])
    flat[rng.randrange(flat.size)] = value
    arrays[name] = flat.reshape(arrays[name].shape)
    return name, value


def no_metadata(data, rng):
    other = rng.choice([None, {"other": "x"}, {"header": ""}, {"header": "{}"}, {"header": "[]", "more": "x"}])
    return save(load(data), other), other


def whole(way):
    """The way for a file that can be parsed; bits are flipped in another."""

    def careful(data, rng):
        try:
            return way(data, rng)
        except (ValueError, KeyError, TypeError, struct.error, IndexError, SafetensorError):
            return flip(data, rng)

    careful.__name__ = way.__name__
    return careful


FORGED = (arrays_forged, facts_forged, facts_forged, header_text_edited)
ARRAYS = [
    *map(whole, (length_lies, header_edited, entry_lies, entry_lies, *FORGED, numbers_edited, no_metadata)),
    *BYTES[:3],
]


# -- the log -----------------------------------------------------------------------------------------------------------


def payloads(data):
    found = []
    while len(data) >= HEADER.size:
        _, length, _ = HEADER.unpack_from(data)
        found.append(data[HEADER.size : HEADER.size + length])
        data = data[HEADER.size + length :]
    return found


def record(payload, magic=b"PCEP", length=None, crc=None):
    length = len(payload) if length is None else length
    return HEADER.pack(magic, length, zlib.crc32(payload) if crc is None else crc) + payload


def change_record(change):
    """A way to damage a log that changes the payload of one record: `change(payload, rng) -> (payload, words)`."""

    def way(data, rng):
        found = payloads(data)
        i = rng.randrange(len(found))
        found[i], said = change(found[i], rng)
        return b"".join(map(record, found)), f"of record {i} {said}"[:120]

    way.__name__ = change.__name__
    return whole(way)


@change_record
def payload_edited(payload, rng):
    way = rng.choice([length_lies, header_edited, entry_lies, *BYTES])
    changed = way(payload, rng)
    return (changed[0], f"{way.__name__} {changed[1]}") if isinstance(changed, tuple) else (changed, way.__name__)


@change_record
def payload_of_other_arrays(payload, rng):
    arrays, said = other_arrays(load(payload), rng)
    return pack(arrays, metadata(payload)[0]), said


@change_record
def payload_of_other_numbers(payload, rng):
    arrays = load(payload)
    name, value = edit_numbers(arrays, rng)
    return pack(arrays, metadata(payload)[0]), f"{name} {value}"


@change_record
def payload_of_other_metadata(payload, rng):
    return rng.choice([header_text_edited, header_text_edited, no_metadata])(payload, rng)


@change_record
def payload_of_other_seeds(payload, rng):
    held = {**metadata(payload)[1], "seeds": rng.choice(SEEDS)}
    return pack(load(payload), json.dumps(held)), held["seeds"]


def records_of_another_order(data, rng):
    found = payloads(data)
    i = rng.randrange(len(found))
    how = rng.choice(["twice", "gone", "reversed", "last one twice", "first one last"])
    found = {
        "twice": [*found[: i + 1], *found[i:]],
        "gone": [*found[:i], *found[i + 1 :]],
        "reversed": found[::-1],
        "last one twice": [*found, found[-1]],
        "first one last": [*found[1:], found[0]],
    }[how]
    return b"".join(map(record, found)), f"{i} {how}"


def header_of_a_record(data, rng):
    found = payloads(data)
    i = rng.randrange(len(found))
    lie = rng.choice([{"magic": b"PCEQ"}, {"length": 0}, {"length": 2**63}, {"length": 2**64 - 1}, {"crc": 0},
                      {"length": len(found[i]) - 1}, {"length": len(found[i]) + 1}])  # fmt: skip
    return b"".join(record(each, **lie) if i == j else record(each) for j, each in enumerate(found)), f"{i} {lie}"


def record_more(data, rng):
    return data + record(rng.choice([b"", b"\x00" * 4, rng.randbytes(40), join(b"{}", b""), join(b"[]", b"x")]))


LOG = [payload_edited, payload_edited, payload_of_other_arrays, payload_of_other_numbers, payload_of_other_metadata,
       payload_of_other_seeds, *map(whole, (records_of_another_order, header_of_a_record, record_more)),
       *BYTES[:5]]  # fmt: skip
