"""The classic tasks move as Gymnasium's do, and pay and end as their docstrings say."""

import dataclasses
import math

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp import rollout
from pcmlp.errors import ConfigError
from pcmlp.features import Fourier
from pcmlp.models import KNR, TaskModel
from pcmlp.runs.config import build, resolve
from pcmlp.tasks import TASKS, Acrobot, CartPole, MountainCar, Pendulum
from pcmlp.types import Policy

MOUNTAIN_CAR, ACROBOT, PENDULUM = (options().build() for options in (MountainCar, Acrobot, Pendulum))
ALL = {"mountain-car": MOUNTAIN_CAR, "acrobot": ACROBOT, "pendulum": PENDULUM}
STEPS = 600


class Gym:
    """A Gymnasium environment as a function of its own state, which is not what acrobot and pendulum show."""

    def __init__(self, name):
        self.name, self.env = name, gymnasium.make(name).unwrapped
        self.env.reset(seed=0)

    def __call__(self, state, action):
        """The next state, its observation, whether it ended."""
        self.env.state = state
        if self.name == "Acrobot-v1":
            self.env.AVAIL_TORQUE = [float(np.clip(action[0], -1, 1))]  # a discrete action is an index of this list
            observation, _, ended, _, _ = self.env.step(0)
        else:
            observation, _, ended, _, _ = self.env.step(action)
        return np.array(self.env.state), observation, ended

    def walk(self, rng, low, high, actions):
        """Steps from states between bounds, a new one every 100: observations before and after, actions, ends."""
        rows, state = [], None
        for i, action in enumerate(actions):
            if i % 100 == 0:
                state = rng.uniform(low, high).astype(np.float32)
            before = observe(self.name, state)
            state, after, ended = self(state, action)
            rows.append((before, action, after, ended))
        return [np.array(column) for column in zip(*rows, strict=True)]


def observe(name, state):
    if name == "MountainCarContinuous-v0":
        return np.array(state, np.float32)
    angles, rates = np.split(np.asarray(state, np.float64), 2)
    pairs = [(np.cos(t), np.sin(t)) for t in angles]
    return np.concatenate([*pairs, rates]).astype(np.float32)


@eqx.filter_jit
def step(mdp, states, actions):
    """Next states, rewards and ends of many pairs."""

    def one(state, action):
        after = mdp.transition(jr.key(0), state, action)
        return after, mdp.reward(state, action, after), mdp.terminal(state, action, after)

    return jax.vmap(one)(states, actions)


