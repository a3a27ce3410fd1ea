"""Gymnasium environments as worlds: what is recorded is what happened, whoever else was walking."""

import functools
import re
import sys

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces

from pcmlp.errors import ConfigError
from pcmlp.runs.config import resolve
from pcmlp.spaces import Box, Finite
from pcmlp.tasks import Acrobot, MountainCar, Pendulum
from pcmlp.tasks.checks import check_reward, check_terminal
from pcmlp.tasks.environment_checks import check_environment, check_horizon
from pcmlp.tasks.host import GymnasiumWorld, Lanes
from pcmlp.types import Policy

CLASSIC = {"mountain-car": MountainCar, "acrobot": Acrobot, "pendulum": Pendulum}


class Clock(gymnasium.Env):
    """Shows the episode since it was seeded, the step in it, the last action and a seeded number.

    Episode 0 terminates at step 3 and episode 1 is truncated at step 2; the others do not end by themselves.
    """

    def __init__(self, low=-0.5, high=0.5):
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = spaces.Box(low, high, (1,), np.float64)
        self.episode, self.time, self.luck = -1, 0, 0.0

    def observe(self, action):
        return np.array([self.episode, self.time, action, self.luck])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time, self.luck = 0, self.np_random.uniform()
        return self.observe(0.0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        terminated, truncated = (self.episode, self.time) == (0, 3), (self.episode, self.time) == (1, 2)
        return self.observe(action[0]), -1.0, terminated, truncated, {}


gymnasium.register("pcmlp-test/Clock-v0", Clock, max_episode_steps=12)


def luck(state, action, next_state):
    return next_state[3] + 0.0 * action[0]


def step_two_of_episode_two(state, action, next_state):
    return (next_state[0] == 2.0) & (next_state[1] == 2.0)


class Counting(Policy):
    """Plays 0, gain, 2 gain ... from the beginning of an episode on, with noise unless it is deterministic."""

    gain: jax.Array
    noise: jax.Array

    def init(self):
        return jnp.zeros(())

    def __call__(self, key, carry, state):
        return carry + 1.0, (self.gain * carry + self.noise * jr.uniform(key, minval=-1.0))[None]

    def deterministic(self):
        return eqx.tree_at(lambda p: p.noise, self, jnp.zeros_like(self.noise))


class Throttle(Policy):
    """In the direction of a rate, and uniform noise."""

    index: jax.Array
    power: jax.Array
    noise: jax.Array

    def init(self):
        return None

    def __call__(self, key, carry, state):
        push = jnp.where(state[self.index] >= 0.0, self.power, -self.power)
        return carry, push[None] + self.noise * jr.uniform(key, (1,), minval=-1.0)

    def deterministic(self):
        return self


def counting(seeds, gain=0.25, noise=0.0):
    return Counting(jnp.full(seeds, gain, jnp.float32), jnp.full(seeds, noise, jnp.float32))


def throttle(seeds, index, power=0.0, noise=0.0):
    return Throttle(jnp.full(seeds, index), jnp.full(seeds, power, jnp.float32), jnp.full(seeds, noise, jnp.float32))


@functools.cache  # what was walked before must not matter
def clock_world(seeds=1):
    return GymnasiumWorld.of(Clock, reward=luck, terminal=step_two_of_episode_two, horizon=8, seeds=seeds)


def assert_same(ours, theirs):
    """The same random numbers; a product over more seeds may round differently."""
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def seed_of(tree, i):
    return jax.tree.map(lambda x: x[i : i + 1], tree)


def test_a_stream_goes_on_where_episodes_end():
    """Ended by the environment, cut off by it, ended by the task, and cut off by the stream."""
    rows, walked = clock_world().collect(jr.split(jr.key(0), 1), counting(1), 8)
    assert rows is walked
    rows = jax.tree.map(lambda x: np.asarray(x[0]), rows)
    at = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    np.testing.assert_array_equal(rows.state[:, :2], at)
    np.testing.assert_array_equal(rows.next_state[:, :2], [(episode, time + 1) for episode, time in at])
    np.testing.assert_array_equal(rows.terminal, [0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(rows.last, [0, 0, 1, 0, 1, 0, 1, 1])
    assert rows.valid.all()
    np.testing.assert_array_equal(rows.reward, rows.next_state[:, 3])
    # a policy's memory begins with each episode
    np.testing.assert_array_equal(rows.action[:, 0], [0.25 * time for _, time in at])


def test_actions_are_clipped_for_the_environment_and_recorded_as_played():
    rows, _ = clock_world().collect(jr.split(jr.key(0), 1), counting(1, gain=0.4), 8)
    np.testing.assert_allclose(rows.action[0, :3, 0], [0.0, 0.4, 0.8], rtol=1e-6)
    np.testing.assert_allclose(rows.next_state[0, :3, 2], [0.0, 0.4, 0.5], rtol=1e-6)


def test_streams_of_a_horizon():
    rows, _ = clock_world(2).collect(jr.split(jr.key(0), 2), counting(2, noise=1.0), 33)
    assert rows.state.shape == (2, 40, 4)
    assert rows.action.shape == (2, 40, 1)
    assert rows.state.dtype == rows.reward.dtype == jnp.float32
    assert rows.last.reshape(2, 5, 8)[:, :, -1].all()
    assert len(np.unique(rows.state[:, ::8, 3])) == 10  # every stream has a start of its own
    assert len(np.unique(rows.action[..., 0])) == 80  # and noise of its own at every step


WALKS = {  # five lanes each, so that all share one compiled shape
    "collect": lambda world, keys, policies: world.collect(keys, policies, 40),
    "draw": lambda world, keys, policies: world.draw(keys, policies, 5),
    "evaluate": lambda world, keys, policies: world.evaluate(keys, policies, 5),
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_randomness_is_all_in_the_keys(walk):
    world, keys, policies = clock_world(2), jr.split(jr.key(1), 2), counting(2, noise=1.0)
    everyone = walk(world, keys, policies)
    assert_same(walk(world, keys, policies), everyone)
    assert_same(walk(world, keys[1:], seed_of(policies, 1)), seed_of(everyone, 1))
    assert_same(walk(clock_world(), keys[1:], seed_of(policies, 1)), seed_of(everyone, 1))


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_waves_are_invisible(walk, monkeypatch):
    world, keys, policies = clock_world(2), jr.split(jr.key(1), 2), counting(2, noise=1.0)
    at_once = walk(world, keys, policies)
    monkeypatch.setattr(world.environments, "limit", 7)  # three lanes for each seed, then two
    assert_same(walk(world, keys, policies), at_once)


class AheadCounting(Policy):
    """`Counting`, with its noise drawn before it meets anything."""

    counting: Counting

    def init(self):
        return self.counting.init()

    def __call__(self, key, carry, state):
        raise AssertionError("it draws ahead")

    def inference_only(self):
        return self

    def sample_noise(self, key):
        return {"noise": jr.uniform(key, minval=-1.0)}

    def act(self, noise, carry, state):
        return carry + 1.0, (self.counting.gain * carry + self.counting.noise * noise["noise"])[None]

    def deterministic(self):
        return AheadCounting(self.counting.deterministic())


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_what_is_drawn_ahead_is_what_would_be_drawn_at_each_step(walk):
    world, keys, policies = clock_world(2), jr.split(jr.key(1), 2), counting(2, noise=1.0)
    assert_same(walk(world, keys, AheadCounting(policies)), walk(world, keys, policies))


def test_a_walk_is_its_steps_one_after_another():
    """By hand: every lane alone, each of its actions by the policy's own call."""
    world, keys = clock_world(2), jr.split(jr.key(4), 2)
    policy = jax.jit(lambda key, carry: Counting(jnp.float32(0.25), jnp.float32(1.0))(key, carry, jnp.zeros(4)))
    rows = jax.tree.map(np.asarray, world.collect(keys, counting(2, noise=1.0), 40)[0])
    lanes = Lanes.of(keys, 5, 8)
    for seed, lane in np.ndindex(2, 5):
        env, carry = Clock(), jnp.zeros(())
        state = env.reset(seed=int(lanes.seed[seed, lane]))[0]
        for t in range(8):
            i = 8 * lane + t
            carry, action = policy(jr.fold_in(keys[seed], i), carry)
            next_state, _, terminated, truncated, _ = env.step(np.clip(np.asarray(action, np.float64), -0.5, 0.5))
            terminal = terminated or (next_state[:2] == 2.0).all()
            np.testing.assert_allclose(rows.state[seed, i], state, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(rows.action[seed, i], action, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(rows.next_state[seed, i], next_state, rtol=1e-6, atol=1e-7)
            assert rows.valid[seed, i]
            assert rows.terminal[seed, i] == terminal
            assert rows.last[seed, i] == (terminal or truncated or t == 7)
            state = next_state
            if rows.last[seed, i]:
                state, carry = env.reset()[0], jnp.zeros(())


def test_draws(monkeypatch):
    monkeypatch.setattr(clock_world(2).environments, "limit", 10)  # five lanes: compiled already
    rows, walked = clock_world(2).draw(jr.split(jr.key(2), 2), counting(2), 40)
    assert rows.state.shape == (2, 40, 4)
    assert walked.state.shape == (2, 40 * 8, 4)
    rows, walked = jax.tree.map(np.asarray, (rows, walked))
    assert rows.last.all()
    taken = walked.valid.reshape(2, 40, 8)
    assert (np.diff(taken.astype(int), axis=2) <= 0).all()  # from the start on, with no gap
    assert set(taken.sum(2).ravel()) == {1, 2, 3}  # episode 0 has three steps
    assert 0.2 < rows.valid.mean() < 0.6  # the chosen time is one of them three times in eight
    np.testing.assert_array_equal(walked.valid & walked.last, walked.last)
    assert (walked.last.reshape(2, 40, 8).sum(2) == 1).all()
    np.testing.assert_array_equal(rows.state[rows.valid][:, 1] + 1, taken.sum(2)[rows.valid])


def test_evaluation_is_of_first_episodes_without_noise():
    world, keys = clock_world(2), jr.split(jr.key(3), 2)
    returns = world.evaluate(keys, counting(2, noise=5.0), 5)
    assert returns.shape == (2, 5)
    starts = world.collect(keys, counting(2), 40)[0].state[:, ::8, 3]
    np.testing.assert_allclose(returns, 3 * np.asarray(starts), rtol=1e-5)


def test_what_is_known():
    world = clock_world()
    assert np.isinf(world.mdp.states.high).all()
    assert world.mdp.actions.high == 0.5
    starts = jax.jit(jax.vmap(world.mdp.initial))(jr.split(jr.key(0), 200))
    assert 50 < len(np.unique(starts[:, 3])) <= 64
    assert world.mdp.horizon == 8
    with pytest.raises(ConfigError, match="which a compiled planner cannot use"):
        world.mdp.transition(jr.key(0), jnp.zeros(4), jnp.zeros(1))
    assert eqx.filter_jit(lambda w: w.mdp.initial(jr.key(0)))(world).shape == (4,)  # a world can be compiled over


def test_an_environment_or_a_function_that_makes_it():
    keys, policies = jr.split(jr.key(1), 2), counting(2, noise=1.0)
    expected = GymnasiumWorld.of(Clock, reward=luck, horizon=12).collect(keys, policies, 60)
    registered = gymnasium.make("pcmlp-test/Clock-v0")
    of_spec = GymnasiumWorld.of(registered, reward=luck, seeds=2)
    assert of_spec.mdp.horizon == 12
    assert_same(of_spec.collect(keys, policies, 60), expected)
    alone = GymnasiumWorld.of(Clock(), reward=luck, horizon=12)
    assert_same(alone.collect(keys[:1], seed_of(policies, 0), 60), seed_of(expected, 0))


def returns_a_list(state, action, next_state):
    return [next_state[0]]


def branches(state, action, next_state):
    return 1.0 if next_state[0] > 0 else 0.0


def misses(state, action, next_state):
    return state["position"]


def never_defined(state, action, next_state):
    return jnp.log(-1.0 - next_state[3])


@pytest.mark.parametrize(("function", "line"), [
    (lambda s, a: s[0], r"reward=<lambda>\(s, a\): .*three arguments"),
    (branches, r"reward=branches: JAX cannot trace it .*jnp\.where"),
    (lambda s, a, t: np.sqrt(s[0]), r"reward=<lambda>: JAX cannot trace it"),
    (misses, r"reward=misses: fails with TypeError"),
    (returns_a_list, r"reward=returns_a_list: returns a list, not one float"),
    (lambda s, a, t: a, r"reward=<lambda>: returns float32 of shape \(1,\), not one float; .*jnp\.sum"),
    (lambda s, a, t: t[0] > 0, r"reward=<lambda>: returns bool of shape \(\), not one float"),
    (never_defined, r"reward=never_defined: is nan at state \[0\.0, 0\.0, .*finite everywhere"),
])  # fmt: skip
def test_bad_rewards(function, line):
    with pytest.raises(ConfigError, match=line) as caught:
        GymnasiumWorld.of(Clock, reward=function, horizon=8)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("function", "line"), [
    (lambda s, a, t, u: s[0] > 0, r"terminal=<lambda>\(s, a, t, u\): .*three arguments"),
    (lambda s, a, t: t[0], r"terminal=<lambda>: returns float32 of shape \(\), not one bool"),
    (lambda s, a, t: t > 0, r"terminal=<lambda>: returns bool of shape \(4,\), not one bool; .*jnp\.any"),
])  # fmt: skip
def test_bad_terminals(function, line):
    with pytest.raises(ConfigError, match=line):
        GymnasiumWorld.of(Clock, reward=luck, terminal=function, horizon=8)


def test_functions_are_checked_without_an_environment():
    states = Box(jnp.array([-jnp.inf, 5.0, -jnp.inf]), jnp.array([jnp.inf, jnp.inf, -5.0]))
    check_reward(lambda s, a, t: jnp.sqrt(s[1] - 5.0) + jnp.sqrt(-5.0 - t[2]), states, Box.of(1.0, 2))
    check_reward(lambda s, a, t: jnp.where(t == 3, 1.0, 0.0), Finite(5), Finite(2))
    check_terminal(lambda s, a, t: t == 3, Finite(5), Finite(2))
    with pytest.raises(ConfigError, match="reward='r': give a function"):
        check_reward("r", states, states)
    with pytest.raises(ConfigError, match="reward=<lambda>: is"):
        check_reward(lambda s, a, t: 1.0 / a[0], states, Box(jnp.zeros(1), jnp.zeros(1)))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_reward_is_finite_wherever_its_unit_is_taken(bad):
    """In all of an observation space with bounds, also where no sample was; without bounds, only where one was."""
    samples = (jnp.zeros((4, 2)), jnp.zeros((4, 1)), jnp.zeros((4, 2)))

    def touch(state, action, next_state):
        return jnp.where((state[1] > 1.9) & (next_state[1] > 1.9), bad, state[0])

    with pytest.raises(ConfigError) as refused:
        check_reward(touch, Box.of(2.0, 2), Box.of(1.0, 1), samples)
    line = str(refused.value)
    assert line.startswith(f"reward=touch: is {float(bad)} at state [")
    assert line.endswith("; make it finite everywhere in the observation space, such as with jnp.where")
    assert "\n" not in line
    free, huge = Box([-2.0, -np.inf], [2.0, np.inf]), Box.of(float(np.finfo(np.float32).max), 2)
    for states in (free, huge, Box.of(1.0, 2)):
        check_reward(touch, states, Box.of(1.0, 1), samples)


def test_the_rewards_of_our_own_tasks_are_finite_everywhere():
    for task in (MountainCar(), Acrobot(), Pendulum()):
        mdp = task.build().world.mdp
        check_reward(mdp.reward, mdp.states, mdp.actions)


class Broken(Clock):
    """Any part of it replaced."""

    def __init__(self, observations=None, actions=None, forget_seed=False):
        super().__init__()
        self.observation_space = self.observation_space if observations is None else observations
        self.action_space = self.action_space if actions is None else actions
        self.forget_seed = forget_seed

    def observe(self, action):
        space = self.observation_space
        return np.zeros(space.shape, space.dtype) if isinstance(space, spaces.Box) else space.sample()

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if self.forget_seed else seed, options=options)

    def step(self, action):
        return self.observe(action), 0.0, False, False, {}


LINE, IMAGE = spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0, 255, (64, 64, 3), np.uint8)
MANY = np.arange(40, dtype=np.float32)


@pytest.mark.parametrize(("make", "line"), [
    ("Clock-v0", r"environment 'Clock-v0': not a gymnasium\.Env but a str"),
    (lambda: 3, r"environment 3: not a gymnasium\.Env but a int"),
    (lambda: gymnasium.make("NoSuchThing-v0"), r"environment: cannot be made: .*NoSuchThing"),
    (lambda: Broken(forget_seed=True), r"environment .*: fails Gymnasium's check_reset_seed_determinism: "),
    (lambda: Broken(spaces.Dict(a=spaces.Text(5), b=LINE)), "a is a Text, and there is no encoder for texts"),
    (lambda: Broken(spaces.Tuple([LINE, spaces.Sequence(LINE)])), r"\[1\] is a Sequence, and .* no encoder for seq"),
    (lambda: Broken(spaces.Graph(LINE, None)), "it is a Graph, and there is no encoder for graphs; .*Transform"),
    (lambda: Broken(IMAGE), r"it is an image of shape \(64, 64, 3\), and there is no encoder for images; .*positions"),
    (lambda: Broken(spaces.Dict(a=spaces.Dict(eye=IMAGE))), r"a\.eye is an image"),
    (lambda: Broken(spaces.Box(-1.0, 1.0, (90, 90))), "it has 8,100 numbers, and 1 to 4,000 are supported; instead"),
    (lambda: Broken(actions=spaces.Discrete(3)), r"action space is Discrete\(3\); supported is a 1-D Box.*min\(int\("),
    (lambda: Broken(actions=spaces.MultiDiscrete([2, 2])), r"action space is MultiDiscrete"),
    (lambda: Broken(actions=spaces.Tuple([LINE, LINE])), r"action space is Tuple"),
    (lambda: Broken(actions=spaces.Box(-1, 1, (2,), np.int32)), r"action space is Box.*supported is a 1-D Box"),
    (lambda: Broken(actions=spaces.Box(-MANY, MANY)), r"actions range over Box\(.* \.\.\.; give"),
    (lambda: Clock(-np.inf, np.inf), r"actions range over Box\(-inf, inf.*lacks bounds; give action_scale, .*=1 \("),
    (lambda: Clock(-np.inf, -3.0), r"actions range over .*, such as action_scale=6 \(task\.action_sc"),
])  # fmt: skip
def test_bad_environments(make, line):
    with pytest.raises(ConfigError, match=line) as caught:
        GymnasiumWorld.of(make, reward=luck, horizon=8)
    assert "\n" not in str(caught.value)


def test_copies_that_cannot_be_made():
    one = Clock()
    with pytest.raises(ConfigError, match="2 seeds need as many copies of it, and it is not registered"):
        GymnasiumWorld.of(one, reward=luck, horizon=8, seeds=2)
    with pytest.raises(ConfigError, match="made twice by its function"):
        GymnasiumWorld.of(lambda: one, reward=luck, horizon=8, seeds=2)
    changed = gymnasium.make("pcmlp-test/Clock-v0")
    changed.unwrapped.observe = lambda action: np.zeros(4)
    with pytest.raises(ConfigError, match="the environment that its spec makes behaves differently; give a function"):
        GymnasiumWorld.of(changed, reward=luck, seeds=2)
    GymnasiumWorld.of(changed, reward=luck, seeds=1)


@pytest.mark.parametrize(("make", "horizon", "line"), [
    (Clock, None, "horizon=None: .*give the steps of an episode"),
    (Clock, 0, "horizon=0: .*give 1 or more"),
    (lambda: gymnasium.make("pcmlp-test/Clock-v0"), 13, "horizon=13: .*stops after 12 steps; give 12 or less"),
])  # fmt: skip
def test_bad_horizons(make, horizon, line):
    with pytest.raises(ConfigError, match=line):
        GymnasiumWorld.of(make, reward=luck, horizon=horizon)


def test_a_horizon_that_is_no_whole_number():
    for horizon in ("100", 100.0):
        with pytest.raises(ConfigError, match=f"horizon={horizon!r}: give a whole number, such as horizon=200"):
            check_horizon(Clock(), horizon)
    assert check_horizon(Clock(), np.int64(7)) == 7


class Wrong(Clock):
    """An environment with one slip in what reset or step returns."""

    def __init__(self, order, answer):
        super().__init__()
        self.order, self.answer = order, answer

    def reset(self, *, seed=None, options=None):
        right = super().reset(seed=seed)
        return self.answer(*right) if self.order == "reset" else right

    def step(self, action):
        right = super().step(action)
        return self.answer(*right) if self.order == "step" else right


@pytest.mark.parametrize(("order", "answer", "line"), [
    ("reset", lambda x, _: x, r"reset returned a ndarray; return \(observation, info\) from reset"),
    ("reset", lambda x, _: (x[:1], {}), r"reset gave an observation of shape \(1,\), not \(4,\); return"),
    ("reset", lambda x, _: (x.astype(complex), {}), "a ndarray of complex128 is not an array of numbers"),
    ("reset", lambda x, _: (x.astype(np.longdouble), {}), "observation of .*128, but its observation_space is of"),
    ("reset", lambda x, _: (np.full_like(x, np.nan), {}), "reset gave an observation with nan at coordinate 0; keep"),
    ("step", lambda x, *rest: (x, *rest[:3]), "step returned 4 values .*return .*terminated, truncated, info"),
    ("step", lambda x, *rest: (x[:1], *rest), r"observation of shape \(1,\), not .* in the first step"),
    ("step", lambda x, *rest: (np.full_like(x, np.inf), *rest), "with inf at coordinate 0 in the first step of an"),
    ("step", lambda x, _, *rest: (x, float("nan"), *rest), "step gave the reward nan; return a finite number"),
    ("step", lambda x, _, *rest: (x, None, *rest), "step returned something that cannot be read .TypeError"),
])  # fmt: skip
def test_what_reset_and_step_return_is_named(order, answer, line):
    with pytest.raises(ConfigError, match=line):
        check_environment(Wrong(order, answer))


def _wrap(remedy, env):
    """Return what the remedy of a message makes of `env`, as a user would write it."""
    code = re.search(r"that returns it\) (gymnasium\.wrappers\..*\))( with a FUNCTION.*)?$", remedy)[1]
    count, function = 3, lambda observation: np.zeros(3, np.float32)
    if "TransformAction" in code:
        count, function = 4, lambda a: np.round(a).astype(np.int32).reshape(2, 2)
    return eval(code, {"gymnasium": gymnasium, "numpy": np, "env": env, "N": count, "FUNCTION": function})


class Same(Broken):
    """An environment that observes the same at all times."""

    def observe(self, action):
        self.observation_space.seed(0)
        return self.observation_space.sample()


OBSERVATIONS = [IMAGE, spaces.Text(3), spaces.Dict(a=spaces.Sequence(LINE)), spaces.Box(-1, 1, (70, 70))]
ACTIONS = [spaces.Discrete(3), spaces.Discrete(4, start=-2), spaces.Box(-1, 1, (2, 2), np.int32)]


@pytest.mark.parametrize("env", [*map(Same, OBSERVATIONS), *(Same(actions=space) for space in ACTIONS)])
def test_the_remedy_for_a_space_works(env):
    """The wrapper that the line names is applied as it is written there."""
    with pytest.raises(ConfigError, match="space is|range over") as refused:
        check_environment(env)
    wrapped = _wrap(str(refused.value), env)
    assert check_environment(wrapped) == []
    wrapped.reset(seed=0)
    for action in (wrapped.action_space.low, wrapped.action_space.high):  # all actions arrive in the space inside
        inside = wrapped.action(action) if isinstance(wrapped, gymnasium.ActionWrapper) else action
        assert env.action_space.contains(inside)
        wrapped.step(action)


def test_without_gymnasium(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"gymnasium is not installed; run pip install 'pcmlp\[gymnasium\]'"):
        GymnasiumWorld.of(Clock, reward=luck, horizon=8)
    with pytest.raises(ConfigError, match=r"pcmlp\[gymnasium\]"):
        MountainCar(simulator="gymnasium").build()


@pytest.mark.parametrize(("name", "power"), [("mountain-car", 0.7), ("acrobot", -1.0), ("pendulum", 1.0)])
def test_classic_tasks_on_gymnasium_are_those_in_jax(name, power):
    """Step by step: the swung acrobot amplifies a rounding too much for a comparison of whole episodes."""
    task, twin = CLASSIC[name](horizon=150, simulator="gymnasium").build(), CLASSIC[name](horizon=150).build()
    assert task.success_return == twin.success_return
    world, known = task.world, twin.world.mdp
    assert (world.mdp.states, world.mdp.actions) == (known.states, known.actions)
    index = {"mountain-car": 1, "acrobot": 4, "pendulum": 2}[name]
    rows, _ = world.collect(jr.split(jr.key(0), 1), throttle(1, index, power, noise=0.5), 300)
    rows = jax.tree.map(lambda x: x[0], rows)
    moved = jax.jit(jax.vmap(known.transition, in_axes=(None, 0, 0)))(jr.key(0), rows.state, rows.action)
    np.testing.assert_allclose(rows.next_state, moved, atol=1e-4)
    for ours, function in ((rows.reward, known.reward), (rows.terminal, known.terminal)):
        np.testing.assert_allclose(
            ours, jax.jit(jax.vmap(function))(rows.state, rows.action, rows.next_state), atol=1e-5
        )
    assert rows.terminal.any() == (name != "pendulum")


def test_a_mountain_car_episode_on_gymnasium_is_the_one_in_jax():
    world = MountainCar(horizon=150, simulator="gymnasium").build().world
    transition = MountainCar().build().world.mdp.transition
    rows, _ = world.collect(jr.split(jr.key(4), 1), throttle(1, 1, noise=1.5), 300)
    assert not rows.terminal.any()

    def step(state, action):
        after = transition(jr.key(0), state, action)
        return after, after

    _, states = jax.jit(lambda *rows: jax.lax.scan(step, *rows))(rows.state[0, 0], rows.action[0, :150])
    np.testing.assert_allclose(rows.next_state[0, :150], states, atol=1e-4)


def test_bang_bang_on_gymnasiums_mountain_car():
    task = MountainCar(horizon=150, simulator="gymnasium").build()
    task.world.environments.limit = 2
    returns = np.asarray(task.world.evaluate(jr.split(jr.key(0), 1), throttle(1, 1, 0.7), 20))
    assert returns.mean() == pytest.approx(94.0, abs=0.7)
    assert (returns >= task.success_return).all()


def test_no_other_simulators():
    line = (
        r"task.simulator=gymnasium: task point-umaze has no simulator \(a setting of mountain-car and acrobot and pend"
    )
    with pytest.raises(ConfigError, match=line):
        resolve("point-umaze", settings=("task.simulator=gymnasium",))
