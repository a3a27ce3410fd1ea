"""The classic control tasks in pure JAX, with Gymnasium's dynamics and the paper's rewards.

Mountain-car and acrobot (paper: section 7.1) pay only a cost until the goal, which ends the episode:

    r(s, a, s') = 100 [s' is a goal] - 0.1 a^2

so an episode without the goal returns at most 0, and one with it at least 100 - 0.1 H: any positive return is a
success. Pendulum (paper: section 7.2, after Wang et al. 2019) pays at every step.
Cart-pole is a task that the rivals are known to solve.
A state is an observation: an angle that can make whole turns is given by its cosine and sine. Transition, reward and
terminal recover the angle by arctan2, because an imagined state need not lie on the unit circle, and its distance from
the circle must not change the reward.
Actions are clipped to the task's range, for the dynamics and for the reward.
"""

import abc
import math
from typing import ClassVar, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from pcmlp.settings import setting
from pcmlp.spaces import Box
from pcmlp.types import MDP, Action, Problem, State, Task, never
from pcmlp.world import JaxWorld

Number = Float[Array, ""]
Truth = Bool[Array, ""]
_FALLEN = 12.0 / 180.0 * math.pi  # the largest angle of cart-pole

# A return above this is a success. It lies between the return 0 of an idle agent and the least return with the goal,
# 100 - 0.1 H, for horizons up to 990.
_REACHED = 1.0


class ClassicTask(Task):
    """A task that Gymnasium can simulate as well."""

    kind: ClassVar[str] = "small"
    simulator: Literal["jax", "gymnasium"] = setting(
        "jax", "simulator of real steps: this library's JAX code, or Gymnasium's own environment"
    )

    @abc.abstractmethod
    def problem(self) -> Problem:
        """Return the task in JAX."""

    def build(self) -> Problem:
        """Return the task's world."""
        if self.simulator == "jax":
            return self.problem()
        from pcmlp.tasks.registered import on_gymnasium  # imported here, because the import is slow

        return on_gymnasium(type(self).__name__, self.problem())


def sparse_reward(goal: Truth, action: Action) -> Number:
    """Return 100 [goal] - 0.1 a^2, for actions in [-1, 1]."""
    return jnp.where(goal, 100.0, 0.0) - 0.1 * jnp.sum(jnp.clip(action, -1.0, 1.0) ** 2)


class MountainCar(ClassicTask):
    """An underpowered car in a valley: it must swing to reach the flag on a hill; only the flag pays.

    The state is (x, v), the throttle is a in [-1, 1]:

        v' = v + 0.0015 a - 0.0025 cos 3x   in [-0.07, 0.07],       x' = x + v'   in [-1.2, 0.6]

    and v' = 0 where the car hits the left wall. It starts at rest with x ~ U(-0.6, -0.4); the goal is x' >= 0.45.
    """

    def problem(self) -> Problem:
        """Return the task in JAX."""
        spaces = Box((-1.2, -0.07), (0.6, 0.07)), Box.of(1.0, 1)
        mdp = MDP(mountain_car_initial, mountain_car, mountain_car_reward, mountain_car_goal, *spaces, self.horizon)
        return Problem(JaxWorld(mdp), success_return=_REACHED, goal_ends=True)


def mountain_car_initial(key: Key[Array, ""]) -> State:
    """Draw the start: at rest, between -0.6 and -0.4."""
    return jnp.stack([jr.uniform(key, minval=-0.6, maxval=-0.4), jnp.zeros(())])


