"""One paper round, composed as in `algorithms.deep.improve`, and each of its phases alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.deep import Deep, DeepLearner, imagination, imagined_starts
from pcmlp.bench.clock import compile_call, median_time
from pcmlp.bonus import CappedBonus, second_moment
from pcmlp.features import RandomNetwork
from pcmlp.imagine import expand_range
from pcmlp.models import Neural
from pcmlp.planners import TRPO, ActorCritic
from pcmlp.planners.trpo import advantages
from pcmlp.replay import Replay, Transitions
from pcmlp.rollout import walk
from pcmlp.spaces import Range
from pcmlp.tasks.classic import MountainCar
from pcmlp.trees import as_inputs, over_seeds, take
from pcmlp.types import MDP, FittedBonus, FittedModel, Metrics, Policy, World


def mountain_car() -> World:
    """Return the world of the round."""
    return MountainCar().build().world


def paper_round(net: tuple[int, ...], samples: int, model_steps: int, updates: int, streams: int, length: int) -> Deep:
    """Return the algorithm of the round."""
    return Deep(
        features=RandomNetwork(sizes=net),
        model=Neural(sizes=net, steps=model_steps),
        planner=TRPO(updates=updates, streams=streams, length=length),
        samples_per_policy=samples,
    )


class Stage(eqx.Module):
    """The inputs of a round."""

    model: FittedModel
    policy: Policy
    bonus: FittedBonus
    replay: Replay
    seen: Range
    starts: Float[Array, "*seeds n s"]

    def imagined(self, algo: Deep, mdp: MDP, explores: bool) -> MDP:
        """Return the MDP to plan in."""
        return imagination(algo, mdp, self.bonus, self.seen, self.starts, self.model, jnp.array(explores))


def prepare_stage(key: Key[Array, ""], algo: Deep, mdp: MDP, learner: DeepLearner, samples: Transitions) -> Stage:
    """Run lines 6 to 8 of Algorithm 2 in the first iteration of one seed."""
    covariance = learner.covariance.add(second_moment(learner.features, samples)).matrix
    replay = learner.replay.add(samples)
    bonus = algo.bonus.update(key, learner.bonus, learner.features, covariance, replay)
    starts = imagined_starts(key, algo, mdp, replay)
    return Stage(learner.model, learner.policy, bonus, replay, expand_range(learner.seen, samples), starts)


def prepare_stages(algo: Deep, seeds: int) -> tuple[Key[Array, " seeds"], Stage]:
    """Return the inputs of a round for several seeds."""
    keys, world = jr.split(jr.key(0), seeds), mountain_car()
    learner = algo.start(keys, world.mdp, 1)
    samples, _ = world.collect(keys, learner.policy, algo.samples_per_policy)
    prepare = eqx.filter_vmap(prepare_stage, in_axes=(0, None, None, eqx.if_array(0), eqx.if_array(0)))
    return keys, eqx.filter_jit(prepare)(keys, as_inputs(algo), world.mdp, learner, samples)


def one_round(key: Key[Array, ""], algo: Deep, mdp: MDP, stage: Stage) -> tuple[FittedModel, Policy, Metrics]:
    """Train the model and plan once, as each round of `improve` does."""
    fit_key, plan_key = jr.split(key)
    model, fitted = algo.model.train(fit_key, mdp, stage.model, stage.replay)
    trained = eqx.tree_at(lambda s: s.model, stage, model)
    policy, planned = algo.planner.plan(plan_key, trained.imagined(algo, mdp, True), stage.policy)
    return model, policy, {**fitted, **planned}


def compile_round(algo: Deep, keys: Key[Array, " seeds"], stage: Stage) -> Callable[[], Any]:
    """Return a compiled function that runs a round of all seeds."""

    def run(keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, stage: Stage) -> Any:
        return over_seeds(lambda key, stage: one_round(key, algo, mdp, stage), keys, stage)

    return compile_call(run, keys, as_inputs(algo), mountain_car().mdp, stage)


class Rows(NamedTuple):
    """The imagined steps of an update, in the form that the parts of the planner need."""

    state: Float[Array, "n s"]
    action: Float[Array, "n a"]
    x: Float[Array, "n s"]
    u: Float[Array, "n a"]
    weight: Float[Array, " n"]
    target: Float[Array, " n"]


def phase_seconds(algo: Deep, keys: Key[Array, " seeds"], stage: Stage, seconds: float) -> dict[str, float]:
    """Time each phase alone and multiply by its number in a round. The sum may differ from a round, because one
    program of all phases saves time between them."""
    key, stage, algo, real = keys[0], take(stage, 0), as_inputs(algo), mountain_car().mdp
    planner, policy, bonus = algo.planner, stage.policy, CappedBonus(stage.bonus, algo.bonus_scale, float(real.horizon))
    assert isinstance(planner, TRPO)
    assert isinstance(policy, ActorCritic)
    mdp = stage.imagined(algo, real, False)
    places = eqx.filter_jit(planner.start_streams)(key, mdp, policy)

    def imagine_steps(key, mdp, policy, places):
        run = jax.vmap(lambda k, place: walk(k, mdp, policy, place, planner.length))
        return run(jr.split(key, planner.streams), places)[1]

    def judge_steps(policy, steps):
        value = jax.vmap(jax.vmap(policy.value))
        baseline = value(steps.state)
        gain = jax.vmap(lambda t, v, w: advantages(t, v, w, planner.discount, planner.trace))
        return gain(steps, baseline, value(steps.next_state)), baseline

    rollout = compile_call(imagine_steps, key, mdp, policy, places)
    steps = rollout()
    advantage = compile_call(judge_steps, policy, steps)
    rows = eqx.filter_jit(as_rows)(policy, steps, *advantage())
    calls = {
        "rollout": rollout,
        "bonus": compile_call(lambda bonus, rows: jax.vmap(bonus)(rows.state, rows.action), bonus, rows),
        "advantages": advantage,
        "TRPO step": compile_call(planner.natural_step, policy.actor, rows.x, rows.u, rows.weight),
        "value fit": compile_call(planner.fit_value, key, policy, rows.x, rows.target),
        "model fit": compile_call(lambda k, s: algo.model.train(k, real, s.model, s.replay), key, stage),
    }
    counts = dict.fromkeys(calls, planner.updates) | {"model fit": 1}
    return {name: counts[name] * median_time(call, seconds) for name, call in calls.items()}


def as_rows(policy: ActorCritic, steps: Transitions, gains: Array, baseline: Array) -> Rows:
    """Return the steps of an update in the units of the networks."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
    gain = gains.reshape(-1)
    return Rows(
        state=flat.state,
        action=flat.action,
        x=jax.vmap(policy.units)(flat.state),
        u=jax.vmap(policy.actions.to_unit)(flat.action),
        weight=(gain - jnp.mean(gain)) / jnp.std(gain),
        target=gain + baseline.reshape(-1),
    )
