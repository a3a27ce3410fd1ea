"""Environments with discrete actions: the actions that they receive, and all methods for them."""

import pickle

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import minari
import numpy as np
import pytest
from gymnasium import spaces

from pcmlp import DeepPCMLP
from pcmlp.algorithms import METHODS
from pcmlp.choices import Choices
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.planners import UniformPolicy
from pcmlp.runs.config import resolve, tiny_overrides
from pcmlp.runs.episodes import read
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.train import train
from pcmlp.tasks.host import GymnasiumWorld

HORIZON = 20  # that of tiny settings
SPACES = {
    "Discrete": spaces.Discrete(3, start=-1),
    "Multi": spaces.MultiDiscrete([3, 2]),
    "Binary": spaces.MultiBinary(2),
    "Short": spaces.MultiDiscrete([3, 2], np.int32),  # does not contain int64
}


class Keys(gymnasium.Env):
    """Observes the sum of the integers that it was given; refuses anything that is not in its space."""

    def __init__(self, kind="Discrete"):
        self.observation_space = spaces.Box(-100.0, 100.0, (1,))
        self.action_space = SPACES[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.total = float(np.sum(action))
        return np.array([self.total], np.float32), self.total, False, False, {}


for kind in SPACES:
    gymnasium.register(f"pcmlp-test/Keys{kind}-v0", Keys, max_episode_steps=HORIZON, kwargs={"kind": kind})


def uniform(world):
    return jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, UniformPolicy(world.mdp.actions))


@pytest.mark.parametrize("kind", SPACES)
def test_the_environment_gets_integers_and_the_learner_vectors(kind):
    world = GymnasiumWorld.of(lambda: gymnasium.make(f"pcmlp-test/Keys{kind}-v0"))
    choices = world.mdp.actions
    assert isinstance(choices, Choices)
    rows, _ = world.collect(jr.split(jr.key(0), 1), uniform(world), 6 * HORIZON)
    action, after = np.asarray(rows.action[0]), np.asarray(rows.next_state[0, :, 0])
    assert rows.valid.all()
    integers = choices.to_integers(action).reshape(len(after), -1)
    np.testing.assert_array_equal(integers.sum(axis=1), after)
    np.testing.assert_array_equal(np.unique(after), np.unique([np.sum(a) for a in choices.to_integers(_all(choices))]))


def _all(choices):
    """All combinations of options."""
    parts = np.meshgrid(*[np.arange(size) for size in choices.sizes], indexing="ij")
    chosen = np.stack([part.ravel() for part in parts], axis=1)
    return np.concatenate([np.eye(size)[chosen[:, i]] for i, size in enumerate(choices.sizes)], axis=1)


def test_a_reward_function_is_tried_with_choices():
    """A reward that is NaN for every vector but a choice is accepted; one that is NaN for choices is refused."""

    def is_choice(action):
        return (jnp.max(action) == 1) & (jnp.sum(jnp.abs(action)) == 1)

    def reward(state, action, next_state):
        return jnp.where(is_choice(action), action[2] - action[0], jnp.nan)

    world = GymnasiumWorld.of(Keys, reward=reward, horizon=HORIZON)
    assert world.mdp.reward(jnp.zeros(1), jnp.array([0.0, 0.0, 1.0]), jnp.zeros(1)) == 1.0
    with pytest.raises(ConfigError, match="nan"):
        GymnasiumWorld.of(Keys, reward=lambda s, a, after: jnp.where(is_choice(a), jnp.nan, 0.0), horizon=HORIZON)


@pytest.fixture(scope="module")
def agent(tiny_trpo):
    return DeepPCMLP(Keys, horizon=HORIZON, seed=103, settings=tiny_trpo)


def test_predict_returns_what_the_environment_takes(agent, tmp_path):
    env = Keys()
    observation, _ = env.reset(seed=0)
    agent.save(tmp_path / "agent.safetensors")
    loaded = DeepPCMLP.load(tmp_path / "agent.safetensors")  # without its environment
    for each in (agent, loaded):
        action, _ = each.predict(observation, deterministic=True)
        env.step(action)
        assert {-1: "a", 0: "b", 1: "c"}[action]  # an action can be the key of a dict
        batch, _ = each.predict(np.zeros((7, 1), np.float32))
        assert batch.shape == (7,)
        assert all(env.action_space.contains(one) for one in batch)
    assert loaded.predict(observation, deterministic=True)[0] == agent.predict(observation, deterministic=True)[0]


