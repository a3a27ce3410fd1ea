"""One control step of MPPI, and the matrix products without which there is none."""

import statistics
from functools import reduce
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from pcmlp.bench.clock import compiled, times_of
from pcmlp.bench.sizes import Plans
from pcmlp.bonus import elliptical_bonus
from pcmlp.features import DrawFourier
from pcmlp.imagine import imagine
from pcmlp.models import DrawNeural
from pcmlp.planners import MPPI, Shooting, ShootingPolicy
from pcmlp.tasks.classic import MountainCar
from pcmlp.types import AbstractWorld, Box, State


def mppi_ms(case: Plans, fourier: int, seconds: float) -> float:
    """From a state and last step's plan to an action and the next plan, in an untrained model of mountain-car, with
    reward and elliptical bonus."""
    plans, length, net = case
    world = MountainCar().build().world
    assert isinstance(world.states, Box)
    assert isinstance(world.actions, Box)
    planner = Shooting(MPPI(world.actions, num_plans=plans, plan_length=length))
    draw_phi = DrawFourier.of(world.states, world.actions, dim=fourier)
    draw_model = DrawNeural(world.states.size, world.actions.size, net)

    @eqx.filter_jit
    def start(world: AbstractWorld, draw_phi: DrawFourier) -> tuple[ShootingPolicy, State]:
        bonus = elliptical_bonus(draw_phi.over_boxes(jr.key(0)), 0.01 * jnp.eye(fourier), 1.0, world.mdp.horizon)
        mdp = imagine(world.mdp, draw_model(jr.key(1)), bonus)
        return planner.init(jr.key(2), mdp), mdp.initial(jr.key(3))

    policy, state = start(world, draw_phi)
    step = compiled(lambda policy, *inputs: policy(*inputs), policy, jr.key(4), policy.init(), state)
    return 1e3 * statistics.median(times_of(step, seconds=seconds))


def floor_ms(case: Plans, seconds: float) -> float:
    """The products of the model's hidden layers alone, `plan_length` after one another as the steps of a plan are."""
    plans, length, net = case
    weights = [jr.normal(jr.key(i), shape) / shape[0] for i, shape in enumerate(pairwise(net))]

    def steps(x: Float[Array, "n width"], weights: list[Float[Array, "width wide"]]) -> Float[Array, "n width"]:
        def step(x, _):
            return reduce(jnp.matmul, weights, x), None

        return jax.lax.scan(step, x, None, length=length)[0]

    walk = compiled(steps, jnp.ones((plans, net[0])), weights)
    return 1e3 * statistics.median(times_of(walk, seconds=seconds))
