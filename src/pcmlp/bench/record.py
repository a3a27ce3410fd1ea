"""The file of a benchmark. It is written after each part, and a later call on the same machine continues it.

All numbers of a file come from one machine, one version of the code and one choice of options; a call that differs in
these is refused. A benchmark that was stopped loses only the part that was in progress.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import pcmlp
from pcmlp.bench import clock
from pcmlp.errors import ConfigError
from pcmlp.runs.durable import Damaged, read_json, write_json
from pcmlp.runs.source import find_source
from pcmlp.runs.summary import device, versions

# key -> its name in an error message
_SAME = {
    "device": "device",
    "processor": "processor",
    "cores": "number of cores",
    "versions": "set of package versions",
    "code": "code of pcmlp",
    "options": "choice of --seeds or --jobs",
}


def describe_machine() -> dict[str, Any]:
    """Return the facts about the machine and the code that a file stores with its numbers."""
    return {
        "device": device(),
        "processor": clock.processor(),
        "cores": os.cpu_count(),
        "versions": versions(),
        "code": hash_package(Path(pcmlp.__file__).parent),
        **find_source()._asdict(),
    }


def hash_package(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of all Python files in a folder. Unlike a git revision, it also
    changes with uncommitted edits, and an installed wheel has it too."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        total.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def open_record(out: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of the file, or a new record without parts. Raise if the file is from another machine, other
    code or other options."""
    fresh: dict[str, Any] = {**describe_machine(), "options": options, "parts": {}}
    if out is None or not (out.exists() or out.is_symlink()):
        return fresh
    remedy = "give another file, or remove it to measure everything again"
    try:
        record = read_json(out)
    except Damaged as error:
        raise ConfigError(f"out={out}: {error}; {remedy}") from error
    if not isinstance(record.get("parts"), dict):
        raise ConfigError(f"out={out}: is no benchmark, or one of an earlier version; {remedy}")
    if other := [name for key, name in _SAME.items() if record.get(key) != fresh[key]]:
        raise ConfigError(f"out={out}: its numbers are of another {' and another '.join(other)}; {remedy}")
    return record


def write_record(out: Path | None, record: dict[str, Any]) -> None:
    """Replace the file as a whole."""
    if out is not None:
        write_json(out, record)
