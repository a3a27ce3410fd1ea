"""Pytrees of arrays on disk: one safetensors file with the arrays by their path in the tree, and some facts.

The metadata of the file are one JSON text with the facts and a hash of facts and arrays. The structure around the
arrays is rebuilt from the configuration and handed in as `like`, so that loading never executes anything from a file.
"""

import contextlib
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pcmlp.errors import RunStopped
from pcmlp.runs.durable import (
    Damaged,
    check_type,
    open_regular,
    parse_json,
    read_bytes,
    room_for,
    show_size,
    write_durably,
)

_HEADER = "header"  # the only key of the metadata: safetensors writes several keys in any order
_LARGEST_HEADER = 2**26
_LARGEST = 2**34  # bytes of a file


def save_tree(path: Path, tree: Any, facts: dict[str, Any], what: str = "") -> int:
    """Write the arrays of a tree and facts about them, all or nothing; return the number of bytes. `what` names the
    tree in the error about a full disk. A file that would be too large to be read again is not written."""
    arrays = named_arrays(tree)
    size, most = sum(array.nbytes for array in arrays.values()), _LARGEST - _LARGEST_HEADER
    if size > most:
        raise RunStopped(
            f"{path}: not written: its arrays have {show_size(size)}, and at most {show_size(most)} can be read again; "
            "use fewer seeds, smaller networks or features"
        )
    data = pack(arrays, {"facts": facts, "sha256": _digest(arrays, facts)})
    with room_for(what, path.parent, len(data)) if what else contextlib.nullcontext():
        write_durably(path, data)
    return len(data)


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts of a file, without checking its arrays."""
    with open_regular(path) as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= _LARGEST_HEADER:
            raise Damaged("truncated or edited")
        return check_type(read_header(start + file.read(length)).get("facts"), dict[str, Any], "facts")


def load_facts_and_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a whole file and check its hash."""
    read_facts(path)  # a file of another kind may be huge
    header, arrays = unpack(read_bytes(path, _LARGEST))
    facts = check_type(header.get("facts"), dict[str, Any], "facts")
    if header.get("sha256") != _digest(arrays, facts):
        raise Damaged("truncated or edited")
    return facts, arrays


def pack(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> bytes:
    """Return arrays and a record as the bytes of a safetensors file, always the same ones."""
    return save(arrays, {_HEADER: json.dumps(header, sort_keys=True)})


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the record and the arrays of a safetensors file."""
    header = read_header(data)
    try:
        return header, load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:  # a KeyError for a type that NumPy lacks
        raise Damaged("truncated or edited") from error


def read_header(data: bytes) -> dict[str, Any]:
    """Return the record in the bytes of a safetensors file, of which only the beginning is needed."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        metadata = parse_json(data[8 : 8 + length].decode()).get("__metadata__")
        return parse_json(check_type(metadata, dict[str, str], "metadata")[_HEADER])
    except (struct.error, UnicodeDecodeError, Damaged, KeyError) as error:
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


def _digest(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
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
