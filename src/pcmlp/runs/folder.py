"""The run folder: `config.json`, `metrics.csv`, `summary.json`, `episodes/`, `policy/`, `checkpoint/`, `lock`.

Everything is on disk before the next iteration begins, so a run that was cut off can be read.
"""

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.runs.durable import read_json, room_for, write_json, write_text
from pcmlp.runs.lock import NAME as LOCK
from pcmlp.runs.lock import Lock

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

Row = dict[str, Any]  # column -> number, or None where it is not defined


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path
        self._columns: list[str] = []

    @staticmethod
    def create(path: Path, config: str) -> "tuple[RunFolder, Lock]":
        """Return a new folder and its lock; an existing run is never overwritten."""
        check_free(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = Lock(path)
            try:
                check_free(path)  # another process may have created a run at the same time
                write_text(path / "config.json", config)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise ConfigError(f"--out {path}: cannot be written ({error.strerror}); give another folder") from error
        return RunFolder(path), lock

    @property
    def episodes(self) -> Path:
        """The folder of the episode log."""
        return self.path / "episodes"

    @property
    def policy(self) -> Path:
        """The folder of the deployed policies."""
        return self.path / "policy"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoint"

    def cut(self, iteration: int) -> list[Row]:
        """Drop the rows after an iteration from `metrics.csv`, and return the others."""
        path = self.path / "metrics.csv"
        kept = self.rows_through(iteration)
        if not kept:
            path.unlink(missing_ok=True)
            return []
        self._columns = list(kept[0])
        lines = [self._columns, *(row.values() for row in kept)]
        write_text(path, "".join(",".join(line) + "\n" for line in lines))
        return [{name: _typed(name, text) for name, text in row.items()} for row in kept]

    def rows_through(self, iteration: int) -> list[dict[str, str]]:
        """Return the whole rows up to an iteration, as text."""
        path = self.path / "metrics.csv"
        whole = [row for row in _rows(path) if None not in row.values()] if path.exists() else []
        return [row for row in whole if int(row["iteration"]) <= iteration]

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows to `metrics.csv`. Row 0 is written before the columns of the algorithm are known, so columns may
        be added later."""
        path = self.path / "metrics.csv"
        new = [name for row in rows for name in row if name not in COLUMNS and name not in self._columns]
        if new or not self._columns:
            kept = _rows(path) if self._columns else []
            self._columns = [*(self._columns or COLUMNS), *dict.fromkeys(new)]
            write_text(path, ",".join(self._columns) + "\n")
            rows = [*kept, *rows]
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writerows({name: show_number(value) for name, value in row.items()} for row in rows)
        with room_for("the rows of an iteration", self.path, len(text.getvalue())), path.open("a", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def write_config(self, config: str) -> None:
        """Write `config.json`."""
        write_text(self.path / "config.json", config)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`."""
        with room_for("summary.json", self.path, len(str(summary))):
            write_json(self.path / "summary.json", summary)


def _rows(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _typed(name: str, text: str) -> int | float | None:
    if not text:
        return None
    return int(text) if name in ("iteration", "seed", "env_steps") else float(text)


def as_read(row: Row) -> Row:
    """Return a row with the digits that `metrics.csv` keeps, as a resumed run reads it."""
    return {name: _typed(name, show_number(value)) for name, value in row.items()}


def check_free(path: Path) -> None:
    """Raise unless a new run can be written into the folder."""
    if path.is_dir() and any(file.name != LOCK for file in path.iterdir()):
        remedy = "or --resume to go on with it" if (path / "config.json").exists() else "new or empty"
        raise ConfigError(f"--out {path}: already holds files, which are not overwritten; give another, {remedy}")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path}: is a file; give another folder")


def show_number(value: Any) -> str:
    """Return a number as text, with seven digits, the precision of float32."""
    if value is None:
        return ""
    return f"{value + 0.0:.7g}" if isinstance(value, float) else str(value)  # + 0.0 turns -0.0 into 0.0


def read_metrics(run: Path) -> dict[str, list[float]]:
    """Read `metrics.csv` by column, NaN where a cell is empty; an incomplete last line is left out."""
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    whole = lines[:-1] if lines and not lines[-1].endswith("\n") else lines
    names, *rows = csv.reader(whole or [""])
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"metrics.csv is half-written: row {i + 1} has {len(row)} of {len(names)} columns")
    return {name: [_number(row[i]) for row in rows] for i, name in enumerate(names)}


def _number(text: str) -> float:
    return float(text) if text else math.nan


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a table of results; all cells are text."""
    try:
        text = path.read_text()
        lines = list(csv.reader(text.splitlines()))
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); remove it to make it again") from error
    if not text.endswith("\n") or any(len(line) != len(lines[0]) for line in lines):
        raise ConfigError(f"{path}: half-written or edited; remove it to make it again")
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def read_config(run: Path) -> dict[str, Any]:
    """Read `config.json` without checking it."""
    return read_json(run / "config.json")


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json`."""
    return read_json(run / "summary.json")
