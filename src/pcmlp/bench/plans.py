"""Searches at every step: a control step of MPPI and a plan of PETS, each from one state to one action."""

import dataclasses
from functools import reduce
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.framework import capped_ellipse
from pcmlp.bench.clock import compile_call, median_time
from pcmlp.bench.rounds import mountain_car
from pcmlp.features import Fourier
from pcmlp.imagine import imagine
from pcmlp.models import Neural, Probabilistic
from pcmlp.planners import CEM, MPPI
from pcmlp.replay import Transitions
from pcmlp.spaces import Box
from pcmlp.tasks.mujoco.robots import half_cheetah_reward
from pcmlp.types import MDP, Action, Policy, State, never

Plans = tuple[int, int, tuple[int, ...]]  # plans, their length, the model's hidden layers

_STATES, _ACTIONS = 17, 6  # sizes of half-cheetah, whose reward PETS plans for


def mppi_ms(case: Plans, fourier: int, seconds: float) -> float:
    """Time one control step of MPPI in an untrained model of mountain-car, with reward and elliptical bonus."""
    plans, length, net = case
    planner, model = MPPI(num_plans=plans, plan_length=length), Neural(sizes=net)

    @eqx.filter_jit
    def start(mdp: MDP) -> tuple[Policy, State]:
        phi = Fourier(dim=fourier).draw(jr.key(0), mdp, Transitions.example(mdp.states, mdp.actions))
        bonus = capped_ellipse(phi, 0.01 * jnp.eye(fourier), 1.0, mdp.horizon)
        imagined = imagine(mdp, model.init(jr.key(1), mdp), bonus)
        return planner.init(jr.key(2), imagined), mdp.initial(jr.key(3))

    policy, state = start(mountain_car().mdp)
    step = compile_call(lambda policy, *inputs: policy(*inputs), policy, jr.key(4), policy.init(), state)
    return 1e3 * median_time(step, seconds)


def floor_ms(case: Plans, seconds: float) -> float:
    """Time only the matrix products of the model's hidden layers, one after another, as in the steps of a plan."""
    plans, length, net = case
    weights = [jr.normal(jr.key(i), shape) / shape[0] for i, shape in enumerate(pairwise(net))]

    def steps(x: Float[Array, "n width"], weights: list[Float[Array, "width wide"]]) -> Float[Array, "n width"]:
        def step(x, _):
            return reduce(jnp.matmul, weights, x), None

        return jax.lax.scan(step, x, None, length=length)[0]

    return 1e3 * median_time(compile_call(steps, jnp.ones((plans, net[0])), weights), seconds)


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
    mdp = dataclasses.replace(mdp, transition=eqx.filter_jit(model.init)(jr.key(0), mdp))
    plan = planner.idle_plan(mdp)
    step = compile_call(lambda *inputs: planner.refine(*inputs), jr.key(1), mdp, jnp.zeros(_STATES), plan)
    return median_time(step, seconds)
