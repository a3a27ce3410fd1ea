"""Checkpoints, `checkpoint/NNNNNN.safetensors` in a run folder, and `--resume`.

A checkpoint has all that a run needs to continue after an iteration; `runs.run` says which iterations have one. The
last two are kept, and the one with the best evaluation. The replay of Algorithm 2 is left out: its rows are in
`episodes/`, and may take gigabytes.

A resumed run equals an uninterrupted one, bit for bit on the same machine and versions, because all randomness of an
iteration comes from its seed and number. So its configuration must be the same; only `steps` may grow, where no array
of the learner depends on it (Algorithm 2; the cover of Algorithm 1 has a place for each iteration).
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx

from pcmlp.errors import ConfigError, first_line
from pcmlp.replay import Transitions
from pcmlp.runs import episodes
from pcmlp.runs.arrays import load_facts_and_arrays, read_facts, restore_tree, save_tree
from pcmlp.runs.config import RunConfig, seed_keys, to_json
from pcmlp.runs.durable import FRESH, Damaged, check_type, from_record, read_json
from pcmlp.runs.folder import PLAN, check_folder
from pcmlp.runs.manifest import Manifest, hash_config
from pcmlp.runs.metrics import read_rows
from pcmlp.runs.summary import device, read_summary, versions
from pcmlp.settings import flatten
from pcmlp.types import MDP, Algorithm, Learner
from pcmlp.usercode import check_code

ENDED = ("finished", "certified")  # the statuses of a run that has nothing more to do
_FORMAT = 6
_KEPT = 2
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Facts(Manifest):
    """The facts that are saved with a checkpoint; the replay is restored from `episodes/log`."""

    iteration: int
    task: str
    algo: str
    seeds: list[int]
    score: float | None  # the mean over seeds of the evaluation's return
    wall_s: float  # seconds so far
    compile_s: float
    save_s: float  # seconds of saving, for all checkpoints before this one
    evaluated_episodes: int
    shared_device: bool  # whether another run used the device at some time, so that the seconds measure both
    device: str
    versions: dict[str, str]
    format: int = _FORMAT


class Checkpoint(NamedTuple):
    """A learner and the facts that were saved with it."""

    learner: Learner
    facts: Facts


def fingerprint(config: RunConfig) -> str:
    """Return a hash of a configuration without its number of steps."""
    return hash_config(json.loads(to_json(config)))


def save(folder: Path, learner: Learner, facts: Facts) -> None:
    """Write a checkpoint, then remove those that are not kept."""
    folder.mkdir(exist_ok=True)
    what = f"the checkpoint of iteration {facts.iteration}"
    save_tree(path_of(folder, facts.iteration), learner, dataclasses.asdict(facts), what)
    sweep(folder)


def sweep(folder: Path) -> None:
    """Remove checkpoints that are not kept, and partial files of a run that was cut off."""
    found = iterations(folder)
    kept = {*found[-_KEPT:], best(folder)}
    for n in found:
        if n not in kept and path_of(folder, n).is_file():
            path_of(folder, n).unlink()
    for left in folder.glob(f"*{FRESH}"):
        if left.is_file():
            left.unlink()


def path_of(folder: Path, iteration: int) -> Path:
    """Return the file of an iteration's checkpoint."""
    return folder / f"{iteration:06d}{_SUFFIX}"


def iterations(folder: Path) -> list[int]:
    """Return the iterations with a checkpoint, in order."""
    if any(_is_number(place.stem) and place.suffix != _SUFFIX for place in folder.glob("*")):
        raise ConfigError(f"{folder}: has an older format, this pcmlp reads {_FORMAT}; use the version that wrote it")
    return sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if _is_number(path.stem))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


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
    return _open(folder, iteration, lambda file: (read_facts(file), {}))[0]


def load(folder: Path, iteration: int, like: Any) -> Checkpoint:
    """Return the checkpoint, with `like` as the structure of its learner; raise a ValueError if the arrays do not fit
    it."""
    facts, arrays = _open(folder, iteration, load_facts_and_arrays)
    return Checkpoint(restore_tree(arrays, like), facts)


def _open(folder: Path, iteration: int, reader: Callable[[Path], tuple[dict, dict]]) -> tuple[Facts, dict]:
    """Return the checked facts of a checkpoint, and the arrays that the reader reads."""
    file = path_of(folder, iteration)
    try:
        record, arrays = reader(file)
        if (found := record.get("format")) != _FORMAT:
            raise ConfigError(f"{file}: has format {found}, this pcmlp reads {_FORMAT}; use the version that wrote it")
        facts = from_record(Facts, record)
        if facts.iteration != iteration:
            raise Damaged("renamed or edited")
        return facts, arrays
    except ConfigError:
        raise
    except (Damaged, OSError) as error:
        what = f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)
        earlier = [n for n in iterations(folder) if n < iteration]
        remedy = f"to continue from iteration {earlier[-1]}" if earlier else "to start over"
        raise ConfigError(f"{file}: {what}; remove it {remedy}") from error


