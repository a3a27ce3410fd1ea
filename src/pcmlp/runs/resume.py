"""`--resume`: whether the run in a folder can continue with a configuration, and from which iteration. This only reads.

A resumed run equals an uninterrupted one, bit for bit on the same machine and versions, because all randomness of an
iteration comes from its seed and number. So its configuration must be the same; only `steps` may grow, where no array
of the learner depends on it (Algorithm 2; the cover of Algorithm 1 has a place for each iteration).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx

from pcmlp.errors import ConfigError
from pcmlp.runs import checkpoint
from pcmlp.runs.aim import FILE as PLAN
from pcmlp.runs.checkpoint import Checkpoint, Facts
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.durable import check_own, read_json
from pcmlp.runs.episodes import Extent, is_unchanged, read
from pcmlp.runs.folder import RunFolder, read_config, read_summary
from pcmlp.runs.run import seed_keys
from pcmlp.runs.summary import device, versions
from pcmlp.settings import flatten
from pcmlp.types import MDP, Algorithm
from pcmlp.usercode import check_code

ENDED = ("finished", "certified")  # the statuses of a run that has nothing more to do


def check_same(config: RunConfig, run: Path, trust_code: bool = True) -> None:
    """Raise unless the folder has the same configuration; only the number of steps may be larger."""
    if (run / PLAN).exists():
        raise ConfigError(f"{run}: holds a plan, which cannot be resumed; give another --out")
    try:
        old = read_json(run / "config.json")
        steps = old["steps"]
        check_code(flatten(old), old.get("code", {}), trust_code, str(run))
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or another kind of JSON
        raise ConfigError(f"{run}/config.json: not the configuration of a run; give another --out") from error
    changed = differences(old, json.loads(to_json(config)))
    grown = list(changed) == ["steps"] and steps < config.steps
    if not changed or grown:
        return
    if "task.name" in changed:  # then show only the name: all other keys of the task differ as well
        changed = {key: changed[key] for key in ("task.name", "algo") if key in changed}
    shown = ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())
    raise ConfigError(f"--resume: not the configuration of {run} ({shown}); give that one, or another --out")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, with both values; None where a side has no such key."""
    before, after = flatten(old), flatten(new)
    keys = dict.fromkeys([*before, *after])
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def is_finished(run: Path, config: RunConfig) -> bool:
    """Return whether all iterations are done, or the certificate has ended the run; not if more steps are given."""
    if not (run / "summary.json").exists():
        return False
    summary = read_summary(run)
    if summary["status"] == "certified":
        return read_config(run)["steps"] == config.steps
    return summary["status"] == "finished" and summary["iterations"] == config.num_iterations


def latest_checkpoint(config: RunConfig, algorithm: Algorithm, mdp: MDP, run: Path) -> Checkpoint | None:
    """Load the newest checkpoint, with its replay; None if there is none and the run starts from the beginning."""
    folder = run / "checkpoint"
    found = checkpoint.iterations(folder)
    if not found:
        return None
    n = found[-1]
    _check_facts(config, folder, checkpoint.read(folder, n))
    keys = seed_keys(config.seeds)
    try:
        # Use a lambda: with the bound method, the algorithm would be an input and its numbers would be traced.
        like = eqx.filter_eval_shape(
            lambda keys: algorithm.without_replay(algorithm.start(keys, mdp, config.num_iterations)), keys
        )
        point = checkpoint.load(folder, n, like)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(_misfit(config, run, str(error))) from error
    for file in ("metrics.csv", "episodes/log"):
        check_own(run / file, run)
    if len(RunFolder(run).rows_through(n)) != (n + 1) * len(config.seeds):
        raise ConfigError(f"{run}/metrics.csv: ends before iteration {n} of the checkpoint; give another --out")
    _check_log(run, folder, found)
    walked = (record.rows for record in read(run / "episodes") if record.iteration <= n)
    return Checkpoint(algorithm.restore_replay(point.learner, mdp, walked), point.facts)


def _check_log(run: Path, folder: Path, found: list[int]) -> None:
    """Raise unless the log matches the newest checkpoint; the message names the newest one that it does match."""
    facts = {n: checkpoint.read(folder, n) for n in reversed(found)}
    newest = next((n for n, fact in facts.items() if is_unchanged(run / "episodes", _extent(fact))), None)
    if newest == found[-1]:
        return
    if newest is None:
        remedy = "give another --out"
    else:
        later = " ".join(str(checkpoint.path_of(folder, n)) for n in found if n > newest)
        remedy = f"remove {later} to go on from iteration {newest}"
    raise ConfigError(
        f"{run}/episodes/log: truncated or edited before iteration {found[-1]} of the checkpoint; {remedy}"
    )


def _extent(facts: Facts) -> Extent:
    return Extent(facts.log_bytes, facts.log_sha256)


def _misfit(config: RunConfig, run: Path, error: str) -> str:
    before = read_config(run)["steps"]
    if before == config.steps:
        return f"{run}/checkpoint: not of this version of pcmlp ({error}); use the one that wrote it"
    return (
        f"--resume: steps: {before} -> {config.steps}, but a run of {config.algo} cannot be extended "
        f"({error}); give that one, or another --out"
    )


def changed_machine(facts: Facts) -> list[str]:
    """Return the differences from the machine of a checkpoint, which may change the last bits of later results."""
    old, new = {**facts.versions, "device": facts.device}, {**versions(), "device": device()}
    return [f"{key}: {before} -> {after}" for key, (before, after) in differences(old, new).items()]


def _check_facts(config: RunConfig, folder: Path, facts: Facts) -> None:
    if (facts.task, facts.algo) != (config.task_name, config.algo):
        raise ConfigError(
            f"{folder}: is for {facts.task}, {facts.algo}, not {config.task_name}, {config.algo}; give another --out"
        )
    if facts.config_sha256 != checkpoint.fingerprint(config):
        raise ConfigError(f"{folder}: has another configuration of {facts.task}; give another --out")
