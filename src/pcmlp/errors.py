"""The errors that the library raises on purpose: one line each, which says what is wrong and what to do."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """Bad input: one line that names what is wrong and what to do. The command line exits with code 2."""


class RunStopped(RuntimeError):
    """A run that cannot continue although its input was good: one line that says why and what to do. The command line
    exits with code 1; the last checkpoint is complete."""


class EnvironmentFault(RunStopped):
    """An environment that misbehaved too often: one line that names it, its last fault, the number of faults and what
    to do. No data of a faulty episode were used."""


def describe(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def printable(text: str) -> str:
    """Return a text in which escapes stand for control characters, so that a name from a file cannot act on a
    terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def similar(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar of some words, or None if none is similar; case is ignored."""
    known = {each.lower(): each for each in words}
    found = difflib.get_close_matches(word.lower(), known, n=1, cutoff=cutoff)
    return known[found[0]] if found else None


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the most similar of some words."""
    found = similar(word, words, cutoff=0.0)
    assert found is not None  # `words` is not empty
    return found
