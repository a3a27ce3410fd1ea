"""Kernelized nonlinear regulators in pure JAX: s' = W* phi(s, a) + N(0, sigma^2 I) with phi polynomial.

Both pay for being in a small region far from the start, and a hundredth of that for rest:

    r(s, a, s') = 0.99 [ |position(s') - goal| <= radius ] + 0.01 (1 - |a|^2 / dim(a))      in [0, 1]

A learner without a bonus has never seen its actions do anything, is paid for rest, and rests.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.features.polynomial import PolynomialFeatures
from pcmlp.models.knr import KNR, KNRTransition
from pcmlp.settings import setting
from pcmlp.spaces import Box
from pcmlp.types import MDP, Features, Problem, Task, never
from pcmlp.world import JaxWorld


class StartAt(eqx.Module):
    """A fixed start."""

    state: Float[Array, " s"]

    def __call__(self, key: Key[Array, ""]) -> Float[Array, " s"]:
        """Return the start."""
        return self.state


class GoalReward(eqx.Module):
    """0.99 within a radius of the goal, and up to 0.01 for rest."""

    goal: Float[Array, " p"]
    radius: float

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, ""]:
        """Return the reward of one step."""
        position = next_state[: self.goal.shape[0]]
        inside = jnp.sum((position - self.goal) ** 2) <= self.radius**2
        return 0.99 * inside.astype(jnp.float32) + 0.01 * (1.0 - jnp.mean(action**2))


_FRICTION = 0.7


class Sticky(eqx.Module):
    """phi(s, a) = (s / units, grip(a)) / C: linear in the state and in what the actuators let through.

    grip(a) = sign(a) max(|a| - 0.7, 0) / 0.3: nothing happens below seven tenths of full throttle.
    """

    units: Float[Array, " s"]
    scale: float  # 1/C

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        """Return phi of one pair."""
        grip = jnp.sign(action) * jnp.maximum(jnp.abs(action) - _FRICTION, 0.0) / (1.0 - _FRICTION)
        return self.scale * jnp.concatenate([state / self.units, grip])


class LinearSystem(Task):
    """A cart on a plane, position and velocity: v' = 0.7 v + 0.3 grip(a), p' = p + 0.3 v; the goal is at (2.5, 2.5).

    Static friction keeps small actions from doing anything, so that a learner at rest has no data on what its actuators
    do, however long it rests: that is what makes a linear system need exploration at all.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(20, "steps of an episode", least=1)
    sigma: float = setting(0.02, "std of the Gaussian noise", above=0)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        eye, zero = np.eye(2), np.zeros((2, 2))
        A = np.block([[eye, 0.3 * eye], [zero, 0.7 * eye]])
        B = np.block([[zero], [0.3 * eye]])
        far = 0.3 * self.horizon + 0.5  # as far as full throttle gets, and noise
        bound = np.array([far, far, 1.2, 1.2])
        states = Box(-bound, bound)
        features = Sticky(states.high, 1 / math.sqrt(6))
        W = np.concatenate([A * bound, B], axis=1) / features.scale
        goal = GoalReward(jnp.array([2.5, 2.5]), 0.8)
        return _task(features, W, states, Box.of(1.0, 2), jnp.zeros(4), goal, self.horizon, self.sigma)


class DoubleWell(Task):
    """A ball in a double well: v' = v + dt (p - p^3 - 0.1 v + a / 4), p' = p + dt v'; features of degree 3.

    It starts at rest in the left well and the goal is the bottom of the right one. A quarter is too little to push
    it over the barrier between them, so it must be swung.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(40, "steps of an episode", least=1)
    sigma: float = setting(0.01, "std of the Gaussian noise", above=0)
    dt: float = setting(0.3, "seconds of a step", above=0, most=1)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        states = Box.of(2.0, 2)
        features = PolynomialFeatures.of(states, Box.of(1.0, 1), degree=3)
        force = {(1, 0, 0): 1.0, (3, 0, 0): -1.0, (0, 1, 0): -0.1, (0, 0, 1): 0.25}  # in powers of p, v, a
        velocity = {k: self.dt * c + (k == (0, 1, 0)) for k, c in force.items()}
        position = {k: self.dt * c for k, c in velocity.items()}
        position[(1, 0, 0)] += 1.0
        W = np.zeros((2, len(features.powers)))
        for row, polynomial in enumerate((position, velocity)):
            for powers, coefficient in polynomial.items():
                unit = np.prod(np.asarray(features.units) ** np.array(powers))
                W[row, features.powers.index(powers)] = coefficient * unit / features.scale
        start = jnp.array([-1.0, 0.0])
        goal = GoalReward(jnp.array([1.0]), 0.3)
        return _task(features, W, states, Box.of(1.0, 1), start, goal, self.horizon, self.sigma)


def _task(
    features: Features,
    W: np.ndarray,
    states: Box,
    actions: Box,
    start: Float[Array, " s"],
    reward: GoalReward,
    horizon: int,
    sigma: float,
) -> Problem:
    radius = 1.25 * float(np.linalg.norm(W))  # F: the learner knows the norm up to a quarter
    truth = KNRTransition(jnp.asarray(W, jnp.float32), features, sigma)
    mdp = MDP(StartAt(start), truth, reward, never, states, actions, horizon)
    model = KNR(radius=radius, features=features, sigma=sigma)
    return Problem(JaxWorld(mdp), features, model, success_return=0.99)
