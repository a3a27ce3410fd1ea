"""The deployed policy of each seed on disk: its arrays as safetensors, and a line of JSON about them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from pcmlp.runs.arrays import from_bytes, named_arrays, to_bytes, write_durably
from pcmlp.runs.build import build
from pcmlp.runs.config import RunConfig, from_json
from pcmlp.types import AbstractLearner, AbstractPolicy, ConfigError, Task


@eqx.filter_jit
def deployed(learner: AbstractLearner) -> AbstractPolicy:
    """The policies to use, with a leading axis of seeds."""
    return learner.deployed()


def save_policies(folder: Path, policies: AbstractPolicy, seeds: Sequence[int]) -> None:
    folder.mkdir(exist_ok=True)
    arrays = named_arrays(policies)
    write_durably(folder / "policy.safetensors", to_bytes(policies))
    facts = {
        "policy": type(policies).__name__,
        "seeds": list(seeds),
        "arrays": {name: [str(array.dtype), *array.shape] for name, array in arrays.items()},
    }
    write_durably(folder / "policy.json", (json.dumps(facts, indent=2) + "\n").encode())


class SavedRun(NamedTuple):
    path: Path
    config: RunConfig
    task: Task
    policies: AbstractPolicy  # of all seeds, with a leading axis, as `save_policies` got them


def load_run(run: Path) -> SavedRun:
    try:
        config = from_json((run / "config.json").read_text())
    except OSError as error:
        raise ConfigError(f"{run}: not a run folder ({error.strerror}: {error.filename})") from error
    file = run / "policy" / "policy.safetensors"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; end the run first, by --resume if it was cut off") from error
    task, algo = build(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(config.seeds)))
    like = eqx.filter_eval_shape(lambda k: deployed(algo.start(k)), keys)
    try:
        return SavedRun(run, config, task, from_bytes(data, like))
    except ValueError as error:
        raise ConfigError(f"{file}: not the policy of the configuration beside it ({error}); train it again") from error


def load_policies(run: Path) -> AbstractPolicy:
    return load_run(run).policies
