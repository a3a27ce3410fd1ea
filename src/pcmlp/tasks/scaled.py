"""Rewards in another unit: r -> scale r. A method that depends on the scale of rewards learns worse at some scales.

The scale is an input of compiled programs, so all scales of a task share them.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from pcmlp.imagine import Unknown
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Action, Problem, State
from pcmlp.world import JaxWorld


class ScaledReward(eqx.Module):
    """A reward times a constant."""

    reward: Callable
    scale: float | Float[Array, ""]

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        return self.scale * self.reward(state, action, next_state)


def scale_reward(problem: Problem, scale: float) -> Problem:
    """Return the problem with all its rewards multiplied by `scale`, and the return of a success with them."""
    world = problem.world
    if not isinstance(world.mdp.reward, Unknown):
        factor = jnp.float32(scale) if isinstance(world, JaxWorld) else scale  # a simulator records on the host
        mdp = dataclasses.replace(world.mdp, reward=ScaledReward(world.mdp.reward, factor))
        world = dataclasses.replace(world, mdp=mdp)
    else:
        assert isinstance(world, GymnasiumWorld)
        world = dataclasses.replace(world, reward_scale=scale)
    least = problem.success_return
    return dataclasses.replace(problem, world=world, success_return=None if least is None else scale * least)
