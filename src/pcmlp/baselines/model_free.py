"""Model-free TRPO and SAC: the planner's own update on real steps, and no model (Schulman et al. 2015, Haarnoja 2018).

    every iteration: walk whole episodes with the policy and its noise, then learn from
        TRPO   those steps alone, in one update
        SAC    a replay of all steps so far, in as many updates as steps were walked

What is learned is the reward that the world paid; nothing of the world has to be known. A planner that imagines does
the same to imagined steps: what a model saves in real ones is the difference between the two.
"""

import dataclasses
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.deep import over_seeds
from pcmlp.framework import example_row
from pcmlp.nets import Running
from pcmlp.planners.sac import SAC, SoftActorCritic
from pcmlp.planners.trpo import TRPO, ActorCritic
from pcmlp.replay import Replay, among_valid, numbers_only
from pcmlp.rollout import first_episode
from pcmlp.types import (
    AbstractAlgorithm,
    AbstractLearner,
    AbstractPolicy,
    AbstractWorld,
    Box,
    ConfigError,
    Iteration,
    Metrics,
    Transitions,
)
from pcmlp.world import JaxWorld


class ModelFree(AbstractAlgorithm):
    world: AbstractWorld
    planner: TRPO | SAC  # whose `learn` is the method; what it imagines is not asked for
    num_iterations: int = eqx.field(static=True)
    samples_per_policy: int = eqx.field(static=True)  # of an iteration, in whole episodes
    replay_size: int = eqx.field(static=True, default=0)  # rows; TRPO has no replay
    updates_per_step: float = eqx.field(static=True, default=1.0)  # of SAC
    normalise: bool = eqx.field(static=True, default=False)  # states in units of all that was seen

    def __check_init__(self) -> None:
        for name, good, remedy in (
            ("num_iterations", self.num_iterations >= 1, "give 1 or more"),
            ("samples_per_policy", self.samples_per_policy >= 1, "give 1 or more"),
            ("replay_size", isinstance(self.planner, TRPO) or self.replay_size >= 1, "SAC needs one; give 1 or more"),
            ("updates_per_step", self.updates_per_step > 0, "give a number above 0"),
        ):
            if not good:
                raise ConfigError(f"{name}={getattr(self, name)}: {remedy}")
        check_vectors(self.world)

    def start(self, keys: Key[Array, " seeds"]) -> "FreeLearner":
        return _start(keys, self.stage())

    def iterate(self, keys: Key[Array, " seeds"], learner: AbstractLearner, n: int) -> Iteration:
        assert isinstance(learner, FreeLearner)
        walk_keys = jax.vmap(lambda k: jr.fold_in(jr.fold_in(k, n), 0))(keys)
        samples, walked = self.world.collect(walk_keys, learner.policy, self.samples_per_policy)
        learner, metrics = _improve(keys, self.stage(), learner, samples, jnp.array(n))
        return Iteration(learner, metrics, samples, [walked])

    def lightened(self, learner: AbstractLearner) -> "FreeLearner":
        assert isinstance(learner, FreeLearner)
        if learner.replay is None:
            return learner
        return with_rows(learner, jax.tree.map(lambda x: x[:, :0], learner.replay.data))

    def refilled(self, learner: AbstractLearner, walked: Iterable[Transitions]) -> "FreeLearner":
        assert isinstance(learner, FreeLearner)
        if learner.replay is None:
            return learner

        def empty(x: Array) -> Array:
            return jnp.zeros((x.shape[0], self.replay_size, *x.shape[2:]), x.dtype)

        nothing = jax.tree.map(empty, learner.replay.data), jnp.zeros_like(learner.replay.head)
        replay = eqx.tree_at(lambda r: (r.data, r.head), learner.replay, nothing)
        for samples in walked:
            replay = _added(replay, samples)
        return with_rows(learner, replay.data)

    def stage(self) -> "ModelFree":
        """Itself without what a stage does not ask: a longer run or another copy of an environment is not another
        program."""
        known = JaxWorld(self.world.mdp, self.world.states, self.world.actions)
        return dataclasses.replace(self, world=known, num_iterations=1, samples_per_policy=1)


