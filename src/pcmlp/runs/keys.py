"""The keys of `--set`: which keys exist, which have an effect in a method, and error messages for the others."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.method import Method
from pcmlp.errors import ConfigError, nearest
from pcmlp.parts import NAMES, PARTS
from pcmlp.settings import Part, parse_int, show, walk
from pcmlp.types import Algorithm, Task
from pcmlp.usercode import is_place

RUN_KEYS = ("preset", "eval_episodes", "eval_every")  # settings of a run itself
FLAGS = ("algo", "seeds", "steps")  # settings that have a flag of their own


def split_settings(settings: Iterable[str]) -> dict[str, str]:
    """Return `key=value` items as a dict."""
    given: dict[str, str] = {}
    for item in settings:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"{item}: not a setting of the form key=value; write for example bonus_scale=0.1")
        if key in given:
            raise ConfigError(f"{key}={text.strip()}: set twice (before: {given[key]}); give it once")
        given[key] = text.strip()
    return given


def parse_seeds(seeds: Sequence[int | str]) -> tuple[int, ...]:
    """Return the seeds as whole numbers."""
    try:
        return tuple(parse_int("seeds", str(seed)) for seed in seeds)
    except ConfigError:
        shown = " ".join(map(str, seeds))
        raise ConfigError(f"seeds={shown}: give whole numbers separated by spaces, such as seeds=0 1 2") from None


def setting_keys(task: Task, algorithm: Algorithm) -> list[str]:
    """Return every key that `--set` takes for a task and an algorithm."""
    inside = [key for key, _, value in walk(algorithm) if not isinstance(value, Part) or NAMES.name_of(value)]
    return [*RUN_KEYS, *inside, *(key for key, *_ in walk(task, "task."))]


def unused_reason(method: Method, task: Task, algorithm: Part, key: str) -> str | None:
    """Return why a setting has no effect for an algorithm on a task, or None if it has one."""
    if key.startswith("outcome.") and not task.learns_outcome:
        return "reward and end of the task are known"
    if key == "margin" and isinstance(algorithm, Deep) and not algorithm.bounded:
        return "imagined states have no bounds unless bounded=true"
    return method.unused_reason(key)


def check_used(given: Mapping[str, str], algo: str, reason: Callable[[str], str | None]) -> None:
    """Raise if a given setting has no effect; `reason` says why a key has none."""
    for key, text in given.items():
        if (why := reason(key)) is not None:
            raise ConfigError(f"{key}={text}: has no effect with {algo}: {why}; leave it out")


def check_known(given: Mapping[str, str], task: Task, algo: str, algorithm: Algorithm) -> None:
    """Raise if the algorithm and the task do not have a given setting."""
    keys = setting_keys(task, algorithm)
    for key, text in given.items():
        if key not in keys:
            raise ConfigError(f"{key}={text}: {_explain(key, text, task, algo, algorithm, keys)}")


def _explain(key: str, text: str, task: Task, algo: str, algorithm: Algorithm, keys: Sequence[str]) -> str:
    """Return what is wrong with an unknown key, and what to do."""
    if key in FLAGS or key in ("task.name", "task.id"):
        return (
            f"not a setting; give {'the task' if key.startswith('task') else f'{key}={text}'} as an argument of its own"
        )
    group, _, name = key.rpartition(".")
    part = {**dict(_groups(algorithm)), "task": task}.get(group)
    if part is not None and group:
        kind = next((kind for kind in PARTS if isinstance(part, kind)), None)
        others = [other for other, made in PARTS[kind].items() if name in _field_names(made)] if kind else []
        if others:
            return f"{group} {NAMES.name_of(part)} has no {name} (a setting of {' and '.join(others)}); leave it out"
    owners = [
        other
        for other, made in METHODS.items()
        if made.unused_reason(key) is None and key in (known for known, *_ in walk(made.algorithm))
    ]
    if owners:
        return f"{algo} has no such setting (it is one of {', '.join(owners)}); leave it out"
    if not any(text in names for names in PARTS.values()):
        keys = [known for known in keys if not known.endswith(".name")]
    return f"unknown key; the nearest is {nearest(key, keys)} (pcmlp list {algo} shows them all)"


def _groups(part: Part, path: str = "") -> Iterable[tuple[str, Part]]:
    for key, _, value in walk(part, path):
        if isinstance(value, Part):
            yield key.removesuffix(".name"), value


def _field_names(part: type[Part]) -> list[str]:
    return [item.name for item in dataclasses.fields(part) if "help" in item.metadata]


def check_choices(given: Mapping[str, str], method: Method, algo: str) -> None:
    """Raise if a part of the library does not fit the method; the user's own parts are not restricted."""
    own = dict(_groups(method.algorithm))
    for key, name in given.items():
        group = key.removesuffix(".name")
        if not key.endswith(".name") or group not in own or is_place(name):
            continue
        allowed = method.choices.get(group) or (NAMES.name_of(own[group]),)
        if name not in allowed:
            raise ConfigError(f"{key}={name}: {algo} takes {' or '.join(map(str, allowed))}; give that or leave it out")


def round_up_samples(algorithm: Algorithm, given: Mapping[str, str], horizon: int) -> Algorithm:
    """Give every policy at least one whole episode; raise if the user gave a smaller number."""
    samples = algorithm.samples_per_policy
    if samples >= horizon:
        return algorithm
    if "samples_per_policy" in given:
        if not algorithm.draws_episodes:
            return algorithm
        iid = ", or draws=iid" if isinstance(algorithm, PCMLP) else ""
        raise ConfigError(
            f"samples_per_policy={samples}: less than one episode of {horizon} steps; give {horizon} or more{iid}"
        )
    return dataclasses.replace(algorithm, samples_per_policy=horizon)


def show_changed(part: Part, group: str) -> str:
    """Return the settings of a part that differ from its defaults, for an error message about their combination."""
    changed = {key: value for key, setting, value in walk(part, f"{group}.") if value != setting.default}
    pairs = " ".join(f"{key}={show(value)}" for key, value in changed.items())
    return pairs or f"{group}.name={NAMES.name_of(part)}"
