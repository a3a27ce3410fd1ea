"""The objective of `pcmlp plan`: reward, end and success as functions of (s, a, s'), each given as FILE.py:NAME."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pcmlp.algorithms.replan import Search
from pcmlp.errors import ConfigError
from pcmlp.runs.durable import check_own, read_json
from pcmlp.tasks.checks import Samples, check_reward, check_terminal
from pcmlp.types import MDP, Problem
from pcmlp.usercode import check_code, hash_code, load_function

FILE = "plan.json"


class Functions(NamedTuple):
    """Functions of (s, a, s'). None means the task's own function, or a success that is decided by the return."""

    reward: Callable | None = None
    terminal: Callable | None = None
    success: Callable | None = None  # an episode succeeds if this holds at one of its steps


@dataclass(frozen=True)
class Aim:
    """An objective, given by the places of its functions in the user's code."""

    reward: str | None = None  # FILE.py:NAME; None: the task's own
    terminal: str | None = None  # FILE.py:NAME; None: the task's own
    success: str | None = None  # FILE.py:NAME of a predicate
    success_return: float | None = None  # an episode succeeds if its return is at least this
    code: dict[str, str] = field(default_factory=dict)  # file -> SHA-256

    def __post_init__(self) -> None:
        if self.success is not None and self.success_return is not None:
            raise ConfigError(f"--success {self.success}: --success-return is given as well; give one of them")

    @property
    def places(self) -> dict[str, str]:
        """The places of the functions, by the flags that give them."""
        flags = {"--reward": self.reward, "--terminal": self.terminal, "--success": self.success}
        return {flag: place for flag, place in flags.items() if place is not None}

    def with_hash(self) -> "Aim":
        """Return the aim with the current hashes of its files."""
        return dataclasses.replace(self, code=hash_code(self.places))

    def load(self, trust_code: bool, where: Path | str) -> Functions:
        """Import the functions, if their code is trusted and unchanged."""
        check_code(self.places, self.code, trust_code, str(where))
        named = zip(("--reward", "--terminal", "--success"), (self.reward, self.terminal, self.success), strict=True)
        return Functions(*(load_function(flag, place) for flag, place in named))


def check_functions(functions: Functions, mdp: MDP, samples: Samples) -> None:
    """Raise unless each function returns one float or bool in JAX and uses only coordinates that exist, and the reward
    is finite at all collected steps."""
    states, actions = mdp.states, mdp.actions
    if functions.reward is not None:
        check_reward(functions.reward, states, actions, samples)
    if functions.terminal is not None:
        check_terminal(functions.terminal, states, actions, samples)
    if functions.success is not None:
        check_terminal(functions.success, states, actions, samples, "success")


def with_objective(problem: Problem, functions: Functions, success_return: float | None) -> Problem:
    """Return the problem with another reward and end. The task's success return does not apply to another reward."""
    mdp = problem.world.mdp
    reward, terminal = functions.reward or mdp.reward, functions.terminal or mdp.terminal
    if success_return is None and functions.reward is None:
        success_return = problem.success_return
    world = dataclasses.replace(problem.world, mdp=dataclasses.replace(mdp, reward=reward, terminal=terminal))
    return dataclasses.replace(problem, world=world, success_return=success_return)


def read_plan(folder: Path) -> tuple[Aim | None, Search | None]:
    """Return the objective that a folder's policies were planned for, and their search; None for a run."""
    file = folder / FILE
    if not file.exists():
        return None, None
    check_own(file, folder)
    try:
        record = read_json(file)
        aim, search = Aim(**record["aim"]), record.get("search")
        if not all(isinstance(place, str) for place in aim.places.values()):
            raise ValueError("a place is not a string")
        return aim, None if search is None else Search(**search)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: truncated, edited or of an older pcmlp; plan it again") from error
