"""What `pcmlp plan` plans for: a reward, an end and a success as functions of (s, a, s'), each by its FILE.py:NAME.

A file of functions is code, so it is imported for an `Aim` only where the user has named it or says that it is trusted,
and only while it is what it was when the plan was made.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pcmlp.replan import Search
from pcmlp.runs.durable import check_own
from pcmlp.tasks.checks import Samples, check_reward, check_terminal
from pcmlp.tasks.registered import hash_of, load_function
from pcmlp.types import MDP, AbstractWorld, ConfigError, Task

FILE = "plan.json"


class Functions(NamedTuple):
    """Of (s, a, s'); none where the task's own is meant, or where there is no success but by the return."""

    reward: Callable | None = None
    terminal: Callable | None = None
    success: Callable | None = None  # an episode with a step at which it holds has succeeded


@dataclass(frozen=True)
class Aim:
    reward: str | None = None  # FILE.py:NAME; none: the task's own
    terminal: str | None = None  # FILE.py:NAME; none: the task's own
    success: str | None = None  # FILE.py:NAME of a predicate
    success_return: float | None = None  # an episode with at least this return succeeded
    code_sha256: str | None = None  # of the files that they are in; none: those that are there

    def __post_init__(self) -> None:
        if self.success is not None and self.success_return is not None:
            raise ConfigError(f"--success {self.success}: and --success-return as well; give one of them")

    @property
    def places(self) -> dict[str, str | None]:
        """By the options that name them."""
        return {"--reward": self.reward, "--terminal": self.terminal, "--success": self.success}

    @property
    def code(self) -> list[str]:
        return [place for place in self.places.values() if place is not None]

    def with_hash(self) -> "Aim":
        """Itself, for the code that is there now."""
        return dataclasses.replace(self, code_sha256=hash_of(self.places)) if self.code else self

    def load(self) -> Functions:
        """The functions, whose files are imported for it."""
        if self.code_sha256 not in (None, hash_of(self.places)):
            raise ConfigError(f"{' '.join(self.code)}: not the code of this plan any more; put back what was there")
        return Functions(*(load_function(option, place) for option, place in self.places.items()))


def check_functions(functions: Functions, world: AbstractWorld, samples: Samples) -> None:
    """That each gives one number or one bool, by JAX, of coordinates that there are; the reward is finite at all that
    was collected."""
    states, actions = world.states, world.actions
    if functions.reward is not None:
        check_reward(functions.reward, states, actions, samples)
    if functions.terminal is not None:
        check_terminal(functions.terminal, states, actions, samples)
    if functions.success is not None:
        check_terminal(functions.success, states, actions, samples, "success")


def aimed(task: Task, functions: Functions, success_return: float | None) -> Task:
    """The task with another reward and end. Its own success return says nothing of another reward."""
    mdp, own = task.world.mdp, functions.reward is None
    new = MDP(
        mdp.initial, mdp.transition, functions.reward or mdp.reward, functions.terminal or mdp.terminal, mdp.horizon
    )
    if success_return is None and own:
        success_return = task.success_return
    world = dataclasses.replace(task.world, mdp=new)
    return dataclasses.replace(task, world=world, success_return=success_return)


def read_plan(folder: Path) -> tuple[Aim | None, Search | None]:
    """What the folder's policies were planned for, none where it holds a run, and the search that they make for it."""
    file = folder / FILE
    if not file.exists():
        return None, None
    check_own(file, folder)
    try:
        record: Any = json.loads(file.read_text())
        aim, search = Aim(**record["aim"]), record.get("search")
        if not all(isinstance(place, str) for place in aim.code):
            raise ValueError("a place is no text")
        return aim, None if search is None else Search(**search)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: truncated, edited or of an older pcmlp; plan it again") from error
