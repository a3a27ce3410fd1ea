"""Functions that several algorithms use in an iteration: for random keys, samples and the replay."""

import dataclasses
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from pcmlp.programs import program
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.spaces import Finite
from pcmlp.trees import select
from pcmlp.types import MDP, Features, Problem, World, never

# The key of an iteration is the seed's key with the iteration number folded in, then one of these uses. Other keys of a
# seed fold in a number that no iteration has.
COLLECT, STAGE, BONUS = 0, 1, 2
EVALUATION, FEATURES, PLANNING, PROMISE, LOGGED = (2**31 + i for i in range(5))


def stage_key(key: Key[Array, ""], n: Int[Array, ""] | int, use: int) -> Key[Array, ""]:
    """Return the key of one use in iteration n."""
    return jr.fold_in(jr.fold_in(key, n), use)


def stage_keys(keys: Key[Array, " seeds"], n: int, use: int) -> Key[Array, " seeds"]:
    """Return the key of one use in iteration n, for each seed."""
    return jax.vmap(lambda key: stage_key(key, n, use))(keys)


def round_up(steps: int, horizon: int) -> int:
    """Return the number of steps, rounded up to whole episodes."""
    return -(-steps // horizon) * horizon


def feature_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """Return the key that a seed's phi is drawn with, whenever it is drawn."""
    return jr.fold_in(key, FEATURES)


def choose_phi(is_first: Bool[Array, ""], new: Features, old: Features) -> Features:
    """Return the phi that was drawn after the first samples: Sigma is a sum over one phi, so phi must not change."""
    return select(is_first, new, old)


def with_executed_actions(samples: Transitions, mdp: MDP) -> Transitions:
    """Return the samples with the executed actions: worlds clip the actions of a policy."""
    if isinstance(mdp.actions, Finite):
        return samples
    return eqx.tree_at(lambda t: t.action, samples, jax.vmap(mdp.actions.clip)(samples.action))


def without_goal(problem: Problem) -> World:
    """Return the world to explore in without a reward, in which the goal does not end an episode. An episode that ended
    there would lose the bonus of all later steps, so a reward-free cover would avoid the goal. Evaluation keeps it."""
    world = problem.world
    return (
        dataclasses.replace(world, mdp=dataclasses.replace(world.mdp, terminal=never)) if problem.goal_ends else world
    )


def drop_rows(replay: Replay) -> Replay:
    """Return the replays of all seeds without their rows. The empty arrays are made on the host: an accelerator would
    make them only after the stage that it is computing."""
    empty = jax.tree.map(lambda x: np.zeros((x.shape[0], 0, *x.shape[2:]), x.dtype), replay.data)
    return eqx.tree_at(lambda r: r.data, replay, jax.device_put(empty))


def restore_rows(replay: Replay, capacity: int, mdp: MDP, walked: Iterable[Transitions]) -> Replay:
    """Return the replays of all seeds with the rows of every real step."""

    def empty(x: Array) -> Array:
        return jnp.zeros((x.shape[0], capacity, *x.shape[2:]), x.dtype)

    start = jax.tree.map(empty, replay.data), jnp.zeros_like(replay.head)
    restored = eqx.tree_at(lambda r: (r.data, r.head), replay, start)
    for samples in walked:
        restored = _add(mdp, restored, samples)
    return eqx.tree_at(lambda r: r.head, restored, replay.head)


@program
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _add(mdp: MDP, replay: Replay, samples: Transitions) -> Replay:
    return replay.add(drop_nonfinite(with_executed_actions(samples, mdp))[0])
