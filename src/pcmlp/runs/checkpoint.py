"""Checkpoints: all that a run needs to continue after an iteration, as `checkpoint/NNNNNN.safetensors` in its folder.

A checkpoint is written under another name, synced to disk and renamed, so the file is complete whenever the run is cut
off. The last two are kept, and the one with the best evaluation. The replay of Algorithm 2 is left out:
its rows are in `episodes/`, and may take gigabytes.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.runs.arrays import Damaged, load_facts_and_arrays, read_facts, restore_tree, to_bytes
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.durable import check_own, room_for, write_durably
from pcmlp.types import Learner

_FORMAT = 4
_KEPT = 2
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Facts:
    """The facts that are saved with a checkpoint."""

    iteration: int
    task: str
    algo: str
    seeds: list[int]
    config_sha256: str  # hash of all settings except `steps`, which may grow
    score: float | None  # the mean over seeds of the evaluation's return
    wall_s: float  # seconds so far
    compile_s: float
    save_s: float  # seconds of saving, for all checkpoints before this one
    evaluated_episodes: int
    log_bytes: int  # size of `episodes/log`, from which the replay is restored
    log_sha256: str
    device: str
    versions: dict[str, str]
    format: int = _FORMAT


@dataclass(frozen=True)
class Checkpoint:
    """A learner and the facts that were saved with it."""

    learner: Learner
    facts: Facts


def fingerprint(config: RunConfig) -> str:
    """Return a hash of a configuration without its number of steps."""
    record = json.loads(to_json(config))
    del record["steps"]
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def save(folder: Path, learner: Learner, facts: Facts) -> None:
    """Write a checkpoint, then remove those that are not kept."""
    folder.mkdir(exist_ok=True)
    data = to_bytes(learner, dataclasses.asdict(facts))
    with room_for(f"the checkpoint of iteration {facts.iteration}", folder, len(data)):
        write_durably(path_of(folder, facts.iteration), data)
    sweep(folder)


def sweep(folder: Path) -> None:
    """Remove checkpoints that are not kept, and partial files of a run that was cut off."""
    found = iterations(folder)
    kept = {*found[-_KEPT:], best(folder)}
    for n in found:
        if n not in kept:
            path_of(folder, n).unlink()
    for left in folder.glob("*.new"):
        left.unlink()


def path_of(folder: Path, iteration: int) -> Path:
    """Return the file of an iteration's checkpoint."""
    return folder / f"{iteration:06d}{_SUFFIX}"


def iterations(folder: Path) -> list[int]:
    """Return the iterations with a checkpoint, in order."""
    if any(place.stem.isdigit() and place.suffix != _SUFFIX for place in folder.glob("*")):
        raise ConfigError(f"{folder}: has an older format, this pcmlp reads {_FORMAT}; use the version that wrote it")
    return sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())


def best(folder: Path) -> int | None:
    """Return the iteration of the checkpoint with the highest score, the later of equals; damaged ones are skipped."""
    scores = []
    for n in iterations(folder):
        try:
            score = read(folder, n).score
        except ConfigError:
            continue
        if score is not None:
            scores.append((score, n))
    return max(scores)[1] if scores else None


def read(folder: Path, iteration: int) -> Facts:
    """Return the facts of a checkpoint."""
    file = path_of(folder, iteration)
    check_own(file, folder)
    try:
        return _facts(file, iteration, read_facts(file))
    except (Damaged, OSError) as error:
        raise _damaged(folder, iteration, error) from error


def load(folder: Path, iteration: int, like: Any) -> Checkpoint:
    """Return the checkpoint, with `like` as the structure of its learner; raise a ValueError if the arrays do not fit
    it."""
    file = path_of(folder, iteration)
    check_own(file, folder)
    try:
        record, arrays = load_facts_and_arrays(file)
        facts = _facts(file, iteration, record)
    except (Damaged, OSError) as error:
        raise _damaged(folder, iteration, error) from error
    return Checkpoint(restore_tree(arrays, like), facts)


def _facts(file: Path, iteration: int, record: dict[str, Any]) -> Facts:
    if record.get("format") != _FORMAT:
        found = record.get("format")
        raise ConfigError(f"{file}: has format {found}, this pcmlp reads {_FORMAT}; use the version that wrote it")
    try:
        facts = Facts(**record)
    except TypeError as error:
        raise Damaged("edited") from error
    if facts.iteration != iteration:
        raise Damaged("renamed or edited")
    return facts


def _damaged(folder: Path, iteration: int, error: Exception) -> ConfigError:
    what = f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)
    earlier = [n for n in iterations(folder) if n < iteration]
    file = path_of(folder, iteration)
    remedy = f"to go on from iteration {earlier[-1]}" if earlier else "to start over"
    return ConfigError(f"{file}: {what}; remove it {remedy}")
