"""The deployed policy of each seed on disk: the policies of a run, or of a plan for another reward (`runs/plan.py`)."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.algorithms.replan import Search, guided_policies
from pcmlp.errors import ConfigError
from pcmlp.runs.aim import Aim, Functions, read_plan, with_objective
from pcmlp.runs.arrays import Damaged, load_facts_and_arrays, named_arrays, restore_tree, save_tree
from pcmlp.runs.checkpoint import fingerprint
from pcmlp.runs.config import RunConfig, build, load_config
from pcmlp.runs.durable import check_own, room_for
from pcmlp.types import MDP, Algorithm, Learner, Policy, Problem

_FILE = "policy.safetensors"


def save_policies(folder: Path, policies: Policy, config: RunConfig) -> None:
    """Write the policies of all seeds."""
    folder.mkdir(exist_ok=True)
    facts = {
        "policy": type(policies).__name__,
        "seeds": list(config.seeds),
        "config_sha256": fingerprint(config),
    }
    size = sum(array.nbytes for array in named_arrays(policies).values())
    with room_for("the policies", folder, size):
        save_tree(folder / _FILE, policies, facts)


class SavedRun(NamedTuple):
    """A run or a plan with its deployed policies."""

    path: Path
    config: RunConfig
    problem: Problem  # for a plan: with the plan's reward
    policies: Policy  # of all seeds, with a leading axis
    aim: Aim | None = None  # the objective of a plan; None for a run
    functions: Functions = Functions()


def load_run(run: Path, *, trust_code: bool = False) -> SavedRun:
    """Load the deployed policies of a run or a plan, and its task. User code is imported only if it is trusted."""
    config, (aim, search) = load_config(run, trust_code=trust_code), read_plan(run)
    file = run / "policy" / _FILE
    facts, arrays = _read(file, run)
    if facts.get("config_sha256") != fingerprint(config):
        raise ConfigError(f"{file}: not the policy of the configuration beside it; train it again")
    functions = Functions() if aim is None else aim.load(trust_code, run)
    problem, algorithm = build(config)
    if aim is not None:
        problem = with_objective(problem, functions, aim.success_return)
        assert isinstance(algorithm, Deep)
        algorithm = dataclasses.replace(algorithm, reward_free=False)  # as in `plan`, even if the run was reward-free
    keys = jax.vmap(jax.random.key)(jnp.arange(len(config.seeds)))
    mdp = problem.world.mdp

    def deployed(keys: jax.Array) -> Policy:
        return _deployed(algorithm, mdp, algorithm.start(keys, mdp, config.num_iterations), search)

    try:
        policies = restore_tree(arrays, eqx.filter_eval_shape(deployed, keys))
    except ValueError as error:
        again = "train it again" if aim is None else "plan it again"
        raise ConfigError(f"{file}: not the policy of this version of pcmlp ({error}); {again}") from error
    return SavedRun(run, config, problem, policies, aim, functions)


def _deployed(algorithm: Algorithm, mdp: MDP, learner: Learner, search: Search | None) -> Policy:
    if search is None:
        return learner.deployed()
    assert isinstance(algorithm, Deep)
    assert isinstance(learner, DeepLearner)
    return guided_policies(algorithm, mdp, learner, search)


def _read(file: Path, run: Path) -> tuple[dict, dict]:
    check_own(file, run)
    try:
        return load_facts_and_arrays(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; end the run first, by --resume if it was cut off") from error
    except Damaged as error:
        raise ConfigError(f"{file}: {error}; train it again, or --resume from a checkpoint") from error
