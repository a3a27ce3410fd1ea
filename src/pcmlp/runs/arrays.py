"""A pytree on disk: one safetensors file with the arrays by their path in the tree, some facts, and a hash of both.

Only arrays and facts are stored. The structure around the arrays is rebuilt from the configuration and handed in as
`like`, so that loading never executes anything from a file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from pcmlp.runs.durable import write_durably

Facts = dict[str, Any]


class Damaged(ValueError):
    """A file that is truncated, edited or of another kind; the message says which."""


def save_tree(path: Path, tree: Any, facts: Facts) -> int:
    """Write the arrays of a tree and facts about them, all or nothing; return the number of bytes."""
    data = to_bytes(tree, facts)
    write_durably(path, data)
    return len(data)


def to_bytes(tree: Any, facts: Facts) -> bytes:
    """Return the file of a tree as bytes."""
    arrays, text = named_arrays(tree), json.dumps(facts, sort_keys=True)
    return save(arrays, {"facts": text, "sha256": _digest(arrays, text)})


def read_facts(path: Path) -> Facts:
    """Read the facts of a file, without checking its arrays."""
    try:
        return _parse(_metadata(path)["facts"])
    except (SafetensorError, KeyError) as error:
        raise Damaged("truncated or edited") from error


def load_facts_and_arrays(path: Path) -> tuple[Facts, dict[str, np.ndarray]]:
    """Read a whole file and check its hash."""
    try:
        metadata, arrays = _metadata(path), load(path.read_bytes())
        text, claimed = metadata["facts"], metadata["sha256"]
        if claimed != _digest(arrays, text):
            raise Damaged("truncated or edited")
        return _parse(text), arrays
    except (SafetensorError, KeyError) as error:
        raise Damaged("truncated or edited") from error


def restore_tree(arrays: dict[str, np.ndarray], like: Any) -> Any:
    """Return `like`, the result of `eqx.filter_eval_shape`, with the stored arrays in it; raise a ValueError that names
    an array that does not fit."""
    shapes, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    wanted = {_name(path): _stored(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
    for name in sorted(wanted.keys() | arrays.keys()):
        shape, found = wanted.get(name), arrays.get(name)
        if shape is None or found is None or (shape.shape, shape.dtype) != (found.shape, found.dtype):
            raise ValueError(f"{name} is {_show(found)}, not {_show(shape)}")
    filled = jax.tree_util.tree_map_with_path(lambda path, leaf: _restore(arrays[_name(path)], leaf), shapes)
    return eqx.combine(filled, rest)


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a tree by their path in it."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(path): np.asarray(jr.key_data(x) if _is_key(x) else x, order="C") for path, x in leaves}


def _metadata(path: Path) -> dict[str, str]:
    path.open("rb").close()  # this error gives the reason, that of `safe_open` does not
    with safe_open(path, "numpy") as file:
        return file.metadata() or {}


def _parse(text: str) -> Facts:
    try:
        facts = json.loads(text)
    except ValueError as error:
        raise Damaged("truncated or edited") from error
    if not isinstance(facts, dict):
        raise Damaged("edited")
    return facts


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: jax.ShapeDtypeStruct) -> Any:
    return jax.eval_shape(jr.key_data, leaf) if _is_key(leaf) else leaf


def _restore(array: np.ndarray, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return jr.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array)


def _show(leaf: Any) -> str:
    return "absent" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
