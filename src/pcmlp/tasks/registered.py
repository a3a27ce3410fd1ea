"""`gym:ID`: any environment that is registered with Gymnasium and has vectors for observations and actions.

Its reward and termination may be given as functions in a file, `task.reward=FILE.py:NAME`; otherwise they are
learned from samples. The horizon is its time limit.
"""

import difflib
from functools import partial
from typing import ClassVar

import equinox as eqx

from pcmlp.errors import ConfigError, first_line
from pcmlp.settings import setting
from pcmlp.tasks.checks import import_gymnasium
from pcmlp.types import Problem, Task
from pcmlp.usercode import load_function

PREFIX = "gym:"


class GymnasiumTask(Task):
    """Any registered Gymnasium environment with vectors for observations and actions."""

    kind: ClassVar[str] = "gym"
    id: str = eqx.field(default="", static=True)
    horizon: int = setting(1000, "steps of an episode", least=1, tiny=20)
    reward: str | None = setting(None, "FILE.py:NAME of a function of (state, action, next_state); none: learned")
    terminal: str | None = setting(None, "FILE.py:NAME of a function of (state, action, next_state); none: learned")
    workers: int = setting(0, "processes that step the environment; 0: this one", least=0)
    timeout: float = setting(60.0, "seconds that a step may take in a worker process", above=0)
    max_faults: int = setting(100, "faults of the environment that a run survives", least=0)

    @property
    def learns_outcome(self) -> bool:
        """Whether reward or end have to be learned, because no function was given."""
        return self.reward is None or self.terminal is None

    def build(self) -> Problem:
        """Return the environment's world, after trying it out."""
        from pcmlp.tasks.host import GymnasiumWorld  # imported here, because the import is slow

        gymnasium = import_gymnasium()
        world = GymnasiumWorld.of(
            partial(gymnasium.make, self.id),
            reward=load_function("task.reward", self.reward),
            terminal=load_function("task.terminal", self.terminal),
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
        )
        return Problem(world)


def find_registered(name: str) -> int | None:
    """Return the time limit of a registered environment, or raise if it is not registered."""
    gymnasium = import_gymnasium()
    if ":" in name:  # Gymnasium would import the part before the colon
        raise ConfigError(
            f"task={PREFIX}{name}: names a module to import; pass the environment to DeepPCMLP in Python, "
            "or let your package register it with Gymnasium as a plugin"
        )
    try:
        return gymnasium.spec(name).max_episode_steps
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.5)
        found = f"the nearest are {', '.join(near)}" if near else "gymnasium.pprint_registry() lists all"
        why = first_line(error)
        raise ConfigError(f"task={PREFIX}{name}: not registered with Gymnasium ({why}); {found}") from error
