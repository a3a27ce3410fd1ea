"""Files of a run: written completely or not at all, even if the machine stops; text, JSON, and pytrees of arrays.

A file is written under another name, synced to disk and renamed, and then its folder is synced: otherwise the rename
may not be on disk yet. A pytree is one safetensors file with its arrays by their path in the tree, some facts, and a
hash of both. The structure around the arrays is rebuilt from the configuration and handed in as `like`, so that loading
never executes anything from a file.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from pcmlp.errors import ConfigError, RunStopped

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_durably(path: Path, data: bytes) -> None:
    """Write all of the data or nothing."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write all of the text or nothing."""
    write_durably(path, text.encode())


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, all or nothing."""
    write_text(path, json.dumps(record, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise a `ValueError` if the file does not hold one."""
    record = json.loads(path.read_text())
    if not isinstance(record, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return record


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def room_for(what: str, folder: Path, needed: int) -> Iterator[None]:
    """Turn a full disk into `RunStopped`, with a message that says how much space is needed."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(folder).free
        limit = " (or the file would exceed the size limit)" if error.errno == errno.EFBIG else ""
        raise RunStopped(
            f"{folder}: no space for {what}{limit}: {needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free; "
            "nothing that was saved is lost: free some space and continue with resume=True"
        ) from error


def check_own(file: Path, inside: Path) -> None:
    """Raise unless a file is really inside the folder `inside`: a link could lead anywhere."""
    if file.resolve() != inside.resolve() / file.relative_to(inside):
        raise ConfigError(f"{file}: is a link, or behind one, to a place outside {inside}; put the file itself there")


class Damaged(ValueError):
    """A file that is truncated, edited or of another kind; the message says which."""


def save_tree(path: Path, tree: Any, facts: dict[str, Any], what: str = "") -> int:
    """Write the arrays of a tree and facts about them, all or nothing; return the number of bytes. `what` names the
    tree in the error about a full disk."""
    arrays, text = named_arrays(tree), json.dumps(facts, sort_keys=True)
    data = save(arrays, {"facts": text, "sha256": _digest(arrays, text)})
    with room_for(what, path.parent, len(data)) if what else contextlib.nullcontext():
        write_durably(path, data)
    return len(data)


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts of a file, without checking its arrays."""
    return _read(path, whole=False)[0]


def load_facts_and_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a whole file and check its hash."""
    return _read(path, whole=True)


def _read(path: Path, *, whole: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path.open("rb").close()  # this error gives the reason, that of `safe_open` does not
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
        facts, arrays = json.loads(metadata["facts"]), load(path.read_bytes()) if whole else {}
        if whole and metadata["sha256"] != _digest(arrays, metadata["facts"]):
            raise Damaged("truncated or edited")
    except (SafetensorError, KeyError, ValueError) as error:
        raise Damaged("truncated or edited") from error
    if not isinstance(facts, dict):
        raise Damaged("edited")
    return facts, arrays


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