def mountain_car(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state."""
    x, v = state
    throttle = jnp.clip(action[0], -1.0, 1.0)
    v = jnp.clip(v + 0.0015 * throttle - 0.0025 * jnp.cos(3.0 * x), -0.07, 0.07)
    x = jnp.clip(x + v, -1.2, 0.6)
    return jnp.stack([x, jnp.where((x <= -1.2) & (v < 0.0), 0.0, v)])


def mountain_car_goal(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the car has reached the flag."""
    return next_state[0] >= 0.45


def mountain_car_reward(state: State, action: Action, next_state: State) -> Number:
    """Return 100 at the flag, less the cost of the throttle."""
    return sparse_reward(mountain_car_goal(state, action, next_state), action)


class Acrobot(ClassicTask):
    """Two links that hang from a joint, with a motor at the elbow only: only a tip above the bar pays.

    The state is (cos t1, sin t1, cos t2, sin t2, w1, w2): the first link's angle from hanging, the second's from the
    first, and their rates, |w1| <= 4 pi, |w2| <= 9 pi. With the torque a in [-1, 1], links of mass, length and moment
    of inertia 1, centres of mass halfway and g = 9.8, the dynamics are those of Sutton & Barto's book:

        d1 = 3.5 + cos t2,    d2 = 1.25 + cos(t2) / 2,    p2 = 4.9 sin(t1 + t2)
        p1 = 14.7 sin t1 + p2 - (w2 / 2 + w1) w2 sin t2
        t2'' = (a + p1 d2 / d1 - w1^2 sin(t2) / 2 - p2) / (1.25 - d2^2 / d1),    t1'' = -(d2 t2'' + p1) / d1

    in one Runge-Kutta step of 0.2 with a held; the rates are then clipped. Angles and rates start in U(-0.1, 0.1); the
    goal is -cos t1 - cos(t1 + t2) > 1, a link above the bar.

    paper: Gym's acrobot with a continuous torque and "the same reward scheme as in Mountain Car" / here: the
    weight of the cost is mountain-car's, the goal is Gym's, and the horizon is mountain-car's 200; the paper gives none
    of the three.
    """

    def problem(self) -> Problem:
        """Return the task in JAX."""
        high = np.array([1.0, 1.0, 1.0, 1.0, 4 * math.pi, 9 * math.pi])
        spaces = Box(-high, high), Box.of(1.0, 1)
        mdp = MDP(acrobot_initial, acrobot, acrobot_reward, acrobot_goal, *spaces, self.horizon)
        return Problem(JaxWorld(mdp), success_return=_REACHED, goal_ends=True)


def acrobot_initial(key: Key[Array, ""]) -> State:
    """Draw the start: hanging nearly still."""
    return _acrobot_state(jr.uniform(key, (4,), minval=-0.1, maxval=0.1))


def acrobot(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state, by one Runge-Kutta step."""
    torque = jnp.clip(action[0], -1.0, 1.0)
    t1, t2 = _acrobot_angles(state)
    y, dt = jnp.stack([t1, t2, state[4], state[5]]), 0.2
    k1 = _acrobot_rates(y, torque)
    k2 = _acrobot_rates(y + dt / 2 * k1, torque)
    k3 = _acrobot_rates(y + dt / 2 * k2, torque)
    k4 = _acrobot_rates(y + dt * k3, torque)
    return _acrobot_state(y + dt / 6 * (k1 + 2.0 * (k2 + k3) + k4))


def acrobot_goal(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the tip is a link above the bar."""
    t1, t2 = _acrobot_angles(next_state)
    return -jnp.cos(t1) - jnp.cos(t1 + t2) > 1.0


def acrobot_reward(state: State, action: Action, next_state: State) -> Number:
    """Return 100 at the goal, less the cost of the torque."""
    return sparse_reward(acrobot_goal(state, action, next_state), action)


def _acrobot_angles(state: State) -> tuple[Number, Number]:
    return jnp.arctan2(state[1], state[0]), jnp.arctan2(state[3], state[2])


def _acrobot_state(y: Float[Array, "4"]) -> State:
    """Return angles and rates as the agent observes them."""
    t1, t2, w1, w2 = y
    w1, w2 = jnp.clip(w1, -4 * math.pi, 4 * math.pi), jnp.clip(w2, -9 * math.pi, 9 * math.pi)
    return jnp.stack([jnp.cos(t1), jnp.sin(t1), jnp.cos(t2), jnp.sin(t2), w1, w2])


def _acrobot_rates(y: Float[Array, "4"], torque: Number) -> Float[Array, "4"]:
    t1, t2, w1, w2 = y
    d1, d2 = 3.5 + jnp.cos(t2), 1.25 + 0.5 * jnp.cos(t2)
    p2 = 4.9 * jnp.sin(t1 + t2)
    p1 = 14.7 * jnp.sin(t1) + p2 - (0.5 * w2 + w1) * w2 * jnp.sin(t2)
    a2 = (torque + p1 * d2 / d1 - 0.5 * w1**2 * jnp.sin(t2) - p2) / (1.25 - d2**2 / d1)
    return jnp.stack([w1, w2, -(d2 * a2 + p1) / d1, a2])


class Pendulum(ClassicTask):
    """A rod on a motor, paid at every step for hanging still.

    The state is (cos t, sin t, w), with t = 0 upright and |w| <= 8. With the torque a in [-2, 2] and g = 10,

        w' = w + 0.05 (15 sin t + 3 a)   in [-8, 8],       t' = t + 0.05 w'
        r(s, a, s') = -(cos t + 0.1 |sin t| + 0.1 w^2 + 0.001 a^2)

    where the reward uses the state before the step. Unlike Gymnasium's, this reward is highest at the bottom, as in the
    benchmark that the paper's table follows. It starts with t ~ U(-pi, pi) and w ~ U(-1, 1), as in Gymnasium, and no
    state ends the episode.
    """

    def problem(self) -> Problem:
        """Return the task in JAX."""
        spaces = Box((-1.0, -1.0, -8.0), (1.0, 1.0, 8.0)), Box.of(2.0, 1)
        mdp = MDP(pendulum_initial, pendulum, pendulum_reward, never, *spaces, self.horizon)
        return Problem(JaxWorld(mdp))


def pendulum_initial(key: Key[Array, ""]) -> State:
    """Draw the start: any angle, and a slow rate."""
    t, w = jr.uniform(key, (2,), minval=-1.0, maxval=1.0)
    return jnp.stack([jnp.cos(math.pi * t), jnp.sin(math.pi * t), w])


def pendulum(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state."""
    t, torque = jnp.arctan2(state[1], state[0]), jnp.clip(action[0], -2.0, 2.0)
    w = jnp.clip(state[2] + 0.05 * (15.0 * jnp.sin(t) + 3.0 * torque), -8.0, 8.0)
    t = t + 0.05 * w
    return jnp.stack([jnp.cos(t), jnp.sin(t), w])


def pendulum_reward(state: State, action: Action, next_state: State) -> Number:
    """Return the reward, which is highest for hanging still."""
    t, torque = jnp.arctan2(state[1], state[0]), jnp.clip(action[0], -2.0, 2.0)
    return -(jnp.cos(t) + 0.1 * jnp.abs(jnp.sin(t)) + 0.1 * state[2] ** 2 + 0.001 * torque**2)


class CartPole(Task):
    """A pole on a cart that is pushed, paid for every step until it falls or the cart leaves the track.

    The state is (x, x., t, t.), t = 0 upright. With the force F = 10 a for a in [-1, 1], a cart of mass 1, a pole of
    mass 0.1 and half-length 0.5 and g = 9.8, the dynamics are those of Barto, Sutton & Anderson (1983):

        u = (F + 0.05 t.^2 sin t) / 1.1,    t.. = (g sin t - u cos t) / (0.5 (4/3 - 0.1 cos^2(t) / 1.1)),
        x.. = u - 0.05 t.. cos(t) / 1.1

    with an Euler step of 0.02. All four coordinates start in U(-0.05, 0.05); |x'| > 2.4 or |t'| > 12 degrees ends an
    episode.

    Gymnasium's CartPole-v1: two forces, -10 and 10, and 500 steps / here: any force between them, and 200 steps, of
    which 195 are a success, as in CartPole-v0.
    """

    kind: ClassVar[str] = "small"

    def build(self) -> Problem:
        """Return the task's world."""
        high = np.array([4.8, np.inf, 2 * _FALLEN, np.inf])
        spaces = Box(-high, high), Box.of(1.0, 1)
        mdp = MDP(cart_pole_initial, cart_pole, cart_pole_reward, cart_pole_falls, *spaces, self.horizon)
        return Problem(JaxWorld(mdp), success_return=0.975 * self.horizon)


def cart_pole_initial(key: Key[Array, ""]) -> State:
    """Draw the start: nearly upright and still."""
    return jr.uniform(key, (4,), minval=-0.05, maxval=0.05)


def cart_pole(key: Key[Array, ""], state: State, action: Action) -> State:
    """Return the next state, by one Euler step."""
    x, speed, t, rate = state
    force = 10.0 * jnp.clip(action[0], -1.0, 1.0)
    u = (force + 0.05 * rate**2 * jnp.sin(t)) / 1.1
    turning = (9.8 * jnp.sin(t) - u * jnp.cos(t)) / (0.5 * (4.0 / 3.0 - 0.1 * jnp.cos(t) ** 2 / 1.1))
    moving = u - 0.05 * turning * jnp.cos(t) / 1.1
    return state + 0.02 * jnp.stack([speed, moving, rate, turning])


def cart_pole_falls(state: State, action: Action, next_state: State) -> Truth:
    """Return whether the pole fell or the cart left the track."""
    return (jnp.abs(next_state[0]) > 2.4) | (jnp.abs(next_state[2]) > _FALLEN)


def cart_pole_reward(state: State, action: Action, next_state: State) -> Number:
    """Return 1."""
    return jnp.ones(())
