"""The measured parts of iterations: one paper round (composed as in `algorithms.deep.improve`) and each of its phases,
a control step of MPPI, and a plan of PETS."""

import dataclasses
import statistics
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.deep import Deep, DeepLearner, imagination
from pcmlp.algorithms.framework import capped_ellipse
from pcmlp.algorithms.starts import imagined_starts
from pcmlp.algorithms.weight import Weight
from pcmlp.bench.clock import compile_call, median_time, time_calls
from pcmlp.bonus import second_moment
from pcmlp.features import Fourier, RandomNetwork
from pcmlp.imagine import expand_range, imagine
from pcmlp.models import Neural, Probabilistic
from pcmlp.planners import CEM, MPPI, TRPO, ActorCritic
from pcmlp.planners.trpo import advantages
from pcmlp.programs import brief_program
from pcmlp.replay import Replay, Transitions
from pcmlp.rollout import walk
from pcmlp.spaces import Box, Range
from pcmlp.tasks.acting import bind
from pcmlp.tasks.classic import MountainCar
from pcmlp.tasks.mujoco.robots import half_cheetah_reward
from pcmlp.trees import as_inputs, map_leading, take
from pcmlp.types import MDP, Action, FittedBonus, FittedModel, Metrics, Planner, Policy, State, World, never

Plans = tuple[int, int, tuple[int, ...]]  # plans, their length, the model's hidden layers

_STATES, _ACTIONS = 17, 6  # sizes of half-cheetah, whose reward PETS plans for


def mountain_car() -> World:
    """Return the world of the round."""
    return MountainCar().build().world


def paper_round(net: tuple[int, ...], samples: int, model_steps: int, planner: Planner) -> Deep:
    """Return the algorithm of the round."""
    model = Neural(sizes=net, steps=model_steps)
    return Deep(features=RandomNetwork(sizes=net), model=model, planner=planner, samples_per_policy=samples)


class Stage(eqx.Module):
    """The inputs of a round."""

    model: FittedModel
    policy: Policy
    bonus: FittedBonus
    replay: Replay
    seen: Range
    starts: Float[Array, "*seeds n s"]
    weight: Weight

    def imagined(self, algo: Deep, mdp: MDP, explores: bool) -> MDP:
        """Return the MDP to plan in."""
        return imagination(
            algo,
            mdp,
            self.bonus,
            self.seen,
            self.starts,
            self.weight,
            self.model,
            jnp.array(explores),
        )


def prepare_stages(algo: Deep, world: World, seeds: int) -> tuple[Key[Array, " seeds"], Stage]:
    """Return the inputs of a round for several seeds: lines 6 to 8 of Algorithm 2 in the first iteration."""
    keys = jr.split(jr.key(0), seeds)
    learner = algo.start(keys, world.mdp, 1)
    samples, _ = world.collect(keys, learner.policy, algo.samples_per_policy)

    def prepare(key: Key[Array, ""], algo: Deep, mdp: MDP, learner: DeepLearner, samples: Transitions) -> Stage:
        covariance = learner.covariance.add(second_moment(learner.features, samples)).matrix
        replay = learner.replay.add(samples)
        bonus = algo.bonus.update(key, learner.bonus, learner.features, covariance, replay)
        starts = imagined_starts(key, mdp, replay, algo.num_starts, algo.replay_starts, algo.relabel)
        return Stage(
            learner.model, learner.policy, bonus, replay, expand_range(learner.seen, samples), starts, learner.weight
        )

    over_all = eqx.filter_vmap(prepare, in_axes=(0, None, None, eqx.if_array(0), eqx.if_array(0)))
    return keys, brief_program(over_all)(keys, as_inputs(algo), world.mdp, learner, samples)


def one_round(key: Key[Array, ""], algo: Deep, mdp: MDP, stage: Stage) -> tuple[FittedModel, Policy, Metrics]:
    """Train the model and plan once, as each round of `improve` does."""
    fit_key, plan_key = jr.split(key)
    model, fitted = algo.model.train(fit_key, mdp, stage.model, stage.replay)
    trained = eqx.tree_at(lambda s: s.model, stage, model)
    policy, planned = algo.planner.plan(plan_key, trained.imagined(algo, mdp, True), stage.policy)
    return model, policy, {**fitted, **planned}


def compile_round(algo: Deep, world: World, seeds: int) -> Callable[[], Any]:
    """Return a compiled function that runs a round of several seeds."""

    def run(keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, stage: Stage) -> Any:
        return map_leading(lambda key, stage: one_round(key, algo, mdp, stage), keys, stage)

    keys, stage = prepare_stages(algo, world, seeds)
    return compile_call(run, keys, as_inputs(algo), world.mdp, stage)


