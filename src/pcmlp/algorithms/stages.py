"""What the iterations of several algorithms share: their random numbers, their samples, their replay."""

import dataclasses
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key

from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.spaces import Box
from pcmlp.trees import select
from pcmlp.types import MDP, Features, Problem, World, never

# Iterations fold their number into a seed's key, then one of these uses. Other random numbers of a seed fold in a
# number that no iteration has.
COLLECT, STAGE, BONUS = 0, 1, 2
EVALUATION, FEATURES, PLANNING, PROMISE = (2**31 + i for i in range(4))


def stage_key(key: Key[Array, ""], n: Int[Array, ""] | int, use: int) -> Key[Array, ""]:
    """Return the key of one use in iteration n."""
    return jr.fold_in(jr.fold_in(key, n), use)


def stage_keys(keys: Key[Array, " seeds"], n: int, use: int) -> Key[Array, " seeds"]:
    """Return the key of one use in iteration n, for each seed."""
    return jax.vmap(lambda key: stage_key(key, n, use))(keys)


def feature_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """Return the key that a seed's phi is drawn with, whenever it is drawn."""
    return jr.fold_in(key, FEATURES)


def freeze_after_first(n: Int[Array, ""], new: Features, old: Features) -> Features:
    """Return phi as it was drawn from the first samples: another one would not fit into the same Sigma."""
    return select(n == 1, new, old)


def with_executed_actions(samples: Transitions, mdp: MDP) -> Transitions:
    """Return the samples with the actions that were executed: worlds clip what a policy asks for."""
    if not isinstance(mdp.actions, Box):
        return samples
    return eqx.tree_at(lambda t: t.action, samples, jax.vmap(mdp.actions.clip)(samples.action))


def without_goal(problem: Problem) -> World:
    """Return the world to explore in without a reward: an end that forfeits the bonus of all later steps would keep a
    reward-free cover away from the goal and from everything behind it. Evaluation keeps the end."""
    world = problem.world
    return (
        dataclasses.replace(world, mdp=dataclasses.replace(world.mdp, terminal=never)) if problem.goal_ends else world
    )


def drop_rows(replay: Replay) -> Replay:
    """Return the replays of all seeds without their rows."""
    return eqx.tree_at(lambda r: r.data, replay, jax.tree.map(lambda x: x[:, :0], replay.data))


def restore_rows(replay: Replay, capacity: int, mdp: MDP, walked: Iterable[Transitions]) -> Replay:
    """Return the replays of all seeds with the rows of every step that was walked."""

    def empty(x: Array) -> Array:
        return jnp.zeros((x.shape[0], capacity, *x.shape[2:]), x.dtype)

    start = jax.tree.map(empty, replay.data), jnp.zeros_like(replay.head)
    restored = eqx.tree_at(lambda r: (r.data, r.head), replay, start)
    for samples in walked:
        restored = _add(mdp, restored, samples)
    return eqx.tree_at(lambda r: r.head, restored, replay.head)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _add(mdp: MDP, replay: Replay, samples: Transitions) -> Replay:
    return replay.add(drop_nonfinite(with_executed_actions(samples, mdp))[0])