class FreeLearner(AbstractLearner):
    policy: ActorCritic | SoftActorCritic  # explores, and is deployed without its noise
    replay: Replay | None
    seen: Running  # of states
    env_steps: Int[Array, "*seeds"]

    def deployed(self) -> AbstractPolicy:
        return self.policy


def start(key: Key[Array, ""], algo: ModelFree) -> FreeLearner:
    example = example_row(algo.world)
    policy = algo.planner.init(jr.fold_in(key, 0), algo.world.mdp)
    replay = None if isinstance(algo.planner, TRPO) else Replay.like(example, algo.replay_size)
    seen = Running.nothing(example.state.shape[1])
    return FreeLearner(policy=policy, replay=replay, seen=seen, env_steps=jnp.zeros((), int))


def improve(
    key: Key[Array, ""], algo: ModelFree, learner: FreeLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[FreeLearner, Metrics]:
    """Iteration n of one seed, given what was walked; `key` is the seed's own."""
    learn_key = jr.fold_in(jr.fold_in(key, n), 1)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    horizon = algo.world.mdp.horizon
    paid = mean_first_return(samples, horizon)  # before rewards that are not numbers count as 0
    samples, rejected = numbers_only(samples)
    seen = learner.seen.add(samples.state, samples.valid)
    # What walked in the old units is the same function in the new ones, but for the nets of the first iteration, which
    # prefer nothing yet.
    policy = learner.policy.at(seen.units()) if algo.normalise else learner.policy
    replay = None if learner.replay is None else learner.replay.add(samples)
    planner = algo.planner
    if isinstance(planner, TRPO):
        assert isinstance(policy, ActorCritic)
        streams = in_streams(samples, horizon)
        policy, metrics = planner.learn(learn_key, policy, streams, streams.valid)
    else:
        assert isinstance(policy, SoftActorCritic)
        assert replay is not None
        row_key, noise_key = jr.split(learn_key)
        updates = max(1, round(algo.updates_per_step * samples.reward.shape[0]))
        chosen = among_valid(jr.uniform(row_key, (updates, planner.batch)), replay.data.valid)
        policy, metrics = planner.learn(noise_key, policy, replay.data, chosen)
    learner = FreeLearner(policy=policy, replay=replay, seen=seen, env_steps=env_steps)
    return learner, {"sample_return": paid, **metrics, **rejected}


_start = eqx.filter_jit(eqx.filter_vmap(start, in_axes=(0, None)))


@eqx.filter_jit
def _improve(
    keys: Key[Array, " seeds"], algo: ModelFree, learner: FreeLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[FreeLearner, dict[str, Float[Array, " seeds"]]]:
    return over_seeds(lambda key, learner, samples: improve(key, algo, learner, samples, n), keys, learner, samples)


@eqx.filter_jit
@eqx.filter_vmap
def _added(replay: Replay, samples: Transitions) -> Replay:
    return replay.add(numbers_only(samples)[0])


def with_rows(learner: FreeLearner, rows: Transitions) -> FreeLearner:
    assert learner.replay is not None
    return eqx.tree_at(lambda l: l.replay.data, learner, rows)


def in_streams(samples: Transitions, horizon: int) -> Transitions:
    """What `collect` gave, [streams, H, ...]: whole episodes, and where one ended early the beginning of the next."""
    return jax.tree.map(lambda x: x.reshape(-1, horizon, *x.shape[1:]), samples)


def mean_first_return(samples: Transitions, horizon: int) -> Float[Array, ""]:
    """Of the first episode of each stream; what comes after it was cut short and tells nothing of a return."""
    first = jax.vmap(first_episode)(in_streams(samples, horizon))
    there = jnp.any(first.valid, axis=1)  # what a simulator spoilt is no return of 0
    returns = jnp.sum(jnp.where(first.valid, first.reward, 0.0), axis=1)
    return jnp.sum(returns) / jnp.maximum(jnp.sum(there, dtype=jnp.float32), 1.0)


def check_vectors(world: AbstractWorld) -> None:
    if not (isinstance(world.states, Box) and isinstance(world.actions, Box)):
        raise ConfigError("algo: learns from states and actions that are vectors; give another --algo or task")
