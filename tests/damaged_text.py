"""Damage to JSON and tables that knows their format: functions of (data, rng), as in damaged_bytes.py."""

import contextlib
import csv
import io
import json
import re

from damaged_bytes import flip, insert

from pcmlp.runs.durable import _SEAL, hash_record

RAW = "@@raw@@"  # stands for a token that `json.dumps` does not write
TOKENS = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000, "[" * 100_000, "nul", "'x'", "01", "{}}", "")
WORDS = ("finished", "certified", "failed", "interrupted", "combination-lock", "point-umaze", "low-rank", "pcmlp",
         "pcmlp-linear", "random", "trpo", "fourier", "on", "ours", "gym:Nothing-v0", "absent.py:task", "../other",
         "\x00", "\ud800", "<b>", "x" * 100_000, "NaN", "0", "-1", " ")  # fmt: skip
VALUES = (None, True, False, 0, 1, -1, 7, 0.5, -0.5, 1e308, 2**31, 2**63, 10**30, [], {}, [1], {"a": 1}, [[]], *WORDS)
CELLS = ("", "nan", "inf", "-inf", "1e400", "-1", "0", "7", "0.5", "x", "1_000", " 3", "0x10", "1.0", "١", "True", "-0",
         '"', "1\n", "\x00", "9" * 400, "9" * 5000, "1e-400", "é")  # fmt: skip


def digit(data, rng):
    """A digit that is another one."""
    found = [match.start() for match in re.finditer(rb"\d", data)]
    if not found:
        return insert(data, rng)
    at = rng.choice(found)
    other = rng.choice([b for b in b"0123456789" if b != data[at]])
    return data[:at] + bytes([other]) + data[at + 1 :], f"at byte {at}"


def line(data, rng):
    """A line twice, gone, elsewhere, or swapped with another."""
    lines = data.splitlines(keepends=True) or [b"\n"]
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.choice(["twice", "gone", "swapped", "blank", "elsewhere"])
    if how == "twice":
        lines.insert(i, lines[i])
    elif how == "gone":
        del lines[i]
    elif how == "swapped":
        lines[i], lines[j] = lines[j], lines[i]
    elif how == "blank":
        lines.insert(i, b"\n")
    else:
        lines.insert(j, lines.pop(i))
    return b"".join(lines), f"{i} {how}"


def encoding(data, rng):
    text = data.decode("utf-8", "replace")
    ways = {
        "utf-16": lambda: text.encode("utf-16"),
        "a mark of order": lambda: b"\xef\xbb\xbf" + data,
        "latin-1": lambda: text.replace("e", "é", 1).encode("latin-1", "replace"),
        "\\r\\n": lambda: data.replace(b"\n", b"\r\n"),
        "\\r": lambda: data.replace(b"\n", b"\r"),
        "no last line end": lambda: data.rstrip(b"\n"),
        "another line end": lambda: text.replace("\n", "\u2028", 1).encode(),
    }
    way = rng.choice(list(ways))
    return ways[way](), way


# -- JSON --------------------------------------------------------------------------------------------------------------