def phase_seconds(algo: Deep, seconds: float) -> dict[str, float]:
    """Time each phase alone and multiply by its number in a round. The sum may differ from a round, because one
    program of all phases saves time between them."""
    world = mountain_car()
    keys, stages = prepare_stages(algo, world, 1)
    key, stage, algo, real = keys[0], take(stages, 0), as_inputs(algo), world.mdp
    planner, policy, bonus = algo.planner, stage.policy, stage.weight.apply(stage.bonus, real.horizon)
    assert isinstance(planner, TRPO)
    assert isinstance(policy, ActorCritic)
    mdp = stage.imagined(algo, real, False)
    places = brief_program(planner.start_streams)(key, mdp, policy)

    def imagine_steps(key, mdp, policy, places):
        run = jax.vmap(lambda k, place: walk(k, mdp, policy, place, planner.length))
        return run(jr.split(key, planner.streams), places)[1]

    def judge_steps(policy, steps):
        value = jax.vmap(jax.vmap(policy.value))
        baseline = value(steps.state)
        gain = jax.vmap(lambda t, v, w: advantages(t, v, w, planner.discount, planner.trace))
        return gain(steps, baseline, value(steps.next_state)), baseline

    steps = compile_call(imagine_steps, key, mdp, policy, places)()
    gains, baseline = (values.reshape(-1) for values in compile_call(judge_steps, policy, steps)())
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
    x, u = jax.vmap(policy.units)(flat.state), jax.vmap(policy.actions.to_unit)(flat.action)
    weight = (gains - jnp.mean(gains)) / jnp.std(gains)
    once = median_time(seconds, lambda k, s: algo.model.train(k, real, s.model, s.replay), key, stage)
    of_an_update = {
        "rollout": (imagine_steps, key, mdp, policy, places),
        "bonus": (lambda bonus, rows: jax.vmap(bonus)(rows.state, rows.action), bonus, flat),
        "advantages": (judge_steps, policy, steps),
        "TRPO step": (planner.natural_step, policy.actor, x, u, weight),
        "value fit": (planner.fit_value, key, policy, x, gains + baseline),
    }
    times = {name: planner.updates * median_time(seconds, *call) for name, call in of_an_update.items()}
    return {**times, "model fit": once}


def mppi_ms(case: Plans, fourier: int, seconds: float) -> float:
    """Time one control step of MPPI in an untrained model of mountain-car, with reward and elliptical bonus."""
    plans, length, net = case
    planner, model = MPPI(num_plans=plans, plan_length=length), Neural(sizes=net)

    @brief_program
    def start(mdp: MDP) -> tuple[Policy, State]:
        phi = Fourier(dim=fourier).draw(jr.key(0), mdp, Transitions.example(mdp.states, mdp.actions))
        bonus = capped_ellipse(phi, 0.01 * jnp.eye(fourier), 1.0, mdp.horizon)
        imagined = imagine(mdp, model.init(jr.key(1), mdp), bonus)
        return planner.init(jr.key(2), imagined), mdp.initial(jr.key(3))

    policy, state = start(mountain_car().mdp)
    step = bind(lambda policy, *rest: policy(*rest), policy)  # compiled as beside a simulator
    inputs = jr.key(4), policy.init(), state
    return 1e3 * statistics.median(time_calls(lambda: step(*inputs), seconds=seconds))


def floor_ms(case: Plans, seconds: float) -> float:
    """Time only the matrix products of the model's hidden layers, one after another, as in the steps of a plan."""
    plans, length, net = case
    weights = [jr.normal(jr.key(i), shape) / shape[0] for i, shape in enumerate(pairwise(net))]

    def steps(x: Float[Array, "n width"], weights: list[Float[Array, "width wide"]]) -> Float[Array, "n width"]:
        return jax.lax.scan(lambda x, _: (reduce(jnp.matmul, weights, x), None), x, None, length=length)[0]

    return 1e3 * median_time(seconds, steps, jnp.ones((plans, net[0])), weights)


def start_at_rest(key: Key[Array, ""]) -> Float[Array, "17"]:
    """Return a state of half-cheetah."""
    return jnp.zeros(_STATES)


def stay(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the same state: a placeholder for the ensemble."""
    return state


def pets_plan_s(planner: CEM, model: Probabilistic, seconds: float) -> float:
    """Time one plan of PETS in an untrained ensemble."""
    states, actions = Box.of(jnp.inf, _STATES), Box.of(1.0, _ACTIONS)
    mdp = MDP(start_at_rest, stay, half_cheetah_reward, never, states, actions, 1000)
    mdp = dataclasses.replace(mdp, transition=brief_program(model.init)(jr.key(0), mdp))
    return median_time(seconds, planner.refine, jr.key(1), mdp, jnp.zeros(_STATES), planner.idle_plan(mdp))