def check_same(config: RunConfig, run: Path, trust_code: bool = True) -> None:
    """Raise unless the folder has the same configuration; only the number of steps may be larger."""
    check_folder(run)
    if (run / PLAN).exists():
        raise ConfigError(f"{run}: holds a plan, which cannot be resumed; give another out folder")
    try:
        old = read_json(run / "config.json")
        steps = check_type(old.get("steps"), int, "steps")
        hashes = check_type(old.get("code", {}), dict[str, str], "code")
    except (Damaged, OSError) as error:
        raise ConfigError(f"{run}/config.json: not the configuration of a run; give another out folder") from error
    check_code(flatten(old), hashes, trust_code, str(run))
    changed = differences(old, json.loads(to_json(config)))
    grown = list(changed) == ["steps"] and steps < config.steps
    if not changed or grown:
        return
    if "task.name" in changed:  # then show only the name: all other keys of the task differ as well
        changed = {key: changed[key] for key in ("task.name", "algo") if key in changed}
    shown = describe_differences(changed, len(changed))
    raise ConfigError(
        f"resume=True: {run} has another configuration ({shown}); give the same one, or another out folder"
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, with both values; None where a side has no such key."""
    before, after = flatten(old), flatten(new)
    keys = dict.fromkeys([*before, *after])
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def describe_differences(changed: Mapping[str, tuple[Any, Any]], most: int = 4) -> str:
    """Return a line about differences; if there are more than `most`, it has their number and names the first ones."""
    if len(changed) > most:
        return f"{len(changed)} settings differ, such as {', '.join(list(changed)[:most])}"
    return ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())


def is_finished(run: Path, config: RunConfig) -> bool:
    """Return whether all iterations are done, or the certificate has ended the run; not if more steps are given."""
    if not (run / "summary.json").exists():
        return False
    summary = read_summary(run)
    if summary.get("status") not in ENDED:
        return False
    try:
        check_unchanged(run)
    except (Damaged, OSError) as error:
        raise ConfigError(f"{run}: {first_line(error)}; give another out folder") from error
    if summary["status"] == "certified":
        return read_json(run / "config.json")["steps"] == config.steps
    return summary.get("iterations") == config.num_iterations


def newest_manifest(run: Path, summary: Mapping[str, Any]) -> Manifest | None:
    """Return the manifest of `summary.json`, which is empty if there is none, else that of the newest checkpoint."""
    if summary:
        return from_record(Manifest, summary.get("manifest") or {})
    found = iterations(run / "checkpoint")
    return read(run / "checkpoint", found[-1]) if found else None


def check_unchanged(run: Path) -> Manifest | None:
    """Return the newest manifest of a run; raise `Damaged` if its configuration or metrics were edited."""
    summary = read_summary(run) if (run / "summary.json").exists() else {}
    manifest = newest_manifest(run, summary)
    if manifest is not None:
        manifest.check_config(read_json(run / "config.json"))
        manifest.check_metrics(read_rows(run))
    return manifest


def latest_checkpoint(
    config: RunConfig, algorithm: Algorithm, mdp: MDP, run: Path, before: Iterable[Transitions] = ()
) -> Checkpoint | None:
    """Load the newest checkpoint, with its replay, whose first rows are those of `before`. Return None if there is no
    checkpoint, so that the run starts from the beginning."""
    folder = run / "checkpoint"
    found = iterations(folder)
    if not found:
        return None
    n, facts = found[-1], read(folder, found[-1])
    if (facts.task, facts.algo) != (config.task_name, config.algo):
        raise ConfigError(
            f"{folder}: is for {facts.task}, {facts.algo}, not {config.task_name}, {config.algo}; "
            "give another out folder"
        )
    if facts.config_sha256 != fingerprint(config):
        raise ConfigError(f"{folder}: has another configuration of {facts.task}; give another out folder")
    try:
        # Use a lambda: with the bound method, the algorithm would be an input and its numbers would be traced.
        like = eqx.filter_eval_shape(
            lambda keys: algorithm.without_replay(algorithm.start(keys, mdp, config.num_iterations)),
            seed_keys(config.seeds),
        )
        point = load(folder, n, like)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(_misfit(config, run, str(error))) from error
    _check_files(run, folder, found)
    walked = (record.rows for record in episodes.read(run / "episodes", facts.log_bytes))
    return Checkpoint(algorithm.restore_replay(point.learner, mdp, chain(before, walked)), facts)


def _check_files(run: Path, folder: Path, found: list[int]) -> None:
    """Raise unless metrics and log match the newest checkpoint; the message names the newest one that they do match."""
    damage = _damage(run, folder, found[-1])
    if damage is None:
        return
    newest = next((n for n in reversed(found[:-1]) if _damage(run, folder, n) is None), None)
    if newest is None:
        remedy = "give another out folder"
    else:
        later = " ".join(str(path_of(folder, n)) for n in found if n > newest)
        remedy = f"remove {later} to continue from iteration {newest}"
    raise ConfigError(f"{run}/{damage}; {remedy}")


def _damage(run: Path, folder: Path, n: int) -> str | None:
    """Return what is wrong with the metrics or the log up to the checkpoint of iteration n; None if nothing is."""
    try:
        facts, rows = read(folder, n), read_rows(run)
        facts.check_metrics(rows)
    except ConfigError:
        return f"checkpoint: the file of iteration {n} is damaged"
    except (Damaged, OSError) as error:
        return f"metrics.csv: truncated or edited before iteration {n} of the checkpoint ({first_line(error)})"
    if not facts.has_log(run / "episodes"):
        return f"episodes/log: truncated or edited before iteration {n} of the checkpoint"
    return None


def _misfit(config: RunConfig, run: Path, error: str) -> str:
    before = read_json(run / "config.json")["steps"]
    if before == config.steps:
        return f"{run}/checkpoint: written by another version of pcmlp ({error}); use that version"
    return (
        f"resume=True: steps: {before} -> {config.steps}, but a run of {config.algo} cannot be extended "
        f"({error}); give {before}, or another out folder"
    )


def changed_machine(facts: Facts) -> list[str]:
    """Return the differences from the machine of a checkpoint, which may change the last bits of later results."""
    old, new = {**facts.versions, "device": facts.device}, {**versions(), "device": device()}
    return [f"{key}: {before} -> {after}" for key, (before, after) in differences(old, new).items()]
