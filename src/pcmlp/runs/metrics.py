"""`metrics.csv`: a row for each seed and iteration; row 0 is the untrained policy. And other tables of results.

Rows are only appended. A checkpoint and `summary.json` contain the number of rows and a hash of them, so that a changed
number is noticed. The hash leaves out empty cells, because columns may be added later, and times, whose columns end in
`_s`, because a run that is repeated takes other times.
"""

import csv
import hashlib
import io
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcmlp.errors import ConfigError, RunStopped, first_line
from pcmlp.runs.durable import Damaged, open_regular, read_text, room_for, write_text

FILE = "metrics.csv"

# The documented columns, in this order; columns of an algorithm come after them.
COLUMNS = (
    "iteration",
    "seed",
    "env_steps",
    "eval_return_mean",
    "eval_return_std",
    "eval_success",
    "bonus_mean",
    "info_gain",
    "model_loss",
    "wall_s",
)
_WHOLE = ("iteration", "seed", "env_steps")
_NAME = re.compile(r"\w{1,80}", re.ASCII)
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_REAL = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|-?inf|nan", re.ASCII)

Row = dict[str, Any]  # column -> number, or None where it is not defined
Text = dict[str, str]  # column -> cell


class Seal(NamedTuple):
    """The number of rows and their hash."""

    rows: int
    sha256: str


class MetricsFile:
    """The writer of a run's `metrics.csv`."""

    def __init__(self, run: Path):
        self._path = run / FILE
        self._columns: list[str] = []
        self._hash = hashlib.sha256()
        self.seal = Seal(0, self._hash.hexdigest())  # of all rows so far

    def cut(self, rows: int) -> list[Row]:
        """Keep only this number of rows, and return them."""
        kept = read_rows(self._path.parent)[:rows] if rows else []
        if not kept:
            self._path.unlink(missing_ok=True)
            return []
        self._columns = list(kept[0])
        lines = [self._columns, *(row.values() for row in kept)]
        write_text(self._path, "".join(",".join(line) + "\n" for line in lines))
        self._count(kept)
        return [{name: _parse(name, text) for name, text in row.items()} for row in kept]

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows. Row 0 is written before the columns of the algorithm are known, so columns may be added
        later."""
        shown = [{name: show_number(value) for name, value in row.items()} for row in rows]
        if strange := [name for row in shown for name in row if not _NAME.fullmatch(name)]:
            raise RunStopped(f"{strange[0]!r}: not a name for a column; let the metrics have names such as q_loss")
        new = [name for row in shown for name in row if name not in COLUMNS and name not in self._columns]
        begins = bool(new) or not self._columns
        kept = read_rows(self._path.parent) if begins and self._columns else []
        text = io.StringIO()
        if begins:
            self._columns = [*(self._columns or COLUMNS), *dict.fromkeys(new)]
            text.write(",".join(self._columns) + "\n")
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows([*kept, *shown])
        with room_for("the rows of an iteration", self._path.parent, len(text.getvalue())):
            if begins:
                write_text(self._path, text.getvalue())
            else:
                with open_regular(self._path, "ab", os.O_WRONLY | os.O_APPEND) as file:
                    file.write(text.getvalue().encode())
        self._count(shown)

    def sync(self) -> None:
        """Force all rows to disk, before a checkpoint refers to them."""
        with room_for(FILE, self._path.parent, self._path.stat().st_size), open_regular(self._path) as file:
            os.fsync(file.fileno())

    def _count(self, rows: Sequence[Text]) -> None:
        self._hash.update(canonical(self._columns, rows))
        self.seal = Seal(self.seal.rows + len(rows), self._hash.hexdigest())


def canonical(columns: Iterable[str], rows: Iterable[Text]) -> bytes:
    """Return rows as the bytes that are hashed."""
    kept = [name for name in columns if not name.endswith("_s")]
    lines = (",".join(f"{name}={row[name]}" for name in kept if row.get(name)) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def hash_rows(rows: Sequence[Text]) -> str:
    """Return the hash of rows in the order of the file."""
    return hashlib.sha256(canonical(rows[0] if rows else (), rows)).hexdigest()


def matches(rows: Sequence[Text], seal: Seal) -> bool:
    """Return whether rows begin with those that were sealed."""
    found = rows[: seal.rows]
    return len(found) == seal.rows and hash_rows(found) == seal.sha256


def read_rows(run: Path) -> list[Text]:
    """Read the complete lines of `metrics.csv`; raise `Damaged` unless it has all documented columns, and numbers."""
    names, *lines = (line.split(",") for line in read_text(run / FILE).split("\n")[:-1] or [""])
    if len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise Damaged(f"{FILE} does not begin with names of columns")
    if missing := [name for name in COLUMNS if name not in names]:
        raise Damaged(f"{FILE} has no column {missing[0]}")
    if tuple(names[: len(COLUMNS)]) != COLUMNS:
        raise Damaged(f"{FILE} has its columns in another order")
    for i, cells in enumerate(lines):
        if len(cells) != len(names):
            raise Damaged(f"{FILE} is half-written: row {i + 1} has {len(cells)} of {len(names)} columns")
    rows = [dict(zip(names, cells, strict=True)) for cells in lines]
    for row in rows:
        for name, cell in row.items():
            _parse(name, cell)
    return rows


def read_metrics(run: Path) -> dict[str, list[float]]:
    """Read `metrics.csv` by column, NaN where a cell is empty; an incomplete last line is left out."""
    return by_column(read_rows(run))


def by_column(rows: Sequence[Text]) -> dict[str, list[float]]:
    """Return rows by column, NaN where a cell is empty."""
    names = rows[0] if rows else ()
    return {name: [float(row[name]) if row[name] else math.nan for row in rows] for name in names}


def _parse(name: str, cell: str) -> int | float | None:
    """Return the number in a cell; None if it is empty."""
    if not cell:
        return None
    whole = name in _WHOLE
    if not (_INTEGER if whole else _REAL).fullmatch(cell):
        raise Damaged(f"{FILE}: {cell[:40]!r} in column {name} is not a {'whole ' if whole else ''}number")
    number = int(cell) if whole else float(cell)
    if math.isinf(number) and "inf" not in cell:
        raise Damaged(f"{FILE}: {cell[:40]} in column {name} is too large a number")
    return number


def as_read(row: Row) -> Row:
    """Return a row with the digits that `metrics.csv` keeps, as a resumed run reads it."""
    return {name: _parse(name, show_number(value)) for name, value in row.items()}


def mean_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean over seeds of every column that all of them have."""
    columns = [name for name in rows[0] if name != "seed" and all(row[name] is not None for row in rows)]
    return {name: float(np.mean([row[name] for row in rows])) for name in columns}


def show_number(value: Any) -> str:
    """Return a number as text, with seven digits, the precision of float32."""
    if value is None:
        return ""
    return f"{value + 0.0:.7g}" if isinstance(value, float) else str(value)  # + 0.0 turns -0.0 into 0.0


def read_table(path: Path) -> list[Text]:
    """Read a table of results; all cells are text."""
    try:
        text = read_text(path)
        lines = list(csv.reader(text.splitlines(), strict=True))
    except (OSError, Damaged, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read ({first_line(error)}); remove it to make it again") from error
    if not text.endswith("\n") or any(len(line) != len(lines[0]) for line in lines):
        raise ConfigError(f"{path}: half-written or edited; remove it to make it again")
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
