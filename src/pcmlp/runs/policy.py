"""The deployed policy of each seed on disk: its arrays as safetensors, and a line of JSON about them.

The arrays are stored under their path in the policy; the structure around them is rebuilt from `config.json`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from pcmlp.runs.build import build
from pcmlp.runs.config import from_json
from pcmlp.types import AbstractLearner, AbstractPolicy, ConfigError


@eqx.filter_jit
def deployed(learner: AbstractLearner) -> AbstractPolicy:
    """The policies to use, with a leading axis of seeds."""
    return learner.deployed()


def save_policies(folder: Path, policies: AbstractPolicy, seeds: Sequence[int]) -> None:
    folder.mkdir(exist_ok=True)
    leaves = _named(eqx.filter(policies, eqx.is_array))
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in leaves.items()}
    if arrays:  # a uniform policy has none
        save_file(arrays, folder / "policy.safetensors")
    facts = {
        "policy": type(policies).__name__,
        "seeds": list(seeds),
        "arrays": {name: [str(array.dtype), *array.shape] for name, array in arrays.items()},
    }
    (folder / "policy.json").write_text(json.dumps(facts, indent=2) + "\n")


def load_policies(run: Path) -> AbstractPolicy:
    """The policies of all seeds, with a leading axis, as `save_policies` got them."""
    try:
        config = from_json((run / "config.json").read_text())
        file = run / "policy" / "policy.safetensors"
        arrays = load_file(file) if file.exists() else {}
    except OSError as error:
        raise ConfigError(f"{run}: not a run folder ({error.strerror}: {error.filename})") from error
    _, algo = build(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(config.seeds)))
    like = eqx.filter_eval_shape(lambda k: deployed(algo.start(k)), keys)
    shapes, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in _named(shapes).items()}
    found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    if wanted != found:
        raise ConfigError(f"{run}/policy: not the policy of the configuration beside it; train it again")
    filled = jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(arrays[_name(path)]), shapes)
    return eqx.combine(filled, rest)


def _named(tree: object) -> dict[str, Any]:
    """The arrays of a policy, or what stands for them, by their path in it."""
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path).lstrip(".")
