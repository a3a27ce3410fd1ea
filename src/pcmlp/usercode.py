"""Code of the user, named as FILE.py:NAME on the command line: rewards, tasks, environments, planners, whole methods.

`py:FILE.py:NAME` means the same.

A file is imported only if the user has just named it, or says that it is trusted, because a configuration may come from
anywhere. The file is hashed, so that a run is resumed and evaluated with the same code.
"""

import contextlib
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pcmlp.errors import ConfigError, first_line, nearest

_PLACE = re.compile(r"(?:py:)?(?P<file>.+\.py):(?P<name>\w+)")
_modules: dict[tuple[Path, str], ModuleType] = {}  # by file and hash, so that a class is loaded only once
_places: dict[Any, str] = {}  # loaded object -> its FILE.py:NAME


def is_place(text: object) -> bool:
    """Return whether a text has the form FILE.py:NAME."""
    return isinstance(text, str) and _PLACE.fullmatch(text) is not None


def place_of(loaded: Any) -> str | None:
    """Return the FILE.py:NAME that an object was loaded from; None if it was not."""
    return _places.get(loaded)


def hash_code(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every file of code that the settings name, by file."""
    files = {key: _file(key, text) for key, text in settings.items() if is_place(text)}
    return {str(file): _sha256(file) for file in dict.fromkeys(files.values())}


def check_code(settings: Mapping[str, Any], hashes: Mapping[str, str], trusted: bool, where: str) -> None:
    """Raise unless the code that a folder's settings name is trusted and unchanged."""
    places = {key: text for key, text in settings.items() if is_place(text)}
    if not places:
        return
    key, place = next(iter(places.items()))
    if not trusted:
        raise ConfigError(
            f"{key}={place}: {where} uses code of a file, which is imported only if you trust it; "
            "read it and give trust_code=True"
        )
    check_unchanged({file: hashes.get(file, "") for file in hash_code(places)}, where)


def check_unchanged(hashes: Mapping[str, str], where: str = "this run") -> None:
    """Raise unless every file of code still has its SHA-256."""
    for file, before in hashes.items():
        if not Path(file).is_file() or _sha256(Path(file)) != before:
            raise ConfigError(f"{file}: changed since {where} was started; restore the old file")


def load_object(key: str, place: str) -> Any:
    """Import FILE.py and return its NAME. `key` is the setting that names it, for errors."""
    path, name = _file(key, place), place.rpartition(":")[2]
    module = _import(key, place, path)
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        remedy = f"the nearest is {nearest(name, names)}" if names else "give a name that it defines"
        raise ConfigError(f"{key}={place}: {path} has no {name}; {remedy}")
    found = getattr(module, name)
    with contextlib.suppress(TypeError):  # not hashable, so it is not a part
        _places[found] = place.removeprefix("py:")
    return found


def call_object(key: str, place: str) -> Any:
    """Import FILE.py and call its NAME without arguments. This function can be sent to worker processes."""
    return load_object(key, place)()


def load_function(key: str, place: str | None) -> Callable[..., Any] | None:
    """Import FILE.py and return its function NAME; None if there is no place."""
    if place is None:
        return None
    found = load_object(key, place)
    if not callable(found):
        raise ConfigError(f"{key}={place}: is a {type(found).__name__}; give a function")
    return found


def _file(key: str, place: str) -> Path:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ConfigError(f"{key}={place}: not a name in a file; give it as FILE.py:NAME")
    if not Path(match["file"]).is_file():
        raise ConfigError(f"{key}={place}: there is no file {match['file']}; give FILE.py:NAME")
    return Path(match["file"])


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _import(key: str, place: str, path: Path) -> ModuleType:
    identity = path.resolve(), _sha256(path)
    if identity in _modules:
        return _modules[identity]
    name = f"_pcmlp_{path.stem}_{identity[1][:8]}"  # a file named random.py must not hide the module random
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{key}={place}: {path} is not a Python file; give FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        del sys.modules[name]
        what = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(f"{key}={place}: {path} cannot be imported ({what})") from error
    return _modules.setdefault(identity, module)