def test_the_most_probable_choice_is_deployed(agent):
    """Only the last option pays a reward."""
    policy = agent.policy().deterministic()
    sure = eqx.tree_at(lambda p: p.actor.net.biases[-1], policy, jnp.array([0.0, 0.0, 30.0]))
    for key in jr.split(jr.key(0), 3):
        np.testing.assert_array_equal(sure(key, (), jnp.zeros(1))[1], [0, 0, 1])


@pytest.mark.parametrize("kind", SPACES)
def test_a_run_and_its_dataset(kind, tmp_path, monkeypatch):
    """The dataset has the environment's own space, and its actions are in it."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    out, name = str(tmp_path / "run"), f"keys/{kind.lower()}-v0"
    task = f"gym:pcmlp-test/Keys{kind}-v0"
    words = ["--seeds", "100", "--steps", "40", "--set", "samples_per_policy=20", "eval_episodes=2"]
    assert main(["train", task, "--algo", "random", *words, "--out", out]) == 0
    assert main(["eval", out, "--episodes", "2"]) == 0
    assert main(["export", out, "--minari", name]) == 0
    dataset = minari.load_dataset(name)
    assert dataset.action_space == SPACES[kind]
    for episode in dataset.iterate_episodes():
        assert all(SPACES[kind].contains(action) for action in episode.actions)
        np.testing.assert_allclose(np.reshape(episode.actions, (HORIZON, -1)).sum(axis=1), episode.rewards)


def test_there_is_no_film_of_such_a_task(tmp_path, capsys):
    out = str(tmp_path / "run")
    words = ["--algo", "random", "--steps", "20", "--set", "samples_per_policy=20", "eval_episodes=1", "--out", out]
    assert main(["train", "gym:pcmlp-test/KeysMulti-v0", *words]) == 0
    assert main(["eval", out, "--video"]) == 2
    assert "there are no pictures of gym:pcmlp-test/KeysMulti-v0" in capsys.readouterr().err


def test_workers_step_choices():
    pickle.dumps(Keys)
    world = GymnasiumWorld.of(Keys, horizon=HORIZON, workers=1)
    try:
        rows, _ = world.collect(jr.split(jr.key(0), 1), uniform(world), HORIZON)
    finally:
        world.close()
    np.testing.assert_array_equal(
        world.mdp.actions.to_integers(np.asarray(rows.action[0])), np.asarray(rows.next_state[0, :, 0])
    )


DEEP = ("pcmlp", "pcmlp-mppi", "pets", "mbpo", "slbo", "rnd", "lc3", "random", "trpo", "sac", "pc-pg")


def test_every_method_for_discrete_actions_is_tested_below():
    gym = {name for name, method in METHODS.items() if "gym" in method.presets["ours"]}
    assert gym == set(DEEP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "kind"), [*((algo, "Discrete") for algo in DEEP), ("pcmlp", "Multi"), ("mbpo", "Multi"), ("pets", "Multi")]
)
def test_every_method_acts_in_it(algo, kind, tmp_path):
    task = f"gym:pcmlp-test/Keys{kind}-v0"
    settings = tiny_overrides(resolve(task, algo, (100,)))
    config = resolve(task, algo, (100,), None, settings)
    train(resolve(task, algo, (100,), 2 * int(config.steps_per_iteration), settings), tmp_path / "run")
    metrics = read_metrics(tmp_path / "run")
    assert np.isfinite(metrics["eval_return_mean"][-1])
    (record, *_) = read(tmp_path / "run" / "episodes")
    action = record.rows.action[record.rows.valid]
    assert set(np.unique(action)) == {0.0, 1.0}
    np.testing.assert_allclose(action.sum(axis=1), 1 if kind == "Discrete" else 2)
