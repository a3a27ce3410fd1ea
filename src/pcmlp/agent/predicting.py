"""Actions for observations from outside, one or a batch: `DeepPCMLP.predict`."""

import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from pcmlp.algorithms.deep import DeepLearner
from pcmlp.boundary import WrongStructure
from pcmlp.choices import Choices
from pcmlp.errors import ConfigError
from pcmlp.programs import program
from pcmlp.spaces import Box
from pcmlp.types import MDP, Policy


def choose_policies(learner: DeepLearner, newest: bool) -> Policy:
    """Return the policies that act: those that are deployed, or those that the last iteration has planned."""
    return learner.trial.candidate if newest else learner.deployed()


def predict(
    policy: Policy,
    mdp: MDP,
    observation: Any,
    state: Any,
    episode_start: np.ndarray | None,
    deterministic: bool,
    generator: np.random.Generator,
) -> tuple[np.ndarray | np.integer, Any]:
    """Return the action for an observation, or for each of a batch, and the policy's memory for the next step."""
    states, actions = mdp.boxes
    observed = _read(states, observation)
    if observed.ndim not in (1, 2) or observed.shape[-1] != states.size:
        size = states.size
        raise ConfigError(f"observation of shape {observed.shape}: give ({size},), or (n, {size}) for a batch")
    batch = np.atleast_2d(observed)
    starts = np.ones(len(batch), bool) if state is None else np.zeros(len(batch), bool)
    starts = starts if episode_start is None else starts | np.asarray(episode_start, bool)
    keys = jax.vmap(jr.key)(_noise(batch, deterministic, generator))
    memory = _new_memory(policy, len(batch)) if state is None else state
    memory, action = _act(policy, keys, memory, jnp.asarray(starts), jnp.asarray(batch), deterministic)
    action = np.asarray(action)
    taken = actions.to_integers(action) if isinstance(actions, Choices) else np.clip(action, *actions.bounds)
    taken = np.asarray(taken)
    return (taken if observed.ndim == 2 else taken[0]), memory


def _read(states: Box, observation: Any) -> np.ndarray:
    """Return an observation of the environment, or a batch, as vectors."""
    if states.layout is None:
        return np.asarray(observation, np.float32)
    try:
        return states.layout.read_any(observation)
    except (WrongStructure, TypeError) as error:
        names = ", ".join(states.layout.index) or "an array"
        raise ConfigError(
            f"observation: {error}; give the environment's own ({names}), or vectors of {states.size} numbers"
        ) from error


def _noise(batch: np.ndarray, deterministic: bool, generator: np.random.Generator) -> np.ndarray:
    """Return a seed for each row. A planner that searches needs random numbers even for a deterministic action;
    they then depend only on the observation."""
    if deterministic:
        return np.array([zlib.crc32(row.tobytes()) for row in batch], np.uint32)
    return generator.integers(2**32, size=len(batch), dtype=np.uint32)


@program
def _new_memory(policy: Policy, count: int) -> Any:
    return eqx.filter_vmap(lambda _: policy.init())(jnp.arange(count))


@program
def _act(policy: Policy, keys: Any, memory: Any, starts: Any, batch: Any, deterministic: bool) -> Any:
    policy = policy.deterministic() if deterministic else policy

    def one(key, memory, begins, observation):
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), policy.init(), memory)
        return policy(key, memory, observation)

    return jax.vmap(one)(keys, memory, starts, batch)
