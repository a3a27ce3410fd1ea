"""Kernelized nonlinear regulators in pure JAX: s' = W* phi(s, a) + N(0, sigma^2 I) (paper: sections 1 and 3).

phi is linear, polynomial, trigonometric, or random Fourier features of an RBF kernel. All tasks pay for being in a
small region far from the start, and up to about a hundredth of that for small actions:

    r(s, a, s') = 0.99 [ |position(s') - goal| <= radius ] + 0.01 (1 - |a|^2 / dim(a))      in [0, 1]

A learner without a bonus never sees an effect of its actions. It is paid for small actions, so it stays at rest.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.features.fourier import Fourier
from pcmlp.features.polynomial import PolynomialFeatures
from pcmlp.models.knr import KNR, KNRTransition, known_radius, nearest_member
from pcmlp.replay import Transitions
from pcmlp.settings import setting
from pcmlp.spaces import Box, Vectors
from pcmlp.types import MDP, Action, Features, Problem, State, Task, never
from pcmlp.world import JaxWorld


class StartAt(eqx.Module):
    """A fixed start."""

    state: Float[Array, " s"]

    def __call__(self, key: Key[Array, ""]) -> Float[Array, " s"]:
        """Return the start."""
        return self.state


class GoalReward(eqx.Module):
    """A reward of 0.99 within a radius of the goal, and up to 0.01 for rest."""

    goal: Float[Array, " p"]
    radius: float

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        """Return the reward of one step."""
        position = next_state[: self.goal.shape[0]]
        inside = jnp.sum((position - self.goal) ** 2) <= self.radius**2
        return 0.99 * inside.astype(jnp.float32) + 0.01 * (1.0 - jnp.mean(action**2))


_FRICTION = 0.7


class Sticky(eqx.Module):
    """phi(s, a) = (s / units, grip(a)) / C: linear in the state and in the effective action grip(a).

    grip(a) = sign(a) max(|a| - 0.7, 0) / 0.3: actions below 0.7 have no effect.
    """

    units: Float[Array, " s"]
    scale: float  # 1/C

    def __call__(self, state: State, action: Action) -> Float[Array, " d"]:
        """Return phi of one pair."""
        grip = jnp.sign(action) * jnp.maximum(jnp.abs(action) - _FRICTION, 0.0) / (1.0 - _FRICTION)
        return self.scale * jnp.concatenate([state / self.units, grip])


class LinearSystem(Task):
    """A cart on a plane: v' = 0.7 v + 0.3 grip(a), p' = p + 0.3 v; the goal is at (2.5, 2.5).

    Because of static friction, small actions have no effect, so a learner at rest gets no data about its actuators.
    This is why a linear system needs exploration here. W has 6 dims^2 parameters. In other numbers of dimensions the
    goal is at the same distance, on the diagonal, and its radius is 0.4 dims. With the same radius in all dimensions, a
    planner would not find it.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(20, "steps of an episode", least=1)
    sigma: float = setting(0.02, "std of the Gaussian noise", above=0)
    dims: int = setting(2, "dimensions of the space: 2 for the plane", least=1, most=16)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        n = self.dims
        eye, zero = np.eye(n), np.zeros((n, n))
        A = np.block([[eye, 0.3 * eye], [zero, 0.7 * eye]])
        B = np.block([[zero], [0.3 * eye]])
        far = 0.3 * self.horizon + 0.5  # the furthest point with the largest actions, with room for noise
        bound = np.repeat([far, 1.2], n)
        states = Box(-bound, bound)
        features = Sticky(states.high, 1 / math.sqrt(3 * n))
        W = np.concatenate([A * bound, B], axis=1) / features.scale
        goal = GoalReward(jnp.full(n, 2.5 * math.sqrt(2 / n), jnp.float32), 0.4 * n)
        return regulator(features, W, (states, Box.of(1.0, n)), jnp.zeros(2 * n), goal, self.horizon, self.sigma)


