"""One paper round, put together as `deep.improve` does it, and each of its phases alone."""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.bench.clock import compiled, times_of
from pcmlp.bench.sizes import Sizes
from pcmlp.bonus import EllipticalBonus, elliptical_bonus, second_moment
from pcmlp.deep import Deep, DeepLearner, imagination, imagined_starts, one_round, over_seeds
from pcmlp.features import DrawRandomNetwork
from pcmlp.imagine import no_bonus, widened
from pcmlp.models import DrawNeural, Fitting, Neural
from pcmlp.planners import TRPO
from pcmlp.planners.trpo import ActorCritic, advantages
from pcmlp.replay import Replay
from pcmlp.rollout import walk
from pcmlp.tasks.classic import MountainCar
from pcmlp.types import Box, Transitions


def paper_round(sizes: Sizes) -> Deep:
    world = MountainCar().build().world
    states, actions = world.states, world.actions
    assert isinstance(states, Box)
    assert isinstance(actions, Box)
    return Deep(
        world=world,
        features=DrawRandomNetwork.of(states, actions, sizes=sizes.net),
        model=DrawNeural(states.size, actions.size, sizes.net, Fitting(steps=sizes.model_steps)),
        planner=TRPO(states, actions, updates=sizes.updates, streams=sizes.streams, length=sizes.length),
        num_iterations=1,
        samples_per_policy=sizes.samples,
    )


class Stage(eqx.Module):
    """What a round begins with."""

    model: Neural
    policy: ActorCritic
    bonus: EllipticalBonus
    replay: Replay
    seen: Box
    starts: Float[Array, "*seeds n s"]


def stage_of(key: Key[Array, ""], algo: Deep, learner: DeepLearner, samples: Transitions) -> Stage:
    """The first stage of a run, lines 6 to 10 of Algorithm 2."""
    covariance = learner.covariance + second_moment(learner.features, samples)
    bonus = elliptical_bonus(learner.features, covariance, algo.bonus_scale, algo.world.mdp.horizon)
    replay = learner.replay.add(samples)
    starts = imagined_starts(key, algo, replay)
    assert isinstance(learner.model, Neural)
    assert isinstance(learner.policy, ActorCritic)
    return Stage(learner.model, learner.policy, bonus, replay, widened(learner.seen, samples), starts)


def stages(algo: Deep, seeds: int) -> tuple[Key[Array, " seeds"], Stage]:
    keys = jr.split(jr.key(0), seeds)
    learner = algo.start(keys)
    samples, _ = algo.world.collect(keys, learner.policy, algo.samples_per_policy)
    prepare = eqx.filter_vmap(stage_of, in_axes=(0, None, eqx.if_array(0), eqx.if_array(0)))
    return keys, eqx.filter_jit(prepare)(keys, algo, learner, samples)


def round_of(algo: Deep, keys: Key[Array, " seeds"], stage: Stage) -> Callable[[], Any]:
    """A round of all seeds, to be called."""

    def run(keys: Key[Array, " seeds"], algo: Deep, stage: Stage):
        def of_a_seed(key: Key[Array, ""], stage: Stage):
            return one_round(key, algo, stage.model, stage.policy, stage.replay, stage.bonus, stage.seen, stage.starts)

        return over_seeds(of_a_seed, keys, stage)

    return compiled(run, keys, algo, stage)


class Rows(NamedTuple):
    """An update's imagined steps as the planner's own parts take them."""

    state: Float[Array, "n s"]
    action: Float[Array, "n a"]
    x: Float[Array, "n s"]
    u: Float[Array, "n a"]
    weight: Float[Array, " n"]
    target: Float[Array, " n"]


def phase_seconds(algo: Deep, keys: Key[Array, " seeds"], stage: Stage, seconds: float) -> dict[str, float]:
    """Each phase compiled and timed alone, times how often a round has it. Together they need not be a round: one
    program of all of them saves what lies between."""
    stage = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, stage)
    key, planner, policy = keys[0], algo.planner, stage.policy
    assert isinstance(planner, TRPO)
    mdp = imagination(algo, stage.model, no_bonus, stage.seen, stage.starts)
    places = eqx.filter_jit(planner.places)(key, mdp, policy)

    def imagined(key, mdp, policy, places):
        run = jax.vmap(lambda k, place: walk(k, mdp, policy, place, planner.length))
        return run(jr.split(key, planner.streams), places)[1]

    def judged(policy, steps):
        value = jax.vmap(jax.vmap(lambda s: policy.critic(policy.units(s))[0]))
        baseline = value(steps.state)
        gain = jax.vmap(lambda t, v, w: advantages(t, v, w, planner.discount, planner.trace))
        return gain(steps, baseline, value(steps.next_state)), baseline

    rollout = compiled(imagined, key, mdp, policy, places)
    steps = rollout()
    advantage = compiled(judged, policy, steps)
    rows = eqx.filter_jit(rows_of)(policy, steps, *advantage())
    calls = {
        "rollout": rollout,
        "bonus": compiled(lambda bonus, rows: jax.vmap(bonus)(rows.state, rows.action), stage.bonus, rows),
        "advantages": advantage,
        "TRPO step": compiled(planner.natural_step, policy.actor, rows.x, rows.u, rows.weight),
        "value fit": compiled(planner.fit_value, key, policy, rows.x, rows.target),
        "model fit": compiled(lambda k, stage: stage.model.train(k, stage.replay), key, stage),
    }
    counts = dict.fromkeys(calls, planner.updates) | {"model fit": 1}
    return {n: counts[n] * statistics.median(times_of(call, seconds=seconds)) for n, call in calls.items()}


def rows_of(policy: ActorCritic, steps: Transitions, gains: Array, baseline: Array) -> Rows:
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
    gain = gains.reshape(-1)
    return Rows(
        state=flat.state,
        action=flat.action,
        x=jax.vmap(policy.units)(flat.state),
        u=jax.vmap(policy.actions.where)(flat.action),
        weight=(gain - jnp.mean(gain)) / jnp.std(gain),
        target=gain + baseline.reshape(-1),
    )
