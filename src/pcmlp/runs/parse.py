"""Text into the value that a field's annotation asks for, and names into the one that was meant.

Whatever is wrong ends in a `ConfigError` of one line: the key, the value, the remedy.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

from pcmlp.types import ConfigError


def nearest(word: str, words: Iterable[str]) -> str:
    return difflib.get_close_matches(word, list(words), n=1, cutoff=0.0)[0]


def known(key: str, name: str, names: Iterable[str], remedy: str) -> str:
    """`name`, which must be one of `names`."""
    if name not in names:
        raise ConfigError(f"{key}={name}: unknown; the nearest is {nearest(name, names)} ({remedy})")
    return name


def parse(key: str, text: str, annotation: Any) -> Any:
    """`text` as a value of the annotated type."""
    options = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return known(key, text, options, "one of " + ", ".join(options))
    if origin in (types.UnionType, typing.Union):
        if text.lower() == "none" and type(None) in options:
            return None
        return parse(key, text, next(option for option in options if option is not type(None)))
    if annotation is int:
        return parse_int(key, text)
    if annotation is float:
        return parse_float(key, text)
    if annotation is str:
        return text
    if annotation is bool:
        return known(key, text.lower(), ("true", "false"), "true or false") == "true"
    if origin is tuple:
        return tuple(parse_int(key, item) for item in text.strip("[]()").split(",") if item.strip())
    raise TypeError(f"{key} is annotated {annotation}, which no text is parsed to")


def parse_int(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)  # 1e5 is a whole number too
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number.is_integer()):
        raise ConfigError(f"{key}={text}: not a whole number; give one such as 10")
    return int(number)


def parse_float(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{key}={text}: not a finite number; give one such as 0.1")
    return number


def split_settings(settings: Iterable[str]) -> dict[str, str]:
    """`key=value` items as a dict."""
    given: dict[str, str] = {}
    for item in settings:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {item}: no key=value; write it like --set bonus_scale=0.1")
        if key in given:
            raise ConfigError(f"{key}={text.strip()}: set twice (before: {given[key]}); give it once")
        given[key] = text.strip()
    return given


def annotations(options: type) -> dict[str, Any]:
    """The fields of a dataclass and their types."""
    hints = typing.get_type_hints(options)
    return {field.name: hints[field.name] for field in dataclasses.fields(options)}
