"""Settings: each hyperparameter is a field of the class that uses it, with its default, its limits and one sentence.

    class TRPO(Planner):
        updates: int = setting(40, "updates of one plan", least=1, tiny=1)
        kl_bound: float = setting(0.01, "trust region, in nats", above=0)

The keys of `--set`, `config.json`, the checks and the tables of the docs all come from such fields. A class with
settings is a `Part`; a setting may itself be a part, and then has keys of its own below its name: `planner.updates`.

A float is an input of the compiled program, so that another value does not compile again (`trees.as_inputs`). Anything
else is static, unless `traced` says otherwise.
"""

import contextlib
import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx

from pcmlp.errors import ConfigError

Real = int | float
_LARGEST_INT = 2**31 - 1  # arrays are indexed by 32 bits
_NUMBERS = {int: "a whole number", float: "a number", str: "a text"}
_SWITCH = {"true": True, "false": False, "on": True, "off": False}


class SettingError(ConfigError):
    """A setting with a bad value. A remedy names other settings of the same part in braces; `under` adds their path."""

    def __init__(self, key: str, value: Any, remedy: str, path: str = ""):
        others = re.sub(r"\{(\w+)\}", rf"{path}\1", remedy)
        super().__init__(f"{path}{key}={show(value)}: {others}")
        self.key, self.value, self.remedy, self.path = key, value, remedy, path

    def under(self, path: str) -> "SettingError":
        """Return the error with `path`, such as "planner.", before its key."""
        return SettingError(self.key, self.value, self.remedy, path + self.path)


class Limits(NamedTuple):
    """The values that a setting may have: numbers, or all numbers of a tuple."""

    least: Real | None = None
    most: Real | None = None
    above: Real | None = None
    below: Real | None = None

    def allow(self, value: Real) -> bool:
        """Return whether a number is finite and within the limits."""
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        least, most, above, below = (None if limit is None else f"{limit:.10g}" for limit in self)
        if least and (most or below):
            return f"{least} to {most}" if most else f"from {least} to below {below}"
        if least:
            return f"{least} or more"
        return " and ".join([*([f"above {above}"] if above else []), *([f"at most {most}"] if most else [])])


class Setting(NamedTuple):
    """A field of a part: all that is known about one hyperparameter."""

    name: str
    annotation: Any
    default: Any
    help: str
    limits: Limits
    tiny: Any  # a value for runs of milliseconds; None: the default is small enough
    tune: str | None  # the range that `pcmlp tune` searches, such as 0.01:1:log; None: not searched


def setting(
    default: Any,
    help: str,
    *,
    least: Real | None = None,
    most: Real | None = None,
    above: Real | None = None,
    below: Real | None = None,
    tiny: Any = None,
    tune: str | None = None,
    traced: bool | None = None,
) -> Any:
    """Declare a field of a `Part` as a setting."""
    traced = isinstance(default, float | Part) if traced is None else traced
    about = {"help": help, "limits": Limits(least, most, above, below), "tiny": tiny, "tune": tune}
    return eqx.field(default=default, static=not traced, metadata=about)


class Part(eqx.Module):
    """A record of settings that is checked when it is made."""

    def __check_init__(self) -> None:
        for field in settings_of(type(self)):
            check_value(field, getattr(self, field.name))
        self.check()

    def check(self) -> None:
        """Raise if settings contradict each other."""


@functools.cache
def settings_of(part: type) -> tuple[Setting, ...]:
    """Return the settings of a class, in the order of its fields."""
    hints, about = typing.get_type_hints(part), ("help", "limits", "tiny", "tune")
    declared = [field for field in dataclasses.fields(part) if "help" in field.metadata]
    return tuple(Setting(f.name, hints[f.name], f.default, *(f.metadata[name] for name in about)) for f in declared)


def check_value(field: Setting, value: Any) -> None:
    """Raise if the value of a setting is outside its limits or of the wrong type. Arrays of a program are accepted."""
    options = _options(field.annotation)
    if eqx.is_array(value) or (value is None and type(None) in options):
        return
    if (wanted := _wanted(options, value)) is not None:
        text = f", not the string {value!r}" if isinstance(value, str) else ""
        raise SettingError(field.name, value, f"give {wanted}{text}")
    numbers = [number for number in (value if isinstance(value, tuple) else (value,)) if isinstance(number, Real)]
    huge = any(isinstance(number, int) and abs(number) > _LARGEST_INT for number in numbers)
    if not huge and all(map(field.limits.allow, numbers)) and value != ():
        return
    limits = f"at most {_LARGEST_INT}" if huge else str(field.limits) or "finite"
    remedy = f"a number {limits}" if limits.startswith(("above", "at most", "from", "finite")) else limits
    remedy = f"at least one number, each {limits}" if isinstance(value, tuple) else remedy
    example = f", such as {show(field.default)}" if isinstance(field.default, tuple) else ""
    none = ", or none" if type(None) in options else ""
    raise SettingError(field.name, value, f"give {remedy}{example}{none} ({field.help})")