def held_actions(rng, bound, scale=1.5):
    """Actions beyond the range as often as within it, each held for five steps: noise would average out."""
    return np.repeat(rng.uniform(-scale * bound, scale * bound, (STEPS // 5, 1)), 5, axis=0).astype(np.float32)


# Ours is in 32 bits and what Gymnasium observes is rounded to 32: a position or an angle is off by 1e-7, a rate by
# 1e-6, and one step multiplies that by a few. Measured: 6e-8 on mountain-car, 1e-6 on acrobot and pendulum.
TOLERANCE = 1e-5


def test_mountain_car_moves_as_gymnasium():
    gym, rng = Gym("MountainCarContinuous-v0"), np.random.default_rng(0)
    before, action, after, _ = gym.walk(rng, [-1.2, -0.07], [0.6, 0.07], held_actions(rng, 1.0))
    ours, _, ended = step(MOUNTAIN_CAR.world.mdp, before, action)
    np.testing.assert_allclose(ours, after, atol=TOLERANCE)
    np.testing.assert_array_equal(ended, after[:, 0] >= 0.45)

    # Every wall: corners of the box, pushed outwards and inwards.
    corners = [(x, v, a) for x in (-1.2, -1.19, 0.59, 0.6) for v in (-0.07, 0.0, 0.07) for a in (-3.0, 0.0, 3.0)]
    states, actions = np.split(np.array(corners, np.float32), [2], axis=1)
    expected = [gym(state, action)[0] for state, action in zip(states, actions, strict=True)]
    np.testing.assert_allclose(step(MOUNTAIN_CAR.world.mdp, states, actions)[0], expected, atol=TOLERANCE)
    stopped = step(MOUNTAIN_CAR.world.mdp, jnp.array([[-1.19, -0.07]]), jnp.array([[-1.0]]))[0][0]
    np.testing.assert_array_equal(stopped, np.array([-1.2, 0.0], np.float32))


def test_mountain_car_episodes_are_gymnasiums():
    """Whole episodes from the same start, without meeting in between: this valley does not amplify errors."""
    gym, rng = Gym("MountainCarContinuous-v0"), np.random.default_rng(1)
    for policy in (lambda v: 1.0 if v >= 0 else -1.0, lambda v: rng.uniform(-1, 1)):
        state = np.asarray(MOUNTAIN_CAR.world.mdp.initial(jr.key(3)))
        ours = jnp.asarray(state)[None]
        for _ in range(150):
            action = np.array([policy(state[1])], np.float32)
            state, _, ended = gym(state, action)
            ours = step(MOUNTAIN_CAR.world.mdp, ours, action[None])[0]
            np.testing.assert_allclose(ours[0], state, atol=TOLERANCE)
            if ended:
                break


def test_acrobot_moves_as_gymnasium():
    """Swung by its own motor from hanging, past the goal: random torque would leave it at the bottom."""
    gym, rng = Gym("Acrobot-v1"), np.random.default_rng(0)
    rows, state = [], rng.uniform(-0.1, 0.1, 4)
    for i in range(STEPS):
        if i % 150 == 0:
            state = rng.uniform(-0.1, 0.1, 4)
        action = np.array([-1.3 * np.sign(state[2]) if rng.uniform() < 0.8 else rng.uniform(-1.3, 1.3)], np.float32)
        before = observe("Acrobot-v1", state)
        state, after, ended = gym(state, action)
        rows.append((before, action, after, ended))
    before, action, after, ended = (np.array(column) for column in zip(*rows, strict=True))
    assert ended.sum() > 10
    assert np.abs(after[:, 4]).max() > 4
    ours, reward, ours_ended = step(ACROBOT.world.mdp, before, action)
    np.testing.assert_allclose(ours, after, atol=TOLERANCE)
    np.testing.assert_array_equal(ours_ended, ended)
    np.testing.assert_allclose(reward, 100 * ended - 0.1 * np.clip(action[:, 0], -1, 1) ** 2, rtol=1e-6)


def shown(y):
    """Angles and rates as acrobot's observations, in 64 bits."""
    t1, t2, w1, w2 = y.T
    return np.stack([np.cos(t1), np.sin(t1), np.cos(t2), np.sin(t2), w1, w2], axis=1)


def test_acrobot_moves_as_gymnasium_anywhere():
    """Over the whole box, where the rates are clipped; in 64 bits, as one step at full spin turns 1e-6 into 4e-4."""
    gym, rng = Gym("Acrobot-v1"), np.random.default_rng(1)
    high = np.array([math.pi, math.pi, 4 * math.pi, 9 * math.pi])
    y, action = rng.uniform(-high, high, (STEPS, 4)), rng.uniform(-1.5, 1.5, (STEPS, 1))
    expected = np.array([gym(state, a)[0] for state, a in zip(y, action, strict=True)])
    clipped = np.abs(expected[:, 2:]) == high[2:]
    assert clipped.mean(0).min() > 0.05
    with jax.enable_x64(True):
        ours, _, _ = step(ACROBOT.world.mdp, jnp.asarray(shown(y)), jnp.asarray(action))
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, shown(expected), atol=1e-10)


def test_pendulum_moves_as_gymnasium():
    gym, rng = Gym("Pendulum-v1"), np.random.default_rng(0)
    before, action, after, _ = gym.walk(rng, [-math.pi, -8], [math.pi, 8], held_actions(rng, 2.0))
    assert (np.abs(after[:, 2]) == 8).sum() > 5
    ours, reward, ended = step(PENDULUM.world.mdp, before, action)
    np.testing.assert_allclose(ours, after, atol=TOLERANCE)
    cos, sin, rate = before.T
    expected = -(cos + 0.1 * np.abs(sin) + 0.1 * rate**2 + 0.001 * np.clip(action[:, 0], -2, 2) ** 2)
    np.testing.assert_allclose(reward, expected, atol=1e-5)
    assert not ended.any()


def test_cart_pole_moves_pays_and_ends_as_gymnasium():
    """Whose force is one of two: any other is set beside it."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    states, actions, afters, pays, ends = [], [], [], [], []
    for _ in range(STEPS):
        state = rng.uniform(-1, 1, 4) * [2.45, 3.0, 0.22, 3.0]
        action = rng.uniform(-1.5, 1.5, 1).astype(np.float32)
        env.state, env.steps_beyond_terminated = state, None
        env.force_mag = 10.0 * float(np.clip(action[0], -1, 1))
        after, pay, ended, _, _ = env.step(1)
        for column, x in zip((states, actions, afters, pays, ends), (state, action, after, pay, ended), strict=True):
            column.append(x)
    mdp = CartPole().build().world.mdp
    before, actions = jnp.asarray(np.array(states), jnp.float32), jnp.asarray(np.array(actions))
    after, reward, ended = step(mdp, before, actions)
    np.testing.assert_allclose(after, np.array(afters), atol=1e-5)
    np.testing.assert_array_equal(reward, np.array(pays))
    np.testing.assert_array_equal(ended, np.array(ends))
    assert 0.05 < np.mean(ends) < 0.95


def test_a_pole_that_is_held_up_is_a_success():
    task = CartPole().build()
    assert task.success_return == 195.0
    starts = jax.vmap(task.world.mdp.initial)(jr.split(jr.key(0), 500))
    np.testing.assert_allclose(np.abs(starts).max(axis=0), 0.05, atol=2e-3)


def test_mountain_car_reward_and_end():
    rng = np.random.default_rng(0)
    after = rng.uniform([-1.2, -0.07], [0.6, 0.07], (500, 2)).astype(np.float32)
    action = rng.uniform(-2, 2, (500, 1)).astype(np.float32)
    goal = after[:, 0] >= np.float32(0.45)
    assert 20 < goal.sum() < 480
    mdp = MOUNTAIN_CAR.world.mdp
    reward = jax.vmap(mdp.reward)(jnp.zeros((500, 2)), action, after)
    np.testing.assert_allclose(reward, 100 * goal - 0.1 * np.clip(action[:, 0], -1, 1) ** 2, rtol=1e-6)
    np.testing.assert_array_equal(jax.vmap(mdp.terminal)(jnp.zeros((500, 2)), action, after), goal)
    edge = jnp.array([0.45, 0.0])
    assert mdp.terminal(edge, jnp.zeros(1), edge)


def test_acrobot_goal_does_not_depend_on_the_length_of_an_imagined_cosine():
    """A model's prediction may leave the unit circle; only the angles count."""
    rng, mdp = np.random.default_rng(0), ACROBOT.world.mdp
    t1, t2 = rng.uniform(-math.pi, math.pi, (2, 500))
    height = -np.cos(t1) - np.cos(t1 + t2)
    sure = np.abs(height - 1) > 1e-4
    zero = np.zeros(500)
    for length in (1.0, 0.2, 3.0):
        after = np.stack([length * np.cos(t1), length * np.sin(t1), np.cos(t2), np.sin(t2), zero, zero], 1)
        ended = jax.vmap(lambda s: mdp.terminal(s, jnp.zeros(1), s))(after.astype(np.float32))
        np.testing.assert_array_equal(np.asarray(ended)[sure], (height > 1)[sure])


@pytest.mark.parametrize(("name", "low", "high"), [
    ("mountain-car", [-0.6, 0], [-0.4, 0]),
    ("acrobot", [math.cos(0.1), -0.1, math.cos(0.1), -0.1, -0.1, -0.1], [1, 0.1, 1, 0.1, 0.1, 0.1]),
    ("pendulum", [-1, -1, -1], [1, 1, 1]),
])  # fmt: skip
def test_starts_fill_their_range(name, low, high):
    starts = np.asarray(jax.jit(jax.vmap(ALL[name].world.mdp.initial))(jr.split(jr.key(0), 500)))
    low, high = np.array(low), np.array(high)
    assert (starts >= low - 1e-6).all()
    assert (starts <= high + 1e-6).all()
    assert (np.ptp(starts, axis=0) >= 0.95 * (high - low)).all()


@pytest.mark.parametrize("name", ALL)
def test_states_stay_in_their_box(name):
    """The box is what imagined states may be clipped to, so no real one may lie outside it, not by a rounding."""
    world = ALL[name].world
    rng, low, high = np.random.default_rng(0), np.asarray(world.mdp.states.low), np.asarray(world.mdp.states.high)
    states = rng.uniform(low, high, (STEPS, len(low))).astype(np.float32)
    actions = held_actions(rng, float(world.mdp.actions.high[0]))
    for _ in range(5):
        states = np.asarray(step(world.mdp, states, actions)[0])
        assert (states >= low).all()
        assert (states <= high).all()
    assert world.mdp.horizon == 200


class Throttle(Policy):
    """`power` in the direction of a rate, and uniform noise."""

    index: int = eqx.field(static=True)
    power: jax.Array
    noise: jax.Array

    def init(self):
        return None

    def __call__(self, key, carry, state):
        push = jnp.where(state[self.index] >= 0.0, self.power, -self.power)
        return carry, push[None] + self.noise * jr.uniform(key, (1,), minval=-1.0)

    def deterministic(self):
        return self


@eqx.filter_jit
def _returns(mdp, policy):
    return jax.vmap(lambda key: rollout.episode_return(key, mdp, policy))(jr.split(jr.key(0), 100))


def returns(task, index, power=0.0, noise=0.0):
    """Of 100 episodes; compiled once for each task."""
    return np.asarray(_returns(task.world.mdp, Throttle(index, jnp.array(power), jnp.array(noise))))


@pytest.mark.parametrize(("power", "expected"), [(0.7, 94.0), (1.0, 89.0)])
def test_bang_bang_on_mountain_car(power, expected):
    found = returns(MOUNTAIN_CAR, 1, power)
    assert found.mean() == pytest.approx(expected, abs=0.7)
    assert (found >= MOUNTAIN_CAR.success_return).all()


def test_acrobot_can_be_swung_up():
    found = returns(ACROBOT, 4, power=-1.0)  # against the first link's rate
    assert (found >= ACROBOT.success_return).mean() > 0.95  # it is chaotic: of a few starts the last bit decides
    assert 85 < found.mean() < 95


@pytest.mark.parametrize(("name", "index"), [("mountain-car", 1), ("acrobot", 4)])
def test_random_actions_reach_no_goal_and_rest_is_no_success(name, index):
    task = ALL[name]
    noisy = returns(task, index, noise=1.0)
    assert noisy.max() < 0
    assert noisy.mean() == pytest.approx(-0.1 * 200 / 3, rel=0.05)  # the cost of uniform actions for a whole episode
    assert (returns(task, index) == 0).all()
    assert 0 < task.success_return <= 100 - 0.1 * task.world.mdp.horizon


def test_pendulum_is_paid_for_hanging():
    mdp = PENDULUM.world.mdp
    up, down = jnp.array([1.0, 0.0, 0.0]), jnp.array([-1.0, 0.0, 0.0])
    assert mdp.reward(up, jnp.zeros(1), up) == -1.0
    assert mdp.reward(down, jnp.zeros(1), up) == pytest.approx(1.0, abs=1e-6)
    assert PENDULUM.success_return is None


@pytest.mark.parametrize("name", ALL)
def test_bad_horizon(name):
    with pytest.raises(ConfigError, match="horizon=0: give 1 or more"):
        TASKS[name](horizon=0)
    with pytest.raises(ConfigError, match=r"task\.horizon=0: give 1 or more"):
        resolve(name, settings=("task.horizon=0",))
    assert TASKS[name](horizon=7).build().world.mdp.horizon == 7


def test_algorithm_1_says_what_these_tasks_lack():
    config = dataclasses.replace(resolve("knr-lds"), task=MountainCar())
    assert MOUNTAIN_CAR.features is None
    assert MOUNTAIN_CAR.model is None
    with pytest.raises(ConfigError, match=r"features\.name=task"):
        build(config)
    for model, lacks in ((KNR(), "needs a task that is a regulator"), (TaskModel(), "has no class of models")):
        algorithm = dataclasses.replace(config.algorithm, features=Fourier(), model=model)
        with pytest.raises(ConfigError, match=f"model.*{lacks}"):
            build(dataclasses.replace(config, algorithm=algorithm))


def test_they_are_on_the_command_line():
    assert {MountainCar, Acrobot, Pendulum} <= set(TASKS.values())
