"""Checkpoints: all that a run needs to go on after an iteration, in `checkpoint/` of its folder.

    NNNNNN/learner.safetensors    the arrays of the learner, all seeds
    NNNNNN/manifest.json          iteration, what it is of, size and hash of every file, and a hash of itself

A checkpoint is written into a folder of another name, forced to disk and renamed: under its own name it is whole,
whenever the run is cut off. The last two are kept, and the one with the best evaluation. The replay of Algorithm 2 is
left out: `episodes/` has its rows, and they may be gigabytes.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmlp.runs.arrays import from_bytes, to_bytes
from pcmlp.runs.config import LATER, LATER_OF_PLANNER, RunConfig, to_json
from pcmlp.runs.durable import check_own, room_for, sync_folder, write_and_sync
from pcmlp.types import AbstractLearner, ConfigError

_FORMAT = 3
_KEPT = 2
_ARRAYS, _MANIFEST = "learner.safetensors", "manifest.json"
_PARTIAL = ".partial-"  # not whole yet, or no longer


@dataclass(frozen=True)
class Facts:
    """What a manifest says."""

    iteration: int
    task: str
    algo: str
    seeds: list[int]
    config_sha256: str  # of everything but `steps`, which may grow
    score: float | None  # the mean over seeds of the evaluation's return
    wall_s: float  # so far
    compile_s: float
    save_s: float  # of those before it
    judged_episodes: int
    log_bytes: int  # of `episodes/log`, which the learner is made whole from
    log_sha256: str
    device: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    learner: AbstractLearner
    facts: Facts


def fingerprint(config: RunConfig) -> str:
    record = of_old(json.loads(to_json(config)))
    del record["steps"]
    return _sha256(json.dumps(record, sort_keys=True).encode())


def of_old(record: dict[str, Any]) -> dict[str, Any]:
    """A configuration's JSON without the settings that came later, where they are off: those of runs that were made
    before. They can still be read, evaluated and resumed, because nothing of them has changed."""
    planner = record["planner"]
    of_planner = _without_off(planner, LATER_OF_PLANNER.get(planner["name"], {}))
    return {**_without_off(record, LATER), "planner": of_planner}


def _without_off(record: dict[str, Any], off: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in off or value != off[key]}


def save(folder: Path, learner: AbstractLearner, facts: Facts) -> None:
    folder.mkdir(exist_ok=True)
    data = to_bytes(learner)
    partial = folder / f"{_PARTIAL}{facts.iteration:06d}"
    _remove(partial)
    with room_for(f"the checkpoint of iteration {facts.iteration}", folder, len(data)):
        partial.mkdir()
        write_and_sync(partial / _ARRAYS, data)
        record = {
            "format": _FORMAT,
            **dataclasses.asdict(facts),
            "files": {_ARRAYS: {"bytes": len(data), "sha256": _sha256(data)}},
        }
        record["manifest_sha256"] = _of_record(record)
        write_and_sync(partial / _MANIFEST, (json.dumps(record, indent=2) + "\n").encode())
        sync_folder(partial)
        os.rename(partial, folder / f"{facts.iteration:06d}")
        sync_folder(folder)
    sweep(folder)


def sweep(folder: Path) -> None:
    """Removes what is not kept, and what a run that was cut off has left."""
    found = iterations(folder)
    kept = {*found[-_KEPT:], best(folder)}
    for n in found:
        if n not in kept:
            # under its own name it would look like a damaged one, were this cut off in the middle
            os.rename(folder / f"{n:06d}", folder / f"{_PARTIAL}{n:06d}")
    for left in folder.glob(f"{_PARTIAL}*"):
        _remove(left)


def iterations(folder: Path) -> list[int]:
    """Those with a checkpoint, in order."""
    if any(file.stem.isdigit() for file in folder.glob("*.json")):
        raise ConfigError(f"{folder}: of format 1, this pcmlp reads {_FORMAT}; use the version that wrote it")
    return sorted(int(place.name) for place in folder.glob("*") if place.name.isdigit())


def best(folder: Path) -> int | None:
    """The iteration of the checkpoint with the highest score, the later of two alike; damaged ones have none."""
    scores = []
    for n in iterations(folder):
        try:
            score = read_facts(folder, n).score
        except ConfigError:
            continue
        if score is not None:
            scores.append((score, n))
    return max(scores)[1] if scores else None


def read_facts(folder: Path, iteration: int) -> Facts:
    return _facts(_read_manifest(folder, iteration))


def load(folder: Path, iteration: int, like: Any) -> Checkpoint:
    """The checkpoint, with `like` as the structure of its learner; a ValueError says where the arrays do not fit it."""
    record = _read_manifest(folder, iteration)
    data, claimed = _read(folder, iteration, _ARRAYS), record["files"][_ARRAYS]
    if len(data) != claimed["bytes"] or _sha256(data) != claimed["sha256"]:
        raise _damaged(folder, iteration, _ARRAYS, "truncated or edited")
    return Checkpoint(from_bytes(data, like), _facts(record))


def _read_manifest(folder: Path, iteration: int) -> dict[str, Any]:
    text = _read(folder, iteration, _MANIFEST)
    try:
        record = json.loads(text)
        claimed = record.pop("manifest_sha256")
        version = record["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, iteration, _MANIFEST, "truncated or edited") from error
    if version != _FORMAT:
        file = folder / f"{iteration:06d}" / _MANIFEST
        raise ConfigError(f"{file}: of format {version}, this pcmlp reads {_FORMAT}; use the version that wrote it")
    if claimed != _of_record(record) or record["iteration"] != iteration or list(record["files"]) != [_ARRAYS]:
        raise _damaged(folder, iteration, _MANIFEST, "edited")
    return record


def _facts(record: dict[str, Any]) -> Facts:
    return Facts(**{field.name: record[field.name] for field in dataclasses.fields(Facts)})


def _read(folder: Path, iteration: int, name: str) -> bytes:
    file = folder / f"{iteration:06d}" / name
    check_own(file, folder)
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(folder, iteration, name, "missing") from error
    except OSError as error:
        raise _damaged(folder, iteration, name, f"cannot be read ({error.strerror})") from error


def _damaged(folder: Path, iteration: int, name: str, what: str) -> ConfigError:
    earlier = [n for n in iterations(folder) if n < iteration]
    if earlier:
        remedy = f"remove {folder}/{iteration:06d} to go on from iteration {earlier[-1]}"
    else:
        remedy = f"remove {folder} to start afresh"
    return ConfigError(f"{folder}/{iteration:06d}/{name}: {what}; {remedy}")


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)


def _of_record(record: dict[str, Any]) -> str:
    return _sha256(json.dumps(record, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
