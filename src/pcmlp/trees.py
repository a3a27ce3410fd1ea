"""Operations on pytrees that hold arrays and static parts: JAX's loops and branches accept arrays only."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree, Shaped

T = TypeVar("T")


def select(condition: Bool[Array, ""], yes: T, no: T) -> T:
    """Return `yes` or `no`, array by array; static parts are the same in both."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y) if eqx.is_array(x) else x, yes, no)


def scan(step: Callable, carry: T, inputs: PyTree, length: int | None = None) -> tuple[T, Any]:
    """Run `jax.lax.scan` with a carry that may hold static parts."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def array_step(arrays, item):
        carry, out = step(eqx.combine(arrays, rest), item)
        return eqx.filter(carry, eqx.is_array), out

    arrays, out = jax.lax.scan(array_step, arrays, inputs, length)
    return eqx.combine(arrays, rest), out


def short_scan(step: Callable, carry: T, inputs: PyTree, length: int | None = None) -> tuple[T, Any]:
    """Run `jax.lax.scan` with a step of few small operations. On a GPU, five steps are one pass of the loop, because
    beginning a pass takes as long as some of its kernels; on a CPU this would only take longer to compile."""
    return jax.lax.scan(step, carry, inputs, length, unroll=1 if jax.default_backend() == "cpu" else 5)


def run_if(condition: Bool[Array, ""], update: Callable[[T], T], state: T) -> T:
    """Return `update(state)` if the condition holds, else `state`."""
    return update_if(condition, lambda state: (update(state), ()), state)[0]


def update_if(condition: Bool[Array, ""], update: Callable[[T], tuple[T, Any]], state: T) -> tuple[T, Any]:
    """Return `update(state)` if the condition holds, else `state` and zeros in place of the report."""
    arrays, rest = eqx.partition(state, eqx.is_array)

    def run(arrays):
        state, report = update(eqx.combine(arrays, rest))
        return eqx.filter(state, eqx.is_array), report

    def skip(arrays):
        return arrays, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, arrays)[1])

    arrays, report = jax.lax.cond(condition, run, skip, arrays)
    return eqx.combine(arrays, rest), report


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return whether every float in the tree is finite."""
    floats = [x for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)) if x.size]
    return jnp.all(jnp.isfinite(jnp.concatenate([x.reshape(-1) for x in floats]))) if floats else jnp.array(True)


def as_inputs(tree: T) -> T:
    """Turn the numbers in a tree into arrays: another value is then an input of the same compiled program."""

    def as_array(leaf: Any) -> Any:
        if isinstance(leaf, bool):
            return jnp.asarray(leaf)
        return jnp.float32(leaf) if isinstance(leaf, int | float) else leaf

    return jax.tree.map(as_array, _without_auto(tree))


def _without_auto(tree: T) -> T:
    """Return the tree with NaN in place of the text "auto": a number that the program finds by itself."""
    return jax.tree.map(lambda leaf: math.nan if isinstance(leaf, str) and leaf == "auto" else leaf, tree)


def stack_inputs(trees: Sequence[T]) -> T:
    """Return the inputs (`as_inputs`) of a tree for each seed as one tree, whose arrays have a leading axis of seeds.
    The static parts of all trees are equal."""

    def stack(*leaves: Any) -> Any:
        if isinstance(leaves[0], int | float):  # a bool is an int, too
            return jnp.asarray(leaves, bool if isinstance(leaves[0], bool) else jnp.float32)
        return jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0]

    return jax.tree.map(stack, *map(_without_auto, trees))


def join_seeds(trees: Sequence[T]) -> T:
    """Return one tree with the seeds of all trees, along the leading axis of every array."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees)


def split_seeds(tree: T, counts: Sequence[int]) -> list[T]:
    """Return the seeds of a tree in parts of so many: the inverse of `join_seeds`."""
    ends = itertools.accumulate(counts)
    return [take(tree, slice(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def map_leading(function: Callable, *inputs: PyTree) -> Any:
    """Apply a function along the leading axis of all arrays: the seeds, the members of an ensemble, or two policies.

    They run in parallel on a GPU, which one of them does not fill, and one after another on a CPU, where batched matrix
    products take longer than the same products one by one.
    """
    arrays, rest = eqx.partition(inputs, eqx.is_array)
    static = []

    def run(arrays):
        out, fixed = eqx.partition(function(*eqx.combine(arrays, rest)), eqx.is_array)
        static[:] = [fixed]
        return out

    out = jax.lax.map(run, arrays) if jax.default_backend() == "cpu" else jax.vmap(run)(arrays)
    return eqx.combine(out, static[0])


def drop(where: Callable[[T], PyTree], tree: T) -> T:
    """Return the tree with None in the places that `where` returns; they may be None already."""
    return eqx.tree_at(where, tree, replace_fn=lambda _: None, is_leaf=lambda node: node is None)


def take(tree: T, index: Shaped[Array, "*n"] | slice | int) -> T:
    """Return the entries `index` of the leading axis of every array."""
    return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, tree)
