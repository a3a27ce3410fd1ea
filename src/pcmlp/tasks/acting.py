"""Policies that act next to a simulator on the host, compiled once for each kind of policy.

A step of the physics takes about a tenth of a millisecond, so everything else must be fast. Therefore policies are on
the processor that steps, without the parts that only learning needs, and their noise is drawn for whole episodes.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

from pcmlp.programs import program
from pcmlp.rollout import PredrawsNoise, without_critic
from pcmlp.types import Action, Carry, Policy


def to_host(tree: PyTree) -> Any:
    """Move arrays to the processor that steps the simulator, if JAX may use it.

    Sending a state to an accelerator and its action back takes longer than choosing the action, and has to wait for
    whatever the accelerator is doing.
    """
    arrays, rest = eqx.partition(tree, lambda x: eqx.is_array(x) or isinstance(x, np.ndarray))
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS lists only accelerators
        processor = None
    return eqx.combine(jax.device_put(arrays, processor), rest)


def inference_policies(policies: Policy, keys: Array) -> tuple[Policy, Array]:
    """Drop the parts that only learning needs, because every array costs time at each step, and move the rest to the
    host. Policies that search stay on the accelerator."""
    policies = without_critic(policies)
    if policies.searches or jax.default_backend() == "cpu":
        return policies, keys
    return to_host((policies, keys))


deterministic = program(eqx.filter_vmap(lambda policy: policy.deterministic()))


def init_memory(policies: Policy, lanes: Array) -> Carry:
    """Return the memory that policies begin episodes with, for an array of lanes."""
    each = eqx.filter_vmap(lambda policy, lanes: jax.vmap(lambda _: policy.init())(lanes))
    return each(policies, lanes)


def sample_noise(policies: Policy, keys: Array, numbers: Array) -> list[Array]:
    """Return the noise of each policy for its seed's key with each of the numbers folded in, or these keys if the
    policy cannot draw noise in advance."""

    def one(policy, key, number):
        key = jr.fold_in(key, number)
        return jax.tree.leaves(policy.sample_noise(key) if isinstance(policy, PredrawsNoise) else jr.key_data(key))

    def one_seed(policy, key):
        return jax.vmap(jax.vmap(partial(one, policy, key)))(numbers)

    return eqx.filter_vmap(one_seed, out_axes=1)(policies, keys)


def act(policies: Policy, noise: list[Array], memory: Carry, begins: Array, state: Array) -> tuple[Carry, Action]:
    """Return every lane's next memory and action; where an episode `begins`, the memory is new."""

    def one(policy, noise, memory, begins, state):
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), policy.init(), memory)
        if isinstance(policy, PredrawsNoise):
            structure = jax.tree.structure(jax.eval_shape(policy.sample_noise, jr.key(0)))
            return policy.act(jax.tree.unflatten(structure, noise), memory, state)
        return policy(jr.wrap_key_data(noise[0]), memory, state)

    def one_seed(policy, noise, memory, begins, state):
        return jax.vmap(partial(one, policy))(noise, memory, begins, state)

    return eqx.filter_vmap(one_seed)(policies, noise, memory, begins, state)


def map_lanes(function: Callable, state: Array, action: Array, next_state: Array) -> Array:
    """Apply a function of (s, a, s') to one step of every lane."""
    return jax.vmap(jax.vmap(function))(state, action, next_state)


def map_steps(function: Callable, state: Array, action: Array, next_state: Array) -> Array:
    """Apply a function of (s, a, s') to all steps of every lane."""
    return jax.vmap(partial(map_lanes, function))(state, action, next_state)


def bind(function: Callable, owner: PyTree) -> Callable:
    """Return `function(owner, ...)` compiled, once for all owners that differ only in their arrays.

    `eqx.filter_jit` does the same, but takes `owner` apart at every call, which takes 0.2 ms: longer than the rest of
    a step.
    """
    leaves, structure = jax.tree.flatten(owner)
    rest = tuple(None if eqx.is_array(x) else x for x in leaves)
    return partial(_compile(function, structure, rest), [x for x in leaves if eqx.is_array(x)])


@lru_cache(maxsize=64)
def _compile(function, structure, rest):
    def run(arrays, *inputs):
        remaining = iter(arrays)
        leaves = [next(remaining) if x is None else x for x in rest]
        return function(jax.tree.unflatten(structure, leaves), *inputs)

    return jax.jit(run)
