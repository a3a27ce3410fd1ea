"""Checkpoints: all that a run needs to go on after an iteration, in `checkpoint/` of its folder.

    NNNNNN.safetensors    the arrays of the learner, all seeds
    NNNNNN.json           the manifest: iteration, what it is of, hashes of the arrays and of itself

The arrays are on disk before their manifest is, so a manifest vouches for a whole checkpoint, whenever the run is cut
off. The last two are kept. Nothing is left out: the replay could be rebuilt from `episodes/`, but it is small.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmlp.runs.arrays import from_bytes, to_bytes, write_durably
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.types import AbstractLearner, ConfigError

_FORMAT = 1
_KEPT = 2


@dataclass(frozen=True)
class Facts:
    """What a manifest says."""

    iteration: int
    task: str
    algo: str
    seeds: list[int]
    config_sha256: str  # of everything but `steps`, which may grow
    wall_s: float  # so far
    compile_s: float
    judged_episodes: int
    device: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    learner: AbstractLearner
    facts: Facts


def fingerprint(config: RunConfig) -> str:
    record = json.loads(to_json(config))
    del record["steps"]
    return _sha256(json.dumps(record, sort_keys=True).encode())


def save(folder: Path, learner: AbstractLearner, facts: Facts) -> None:
    folder.mkdir(exist_ok=True)
    arrays, manifest = _files(folder, facts.iteration)
    data = to_bytes(learner)
    write_durably(arrays, data)
    record = {"format": _FORMAT, **dataclasses.asdict(facts), "arrays_bytes": len(data), "arrays_sha256": _sha256(data)}
    record["manifest_sha256"] = _of_record(record)
    write_durably(manifest, (json.dumps(record, indent=2) + "\n").encode())
    kept = {file for n in iterations(folder)[-_KEPT:] for file in _files(folder, n)}
    for file in folder.iterdir():
        if file not in kept:  # older ones, and what a run that was cut off has left
            file.unlink()


def iterations(folder: Path) -> list[int]:
    """Those with a checkpoint, in order."""
    found = sorted(int(file.stem) for file in folder.glob("*.json") if file.stem.isdigit())
    orphans = [file.name for file in folder.glob("*.safetensors") if file.stem.isdigit() and int(file.stem) > 1]
    if orphans and not found:  # no run is cut off like that
        raise ConfigError(f"{folder}: the manifest of {max(orphans)} is missing; remove {folder} to start afresh")
    return found


def read_facts(folder: Path, iteration: int) -> Facts:
    return _facts(_read_manifest(folder, iteration))


def load(folder: Path, iteration: int, like: Any) -> Checkpoint:
    """The checkpoint, with `like` as the structure of its learner; a ValueError says where the arrays do not fit it."""
    arrays, _ = _files(folder, iteration)
    record = _read_manifest(folder, iteration)
    data = _read(arrays, folder, iteration)
    if len(data) != record["arrays_bytes"] or _sha256(data) != record["arrays_sha256"]:
        raise _damaged(arrays, "truncated or edited", folder, iteration)
    return Checkpoint(from_bytes(data, like), _facts(record))


def _files(folder: Path, iteration: int) -> tuple[Path, Path]:
    return folder / f"{iteration:06d}.safetensors", folder / f"{iteration:06d}.json"


def _read_manifest(folder: Path, iteration: int) -> dict[str, Any]:
    _, manifest = _files(folder, iteration)
    try:
        record = json.loads(_read(manifest, folder, iteration))
        claimed = record.pop("manifest_sha256")
        version = record["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(manifest, "truncated or edited", folder, iteration) from error
    if version != _FORMAT:
        raise ConfigError(f"{manifest}: of format {version}, this pcmlp reads {_FORMAT}; use the version that wrote it")
    if claimed != _of_record(record) or record["iteration"] != iteration:
        raise _damaged(manifest, "edited", folder, iteration)
    return record


def _facts(record: dict[str, Any]) -> Facts:
    return Facts(**{field.name: record[field.name] for field in dataclasses.fields(Facts)})


def _read(file: Path, folder: Path, iteration: int) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(file, "missing", folder, iteration) from error
    except OSError as error:
        raise _damaged(file, f"cannot be read ({error.strerror})", folder, iteration) from error


def _damaged(file: Path, what: str, folder: Path, iteration: int) -> ConfigError:
    earlier = [n for n in iterations(folder) if n < iteration]
    if earlier:
        remedy = f"remove {folder}/{iteration:06d}.* to go on from iteration {earlier[-1]}"
    else:
        remedy = f"remove {folder} to start afresh"
    return ConfigError(f"{file}: {what}; {remedy}")


def _of_record(record: dict[str, Any]) -> str:
    return _sha256(json.dumps(record, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
