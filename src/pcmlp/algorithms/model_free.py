"""Model-free TRPO and SAC: the planner's own update on real steps (Schulman et al. 2015, Haarnoja et al. 2018).

    every iteration: walk whole episodes with the policy and its noise, then learn from
        TRPO   those steps alone, in one update
        SAC    a replay of all steps so far, in as many updates as steps were walked

Nothing about the world has to be known: the reward is the observed one. A planner in a model makes the same update with
imagined steps, so a comparison of the two shows how many real steps a model saves.
"""

import dataclasses
from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key

from pcmlp.algorithms.stages import (
    COLLECT,
    STAGE,
    drop_rows,
    restore_rows,
    stage_key,
    stage_keys,
    with_executed_actions,
)
from pcmlp.nets import RunningMoments
from pcmlp.planners import SAC, TRPO, ActorCritic, SoftActorCritic
from pcmlp.programs import brief_program, program
from pcmlp.replay import Replay, Transitions, drop_nonfinite, pick_valid
from pcmlp.rollout import mean_first_return, split_streams
from pcmlp.settings import SettingError, setting
from pcmlp.trees import as_inputs, map_leading
from pcmlp.types import MDP, Algorithm, Iteration, Learner, Metrics, Planner, Policy, Problem, World


class ModelFree(Algorithm):
    """The inputs of model-free learning."""

    planner: Planner = setting(TRPO(), "planner whose update is applied to real steps: TRPO or SAC")
    samples_per_policy: int = setting(2_000, "real steps of one iteration, in whole episodes", least=1, tiny=40)
    normalise: bool = setting(True, "normalise states by the mean and std of all states so far")
    replay_size: int = setting(50_000, "rows of SAC's replay", least=1, most=2**31 - 1)
    updates_per_step: float = setting(
        1.0, "updates of SAC for each real step", above=0, most=100, tiny=0.1, traced=False
    )

    def check(self) -> None:
        """Raise unless the planner has an update that can be applied to real steps."""
        if not isinstance(self.planner, TRPO | SAC):
            raise SettingError("planner", type(self.planner).__name__, "has no update for real steps; give TRPO or SAC")

    @property
    def replay_rows(self) -> int | None:
        """The rows of SAC's replay buffer; TRPO has none."""
        return self.replay_size if isinstance(self.planner, SAC) else None

    def bind(self, problem: Problem) -> "ModelFree":
        """Return the algorithm, for a problem with vectors."""
        _ = problem.world.mdp.boxes
        return self

    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> "ModelFreeLearner":
        """Return the untrained policies of all seeds."""
        return _start(keys, as_inputs(self), mdp)

    def iterate(self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int) -> Iteration:
        """Run iteration n of all seeds: walk, then learn."""
        assert isinstance(learner, ModelFreeLearner)
        samples, walked = world.collect(stage_keys(keys, n, COLLECT), learner.policy, self.samples_per_policy)
        learner, metrics = _improve(keys, as_inputs(self), world.mdp, learner, samples, jnp.array(n))
        return Iteration(learner, metrics, samples, [walked])

    def without_replay(self, learner: Learner) -> "ModelFreeLearner":
        """Return the learner without the rows of its replay, which can be restored from the episode log."""
        assert isinstance(learner, ModelFreeLearner)
        replay = None if learner.replay is None else drop_rows(learner.replay)
        return dataclasses.replace(learner, replay=replay)

    def restore_replay(self, learner: Learner, mdp: MDP, walked: Iterable[Transitions]) -> "ModelFreeLearner":
        """Return the learner with the rows of its replay, given every real step it has taken."""
        assert isinstance(learner, ModelFreeLearner)
        if learner.replay is None:
            return learner
        return dataclasses.replace(learner, replay=restore_rows(learner.replay, self.replay_size, mdp, walked))


class ModelFreeLearner(Learner):
    """The state of model-free learning between iterations."""

    policy: Policy  # the policy that explores; deployed without its noise
    env_steps: Int[Array, "*seeds"]
    replay: Replay | None  # for SAC only
    seen: RunningMoments  # mean and variance of all states so far

    def deployed(self) -> Policy:
        """Return the policy itself."""
        return self.policy


def start(key: Key[Array, ""], algo: ModelFree, mdp: MDP) -> ModelFreeLearner:
    """Return the untrained policy of one seed."""
    example = Transitions.example(mdp.states, mdp.actions)
    policy = algo.planner.init(jr.fold_in(key, 0), mdp)
    replay = Replay.empty(example, algo.replay_size) if isinstance(algo.planner, SAC) else None
    return ModelFreeLearner(policy, jnp.zeros((), int), replay, RunningMoments.empty(example.state.shape[1]))


def improve(
    key: Key[Array, ""], algo: ModelFree, mdp: MDP, learner: ModelFreeLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[ModelFreeLearner, Metrics]:
    """Run iteration n of one seed, given its samples; `key` is the key of the seed."""
    learn_key = stage_key(key, n, STAGE)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    paid = mean_first_return(samples, mdp.horizon)  # computed before non-finite rewards are replaced by 0
    samples, rejected = drop_nonfinite(samples)
    seen = learner.seen.add(samples.state, samples.valid)
    policy, replay = learner.policy, learner.replay
    assert isinstance(policy, ActorCritic | SoftActorCritic)
    policy = policy.with_normaliser(seen.normaliser()) if algo.normalise else policy
    if isinstance(policy, ActorCritic):
        assert isinstance(algo.planner, TRPO)
        streams = split_streams(samples, mdp.horizon)
        policy, metrics = algo.planner.learn(learn_key, policy, streams, streams.valid)
    else:
        assert isinstance(algo.planner, SAC)
        assert replay is not None
        replay = replay.add(with_executed_actions(samples, mdp))  # the same rows as `restore_replay` gives
        row_key, noise_key = jr.split(learn_key)
        updates = max(1, round(algo.updates_per_step * samples.reward.shape[0]))
        chosen = pick_valid(jr.uniform(row_key, (updates, algo.planner.batch)), replay.data.valid)
        policy, metrics = algo.planner.learn(noise_key, policy, replay.data, chosen)
    return ModelFreeLearner(policy, env_steps, replay, seen), {"sample_return": paid, **metrics, **rejected}


_start = brief_program(eqx.filter_vmap(start, in_axes=(0, None, None)))


@program
def _improve(keys, algo, mdp, learner, samples, n):
    return map_leading(lambda k, learner, samples: improve(k, algo, mdp, learner, samples, n), keys, learner, samples)
