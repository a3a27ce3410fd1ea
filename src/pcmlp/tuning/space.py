"""The ranges that `pcmlp tune` searches.

    bonus_scale=0.005:0.5:log    numbers from 0.005 to 0.5, on a logarithmic scale
    rounds=1:8                   whole numbers, because the setting is one
    planner.name=trpo,sac        one of these values

A setting declares its range in this form (`setting(..., tune="0.005:0.5:log")`), so each range is written once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pcmlp.errors import ConfigError, nearest
from pcmlp.runs.config import RunConfig
from pcmlp.runs.keys import unused_reason
from pcmlp.settings import Part, Real, Setting, parse, parse_float, show, walk

_DIGITS = 3  # significant digits of the numbers that the search tries


class Numbers(NamedTuple):
    """A range of numbers."""

    key: str
    low: float
    high: float
    log: bool  # whether numbers are drawn on a logarithmic scale
    whole: bool

    def suggest(self, trial: Any) -> str:
        """Return the value that Optuna's trial has, as `--set` takes it."""
        if self.whole:
            return show(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log))
        number = float(f"{trial.suggest_float(self.key, self.low, self.high, log=self.log):.{_DIGITS}g}")
        return show(min(max(number, self.low), self.high))

    def ends(self) -> tuple[str, ...]:
        """Return the smallest and the largest value."""
        return tuple(show(int(end) if self.whole else end) for end in (self.low, self.high))

    def read(self, text: str) -> Any:
        """Return a value as a number for Optuna; raise a ValueError if it is not in the range."""
        number = int(text) if self.whole else float(text)
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.key}={text} is not in {self}")
        return number

    def distribution(self) -> Any:
        """Return the range for Optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def __str__(self) -> str:
        return f"{self.key}={':'.join(self.ends())}{':log' if self.log else ''}"


class Listed(NamedTuple):
    """A list of values."""

    key: str
    texts: tuple[str, ...]

    def suggest(self, trial: Any) -> str:
        """Return the value that Optuna's trial has, as `--set` takes it."""
        return trial.suggest_categorical(self.key, self.texts)

    def ends(self) -> tuple[str, ...]:
        """Return all values."""
        return self.texts

    def read(self, text: str) -> Any:
        """Return a value for Optuna; raise a ValueError if it is not in the list."""
        if text not in self.texts:
            raise ValueError(f"{self.key}={text} is not in {self}")
        return text

    def distribution(self) -> Any:
        """Return the values for Optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.texts)

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.texts)}"


Dimension = Numbers | Listed


def declared(config: RunConfig, fixed: Sequence[str]) -> list[Dimension]:
    """Return the declared ranges of a configuration's settings. Settings that are fixed, have no effect, or have a word
    as value are left out. A range is extended to the configuration's own value."""
    return [
        _including(_parse(key, str(field.tune), field), value)
        for key, field, value in walk(config.algorithm)
        if field.tune and key not in fixed and _is_number(value) and _has_effect(config, key)
    ]


def given(items: Sequence[str], config: RunConfig, fixed: Sequence[str]) -> list[Dimension]:
    """Return the ranges that `--space` gives: KEY=VALUES, or a key alone for the declared range."""
    fields = {key: (field, value) for key, field, value in walk(config.algorithm)}
    found: dict[str, Dimension] = {}
    for item in items:
        key, _, text = (part.strip() for part in item.partition("="))
        if key not in fields:
            own = [known for known, (field, _) in fields.items() if field.tune]
            remedy = f"the nearest is {nearest(key, own or list(fields))}; pcmlp list {config.algo} shows them all"
            raise ConfigError(f"space={item}: {config.algo} has no setting {key!r} that can be searched; {remedy}")
        if key in found or key in fixed:
            raise ConfigError(f"space={item}: {key} is {'given twice' if key in found else 'fixed by set'}; give one")
        field, value = fields[key]
        if not (text or field.tune):
            raise ConfigError(f"space={item}: {key} declares no values; give {key}=LOW:HIGH or {key}=A,B")
        if not _has_effect(config, key):
            raise ConfigError(f"space={item}: {key} has no effect with {config.algo}; leave it out")
        dimension = _parse(key, text or str(field.tune), field)
        found[key] = dimension if text or not _is_number(value) else _including(dimension, value)
    for key in found:
        group = key.removesuffix("name")
        if key.endswith(".name") and (inside := [other for other in found if other != key and other.startswith(group)]):
            raise ConfigError(
                f"space={inside[0]}: each value of {key} has its own settings; search only one of the two"
            )
    return list(found.values())


def own_values(dimensions: Sequence[Dimension], config: RunConfig) -> dict[str, Any] | None:
    """Return the configuration's own values for Optuna's first trial; None if one of them is not in its range."""
    values = {key: value for key, _, value in walk(config.algorithm)}
    parts = {f"{group}.name": name for group, name in config.part_names().items()}
    try:
        return {each.key: each.read(parts.get(each.key) or show(values[each.key])) for each in dimensions}
    except ValueError:
        return None


def _has_effect(config: RunConfig, key: str) -> bool:
    return unused_reason(config.method, config.task, config.algorithm, key) is None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _including(dimension: Dimension, value: Real) -> Dimension:
    """Return the range, extended to a value if necessary. 0 has no logarithm, so it stays outside of a log range."""
    if isinstance(dimension, Listed) or (dimension.log and value <= 0):
        return dimension
    low, high = min(dimension.low, value), max(dimension.high, value)
    return dimension._replace(low=low, high=high)


def _parse(key: str, text: str, field: Setting) -> Dimension:
    """Return the range that a text describes."""
    shown = f"space={key}={text}"
    if isinstance(field.default, tuple):
        raise ConfigError(f"{shown}: {key} takes several numbers, which cannot be searched; fix it with set")
    if ":" not in text:
        texts = tuple(each.strip() for each in text.split(","))
        if len(set(texts)) < 2 or len(set(texts)) < len(texts) or "" in texts:
            raise ConfigError(f"{shown}: give LOW:HIGH, LOW:HIGH:log, or at least two different values A,B")
        return Listed(key, texts)
    low, high, *rest = text.split(":")
    if rest not in ([], ["log"]):
        raise ConfigError(f"{shown}: give LOW:HIGH or LOW:HIGH:log")
    whole = type(_as_value(f"space={key}", low, field)) is int and type(_as_value(f"space={key}", high, field)) is int
    ends = parse_float(shown, low), parse_float(shown, high)
    if not ends[0] < ends[1]:
        raise ConfigError(f"{shown}: give a smaller number first, such as {key}=1:8")
    if rest and ends[0] <= 0:
        raise ConfigError(f"{shown}: only numbers above 0 have a logarithm; leave out :log, or give a larger LOW")
    return Numbers(key, *ends, log=bool(rest), whole=whole)


def _as_value(shown: str, text: str, field: Setting) -> Any:
    """Return one end of a range as a value of the setting."""
    value = None if isinstance(field.default, Part) else parse(shown, text.strip(), field.annotation)
    if not _is_number(value):
        raise ConfigError(f"{shown}: not a number; give the values that it may have, as in {field.name}=A,B")
    return value


def describe(dimensions: Sequence[Dimension]) -> str:
    """Return all dimensions in one line."""
    return " ".join(map(str, dimensions))
