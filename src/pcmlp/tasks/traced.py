"""NumPy code on JAX's arrays. Code that calls `numpy.linalg.norm` can be compiled if it has no `if` on values.

`Traced` is an array that answers NumPy's protocols (`__array_ufunc__`, `__array_function__`): it calls the function of
the same name in `jax.numpy`. Code raises an error if it calls a function that JAX lacks, or needs a value; then the
caller learns the function from samples. A caller must compare the results with those of NumPy, because JAX's function
may differ.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

_KINDS = {"f": jnp.float32, "i": jnp.int32, "u": jnp.int32, "b": jnp.bool_}
_METHODS = ("all", "any", "dot", "max", "mean", "min", "prod", "ravel", "reshape", "squeeze", "sum", "transpose")


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of JAX that NumPy's functions and operators accept."""

    __array_priority__ = 1000.0

    def __init__(self, values: Array):
        self.values = values

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options.pop("out", None) is not None:
            return NotImplemented
        return _apply(getattr(jnp, ufunc.__name__), inputs, options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        path = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
        return _apply(operator.attrgetter(path)(jnp), inputs, options)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"{name} of an array that JAX traces")
        return lambda *inputs, **options: _apply(getattr(self.values, name), inputs, options)

    def __getitem__(self, index: Any) -> Any:
        return Traced(self.values[jax.tree.map(_unwrap, index, is_leaf=_is_traced)])

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("JAX traces the array, which has no values yet")

    def __bool__(self) -> bool:
        raise TypeError("JAX traces the array, which has no values yet")

    def __len__(self) -> int:
        return len(self.values)

    def astype(self, dtype: Any, **_: Any) -> "Traced":
        """Return the array in JAX's type of this kind."""
        return Traced(self.values.astype(_KINDS[np.dtype(dtype).kind]))

    def copy(self) -> "Traced":
        """Return the array itself, because it cannot be changed."""
        return self

    @property
    def T(self) -> "Traced":
        """The transpose."""
        return Traced(self.values.T)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.values.ndim

    @property
    def dtype(self) -> Any:
        """The type."""
        return self.values.dtype


def call_traced(function: Callable, *arrays: Array, after: tuple[Any, ...] = ()) -> Array:
    """Return function(*arrays, *after) as JAX computes it, in 32 bits; the function may be written in NumPy."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return jnp.asarray(_unwrap(function(*map(Traced, arrays), *after)))


def _apply(function: Callable, inputs: Any, options: Any) -> Any:
    inputs, options = jax.tree.map(_unwrap, (tuple(inputs), dict(options)), is_leaf=_is_traced)
    if "dtype" in options and options["dtype"] is not None:
        options["dtype"] = _KINDS[np.dtype(options["dtype"]).kind]
    out = function(*inputs, **options)
    return jax.tree.map(Traced, out)


def _is_traced(value: Any) -> bool:
    return isinstance(value, Traced)


def _unwrap(value: Any) -> Any:
    """Return a value that JAX accepts: NumPy's scalars become Python numbers, and its arrays get 32 bits."""
    if isinstance(value, Traced):
        return value.values
    if isinstance(value, np.generic):
        return value.item()
    return jnp.asarray(value, _KINDS[value.dtype.kind]) if isinstance(value, np.ndarray) else value