def nodes(value, path=()):
    """The path of every value inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*path, key)
        yield from nodes(each, (*path, key))


def parent_of(record, path):
    for key in path[:-1]:
        record = record[key]
    return record


def change_json(change):
    """A way to damage text that changes one node of the JSON in it: `change(parent, key, rng) -> words`."""

    def way(data, rng):
        try:
            record = json.loads(data)
            paths = list(nodes(record))
        except ValueError:
            paths = []
        if not paths:
            return flip(data, rng)
        path = rng.choice(paths)
        said = change(parent_of(record, path), path[-1], rng)
        text = json.dumps(record, indent=2) + "\n"
        for raw in (said if isinstance(said, dict) else {}).values():
            text = text.replace(f'"{RAW}"', raw, 1)
        shown = ", ".join(map(str, said.values())) if isinstance(said, dict) else said or ""
        return text.encode(errors="surrogatepass"), f"{'.'.join(map(str, path))} {shown}"[:120]

    way.__name__ = change.__name__
    return way


@change_json
def other_value(parent, key, rng):
    parent[key] = value = rng.choice(VALUES)
    return repr(value)


@change_json
def other_number(parent, key, rng):
    value = parent[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        value = rng.choice([0, 1.5])
    others = [value + 1, value - 1, -value, value * 10, value * 1.0, value + 1e-9, int(value), str(value), [value]]
    parent[key] = other = rng.choice(others)
    return repr(other)


@change_json
def raw_token(parent, key, rng):
    parent[key] = RAW
    return {"token": rng.choice(TOKENS)}


@change_json
def key_gone(parent, key, rng):
    del parent[key]


@change_json
def key_more(parent, key, rng):
    if isinstance(parent, list):
        parent.append(parent[key])
        return "longer"
    new = rng.choice(["more", "steps", "status", "code", "seeds", "format", "__class__", "x.y", ""])
    parent.setdefault(new, rng.choice(VALUES))
    return new


@change_json
def key_twice(parent, key, rng):
    if isinstance(parent, list):
        return None
    parent[key] = RAW
    first, second = rng.sample([0, 1, "other", None, 7], 2)
    return {"both": f"{json.dumps(first)}, {json.dumps(key)}: {json.dumps(second)}"}


@change_json
def key_renamed(parent, key, rng):
    if isinstance(parent, dict):
        parent[rng.choice([str(key).upper(), f"{key} ", f"{key}s"])] = parent.pop(key)


@change_json
def values_swapped(parent, key, rng):
    other = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    parent[key], parent[other] = parent[other], parent[key]
    return other


def forged(data, rng):
    """A value of another type, with a seal that fits it. (Another value with such a seal would be another file.)"""
    try:
        record = json.loads(data)
        del record[_SEAL]
        path = rng.choice([path for path in nodes(record) if parent_of(record, path)[path[-1]] is not None])
    except (ValueError, KeyError, TypeError, IndexError):
        return flip(data, rng)
    parent = parent_of(record, path)
    before = parent[path[-1]]
    kind = (int, float) if isinstance(before, int | float) else type(before)
    parent[path[-1]] = value = rng.choice([each for each in ("x", [], {}, 7) if not isinstance(each, kind)])
    return json.dumps({**record, _SEAL: hash_record(record)}, indent=2).encode(), f"{path} {value!r}"


def whole_of_another_type(data, rng):
    return rng.choice([b"[]", b"null", b"0", b'"x"', b"{}", b"[[]]", b"NaN", b"[" * 100_000, b'{"a":' * 50_000])


def only_the_look(data, rng):
    """The same JSON, written in another way."""
    with contextlib.suppress(ValueError):
        record = json.loads(data)
        if isinstance(record, dict):
            return json.dumps(dict(reversed(record.items())), separators=(",", ":")).encode()
    return data + b" "


JSON = [other_value, other_value, other_value, other_number, other_number, raw_token, key_gone, key_more, key_twice,
        key_renamed, values_swapped, forged, forged, whole_of_another_type, only_the_look, digit, line,
        encoding]  # fmt: skip


# -- tables ------------------------------------------------------------------------------------------------------------


def change_table(change):
    """A way to damage text that changes the cells of a table: `change(lines, row, column, rng) -> words`."""

    def way(data, rng):
        lines = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"))))
        if not lines or not lines[0]:
            return insert(data, rng)
        row, column = rng.randrange(len(lines)), rng.randrange(len(lines[0]))
        said = change(lines, row, column, rng)
        name = lines[0][column] if lines and column < len(lines[0]) else ""
        return "".join(",".join(line) + "\n" for line in lines).encode(), f"row {row} column {name} {said or ''}"[:120]

    way.__name__ = change.__name__
    return way


@change_table
def other_cell(lines, row, column, rng):
    lines[row][column] = cell = rng.choice(CELLS)
    return repr(cell[:20])


@change_table
def other_digit(lines, row, column, rng):
    """In a number below the header."""
    row = max(row, 1) if len(lines) > 1 else row
    cell = lines[row][column]
    places = [i for i, letter in enumerate(cell) if letter.isdigit()]
    if places:
        at = rng.choice(places)
        lines[row][column] = cell[:at] + str((int(cell[at]) + rng.randrange(1, 10)) % 10) + cell[at + 1 :]
    return f"{cell} -> {lines[row][column]}"


@change_table
def column_gone(lines, row, column, rng):
    for each in lines:
        del each[column]


@change_table
def column_more(lines, row, column, rng):
    for i, each in enumerate(lines):
        each.insert(column, "more" if i == 0 else rng.choice(CELLS))


@change_table
def columns_swapped(lines, row, column, rng):
    """With their names, or without them."""
    other = rng.randrange(len(lines[0]))
    for each in lines[rng.randrange(2) :]:
        each[column], each[other] = each[other], each[column]


@change_table
def column_twice(lines, row, column, rng):
    for each in lines:
        each.append(each[column])


@change_table
def row_of_another_length(lines, row, column, rng):
    lines[row] = rng.choice([lines[row][:column], [*lines[row], "1"], []])


@change_table
def rows_of_another_order(lines, row, column, rng):
    lines[1:] = rng.choice([lines[:0:-1], lines[1:row], lines[row:], lines[1:] * 2])


TABLE = [other_cell, other_cell, other_digit, other_digit, column_gone, column_more, columns_swapped, column_twice,
         row_of_another_length, rows_of_another_order, line, encoding]  # fmt: skip
