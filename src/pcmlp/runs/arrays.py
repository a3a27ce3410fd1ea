"""The arrays of a pytree by their path in it, which is how they lie on disk (safetensors).

Only arrays are stored. The structure around them is rebuilt from the configuration and handed in as `like`, so that
loading runs nothing that a file says.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save


def to_bytes(tree: Any) -> bytes:
    return save(named_arrays(tree))


def from_bytes(data: bytes, like: Any) -> Any:
    """`like`, what `eqx.filter_eval_shape` gives, with the stored arrays in it; a ValueError says what does not fit."""
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise ValueError(f"not whole ({error})") from error
    shapes, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    wanted = {_name(path): _stored(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
    for name in sorted(wanted.keys() | arrays.keys()):
        shape, found = wanted.get(name), arrays.get(name)
        if shape is None or found is None or (shape.shape, shape.dtype) != (found.shape, found.dtype):
            raise ValueError(f"{name} is {_shown(found)}, not {_shown(shape)}")
    filled = jax.tree_util.tree_map_with_path(lambda path, leaf: _restored(arrays[_name(path)], leaf), shapes)
    return eqx.combine(filled, rest)


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(path): np.asarray(jr.key_data(x) if _is_key(x) else x, order="C") for path, x in leaves}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: jax.ShapeDtypeStruct) -> Any:
    return jax.eval_shape(jr.key_data, leaf) if _is_key(leaf) else leaf


def _restored(array: np.ndarray, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return jr.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array)


def _shown(array: Any) -> str:
    return "absent" if array is None else f"{array.dtype}{list(array.shape)}"
