"""The configuration of a run, resolved from presets and `--set key=value`, and as JSON.

`task`, `features`, `model` and `planner` are groups: `features.name=fourier` chooses the record whose fields
`features.dim` and so on then are, so that a group holds no setting of another record. Everything is checked here or in
`runs.build`, before anything is compiled.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcmlp.runs.options import (
    COMMAND_LINE,
    GROUPS,
    RECORDS,
    CoverConfig,
    DeepConfig,
    FrameworkConfig,
    FreeConfig,
    RunConfig,
    name_of,
)
from pcmlp.runs.parse import annotations, known, nearest, parse, parse_int, split_settings
from pcmlp.runs.presets import (
    ALGORITHMS,
    DEEP_PRESETS,
    DEEP_TASKS,
    FREE_PRESETS,
    PAPER_PRESETS,
    PLANNERS_OF,
    PRESETS,
    REWARD_FREE,
    algorithms_for,
    any_preset,
    default_algorithm,
    dense_preset,
)
from pcmlp.runs.validate import validate
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask, time_limit
from pcmlp.types import ConfigError

# Settings that are younger than runs which are to be read, and what they were before there was a choice.
LATER = {"noise": 0.0, "rnd_steps": None}
LATER_OF_PLANNER = {"trpo": {"entropy": 0.0}, "cem": {"truncated": False, "smoothing": 0.0}}


def plain_settings(record: type[RunConfig]) -> dict[str, Any]:
    """The keys of a configuration that are neither a group nor a flag, and their types."""
    elsewhere = (*COMMAND_LINE, *GROUPS, *record.absent)
    return {key: kind for key, kind in annotations(record).items() if key not in elsewhere}


def resolve(
    task: str,
    algo: str | None = None,
    seeds: Sequence[int | str] = (0, 1, 2, 3),
    steps: int | str | None = None,
    settings: Sequence[str] = (),
) -> RunConfig:
    """Presets, then `settings`, each a `key=value`; checked."""
    if task.startswith(PREFIX):
        return _resolve_registered(task.removeprefix(PREFIX), algo or "pcmlp", seeds, steps, settings)
    known("task", task, TASKS, "pcmlp list shows them all")
    algo = known("algo", algo or default_algorithm(task), ALGORITHMS, "pcmlp list shows them all")
    if (algo, task) not in PRESETS:
        works = " or ".join(algorithms_for(task))
        raise ConfigError(f"algo={algo}: not made for {task}; give --algo {works}")
    given = split_settings(settings)
    preset = _preset(algo, task, given)
    options = _choose("task", task, given, preset)
    record = RECORDS.get(algo, DeepConfig if task in DEEP_TASKS else FrameworkConfig)
    return _resolve(record, options, algo, seeds, preset["steps"] if steps is None else steps, preset, given)


def _resolve_registered(
    name: str, algo: str, seeds: Sequence[int | str], steps: int | str | None, settings: Sequence[str]
) -> RunConfig:
    """For an environment that is registered with Gymnasium."""
    given = _given_for_any(name, algo, settings)
    limit = time_limit(name)
    if limit is None and "task.horizon" not in given:
        raise ConfigError(f"task={PREFIX}{name}: has no time limit; give the steps of an episode, task.horizon=INT")
    if "task.id" in given:
        raise ConfigError(f"task.id={given['task.id']}: not a key of --set; give it as the first argument, {PREFIX}ID")
    options = _fill("task", GymnasiumTask, given, {"task.id": name, "task.horizon": limit}).with_hash()
    preset = any_preset(algo, options.horizon, given.get("preset") == "dense")
    record = RECORDS.get(algo, DeepConfig)
    return _resolve(record, options, algo, seeds, preset["steps"] if steps is None else steps, preset, given)


def resolve_gymnasium(
    name: str, horizon: int, algo: str, seed: int, steps: int, settings: Sequence[str] = ()
) -> DeepConfig:
    """For an environment that was handed in."""
    given = _given_for_any(name, algo, settings)
    if of_task := [key for key in given if key.startswith("task.")]:
        raise ConfigError(f"{of_task[0]}={given[of_task[0]]}: {name} is no task of ours; give it beside the env")
    if algo in RECORDS:
        raise ConfigError(
            f"algo={algo}: not for an agent, which is one of {' or '.join(DEEP_PRESETS)}; give one of them"
        )
    task, preset = GymnasiumTask(name, horizon), any_preset(algo, horizon, given.get("preset") == "dense")
    config = _resolve(DeepConfig, task, algo, (seed,), steps, preset, given)
    assert isinstance(config, DeepConfig)
    return config


def _given_for_any(name: str, algo: str, settings: Sequence[str]) -> dict[str, str]:
    """The settings, checked, of an environment that is not among our tasks."""
    if algo not in (any_algorithm := (*DEEP_PRESETS, *FREE_PRESETS)):
        raise ConfigError(f"algo={algo}: not made for any environment; give {' or '.join(any_algorithm)}")
    given = split_settings(settings)
    if given.get("preset", "ours") == "paper":
        raise ConfigError(f"preset=paper: the paper has no table for {name}; leave it out")
    if given.get("preset", "ours") == "dense":
        _check_dense(algo)
    return given


def _resolve(
    record: type[RunConfig],
    task: Any,
    algo: str,
    seeds: Sequence[int | str],
    steps: int | str,
    preset: dict[str, Any],
    given: dict[str, str],
) -> RunConfig:
    groups = {
        "task": task,
        "features": _choose("features", _group_name("features", given, preset, "task"), given, preset),
        "planner": _choose("planner", _planner_name(algo, given, preset), given, preset),
        "model": _choose("model", _model_name(given, preset), given, preset),
    }
    for key, text in given.items():
        _check_key(key, text, groups, record)
    kinds = plain_settings(record)
    plain = {key: preset[key] for key in kinds if key in preset}
    plain |= {key: parse(key, given[key], kind) for key, kind in kinds.items() if key in given}
    numbers = tuple(parse_int("seeds", str(seed)) for seed in seeds)
    config = record(algo=algo, seeds=numbers, steps=parse_int("steps", str(steps)), **groups, **plain)
    if config.samples_per_policy is None or "samples_per_policy" not in given:  # a preset does not know the horizon
        enough = max(config.samples_per_policy or 1, config.task.horizon)
        config = dataclasses.replace(config, samples_per_policy=enough)
    validate(config)
    return config


def _preset(algo: str, task: str, given: dict[str, str]) -> dict[str, Any]:
    chosen = parse("preset", given.get("preset", "ours"), annotations(RunConfig)["preset"])
    if chosen == "ours":
        return PRESETS[algo, task]
    if chosen == "dense":
        _check_dense(algo, task in DEEP_TASKS)
        return dense_preset(algo, task)
    if (algo, task) not in PAPER_PRESETS:
        raise ConfigError(f"preset=paper: the paper has no table for {algo} on {task}; leave it out")
    return PAPER_PRESETS[algo, task]


def _check_dense(algo: str, deep: bool = True) -> None:
    if algo != "pcmlp" or not deep:
        raise ConfigError(f"preset=dense: made for algo=pcmlp in tasks of vectors, not for {algo} here; leave it out")


def _model_name(given: dict[str, str], preset: dict[str, Any]) -> str:
    """A task or an algorithm comes with its class of models."""
    name = _group_name("model", given, preset, "task")
    made_for = preset.get("model.name", "task")
    if name != made_for:
        raise ConfigError(f"model.name={name}: this algorithm and task are for {made_for}; leave it out")
    return name


def _group_name(group: str, given: dict[str, str], preset: dict[str, Any], default: str) -> str:
    key = f"{group}.name"
    names = GROUPS[group]
    name = given[key] if key in given else preset.get(key, default)
    return known(key, name, names, "one of " + ", ".join(names))


def _planner_name(algo: str, given: dict[str, str], preset: dict[str, Any]) -> str:
    allowed = PLANNERS_OF[algo]
    name = _group_name("planner", given, preset, allowed[0])
    if name not in allowed:
        raise ConfigError(f"planner.name={name}: {algo} plans by {' or '.join(allowed)}; give that or leave it out")
    return name


def _choose(group: str, name: str, given: dict[str, str], preset: dict[str, Any]) -> Any:
    """The record `name` of the group; a preset for another record of it says nothing about this one."""
    same = preset.get(f"{group}.name", name) == name
    return _fill(group, GROUPS[group][name], given, preset if same else {})


def _fill(group: str, options: type, given: dict[str, str], preset: dict[str, Any]) -> Any:
    types = annotations(options)
    values = {name: preset[f"{group}.{name}"] for name in types if f"{group}.{name}" in preset}
    for name, annotation in types.items():
        key = f"{group}.{name}"
        if key in given:
            values[name] = parse(key, given[key], annotation)
    return options(**values)


def keys_of(groups: dict[str, Any], record: type[RunConfig]) -> list[str]:
    """Every key that `--set` takes, given the chosen records."""
    inside = [f"{group}.{name}" for group, options in groups.items() for name in annotations(type(options))]
    return [*plain_settings(record), "features.name", "model.name", "planner.name", *inside]


def _check_key(key: str, text: str, groups: dict[str, Any], record: type[RunConfig]) -> None:
    _check_absent(key, text, record)
    keys = keys_of(groups, record)
    if key in keys:
        return
    if key in COMMAND_LINE or key == "task.name":
        flag = "the first argument" if key.startswith("task") else f"--{key}"
        raise ConfigError(f"{key}={text}: not a key of --set; give it as {flag}")
    if key not in plain_settings(DeepConfig) and any(key in plain_settings(o) for o in (FreeConfig, CoverConfig)):
        raise ConfigError(f"{key}={text}: a setting of algorithms with no model, trpo, sac and pc-pg; leave it out")
    if any(key in plain_settings(other) for other in (FrameworkConfig, DeepConfig)):
        other = 2 if key in plain_settings(DeepConfig) else 1
        raise ConfigError(f"{key}={text}: a setting of Algorithm {other}, which is not what runs here; leave it out")
    group, _, name = key.partition(".")
    elsewhere = [other for other, options in GROUPS.get(group, {}).items() if name in annotations(options)]
    if elsewhere and group != "task":
        chosen = name_of(GROUPS[group], groups[group])
        raise ConfigError(f"{key}={text}: {group} {chosen} has no {name} (of {' and '.join(elsewhere)}); leave it out")
    raise ConfigError(f"{key}={text}: unknown key; the nearest is {nearest(key, keys)}")


def _check_absent(key: str, text: str, record: type[RunConfig]) -> None:
    """That who has no model or bonus is not asked to set it."""
    if record not in (FreeConfig, CoverConfig) or (key, text) in (("features.name", "none"), ("model.name", "none")):
        return
    if key.startswith("model."):
        raise ConfigError(f"{key}={text}: this algorithm is model-free, so there is no model to set; leave it out")
    if record is not FreeConfig:
        return
    if key == "reward_free":
        works = " or ".join(REWARD_FREE)
        raise ConfigError(f"{key}={text}: without a reward this algorithm learns nothing; give --algo {works}")
    if key in record.absent or key.startswith("features."):
        raise ConfigError(f"{key}={text}: this algorithm has no bonus, so there is nothing of it to set; leave it out")


def to_json(config: RunConfig) -> str:
    """Whole and resolved; the keys are those of `--set`."""
    record = dataclasses.asdict(config)
    for group, names in GROUPS.items():
        record[group] = {"name": name_of(names, getattr(config, group)), **record[group]}
    record["task"].pop("id", None)  # the name has it
    for key in config.absent:
        del record[key]
    return json.dumps(record, indent=2) + "\n"


def from_json(text: str) -> RunConfig:
    """What it does not say is the preset's, but a planner's settings that came later than the run were off."""
    try:
        record = json.loads(text)
        task, algo, seeds, steps = record["task"].pop("name"), record["algo"], record["seeds"], record["steps"]
        record["planner"] = {**LATER_OF_PLANNER.get(record["planner"]["name"], {}), **record["planner"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"config.json: not the configuration of a run ({error!r}); start the run again") from error
    return resolve(task, algo, seeds, steps, settings_in(record))


def load_config(run: Path) -> RunConfig:
    try:
        return from_json((run / "config.json").read_text())
    except OSError as error:
        raise ConfigError(f"{run}: not a run folder ({error.strerror}: {error.filename})") from error


def settings_in(record: dict[str, Any], prefix: str = "") -> list[str]:
    """The settings of a configuration's JSON, as `--set` takes them."""
    items = []
    for key, value in record.items():
        if isinstance(value, dict):
            items += settings_in(value, f"{key}.")
        elif prefix or key not in COMMAND_LINE:
            if isinstance(value, list):
                value = ",".join(map(str, value))
            text = value if isinstance(value, str) else str(value).lower()  # None and booleans as `--set` has them
            items.append(f"{prefix}{key}={text}")
    return items


__all__ = [
    "LATER",
    "LATER_OF_PLANNER",
    "RunConfig",
    "from_json",
    "keys_of",
    "load_config",
    "resolve",
    "resolve_gymnasium",
    "settings_in",
    "to_json",
]
