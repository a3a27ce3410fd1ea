"""The run folder: `config.json`, `metrics.csv`, `summary.json`, `episodes/`, `policy/`, `checkpoint/`, `lock`.

Every iteration is written before the next one begins, so a run that was cut off can be read. A lock allows one process
per folder: the process locks the file `lock` while it lives, and signs it. The operating system releases the lock of a
process that died, so a stale lock blocks no other process. A file server can be wrong in both directions: it may keep
the lock of a machine that died long ago (`once_free`), and it may release a lock whose process is alive, or not support
locks at all. So the holder checks its signature before every write.
"""

import csv
import io
import json
import math
import os
import platform
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Any

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.runs.durable import read_json, room_for, write_json, write_text

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so nothing is locked
    fcntl = None

LOCK = "lock"
PLAN = "plan.json"  # in the folder of a plan
_RETRY_S = 5.0  # seconds between two attempts to lock a folder

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


class InUse(ConfigError):
    """A run whose lock another process holds."""


class Lock:
    """A context manager that takes the lock of a run and signs it. If two processes get the lock, it belongs to the
    later one."""

    def __init__(self, run: Path):
        self._run = run
        self._file = os.fdopen(os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            _take(self._file, run)
            self._signature = _sign(self._file)
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Raise if another process has taken over the run."""
        try:
            mine = (self._run / LOCK).read_bytes() == self._signature  # reopened, so that a file server is asked again
        except OSError:
            mine = False
        if not mine:
            raise RunStopped(f"{self._run}: another process has taken over this run; this process has stopped")

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def once_free(run: Path, do: Callable[[], object], seconds: float, dead: Callable[[], Collection[str]]) -> None:
    """Call `do`, which needs the run's lock; try again while another process holds the lock.

    After `seconds`, remove the lock if the machine that holds it is among those that `dead` returns. `dead` is not
    called earlier, because finding dead machines may take time.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            do()
            return
        except InUse:
            if time.monotonic() < end:
                time.sleep(_RETRY_S)
            elif _holder(run).get("host") in dead():
                (run / LOCK).unlink(missing_ok=True)
            else:
                raise


def _take(file: IO[bytes], run: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        holder, who = _holder(run), "another process"
        if {"process", "host", "since"} <= holder.keys():
            who = f"process {holder['process']} on {holder['host']} since {holder['since']}"
        raise InUse(f"{run}: in use by {who}; wait for it or stop it, or give another out folder") from error
    except OSError:  # a file system without locks, so nothing is locked
        pass


def _sign(file: IO[bytes]) -> bytes:
    """Write a signature over the old one in a single write: the file is never empty, and no cache keeps it."""
    holder = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T %Z")}
    signature = json.dumps({**holder, "signature": uuid.uuid4().hex}).encode()
    file.seek(0)
    file.write(signature)
    file.truncate()
    os.fsync(file.fileno())
    return signature


def _holder(run: Path) -> dict[str, Any]:
    """Return the record that the holder wrote; empty if it has not written yet."""
    try:
        holder = json.loads((run / LOCK).read_bytes())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.episodes, self.policy, self.checkpoint = path / "episodes", path / "policy", path / "checkpoint"
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
            raise ConfigError(f"out={path}: cannot be written ({error.strerror}); give another folder") from error
        return RunFolder(path), lock

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
        text = io.StringIO()
        new = [name for row in rows for name in row if name not in COLUMNS and name not in self._columns]
        if new or not self._columns:
            kept = _rows(path) if self._columns else []
            self._columns = [*(self._columns or COLUMNS), *dict.fromkeys(new)]
            text.write(",".join(self._columns) + "\n")
            rows = [*kept, *rows]
        begins = text.tell() > 0
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writerows({name: show_number(value) for name, value in row.items()} for row in rows)
        with room_for("the rows of an iteration", self.path, len(text.getvalue())):
            if begins:
                write_text(path, text.getvalue())
                return
            with path.open("a", newline="") as file:
                file.write(text.getvalue())

    def sync(self) -> None:
        """Force the rows of `metrics.csv` to disk, before a checkpoint refers to them."""
        path = self.path / "metrics.csv"
        with room_for("metrics.csv", self.path, path.stat().st_size), path.open("ab") as file:
            os.fsync(file.fileno())

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
        is_run = (path / "config.json").exists()
        remedy = "another folder, or resume=True to continue the run in it" if is_run else "a new or empty folder"
        raise ConfigError(f"out={path}: this folder contains files, which are not overwritten; give {remedy}")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"out={path}: is a file; give another folder")


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


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json`."""
    return read_json(run / "summary.json")
