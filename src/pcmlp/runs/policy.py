"""The deployed policy of each seed on disk: its arrays as safetensors, and JSON that vouches for them.

They are those of a run, or those that were planned for another reward in a run's model (`runs/plan.py`).
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from pcmlp.deep import Deep, DeepLearner
from pcmlp.replan import Search, searching_of_seeds
from pcmlp.runs.aim import Aim, Functions, aimed, read_plan
from pcmlp.runs.arrays import from_bytes, named_arrays, to_bytes
from pcmlp.runs.build import build
from pcmlp.runs.checkpoint import fingerprint
from pcmlp.runs.config import RunConfig, load_config
from pcmlp.runs.durable import check_own, room_for, write_durably, write_text
from pcmlp.tasks.registered import GymnasiumTask
from pcmlp.types import AbstractAlgorithm, AbstractLearner, AbstractPolicy, ConfigError, Task


def deployed(learner: AbstractLearner) -> AbstractPolicy:
    """The policies to use, with a leading axis of seeds. Those of Algorithm 2 are there, and are asked for while the
    accelerator may be at the next stage, behind which a compiled call would wait; Algorithm 1 has to choose them."""
    return learner.deployed() if isinstance(learner, DeepLearner) else _deployed(learner)


_deployed = eqx.filter_jit(lambda learner: learner.deployed())


def save_policies(folder: Path, policies: AbstractPolicy, config: RunConfig) -> None:
    folder.mkdir(exist_ok=True)
    data = to_bytes(policies)
    facts = {
        "policy": type(policies).__name__,
        "seeds": list(config.seeds),
        "config_sha256": fingerprint(config),
        "sha256": hashlib.sha256(data).hexdigest(),
        "arrays": {name: [str(array.dtype), *array.shape] for name, array in named_arrays(policies).items()},
    }
    with room_for("the policies", folder, len(data)):
        write_durably(folder / "policy.safetensors", data)
        write_text(folder / "policy.json", json.dumps(facts, indent=2) + "\n")


class SavedRun(NamedTuple):
    path: Path
    config: RunConfig
    task: Task  # of a plan: with its reward
    policies: AbstractPolicy  # of all seeds, with a leading axis, as `save_policies` got them
    aim: Aim | None = None  # what they were planned for, where that is not the task's reward
    functions: Functions = Functions()


def load_run(run: Path, *, trust_code: bool = False) -> SavedRun:
    """What a run or a plan deploys, in its task. A file of code that it names is not imported unless it is trusted."""
    config, (aim, search) = load_config(run), read_plan(run)
    file = run / "policy" / "policy.safetensors"
    data = _vouched_for(file, run, config)
    check_trusted(run, config, aim, trust_code)
    functions = Functions() if aim is None else aim.load()
    task, algo = build(config)
    if aim is not None:
        task = aimed(task, functions, aim.success_return)
        algo = dataclasses.replace(algo, world=task.world)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(config.seeds)))
    like = eqx.filter_eval_shape(lambda k: _planned(algo, algo.start(k), search), keys)
    try:
        return SavedRun(run, config, task, from_bytes(data, like), aim, functions)
    except ValueError as error:
        again = "train it again" if aim is None else "plan it again"
        raise ConfigError(f"{file}: not the policy of this version of pcmlp ({error}); {again}") from error


def _planned(algo: AbstractAlgorithm, learner: AbstractLearner, search: Search | None) -> AbstractPolicy:
    if search is None:
        return deployed(learner)
    assert isinstance(algo, Deep)
    assert isinstance(learner, DeepLearner)
    return searching_of_seeds(algo, learner, search)


def check_trusted(folder: Path, config: RunConfig, aim: Aim | None, trust_code: bool) -> None:
    """That no code is imported for a folder's sake, which may come from anywhere, unless its user says so."""
    code = [*(config.task.code if isinstance(config.task, GymnasiumTask) else []), *(aim.code if aim else [])]
    if code and not trust_code:
        raise ConfigError(f"{code[0]}: {folder} names code, imported only if you say so; read it and give --trust-code")


def _vouched_for(file: Path, run: Path, config: RunConfig) -> bytes:
    """The policy's bytes, as they were written for this configuration."""
    facts_file = file.with_suffix(".json")
    for path in (file, facts_file):
        check_own(path, run)
    try:
        data, text = file.read_bytes(), facts_file.read_text()
    except OSError as error:
        missing = Path(error.filename)
        raise ConfigError(f"{missing}: {error.strerror}; end the run first, by --resume if it was cut off") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{facts_file}: truncated or edited; train it again") from error
    try:
        facts = json.loads(text)
        claimed, made_for = facts["sha256"], facts["config_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{facts_file}: truncated, edited or of an older pcmlp; train it again") from error
    if claimed != hashlib.sha256(data).hexdigest():
        raise ConfigError(f"{file}: truncated or edited; train it again, or --resume from a checkpoint")
    if made_for != fingerprint(config):
        raise ConfigError(f"{file}: not the policy of the configuration beside it; train it again")
    return data


def load_policies(run: Path) -> AbstractPolicy:
    return load_run(run).policies