class DoubleWell(Task):
    """A ball in a double well: v' = v + dt (p - p^3 - 0.1 v + a / 4), p' = p + dt v'.

    Its features have degree 3. It starts at rest in the left well, and the goal is the bottom of the right one. A force
    of a / 4 is too weak to push the ball over the barrier, so the ball must be swung to and fro.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(40, "steps of an episode", least=1)
    sigma: float = setting(0.01, "std of the Gaussian noise", above=0)
    dt: float = setting(0.3, "seconds of a step", above=0, most=1)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        states = Box.of(2.0, 2)
        features = PolynomialFeatures.of(states, Box.of(1.0, 1), degree=3)
        force = {(1, 0, 0): 1.0, (3, 0, 0): -1.0, (0, 1, 0): -0.1, (0, 0, 1): 0.25}  # keys are powers of p, v, a
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
        return regulator(features, W, (states, Box.of(1.0, 1)), start, goal, self.horizon, self.sigma)


_DAMPING, _TORQUE = 0.1, 0.6  # gravity's torque is sin(angle): the motor holds 37 degrees
_BOUND = (1.3, 1.3, 4.0)  # of c, s and v: beyond what the largest actions reach, with room for noise


class Rotation(eqx.Module):
    """phi(s, a) = (c cos(v dt), s sin(v dt), s cos(v dt), c sin(v dt), v / V, a^5) / C, for the state (c, s, v)."""

    dt: float
    scale: float  # 1/C

    def __call__(self, state: State, action: Action) -> Float[Array, " d"]:
        """Return phi of one pair."""
        c, s, v = state
        cos, sin = jnp.cos(v * self.dt), jnp.sin(v * self.dt)
        return self.scale * jnp.stack([c * cos, s * sin, s * cos, c * sin, v / _BOUND[2], action[0] ** 5])


class RegulatedPendulum(Task):
    """A pendulum with a weak motor; from hanging, it must be swung up to within 35 degrees of upright.

    The state is c = cos(angle), s = sin(angle) and the velocity v. As the angle changes by v dt in a step, the means of
    the next state are

        c' = c cos(v dt) - s sin(v dt),    s' = s cos(v dt) + c sin(v dt),    v' = v - dt (s' + 0.1 v - 0.6 a^5)

    They are not polynomials of the state, but linear in six features, which are the task's own phi. With the fifth
    power, small actions have almost no effect. Like static friction on the cart, this gives a learner at rest no data
    about its motor.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(30, "steps of an episode", least=1)
    sigma: float = setting(0.01, "std of the Gaussian noise", above=0)
    dt: float = setting(0.35, "seconds of a step", above=0, most=0.5)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        bound, dt = np.array(_BOUND), self.dt
        largest = bound[0] ** 2 + bound[1] ** 2 + 2  # |(c, s)|^2 + (v / V)^2 + a^10
        features = Rotation(dt, 1 / math.sqrt(largest))
        c, s = np.array([1.0, -1.0, 0, 0, 0, 0]), np.array([0, 0, 1.0, 1.0, 0, 0])
        v = np.array([0, 0, 0, 0, (1 - dt * _DAMPING) * bound[2], dt * _TORQUE]) - dt * s
        W = np.stack([c, s, v]) / features.scale
        spaces = Box(-bound, bound), Box.of(1.0, 1)
        upright = GoalReward(jnp.array([-1.0, 0.0]), 0.6)  # a chord of 35 degrees
        return regulator(features, W, spaces, jnp.array([1.0, 0.0, 0.0]), upright, self.horizon, self.sigma)


class KernelPendulum(Task):
    """The member of an RBF kernel's class that is nearest to `knr-pendulum`.

    phi are random Fourier features, and the learner knows them. So its class contains the truth, and the norm is known,
    as the theorem requires. This world differs from the pendulum by the error of these features.
    """

    kind: ClassVar[str] = "regulator"
    horizon: int = setting(30, "steps of an episode", least=1)
    sigma: float = setting(0.01, "std of the Gaussian noise", above=0)
    dim: int = setting(100, "number of Fourier features, which must be even", least=2, most=2000)
    bandwidth: float = setting(2.0, "bandwidth of the kernel, in stds of the box", above=0)
    seed: int = setting(0, "seed of the features", least=0)

    def check(self) -> None:
        """Raise if the features do not exist."""
        Fourier(dim=self.dim)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        mdp = RegulatedPendulum(horizon=self.horizon, sigma=self.sigma).build().world.mdp
        example = Transitions.example(mdp.states, mdp.actions)
        features = Fourier(dim=self.dim, bandwidth=self.bandwidth).draw(jr.key(self.seed), mdp, example)
        nearest, goal = nearest_member(mdp, features), mdp.reward
        assert nearest is not None
        assert isinstance(goal, GoalReward)
        fitted = features, nearest.W, mdp.boxes, mdp.initial(jr.key(0)), goal, self.horizon, self.sigma
        # Another machine's rounding changes the last digits of W. F is rounded, so that a c computed from it stays.
        return regulator(*fitted, radius=float(f"{nearest.radius:.3g}"))


def regulator(
    features: Features,
    W: np.ndarray,
    spaces: tuple[Box, Vectors],
    start: Array,
    goal: GoalReward,
    H: int,
    sigma: float,
    *,
    radius: float | None = None,
) -> Problem:
    """Return the world s' = W phi(s, a) + N(0, sigma^2 I), phi and the class of models."""
    truth = KNRTransition(jnp.asarray(W, jnp.float32), features, sigma)
    mdp = MDP(StartAt(start), truth, goal, never, *spaces, H)
    model = KNR(radius=radius or known_radius(W), features=features, sigma=sigma)
    return Problem(JaxWorld(mdp), features, model, success_return=0.99)
