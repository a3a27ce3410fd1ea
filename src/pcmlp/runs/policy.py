"""The policy of each seed on disk: deployed by a run, planned in one of its iterations, or planned for another reward.

Of a policy that learns, only what it acts with is stored. The objective of a plan is also here: reward, end and success
as functions of (s, a, s'), each given as FILE.py:NAME.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx

from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.algorithms.replan import Search, guided_policies
from pcmlp.errors import ConfigError
from pcmlp.rollout import without_critic
from pcmlp.runs.arrays import load_facts_and_arrays, restore_tree, save_tree
from pcmlp.runs.checkpoint import fingerprint
from pcmlp.runs.config import RunConfig, build, seed_keys
from pcmlp.runs.config_file import load_config
from pcmlp.runs.durable import Damaged, check_type, from_record, hash_record, read_sealed
from pcmlp.runs.folder import PLAN
from pcmlp.tasks.checks import Samples, check_reward, check_terminal
from pcmlp.types import MDP, Algorithm, Learner, Policy, Problem
from pcmlp.usercode import check_code, hash_code, load_function

LAST = "last"


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
            raise ConfigError(f"success={self.success}: success_return is given as well; give one of the two")

    @property
    def functions(self) -> dict[str, str | None]:
        """The places of the functions by name."""
        return {"reward": self.reward, "terminal": self.terminal, "success": self.success}

    @property
    def places(self) -> dict[str, str]:
        """The places that are given, by name."""
        return {name: place for name, place in self.functions.items() if place is not None}

    def with_hash(self) -> "Aim":
        """Return the aim with the current hashes of its files."""
        return dataclasses.replace(self, code=hash_code(self.places))

    def load(self, trust_code: bool, where: Path | str) -> Functions:
        """Import the functions, if their code is trusted and unchanged."""
        check_code(self.places, self.code, trust_code, str(where))
        return Functions(*(load_function(name, place) for name, place in self.functions.items()))


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
    file = folder / PLAN
    if not file.exists():
        return None, None
    try:
        record = read_sealed(file)
        aim, search = (check_type(record.get(name), dict | None, name) for name in ("aim", "search"))
        return from_record(Aim, aim or {}), None if search is None else from_record(Search, search)
    except (Damaged, OSError) as error:
        raise ConfigError(f"{file}: truncated, edited or of an older pcmlp ({error}); plan it again") from error


def file_of(folder: Path, iteration: int | None = None) -> Path:
    """Return the file of the policies that an iteration has planned, or of those that are deployed."""
    return folder / f"{'policy' if iteration is None else f'{iteration:06d}'}.safetensors"


def kept_iterations(folder: Path) -> list[int]:
    """Return the iterations whose policies are there, in order."""
    numbers = [path.stem for path in folder.glob("*.safetensors")]
    return sorted(int(number) for number in numbers if re.fullmatch("[0-9]{6,9}", number))


def planned_policies(learner: Learner) -> Policy | None:
    """Return the policies that the last iteration has planned for deployment; None for a method that keeps none."""
    if not isinstance(learner, DeepLearner) or learner.trial.candidate.searches:
        return None
    return learner.trial.candidate


def parse_iteration(iteration: int | str) -> int | None:
    """Return the number of an iteration, or None for the last one."""
    if iteration == LAST:
        return None
    if not re.fullmatch("[0-9]{1,9}", str(iteration)):
        raise ConfigError(f"iteration={iteration}: give the number of an iteration, from 0, or {LAST}")
    return int(iteration)


def choose_iteration(run: Path, config: RunConfig, iteration: int | str) -> int:
    """Return the number of an iteration whose policies the run has kept."""
    number, algorithm = parse_iteration(iteration), config.algorithm
    if (run / PLAN).exists():
        raise ConfigError(f"iteration={iteration}: {run} is a plan, which has one policy of each seed; leave it out")
    if not isinstance(algorithm, Deep) or algorithm.planner.searches:
        raise ConfigError(f"iteration={iteration}: a run of {config.algo} keeps only what it deploys; leave it out")
    kept = kept_iterations(run / "policy")
    if not kept:
        raise ConfigError(f"iteration={iteration}: {run}/policy has no policy of an iteration; leave it out")
    if number is None or number in kept:
        return kept[-1] if number is None else number
    before, after = [n for n in kept if n < number][-1:], [n for n in kept if n > number][:1]
    near = " or ".join(map(str, before + after))
    raise ConfigError(f"iteration={iteration}: its policies are not in {run}/policy; give {near}")


def save_policies(
    folder: Path,
    policies: Policy,
    config: RunConfig,
    aim: dict[str, Any] | None = None,
    iteration: int | None = None,
) -> None:
    """Write the policies of all seeds: those of a plan for an `aim`, those that an iteration has planned, or those that
    are deployed."""
    folder.mkdir(exist_ok=True)
    facts = {
        "policy": type(policies).__name__,
        "seeds": list(config.seeds),
        "config_sha256": fingerprint(config),
        "aim_sha256": None if aim is None else hash_record(aim),
        "iteration": iteration,
    }
    save_tree(file_of(folder, iteration), without_critic(policies), facts, "the policies")


class SavedRun(NamedTuple):
    """A run or a plan with policies: those that are deployed, or those that an iteration has planned."""

    path: Path
    config: RunConfig
    problem: Problem  # for a plan: with the plan's reward
    policies: Policy  # of all seeds, with a leading axis
    aim: Aim | None = None  # the objective of a plan; None for a run
    functions: Functions = Functions()
    iteration: int | None = None  # the one that has planned the policies; None: those that are deployed


def load_run(run: Path, *, iteration: int | str | None = None, trust_code: bool = False) -> SavedRun:
    """Load the deployed policies of a run or a plan, or those that an iteration of the run has planned, and the task.
    User code is imported only if it is trusted."""
    config, (aim, search) = load_config(run, trust_code=trust_code), read_plan(run)
    number = None if iteration is None else choose_iteration(run, config, iteration)
    file = file_of(run / "policy", number)
    remedy = "remove summary.json, if there is one, and continue the run with resume=True, which writes it again"
    remedy = remedy if number is None else "give another iteration, or leave it out"
    try:
        facts, arrays = load_facts_and_arrays(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; {remedy}") from error
    except Damaged as error:
        raise ConfigError(f"{file}: {error}; {remedy}") from error
    if facts.get("config_sha256") != fingerprint(config):
        raise ConfigError(f"{file}: not the policy of the configuration beside it; train it again")
    if facts.get("iteration") != number:
        raise ConfigError(f"{file}: renamed or edited; {remedy}")
    if facts.get("aim_sha256") != (None if aim is None else hash_record(dataclasses.asdict(aim))):
        raise ConfigError(f"{file}: does not belong to the plan or run in this folder; plan or train it again")
    functions = Functions() if aim is None else aim.load(trust_code, run)
    problem, algorithm = build(config)
    if aim is not None:
        problem = with_objective(problem, functions, aim.success_return)
        assert isinstance(algorithm, Deep)
        algorithm = dataclasses.replace(algorithm, reward_free=False)  # as in `plan`, even if the run was reward-free
    mdp = problem.world.mdp
    try:
        like = eqx.filter_eval_shape(
            lambda keys: _deployed(algorithm, mdp, algorithm.start(keys, mdp, config.num_iterations), search),
            seed_keys(config.seeds),
        )
        policies = restore_tree(arrays, like)
    except ValueError as error:
        again = "train it again" if aim is None else "plan it again"
        raise ConfigError(f"{file}: not the policy of this version of pcmlp ({error}); {again}") from error
    return SavedRun(run, config, problem, policies, aim, functions, number)


def _deployed(algorithm: Algorithm, mdp: MDP, learner: Learner, search: Search | None) -> Policy:
    if search is None:
        return without_critic(learner.deployed())  # one that an iteration has planned has the same structure
    assert isinstance(algorithm, Deep)
    assert isinstance(learner, DeepLearner)
    return guided_policies(algorithm, mdp, learner, search)
