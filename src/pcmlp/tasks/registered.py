"""`gym:ID`: any environment that is registered with Gymnasium and has vectors for observations and actions.

Its reward and termination may be given as functions in a file, `task.reward=FILE.py:NAME`; where they are not, they are
learned from samples. Its time limit is the horizon.
"""

import dataclasses
import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pcmlp.tasks.checks import first_line, import_gymnasium
from pcmlp.types import ConfigError, Task

PREFIX = "gym:"


@dataclass(frozen=True)
class GymnasiumTask:
    """Any registered Gymnasium environment with vectors for observations and actions."""

    id: str
    horizon: int
    reward: str | None = None  # FILE.py:NAME; none: learned
    terminal: str | None = None  # FILE.py:NAME; none: learned
    workers: int | None = None  # processes that step it; 0: none but this one; none: some where it takes long
    timeout: float = 60.0  # seconds that a step may take in a worker
    max_faults: int = 100  # what a run may survive
    code_sha256: str | None = None  # of the files that those functions are in; none: those that are there

    def build(self) -> Task:
        from pcmlp.tasks.host import GymnasiumWorld  # Gymnasium's users alone wait for it

        gymnasium = import_gymnasium()
        if self.code_sha256 not in (None, self._hash()):
            raise ConfigError(f"{' '.join(self.code)}: not the code of this run any more; put back what was there")
        world = GymnasiumWorld.of(
            partial(gymnasium.make, self.id),
            reward=load_function("task.reward", self.reward),
            terminal=load_function("task.terminal", self.terminal),
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
        )
        return Task(world)

    def with_hash(self) -> "GymnasiumTask":
        """Itself, for the code that is there now; a run that was made with another one is another run."""
        return self if self.code_sha256 or not self.code else dataclasses.replace(self, code_sha256=self._hash())

    def _hash(self) -> str:
        return hash_of({"task.reward": self.reward, "task.terminal": self.terminal})

    @property
    def code(self) -> list[str]:
        """The settings that name code."""
        named = {"reward": self.reward, "terminal": self.terminal}
        return [f"task.{kind}={place}" for kind, place in named.items() if place is not None]


def time_limit(name: str) -> int | None:
    """That of a registered environment, which has to be there."""
    gymnasium = import_gymnasium()
    if ":" in name:  # which Gymnasium takes for a module to import
        raise ConfigError(
            f"task={PREFIX}{name}: an environment in a module of yours; hand it to DeepPCMLP in Python, "
            "or let your package register it with Gymnasium as a plugin"
        )
    try:
        return gymnasium.spec(name).max_episode_steps
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.5)
        found = f"the nearest are {', '.join(near)}" if near else "gymnasium.pprint_registry() shows what is"
        why = first_line(error)
        raise ConfigError(f"task={PREFIX}{name}: not registered with Gymnasium ({why}); {found}") from error


def _file(option: str, place: str | None) -> Path | None:
    if place is None:
        return None
    file, _, name = place.rpartition(":")
    if not file or not name:
        raise ConfigError(f"{option}={place}: not a place of a function; give it as FILE.py:NAME")
    if not Path(file).is_file():
        raise ConfigError(f"{option}={place}: there is no file {file}; give FILE.py:NAME")
    return Path(file)


def hash_of(places: dict[str, str | None]) -> str:
    """Of the files that hold the functions, by the options that name them."""
    files = [_file(option, place) for option, place in places.items()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file is not None)).hexdigest()


def load_function(option: str, place: str | None) -> Callable[..., Any] | None:
    """NAME of FILE.py, which is imported for it; none of none. `option` is what named it, for errors."""
    if place is None:
        return None
    path, name = _file(option, place), place.rpartition(":")[2]
    assert path is not None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{option}={place}: {path} is not a Python file; give FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where its own classes look for it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise ConfigError(
            f"{option}={place}: {path} cannot be imported ({type(error).__name__}: {first_line(error)})"
        ) from error
    if not hasattr(module, name):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(name, functions, n=1, cutoff=0.0)
        remedy = f"; the nearest is {near[0]}" if near else "; give a function that is there"
        raise ConfigError(f"{option}={place}: {path} has no {name}{remedy}")
    if not callable(found := getattr(module, name)):
        raise ConfigError(f"{option}={place}: is a {type(found).__name__}; give a function")
    return found


__all__ = ["PREFIX", "GymnasiumTask", "hash_of", "load_function", "time_limit"]
