"""One plan of PETS: the cross-entropy method in an ensemble, from one state to one action."""

import statistics

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.bench.clock import compiled, times_of
from pcmlp.bench.sizes import PetsPlan
from pcmlp.models import DrawProbabilistic, Fitting
from pcmlp.planners import CEM
from pcmlp.tasks.mujoco.runners import half_cheetah_reward
from pcmlp.types import MDP, Box, never

_STATES, _ACTIONS = 17, 6  # of half-cheetah, whose reward it is


def start(key: Key[Array, ""]) -> Float[Array, "17"]:
    return jnp.zeros(_STATES)


def pets_plan_s(case: PetsPlan, seconds: float) -> float:
    """In an untrained ensemble."""
    shooter = CEM(
        Box.of(1.0, _ACTIONS),
        num_plans=case.plans,
        plan_length=case.length,
        iterations=case.iterations,
        elites=max(1, case.plans // 10),
        noise_std=0.5,
        correlation=0.0,
        particles=case.particles,
        truncated=True,
        smoothing=0.1,
    )
    draw = DrawProbabilistic(_STATES, _ACTIONS, case.net, Fitting(), case.members, case.members)
    model = eqx.filter_jit(draw)(jr.key(0))
    mdp = MDP(start, model, half_cheetah_reward, never, 1000)
    plan = jnp.zeros((case.length, _ACTIONS))
    step = compiled(lambda *inputs: shooter.refine(*inputs), jr.key(1), mdp, jnp.zeros(_STATES), plan)
    return statistics.median(times_of(step, seconds=seconds))
