"""`gym:ID`: any environment that is registered with Gymnasium and has vectors for observations and actions.

Its reward and termination may be given as functions in a file, `task.reward=FILE.py:NAME`; where they are not, they are
learned from samples. Its time limit is the horizon.
"""

import difflib
import importlib.util
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
    """Any registered Gymnasium environment with vectors for observations and actions"""

    id: str
    horizon: int
    reward: str | None = None  # FILE.py:NAME; none: learned
    terminal: str | None = None  # FILE.py:NAME; none: learned
    workers: int | None = None  # processes that step it; 0: none but this one; none: some where it takes long
    timeout: float = 60.0  # seconds that a step may take in a worker
    max_faults: int = 100  # what a run may survive

    def build(self) -> Task:
        from pcmlp.tasks.host import GymnasiumWorld  # Gymnasium's users alone wait for it

        gymnasium = import_gymnasium()
        world = GymnasiumWorld.of(
            partial(gymnasium.make, self.id),
            reward=load_function("reward", self.reward),
            terminal=load_function("terminal", self.terminal),
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
        )
        return Task(world)

    @property
    def code(self) -> list[str]:
        """The settings that name code."""
        named = {"reward": self.reward, "terminal": self.terminal}
        return [f"task.{kind}={place}" for kind, place in named.items() if place is not None]


def time_limit(name: str) -> int | None:
    """That of a registered environment, which has to be there."""
    gymnasium = import_gymnasium()
    try:
        return gymnasium.spec(name).max_episode_steps
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.5)
        found = f"the nearest are {', '.join(near)}" if near else "gymnasium.pprint_registry() shows what is"
        why = first_line(error)
        raise ConfigError(f"task={PREFIX}{name}: not registered with Gymnasium ({why}); {found}") from error


def load_function(kind: str, place: str | None) -> Callable[..., Any] | None:
    """NAME of FILE.py, which is imported for it; none of none."""
    if place is None:
        return None
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or not name:
        raise ConfigError(f"task.{kind}={place}: not a place of a function; give it as FILE.py:NAME")
    if not path.is_file():
        raise ConfigError(f"task.{kind}={place}: there is no file {path}; give FILE.py:NAME")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"task.{kind}={place}: {path} is not a Python file; give FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(
            f"task.{kind}={place}: {path} cannot be imported ({type(error).__name__}: {first_line(error)})"
        ) from error
    if not hasattr(module, name):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(name, functions, n=1, cutoff=0.0)
        remedy = f"; the nearest is {near[0]}" if near else "; give a function that is there"
        raise ConfigError(f"task.{kind}={place}: {path} has no {name}{remedy}")
    return getattr(module, name)


__all__ = ["PREFIX", "GymnasiumTask", "load_function", "time_limit"]