def _options(annotation: Any) -> tuple[Any, ...]:
    """Return the types that an annotation accepts, such as int and NoneType for `int | None`."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if union else (annotation,)


def _wanted(options: tuple[Any, ...], value: Any) -> str | None:
    """Return what to give instead of a value of the wrong type, or None."""
    first, origin = options[0], typing.get_origin(options[0])
    if first is bool or origin is Literal:
        known = typing.get_args(first) or (True, False)
        return None if value in known and type(value) in map(type, known) else " or ".join(map(show, known))
    if origin is tuple:
        whole = isinstance(value, tuple) and all(type(item) is int for item in value)
        return None if whole else "a tuple of whole numbers"
    if first in _NUMBERS:
        if isinstance(value, str) and value in _words(options):
            return None
        good = isinstance(value, Real if first is float else first) and not isinstance(value, bool)
        return None if good else " or ".join((_NUMBERS[first], *_words(options)))
    kinds = tuple(option for option in options if isinstance(option, type))
    free = len(kinds) < len(options)  # a function is accepted as well
    return None if isinstance(value, kinds) or (free and callable(value)) else f"a {kinds[0].__name__}"


def _words(options: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the words that an annotation accepts in place of a number, such as auto in `float | Literal["auto"]`."""
    return tuple(word for option in options[1:] for word in typing.get_args(option))


def show(value: Any) -> str:
    """Return a value as `--set` takes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(show, value))
    return value if isinstance(value, str) else str(value).lower()  # None and booleans


def kind_of(annotation: Any) -> type[Part]:
    """Return the abstract class, such as `Planner`, that a field of a part accepts."""
    return next(kind for kind in (annotation, *typing.get_args(annotation)) if isinstance(kind, type))


@typing.runtime_checkable
class Names(typing.Protocol):
    """The parts that can be chosen by name."""

    def find(self, key: str, kind: type[Part], name: str) -> type[Part]:
        """Return the part of a kind with this name, or raise a `ConfigError`."""
        ...

    def name_of(self, part: Part) -> str | None:
        """Return the name of a part; None for one that cannot be chosen."""
        ...


def overlay(part: Part, values: Mapping[str, Any], names: Names, path: str = "") -> Part:
    """Return the part with the settings in `values` that lie under `path`. Text is parsed, other values are taken as
    they are; `NAME.name` replaces a part by another one with its own defaults."""
    changes: dict[str, Any] = {}
    for field in settings_of(type(part)):
        key, value = f"{path}{field.name}", getattr(part, field.name)
        if isinstance(value, Part):
            name = values.get(f"{key}.name")
            if name is not None and name != names.name_of(value):
                value = names.find(f"{key}.name", kind_of(field.annotation), name)()
            changes[field.name] = overlay(value, values, names, f"{key}.")
        elif key in values:
            given = values[key]
            changes[field.name] = parse(key, given, field.annotation) if isinstance(given, str) else given
    try:
        return dataclasses.replace(part, **changes) if changes else part
    except SettingError as error:
        raise error.under(path) from None


def to_record(part: Part, names: Names) -> dict[str, Any]:
    """Return the settings of a part as JSON values; a part inside it is an object with its `name`."""
    record: dict[str, Any] = {}
    for field in settings_of(type(part)):
        value = getattr(part, field.name)
        if isinstance(value, Part):
            name = names.name_of(value)
            value = {**({} if name is None else {"name": name}), **to_record(value, names)}
        record[field.name] = list(value) if isinstance(value, tuple) else value
    return record


def flatten(record: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return a configuration's JSON by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat |= flatten(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat


def walk(part: Part, path: str = "") -> Iterator[tuple[str, Setting, Any]]:
    """Yield key, setting and value of every setting of a part and of the parts in it."""
    for field in settings_of(type(part)):
        key, value = f"{path}{field.name}", getattr(part, field.name)
        yield f"{key}.name" if isinstance(value, Part) else key, field, value
        if isinstance(value, Part):
            yield from walk(value, f"{key}.")


def tiny_settings(part: Part) -> dict[str, Any]:
    """Return the settings that make a run with this part take milliseconds, by key."""
    return {key: field.tiny for key, field, value in walk(part) if field.tiny is not None and value is not None}


def parse(key: str, text: str, annotation: Any) -> Any:
    """Return the value that a text stands for, as the annotation asks."""
    options = _options(annotation)
    if text.lower() == "none" and type(None) in options:
        return None
    if text in _words(options):
        return text
    wanted = next(option for option in options if option is not type(None))
    if typing.get_origin(wanted) is Literal:
        if text not in typing.get_args(wanted):
            raise ConfigError(f"{key}={text}: give one of {', '.join(typing.get_args(wanted))}")
        return text
    if typing.get_origin(wanted) is tuple:
        try:
            return tuple(parse_int(key, item) for item in text.strip("[]()").split(",") if item.strip())
        except ConfigError:
            raise ConfigError(f"{key}={text}: give whole numbers separated by commas, such as 64,64") from None
    if wanted is bool:
        if text.lower() not in _SWITCH:
            raise ConfigError(f"{key}={text}: give {' or '.join(_SWITCH)}")
        return _SWITCH[text.lower()]
    if wanted is float:
        return parse_float(key, text, _words(options))
    return parse_int(key, text) if wanted is int else text


def parse_int(key: str, text: str) -> int:
    """Return a whole number; 1e5 is one too."""
    with contextlib.suppress(ValueError):
        return int(text)
    if not (number := _as_float(text)).is_integer():
        raise ConfigError(f"{key}={text}: not a whole number; give one such as 10 or 1e5")
    return int(number)


def parse_float(key: str, text: str, words: tuple[str, ...] = ()) -> float:
    """Return a finite number. The setting may be one of some words instead."""
    if not math.isfinite(number := _as_float(text)):
        raise ConfigError(f"{key}={text}: not a finite number; give one such as {' or '.join(('0.1', *words))}")
    return number


def _as_float(text: str) -> float:
    """Return the number that a text stands for, or NaN."""
    with contextlib.suppress(ValueError):
        return float(text)
    return math.nan
