"""Policies beside a simulator: what they do at a step of all lanes, compiled once for each kind of policy.

A step of the physics takes a tenth of a millisecond or so, and whatever else it takes is lost. So policies are where
the simulator is, without what only learning needs, and what is random about them is drawn for a whole walk at once.
"""

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

from pcmlp.types import AbstractPolicy, Action, Carry, DrawsAhead


def beside_simulator(tree: PyTree) -> Any:
    """With its arrays on the processor that steps, where JAX may use it. To send a state to an accelerator and its
    action back takes longer than a policy takes to choose it, and has to wait for whatever the accelerator is at."""
    arrays, rest = eqx.partition(tree, lambda x: eqx.is_array(x) or isinstance(x, np.ndarray))
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names accelerators alone
        processor = None
    return eqx.combine(jax.device_put(arrays, processor), rest)


def near(policies: AbstractPolicy, keys: Array) -> tuple[AbstractPolicy, Array]:
    """Policies that search are for an accelerator. Every array that is not needed costs time at each step."""
    policies = policies.acting() if isinstance(policies, DrawsAhead) else policies
    if policies.searches or jax.default_backend() == "cpu":
        return policies, keys
    return beside_simulator((policies, keys))


deterministic = eqx.filter_jit(eqx.filter_vmap(lambda policy: policy.deterministic()))


def begin(policies: AbstractPolicy, lanes: Array) -> Carry:
    each = eqx.filter_vmap(lambda policy, lanes: jax.vmap(lambda _: policy.init())(lanes))
    return each(policies, lanes)


def ahead(policies: AbstractPolicy, keys: Array, numbers: Array) -> list[Array]:
    """What every policy draws by its seed's key with each of the numbers folded in; a key itself where it does not draw
    ahead."""

    def one(policy, key, number):
        key = jr.fold_in(key, number)
        return jax.tree.leaves(policy.drawn(key) if isinstance(policy, DrawsAhead) else jr.key_data(key))

    def of_a_seed(policy, key):
        return jax.vmap(jax.vmap(partial(one, policy, key)))(numbers)

    return eqx.filter_vmap(of_a_seed, out_axes=1)(policies, keys)


def act(
    policies: AbstractPolicy, drawn: list[Array], memory: Carry, begins: Array, state: Array
) -> tuple[Carry, Action]:
    def one(policy, drawn, memory, begins, state):
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), policy.init(), memory)
        if isinstance(policy, DrawsAhead):
            shape = jax.tree.structure(jax.eval_shape(policy.drawn, jr.key(0)))
            return policy.act(jax.tree.unflatten(shape, drawn), memory, state)
        return policy(jr.wrap_key_data(drawn[0]), memory, state)

    def of_a_seed(policy, drawn, memory, begins, state):
        return jax.vmap(partial(one, policy))(drawn, memory, begins, state)

    return eqx.filter_vmap(of_a_seed)(policies, drawn, memory, begins, state)


class Answers:
    """What policies do at a step, timed."""

    def __init__(self):
        self.seconds = 0.0  # so far

    def of(self, policies: AbstractPolicy) -> Callable[..., tuple[Carry, Action, np.ndarray]]:
        """`act` of them; the actions also as the simulator takes them."""
        answer = compiled(act, policies)

        def timed(*inputs):
            begun = time.perf_counter()
            memory, action = answer(*inputs)
            played = np.asarray(action)
            self.seconds += time.perf_counter() - begun
            return memory, action, played

        return timed


def each(function: Callable, state: Array, action: Array, next_state: Array) -> Array:
    """Of a step of every lane."""
    return jax.vmap(jax.vmap(function))(state, action, next_state)


def each_step(function: Callable, state: Array, action: Array, next_state: Array) -> Array:
    """Of every step of every lane."""
    return jax.vmap(partial(each, function))(state, action, next_state)


def compiled(function: Callable, owner: PyTree) -> Callable:
    """`function(owner, ...)`, compiled once for whatever `owner` is apart from its arrays.

    `eqx.filter_jit` does so too, but takes `owner` apart at every call: 0.2 ms, more than the rest of a step.
    """
    leaves, tree = jax.tree.flatten(owner)
    rest = tuple(None if eqx.is_array(x) else x for x in leaves)
    return partial(_program(function, tree, rest), [x for x in leaves if eqx.is_array(x)])


@lru_cache(maxsize=64)
def _program(function, tree, rest):
    def run(arrays, *inputs):
        found = iter(arrays)
        return function(jax.tree.unflatten(tree, [next(found) if x is None else x for x in rest]), *inputs)

    return jax.jit(run)
