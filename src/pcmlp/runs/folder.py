"""The run folder: `config.json`, `metrics.csv`, `summary.json`, `episodes/`, `policy/`, `checkpoint/`, `lock`.

Every iteration is written as soon as it is evaluated, so a run that was cut off can be read. A lock allows one process
per folder: the process locks the file `lock` while it lives, and signs it. The operating system releases the lock of a
process that died, so a stale lock blocks no other process. A file server can be wrong in both directions: it may keep
the lock of a machine that died long ago (`once_free`), and it may release a lock whose process is alive, or not support
locks at all. So the holder checks its signature before every write.
"""

import json
import os
import platform
import stat
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.runs.durable import FRESH, Damaged, open_regular, read_bytes, room_for, write_sealed, write_text
from pcmlp.runs.metrics import MetricsFile

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so nothing is locked
    fcntl = None

LOCK = "lock"
PLAN = "plan.json"  # in the folder of a plan
_FILES = ("config.json", "metrics.csv", "summary.json", "eval.json", PLAN, LOCK, "log")
_FOLDERS = ("episodes", "policy", "checkpoint")
_RETRY_S = 5.0  # seconds between two attempts to lock a folder
_LOCK_BYTES = 10_000


def check_folder(run: Path) -> None:
    """Raise unless a run folder and the folders in it contain nothing but files and folders, each in its place: a link
    could lead anywhere, a pipe could block, and a folder could not be replaced by a file."""
    for entry in _list(run):
        kind = _kind(entry)
        if entry.name in _FOLDERS and kind == "a file":
            raise ConfigError(f"{entry}: not a folder; put the folder itself there, or remove it")
        for each in (entry, *(_list(entry) if kind == "a folder" else ())):
            found = _kind(each)
            if found == "a folder" and _holds_data(each):
                found = "not a file"
            if found not in ("a file", "a folder"):
                raise ConfigError(f"{each}: {found}; put the file itself there, or remove it")


def _holds_data(path: Path) -> bool:
    """Return whether a run has a file of this name."""
    name = path.name.removesuffix(FRESH)
    return name in _FILES or (path.parent.name == "policy" and name.endswith(".safetensors"))


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read ({error.strerror}); give another folder") from error


def _kind(path: Path) -> str:
    """Return what is there; a file that was just removed, as by a run in progress, is still a file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return "a file"
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link, which may lead anywhere"}
    return kinds.get(stat.S_IFMT(mode), "not a file")


class InUse(ConfigError):
    """A run whose lock another process holds."""


class Lock:
    """A context manager that takes the lock of a run and signs it. If two processes get the lock, it belongs to the
    later one."""

    def __init__(self, run: Path):
        self._run = run
        try:
            self._file = open_regular(run / LOCK, "r+b", os.O_RDWR | os.O_CREAT, buffering=0)
        except Damaged as error:
            raise ConfigError(f"{run / LOCK}: {error}, or remove it") from error
        except OSError as error:
            raise ConfigError(f"{run / LOCK}: cannot be written ({error.strerror}); give another out folder") from error
        try:
            _take(self._file, run)
            self._signature = _sign(self._file)
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Raise if another process has taken over the run."""
        try:
            found = read_bytes(self._run / LOCK)  # opened again, so that a file server is asked again
        except (OSError, Damaged) as error:
            why = "removed" if isinstance(error, FileNotFoundError) else "replaced"
            remedy = "this process has stopped; continue with resume=True"
            raise RunStopped(f"{self._run / LOCK}: {why} while the run was in progress; {remedy}") from error
        if found != self._signature:
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


def _take(file: BinaryIO, run: Path) -> None:
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


def _sign(file: BinaryIO) -> bytes:
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
        holder = json.loads(read_bytes(run / LOCK, _LOCK_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.episodes, self.policy, self.checkpoint = path / "episodes", path / "policy", path / "checkpoint"
        self.metrics = MetricsFile(path)

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

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`."""
        with room_for("summary.json", self.path, len(str(summary))):
            write_sealed(self.path / "summary.json", summary)


def check_free(path: Path) -> None:
    """Raise unless a new run can be written into the folder."""
    if path.is_dir() and any(file.name != LOCK for file in path.iterdir()):
        is_run = (path / "config.json").exists()
        remedy = "another folder, or resume=True to continue the run in it" if is_run else "a new or empty folder"
        raise ConfigError(f"out={path}: this folder contains files, which are not overwritten; give {remedy}")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"out={path}: is a file; give another folder")
