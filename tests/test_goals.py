"""Goal-conditioned environments: their functions are used if JAX and NumPy agree, and their successes are counted."""

import copy

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces
from test_host import counting

from pcmlp.imagine import Unknown
from pcmlp.runs.evaluate import scores
from pcmlp.tasks.goals import GoalFunction
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.traced import Traced, call_traced
from pcmlp.types import never

GOAL = spaces.Box(-10.0, 10.0, (2,), np.float64)


class Reaching(gymnasium.Env):
    """A point that is pushed along the first axis; the goal is drawn for each episode."""

    def __init__(self, sparse=True, pays=1.0, moving=False):
        self.observation_space = spaces.Dict(achieved_goal=GOAL, desired_goal=GOAL, observation=spaces.Box(-9, 9, (1,)))
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.sparse, self.pays, self.moving = sparse, pays, moving
        self.place = self.goal = np.zeros(2)

    def observe(self):
        return {"achieved_goal": self.place.copy(), "desired_goal": self.goal.copy(), "observation": np.zeros(1, "f")}

    def compute_reward(self, achieved, desired, info):
        distance = np.linalg.norm(achieved - desired, axis=-1)
        return -(distance > 0.5).astype(np.float32) if self.sparse else np.exp(-distance)

    def compute_terminated(self, achieved, desired, info):
        return False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = np.zeros(2), np.array([self.np_random.uniform(0.2, 2.0), 0.0])
        return self.observe(), {"is_success": False}

    def step(self, action):
        self.place = self.place + [0.25 * float(action[0]), 0.0]
        if self.moving:
            self.goal = self.goal + 0.01
        near = bool(np.linalg.norm(self.place - self.goal) <= 0.5)
        reward = self.pays * float(self.compute_reward(self.place, self.goal, {}))
        return self.observe(), reward, False, False, {"is_success": np.float32(near)}


class Branching(Reaching):
    """A reward with an `if` on values, which JAX cannot trace."""

    def compute_reward(self, achieved, desired, info):
        return 0.0 if np.linalg.norm(achieved - desired) <= 0.5 else -1.0

    def compute_terminated(self, achieved, desired, info):
        return bool(np.linalg.norm(achieved - desired) > 8.0)


class Ending(Reaching):
    """A task whose end depends on the goals."""

    def compute_terminated(self, achieved, desired, info):
        return np.linalg.norm(achieved - desired) <= 0.1

    def step(self, action):
        seen, reward, _, _, info = super().step(action)
        return seen, reward, bool(self.compute_terminated(self.place, self.goal, {})), False, info


def world(*arguments, kind=Reaching, horizon=8, **settings):
    return GymnasiumWorld.of(lambda: kind(*arguments), horizon=horizon, **settings)


@pytest.mark.parametrize("sparse", [True, False])
def test_the_reward_of_the_environment_is_known(sparse):
    made = world(sparse)
    assert isinstance(made.mdp.reward, GoalFunction)
    assert made.mdp.terminal is never
    assert made.mdp.states.coordinates.goals == ((2, 0), (3, 1))
    assert made.notes == [
        "reward: the environment's own compute_reward",
        "terminal: the environment's own compute_terminated",
    ]
    rows, _ = made.collect(jr.split(jr.key(0), 1), counting(1, gain=0.2), 40)
    env = Reaching(sparse)
    expected = [env.compute_reward(row[:2], row[2:4], {}) for row in np.asarray(rows.next_state[0], np.float64)]
    np.testing.assert_allclose(rows.reward[0], expected, rtol=1e-5)
    assert len(np.unique(rows.reward)) > 1


