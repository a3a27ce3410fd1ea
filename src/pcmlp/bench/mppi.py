"""One control step of MPPI."""

import statistics

import jax.numpy as jnp
import jax.random as jr

from pcmlp.bench.clock import compiled, times_of
from pcmlp.bench.sizes import Plans, Sizes
from pcmlp.bonus import elliptical_bonus
from pcmlp.features import DrawFourier
from pcmlp.imagine import imagine
from pcmlp.models import DrawNeural
from pcmlp.planners import MPPI, Shooting, ShootingPolicy
from pcmlp.tasks.classic import MountainCar
from pcmlp.types import Box


def mppi_policy(plans: int, length: int, net: tuple[int, ...], fourier: int) -> ShootingPolicy:
    """MPPI in an untrained model, with reward and elliptical bonus."""
    world = MountainCar().build().world
    states, actions = world.states, world.actions
    assert isinstance(states, Box)
    assert isinstance(actions, Box)
    phi = DrawFourier.of(states, actions, dim=fourier).over_boxes(jr.key(0))
    bonus = elliptical_bonus(phi, 0.01 * jnp.eye(fourier), 1.0, world.mdp.horizon)
    model = DrawNeural(states.size, actions.size, net)(jr.key(1))
    planner = Shooting(MPPI(actions, num_plans=plans, plan_length=length))
    return planner.init(jr.key(2), imagine(world.mdp, model, bonus))


def mppi_ms(case: Plans, sizes: Sizes) -> float:
    """One control step: from a state and last step's plan to an action and the next plan."""
    policy = mppi_policy(*case, sizes.fourier)
    state = policy.mdp.initial(jr.key(4))
    step = compiled(lambda policy, *inputs: policy(*inputs), policy, jr.key(3), policy.init(), state)
    return 1e3 * statistics.median(times_of(step, seconds=sizes.seconds))
