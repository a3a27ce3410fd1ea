"""`--resume`: whether the run in a folder can go on under a configuration, and from where. It looks and writes nothing.

A resumed run is the uninterrupted one, bit for bit on the same machine and versions, because all randomness of an
iteration comes from its seed and number. So its configuration must be the same; `steps` alone may grow, where no array
of the learner depends on it (Algorithm 2; the cover of Algorithm 1 has a place for each iteration).
"""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from pcmlp.runs import checkpoint
from pcmlp.runs.aim import FILE as PLAN
from pcmlp.runs.checkpoint import Checkpoint
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.durable import check_own
from pcmlp.runs.episodes import Extent, is_as_it_was, read, rows_of
from pcmlp.runs.folder import RunFolder, read_config, read_summary
from pcmlp.types import AbstractAlgorithm, ConfigError

ENDED = ("finished", "certified")  # the statuses of a run that has nothing more to do


def check_same(config: RunConfig, run: Path) -> None:
    """That the folder's configuration is this one, but for more steps."""
    if (run / PLAN).exists():
        raise ConfigError(f"{run}: holds a plan, which has no run to go on with; give another --out")
    try:
        old = read_config(run)
        known = checkpoint.of_old(old)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # no JSON, or that of something else
        raise ConfigError(f"{run}/config.json: not the configuration of a run; give another --out") from error
    changed = differences(known, checkpoint.of_old(json.loads(to_json(config))))
    grown = list(changed) == ["steps"] and old["steps"] < config.steps
    if not changed or grown:
        return
    if "task.name" in changed:  # all other keys of the task would differ as well
        changed = {key: changed[key] for key in ("task.name", "algo") if key in changed}
    shown = ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())
    raise ConfigError(f"--resume: not the configuration of {run} ({shown}); give that one, or another --out")


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """The keys of `--set` whose values are not the same, with both values; `none` where a side has no such key."""
    changed: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            changed |= differences(before, after, f"{prefix}{key}.")
        elif before != after:
            changed[f"{prefix}{key}"] = (before, after)
    return changed


def is_finished(run: Path, config: RunConfig, num_iterations: int) -> bool:
    """Whether all iterations are done, or the certificate has ended them; more steps are more to do in either case."""
    if not (run / "summary.json").exists():
        return False
    summary = read_summary(run)
    if summary["status"] == "certified":
        return read_config(run)["steps"] == config.steps
    return summary["status"] == "finished" and summary["iterations"] == num_iterations


def left_off(config: RunConfig, algo: AbstractAlgorithm, keys: Key[Array, " seeds"], run: Path) -> Checkpoint | None:
    """The newest checkpoint; None where there is none and the run starts afresh."""
    folder = run / "checkpoint"
    found = checkpoint.iterations(folder)
    if not found:
        return None
    n = found[-1]
    _check_facts(config, folder, checkpoint.read_facts(folder, n))
    try:
        # not `algo.start` itself: a method brings its algorithm along as an input, whose numbers are then unknown
        like = eqx.filter_eval_shape(lambda keys: algo.lightened(algo.start(keys)), keys)
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
    walked = (rows_of(record) for record in read(run / "episodes") if record.iteration <= n)
    return Checkpoint(algo.refilled(point.learner, walked), point.facts)


def _check_log(run: Path, folder: Path, found: list[int]) -> None:
    """That the log is the one that the newest checkpoint was made with; if not, which of the others it still serves."""
    serves = (n for n in reversed(found) if is_as_it_was(run / "episodes", _extent(checkpoint.read_facts(folder, n))))
    newest = next(serves, None)
    if newest == found[-1]:
        return
    if newest is None:
        remedy = "give another --out"
    else:
        later = " ".join(f"{folder}/{n:06d}" for n in found if n > newest)
        remedy = f"remove {later} to go on from iteration {newest}"
    raise ConfigError(
        f"{run}/episodes/log: truncated or edited before iteration {found[-1]} of the checkpoint; {remedy}"
    )


def _extent(facts: checkpoint.Facts) -> Extent:
    return Extent(facts.log_bytes, facts.log_sha256)


def _misfit(config: RunConfig, run: Path, error: str) -> str:
    before = read_config(run)["steps"]
    if before == config.steps:
        return f"{run}/checkpoint: not of this version of pcmlp ({error}); use the one that wrote it"
    return (
        f"--resume: steps: {before} -> {config.steps}, but {config.algo} has room for the first number only "
        f"({error}); give that one, or another --out"
    )


def changes_of_machine(facts: checkpoint.Facts, device: str, versions: dict[str, str]) -> list[str]:
    """What is not as it was, and may change the last bits of what follows."""
    old, new = {**facts.versions, "device": facts.device}, {**versions, "device": device}
    return [f"{key}: {before} -> {after}" for key, (before, after) in differences(old, new).items()]


def _check_facts(config: RunConfig, folder: Path, facts: checkpoint.Facts) -> None:
    if (facts.task, facts.algo) != (config.task_name, config.algo):
        raise ConfigError(
            f"{folder}: of {facts.task} by {facts.algo}, not of {config.task_name} by {config.algo}; give another --out"
        )
    if facts.config_sha256 != checkpoint.fingerprint(config):
        raise ConfigError(f"{folder}: of another configuration of {facts.task}; give another --out")