def test_an_end_that_depends_on_the_goals_is_known():
    terminal = world(kind=Ending).mdp.terminal
    near, far = jnp.zeros(5), jnp.array([0.0, 0.0, 3.0, 0.0, 0.0])
    assert bool(terminal(near, jnp.zeros(1), near))
    assert not bool(terminal(far, jnp.zeros(1), far))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Branching, "JAX cannot trace it (JAX traces the array, which has no values yet)"),
        (lambda: Reaching(True, 2.0), "real steps give other values"),
    ],
)
def test_a_reward_that_cannot_be_used_is_learned_and_a_line_says_why(make, why):
    made = GymnasiumWorld.of(make, horizon=8)
    assert isinstance(made.mdp.reward, Unknown)
    assert made.notes[0] == f"reward: the environment's own compute_reward is not used, because {why}"
    given = GymnasiumWorld.of(make, horizon=8, reward=lambda s, a, n: n[0])
    assert not isinstance(given.mdp.reward, Unknown)
    assert given.notes == []


def test_a_function_that_jax_computes_differently_is_not_used():
    class Rounding(Reaching):
        """A reward whose values for arrays of NumPy and of JAX differ."""

        def compute_reward(self, achieved, desired, info):
            found = np.linalg.norm(achieved - desired, axis=-1)
            return found if isinstance(achieved, np.ndarray) else found * 2.0

    made = world(kind=Rounding)
    assert isinstance(made.mdp.reward, Unknown)
    assert "JAX and NumPy compute different values with it" in made.notes[0]


def test_a_goal_that_moves_is_not_declared():
    assert world(True, 1.0, True).mdp.states.coordinates.goals == ()


def test_a_reported_success_counts():
    made = world()
    keys, policies = jr.split(jr.key(0), 2), counting(2, gain=0.1)
    returns, succeeded = made.score(keys, policies, 20)
    assert succeeded is not None
    np.testing.assert_array_equal(succeeded, returns > -8.0)  # a step that is not at the goal costs 1
    assert 0 < succeeded.mean() < 1
    np.testing.assert_array_equal(made.evaluate(keys, policies, 20), returns)
    assert scores(returns[0], None, succeeded[0])["success"] == succeeded[0].mean()
    assert scores(returns[0], 10.0, succeeded[0])["success"] == 0.0  # the task's own success comes first
    silent = GymnasiumWorld.of(lambda: gymnasium.make("MountainCarContinuous-v0"), horizon=8)
    assert silent.score(keys, policies, 2).succeeded is None


@pytest.mark.parametrize("said", [np.array([True, False]), None, "no", [1, 2]])
def test_what_is_no_success_is_no_fault(said):
    class Odd(Reaching):
        """Says something else under this name."""

        def step(self, action):
            return *super().step(action)[:4], {"success": copy.copy(said)}

        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed, options=options)[0], {}

    made = world(kind=Odd)
    assert made.faults.total == 0
    assert made.score(jr.split(jr.key(0), 1), counting(1), 2).succeeded is None


ARRAYS = np.array([[0.5, -1.5], [2.0, 0.25]], np.float32), np.array([[1.0, 3.0], [-2.0, 0.5]], np.float32)
FUNCTIONS = [
    lambda a, b: np.linalg.norm(a - b, axis=-1),
    lambda a, b: -(np.sqrt(np.sum((a - b) ** 2, axis=1)) > 2.5).astype(np.float64),
    lambda a, b: np.float64(0.1) * np.clip(a @ b.T, -1.0, np.array([1.0, 2.0])),
    lambda a, b: np.where(np.abs(a) < 1.0, np.exp(-b), np.concatenate([a[:1], b[1:]])).mean(),
    lambda a, b: (a[:, 0] * 2.0).sum() + np.max(b) - a.shape[0],
    lambda a, b: np.logical_and(a > 0.0, b > 0.0).all(axis=0),
    lambda a, b: np.stack([a, b]).reshape(-1).copy()[np.array([1, 3])],
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numpy_code_is_traced(function):
    ours = jax.jit(lambda a, b: call_traced(function, a, b))(*ARRAYS)
    np.testing.assert_allclose(ours, function(*ARRAYS), rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: 1.0 if a[0] > 0 else 0.0,
        lambda a: float(a[0]),
        lambda a: np.asarray(a).item(),
        lambda a: np.add(a, 1.0, out=np.zeros(2)),
        lambda a: a.__setitem__(0, 1.0),
    ],
)
def test_code_that_needs_values_is_refused(function):
    with pytest.raises((TypeError, AttributeError)):
        function(Traced(jnp.ones(2)))
