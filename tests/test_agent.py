"""The agent of a few lines: on an environment without bounds that was written by hand, and on a task by name."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import pcmlp
from pcmlp import DeepPCMLP
from pcmlp.errors import ConfigError, EnvironmentFault
from pcmlp.runs.arrays import pack, read_header, save_tree
from pcmlp.runs.callbacks import notify
from pcmlp.runs.config import seed_keys
from pcmlp.runs.findings import may_be_unseen
from pcmlp.runs.summary import CompileClock
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.trees import take
from pcmlp.types import Problem

HORIZON, EACH = 10, 20  # steps of an episode and of an iteration
OBSERVATION = np.array([0.3, -0.1], np.float32)


class Cart(gymnasium.Env):
    """Pushed along a line without end."""

    def __init__(self, observations=None, actions=None):
        self.observation_space = observations or spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = actions or spaces.Box(-0.5, 1.5, (1,))

    def observe(self):
        return np.array([self.x, self.v], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v = self.np_random.uniform(-1, 1, 2)
        return self.observe(), {}

    def step(self, action):
        self.v += float(action[0])
        self.x += self.v
        return self.observe(), 0.0, False, False, {}


def at_one(state, action, next_state):
    return -jnp.abs(next_state[0] - 1.0) + 0.0 * jnp.sum(action)


@pytest.fixture(scope="module")
def make(tiny_trpo):
    def make(env=Cart, **changes):
        how = {"reward": at_one, "horizon": HORIZON, "seed": 3, "settings": tiny_trpo}
        return DeepPCMLP(env, **(how | changes))

    return make


@pytest.fixture(scope="module")
def agent(make):
    return make().learn(3 * EACH)


@pytest.fixture(scope="module")
def saved(agent, tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "agent.safetensors"
    agent.save(path)
    return path


def same(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs if eqx.is_array(x))


def of_seed(tree, seed):
    return jax.tree.map(lambda x: x[seed] if eqx.is_array(x) else x, tree)


def finite(tree):
    return all(np.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def measured(metrics):
    """Metrics without the errors that the samples cannot show: no episode of the cart ends early."""
    return {name: value for name, value in metrics.items() if not may_be_unseen(name)}


def numbers(learner):
    """What is learned, without the spaces that policies know."""
    return learner.model, learner.covariance, learner.bonus, learner.replay, learner.seen


# -- what it does ------------------------------------------------------------------------------------------------------


def test_learning_counts_whole_iterations(agent):
    assert agent.num_timesteps == 3 * EACH
    assert agent.iteration == 3


def test_an_environment_that_fails_too_often_leaves_the_agent_as_it_was(agent, monkeypatch):
    learner = agent.learner

    def fail(self, action):
        raise ValueError("the wheel came off")

    monkeypatch.setattr(Cart, "step", fail)
    with pytest.raises(EnvironmentFault, match="step raised ValueError: the wheel came off"):
        agent.learn(2 * EACH)
    assert agent.learner is learner
    assert agent.iteration == 3


def test_a_space_without_bounds_makes_no_nan(agent):
    assert finite(numbers(agent.learner))
    for policy in (agent.learner.policy, agent.learner.trial.candidate):
        assert finite((policy.actor, policy.critic, policy.units))
    assert finite(agent.evaluate(3))


def test_nor_do_bounds_that_are_none(make):
    """The largest numbers, which many environments give for want of bounds."""
    most = np.finfo(np.float32).max
    agent = make(Cart(observations=spaces.Box(-most, most, (2,)))).learn(EACH)
    assert finite((numbers(agent.learner), agent.learner.policy.actor, agent.evaluate(1)))


def test_predict_one_observation_or_many(agent):
    action, state = agent.predict(OBSERVATION, deterministic=True)
    assert action.shape == (1,)
    assert action.dtype == np.float32
    batch, _ = agent.predict(np.stack([OBSERVATION, 2 * OBSERVATION]), deterministic=True)
    assert batch.shape == (2, 1)
    np.testing.assert_allclose(batch[0], action, rtol=1e-5)
    again, _ = agent.predict(OBSERVATION.tolist(), state, deterministic=True)
    np.testing.assert_array_equal(again, action)


def test_predict_with_noise_is_within_bounds_and_varies(agent):
    drawn = agent.predict(np.tile(OBSERVATION, (200, 1)))[0]
    assert drawn.min() == -0.5  # clipped
    assert drawn.max() == 1.5
    assert len(np.unique(drawn)) > 50
    assert not np.array_equal(drawn, agent.predict(np.tile(OBSERVATION, (200, 1)))[0])


def test_what_explores_is_another_policy(agent):
    assert same(agent.policy(), jax.tree.map(lambda x: x[0], agent.learner.trial.deployed))
    assert same(agent.policy(explore=True), jax.tree.map(lambda x: x[0], agent.learner.policy))
    assert not same(agent.policy(), agent.policy(explore=True))


def test_evaluation_is_fixed_by_the_seed(agent):
    mean, spread = agent.evaluate(5)
    assert (mean, spread) == agent.evaluate(5)
    assert mean < 0 < spread


def test_a_saved_agent_is_the_same_and_learns_on(agent, saved, make):
    loaded = DeepPCMLP.load(saved, Cart, reward=at_one)
    assert same(loaded.learner, agent.learner)
    assert (loaded.config, loaded.num_timesteps, loaded.iteration) == (agent.config, 3 * EACH, 3)
    assert loaded.evaluate(5) == agent.evaluate(5)
    longer = make().learn(4 * EACH)  # and never saved
    assert same(loaded.learn(EACH).learner, longer.learner)


def test_a_callback_sees_every_iteration_and_stops(make, capsys):
    heard = []

    def callback(agent, metrics):
        heard.append((agent.num_timesteps, metrics))
        return len(heard) < 2

    agent = make().learn(10 * EACH, callback=callback, progress_bar=True)
    assert [steps for steps, _ in heard] == [EACH, 2 * EACH]
    assert agent.num_timesteps == 2 * EACH
    assert {"bonus_mean", "info_gain", "model_loss", "rewards_seen", "ends_seen"} <= heard[0][1].keys()
    assert [metrics["env_steps"] for _, metrics in heard] == [EACH, 2 * EACH]
    assert "eval_return_mean" not in heard[0][1]  # it would take steps of the environment
    assert all(np.isfinite(value) for value in heard[0][1].values())
    assert "learning" in capsys.readouterr().out
    quiet = agent.learn(EACH + 7, callback=lambda agent, metrics: None)  # None does not stop; 7 steps are no iteration
    assert quiet.num_timesteps == 3 * EACH
    assert "learning" not in capsys.readouterr().out


class Listener:
    """What stable-baselines3's `BaseCallback` is to an agent."""

    def __init__(self, last=True):
        self.told, self.last = [], last

    def init_callback(self, model):
        self.model = model

    def on_training_start(self, locals_, globals_):
        self.locals = locals_
        self.told.append("start")

    def on_step(self):
        self.told.append(self.model.num_timesteps)
        return self.last

    def on_training_end(self):
        self.told.append("end")


def test_an_agent_that_found_nothing_says_what_to_do(make, capsys):
    agent = make(verbose=1)
    assert agent.nothing_found is None  # nothing was tried yet
    agent.findings.lowest_reward = agent.findings.highest_reward = 0.0
    agent._learner = dataclasses.replace(agent.learner, env_steps=jnp.array([EACH]))
    agent._bonus = 0.2
    assert agent.nothing_found.startswith(f"no reward and no end in {EACH} steps")
    assert agent.nothing_found.endswith("bonus still 0.2 per step; continue with learn(...), or raise bonus_scale")
    agent.algorithm = dataclasses.replace(agent.algorithm, reward_free=True)
    assert agent.nothing_found is None  # none was looked for
    agent.algorithm = agent.made.algorithm
    agent.findings.rewards_seen[0] = 1
    assert agent.nothing_found is None


def test_a_loaded_agent_does_not_say_that_nothing_was_found_before(saved):
    """The rewards before are counted in its file, but not how much they differed, nor what was explored."""
    loaded = DeepPCMLP.load(saved)
    assert loaded.num_timesteps > 0
    assert loaded.nothing_found is None


def test_bad_evaluation_opens_no_log(make, tmp_path):
    refused("eval_episodes=-1", lambda: make(tensorboard_log=tmp_path).learn(EACH, eval_episodes=-1))
    assert not list(tmp_path.iterdir())


def test_callbacks_are_functions_objects_or_lists(make, tmp_path):
    agent, listener, heard = make(tensorboard_log=tmp_path), Listener(), []
    agent.learn(total_timesteps=2 * EACH, callback=[listener, lambda agent, metrics: heard.append(metrics)])
    assert listener.told == ["start", EACH, 2 * EACH, "end"]
    assert listener.locals["self"] is agent
    assert listener.locals["metrics"] is heard[-1]
    assert listener.locals["rewards"].shape == listener.locals["dones"].shape == (EACH,)
    assert (heard[-1]["rewards_seen"], heard[-1]["ends_seen"]) == (0, 0)  # every step costs, none ends
    assert agent.learn(5 * EACH, Listener(last=False), reset_num_timesteps=True).num_timesteps == EACH
    assert agent.iteration == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["DeepPCMLP_1", "DeepPCMLP_2"]


def test_a_callback_that_raises_leaves_whole_iterations(make, tmp_path):
    def fails(agent, metrics):
        if metrics["iteration"] == 2:
            raise RuntimeError("from the callback")

    agent = make()
    with pytest.raises(RuntimeError, match="from the callback"):
        agent.learn(5 * EACH, fails)
    agent.save(tmp_path / "agent")
    assert DeepPCMLP.load(tmp_path / "agent").iteration == agent.iteration == 2
    assert same(agent.learn(EACH).learner, make().learn(3 * EACH).learner)


def test_verbose_prints_lines_and_evaluates_if_asked(make, capsys):
    agent = make(verbose=1)
    agent.learn(4 * EACH, log_interval=2, eval_episodes=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gym:Cart, pcmlp: learning for 4 iterations of 20 env steps"
    assert "learned from the samples" in lines[1]
    shown = [line.split("  ")[:2] for line in lines if line.startswith("iteration")]
    assert shown == [["iteration 2/4", "env steps 40"], ["iteration 4/4", "env steps 80"]]
    assert "return -" in lines[-1]


def test_an_agent_says_what_it_is(agent):
    line = "pcmlp for gym:Cart, horizon 10, seed 3, termination learned, 60 env steps in 3 iterations"
    assert repr(agent) == f"<DeepPCMLP: {line}>"


def test_public_names_are_imported_when_used():
    places = {name: getattr(pcmlp, name) for name in pcmlp.__all__}
    assert places["DeepPCMLP"] is DeepPCMLP
    assert set(pcmlp.__all__) <= set(dir(pcmlp))
    with pytest.raises(AttributeError, match="no attribute 'DeepPCMPL'"):
        _ = pcmlp.DeepPCMPL
    typed = re.search(r"if TYPE_CHECKING.*?\n\n", Path(pcmlp.__file__).read_text(), re.DOTALL)[0]
    named = re.findall(r"\w+", re.sub(r"#.*|from [\w.]+ import", "", typed))
    assert {*named} - {"if", "TYPE_CHECKING"} == {*pcmlp.__all__} - {"__version__"}
    loaded = "import sys, pcmlp; dir(pcmlp); print([name for name in sys.modules if name.startswith('jax')])"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "[]\n"


def test_an_agent_is_loaded_without_its_environment(agent, saved):
    alone = DeepPCMLP.load(saved)
    assert same(alone.learner, agent.learner)
    np.testing.assert_array_equal(*(each.predict(OBSERVATION, deterministic=True)[0] for each in (alone, agent)))
    assert alone.get_env() is None
    assert "no environment" in repr(alone)
    for use in (lambda: alone.learn(EACH), lambda: alone.evaluate(1)):
        refused("loaded without its environment; give it to set_env, or to load", use)
    refused("set_env: the agent has a function for reward; give reward=", lambda: alone.set_env(Cart))
    env = Cart()
    alone.set_env(env, reward=at_one)
    assert alone.get_env() is env
    assert alone.evaluate(2) == pytest.approx(agent.evaluate(2), rel=1e-5)  # one copy of the environment, not two
    alone.set_env(Cart)  # with the same reward
    assert same(alone.learner, agent.learner)


def play(agent, envs, episodes):
    """The loop of stable-baselines3's `evaluate_policy`: its arguments of `predict`, over a vector of environments."""
    returns, sums = [], np.zeros(envs.num_envs)
    observations, _ = envs.reset(seed=0)
    states, starts = None, np.ones(envs.num_envs, bool)
    while len(returns) < episodes:
        actions, states = agent.predict(observations, state=states, episode_start=starts, deterministic=True)
        observations, rewards, ends, cut, _ = envs.step(actions)
        starts = ends | cut
        sums += rewards
        returns += sums[starts].tolist()
        sums[starts] = 0
    return returns


class Paid(Cart):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, -abs(observation[0] - 1.0), *rest


def make_paid():
    return gymnasium.wrappers.TimeLimit(Paid(), HORIZON)


def test_an_agent_plays_a_vector_of_environments(agent):
    envs = gymnasium.vector.SyncVectorEnv([make_paid] * 3)
    returns = play(agent, envs, 6)
    assert len(returns) == 6
    assert max(returns) < 0


def test_stable_baselines3_evaluates_and_calls(agent, make, tmp_path):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common import callbacks
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    returns, lengths = evaluate_policy(agent, Monitor(make_paid()), n_eval_episodes=4, return_episode_rewards=True)
    assert lengths == [HORIZON] * 4
    assert max(returns) < 0
    evaluates = callbacks.EvalCallback(Monitor(make_paid()), n_eval_episodes=1, eval_freq=1, verbose=0)
    keeps = callbacks.CheckpointCallback(save_freq=1, save_path=str(tmp_path))
    with pytest.warns(UserWarning, match="not of the same type"):
        make().learn(EACH, callbacks.CallbackList([evaluates, keeps]))
    assert evaluates.last_mean_reward < 0
    assert DeepPCMLP.load(next(tmp_path.iterdir())).iteration == 1


def test_only_false_ends_learning():
    for answer in (None, 0, True, np.zeros(3)):
        assert notify([lambda source, metrics, answer=answer: answer], None, {})
    called = []
    callbacks = [lambda source, metrics: False, lambda source, metrics: called.append(metrics)]
    assert not notify(callbacks, None, {})
    assert called == [{}]  # the others are called all the same


@pytest.fixture(scope="module")
def pair(agent):
    """The agent's algorithm for its seed and another one, and their first iteration."""
    world, keys = GymnasiumWorld.of(Cart, reward=at_one, horizon=HORIZON, seeds=2), seed_keys((4, 3))
    algo = agent.config.algorithm.bind(Problem(world))
    return algo, world, keys, algo.iterate(keys, world, algo.start(keys, world.mdp, 50), 1)


@pytest.mark.slow
def test_seeds_together_as_alone(pair, make):
    """The same random numbers, so the same samples; what a product over two seeds rounds differently is small."""
    *_, (learner, metrics, samples, _) = pair
    agent = make()
    alone = agent.algorithm.iterate(agent.keys, agent.world, agent.learner, 1)
    assert same(of_seed(samples, 1), of_seed(alone.samples, 0))
    assert not same(of_seed(samples, 1), of_seed(samples, 0))
    assert int(learner.env_steps[1]) == int(alone.learner.env_steps[0]) == EACH
    ours, theirs = of_seed((learner, metrics), 1), of_seed((alone.learner, alone.metrics), 0)
    # of what was lost in rounding, nothing is the same
    ours, theirs = (eqx.tree_at(lambda t: t[0].covariance.kahan_error, both, jnp.zeros(())) for both in (ours, theirs))
    arrays = (jax.tree.leaves(eqx.filter(both, eqx.is_inexact_array)) for both in (ours, theirs))
    for x, y in zip(*arrays, strict=True):
        scale = np.abs(y, where=np.isfinite(y), out=np.ones(y.shape)).max(initial=0.0)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.slow
def test_after_one_iteration_nothing_is_compiled(pair):
    """Nor for another bonus, no covariance, or a longer run; and nothing becomes NaN."""
    algo, world, keys, (learner, *_) = pair
    with CompileClock() as clock:
        for n in range(2, 6):
            learner, metrics, *_ = algo.iterate(keys, world, learner, n)
        for changes in ({"bonus_scale": 0.0}, {"covariance": False}, {"bonus_scale": 100.0}):
            other = dataclasses.replace(algo, **changes)
            changed = other.iterate(keys, world, other.start(keys, world.mdp, 70), 1)
            assert finite((numbers(changed.learner), changed.learner.policy.actor, measured(changed.metrics)))
    assert clock.seconds == 0.0
    assert finite((numbers(learner), learner.policy.actor, measured(metrics)))
    np.testing.assert_array_equal(learner.env_steps, 5 * EACH)


@pytest.mark.slow
def test_mppi_remembers_its_plan(make, tiny):
    settings = ("features.dim=8", "planner.num_plans=8", "planner.plan_length=5", "planner.warmup=2", "margin=0")
    agent = make(algo="pcmlp-mppi", settings=(*tiny, *settings, "planner.restarts=1")).learn(2 * EACH)
    assert finite(numbers(agent.learner))
    action, plan = agent.predict(OBSERVATION, deterministic=True)
    again, same_plan = agent.predict(OBSERVATION, deterministic=True)
    np.testing.assert_array_equal(action, again)  # the search is random, and still
    np.testing.assert_array_equal(plan, same_plan)
    later, longer = agent.predict(OBSERVATION, plan, deterministic=True)
    assert not np.array_equal(longer, plan)
    restarted, _ = agent.predict(OBSERVATION, longer, np.array([True]), deterministic=True)
    np.testing.assert_array_equal(restarted, action)
    assert not np.array_equal(agent.predict(OBSERVATION)[1], agent.predict(OBSERVATION)[1])
    assert (action >= -0.5).all()
    assert (later <= 1.5).all()
    assert finite(agent.evaluate(2))


def test_a_task_by_name(tiny_trpo, tmp_path):
    agent = DeepPCMLP("mountain-car", horizon=HORIZON, seed=1, settings=(*tiny_trpo, "task.simulator=gymnasium"))
    agent.save(tmp_path / "agent")
    loaded = DeepPCMLP.load(tmp_path / "agent", "mountain-car")
    assert loaded.config == DeepPCMLP.load(tmp_path / "agent").config == agent.config
    assert loaded.config.task.simulator == "gymnasium"
    assert agent.predict(np.array([-0.5, 0.0]), deterministic=True)[0].shape == (1,)


RADIAL = '''
import jax.numpy as jnp

from pcmlp.settings import setting
from pcmlp.types import FeatureMap


class Radial(FeatureMap):
    """A bump around the origin, and a constant."""

    width: float = setting(0.5, "width of the bump", above=0)

    def draw(self, key, mdp, samples):
        return lambda state, action: jnp.stack([jnp.exp(-jnp.sum(state**2) / self.width), jnp.ones(())]) / 2
'''


def test_code_that_an_agent_names_is_imported_only_if_it_is_trusted(make, tiny_trpo, tmp_path):
    code = tmp_path / "radial.py"
    code.write_text(RADIAL)
    settings = [item for item in tiny_trpo if not item.startswith("features.")]
    agent = make(settings=(*settings, f"features.name={code}:Radial", "features.width=0.7"))
    agent.save(tmp_path / "agent")

    def load(**changes):
        return DeepPCMLP.load(tmp_path / "agent", Cart, reward=at_one, **changes)

    refused(
        r"features.name=.*radial.py:Radial: .*agent uses code of a file, which is imported only.*trust_code=True", load
    )
    loaded = load(trust_code=True)
    assert loaded.config == agent.config
    assert loaded.config.algorithm.features.width == 0.7
    code.write_text(RADIAL.replace("jnp.ones(())", "jnp.zeros(())"))
    refused("radial.py: changed since .*agent was started", lambda: load(trust_code=True))


CART = """
import gymnasium

class Cart(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1, 1).astype("float32")
        return self.place, {}

    def step(self, action):
        self.place = (0.9 * self.place + 0.1 * action).astype("float32")
        return self.place, 0.0, False, False, {}

def reward(state, action, next_state):
    return next_state[0]
"""


def test_an_environment_of_a_file_is_given_again_by_its_name(tiny_trpo, tmp_path):
    (tmp_path / "cart.py").write_text(CART)
    place = f"py:{tmp_path}/cart.py:Cart"
    settings = (*tiny_trpo, f"task.reward={tmp_path}/cart.py:reward")
    agent = DeepPCMLP(place, horizon=20, settings=settings)
    config = agent.config
    agent.set_env(place)
    assert agent.config == config


# -- what it refuses ---------------------------------------------------------------------------------------------------


def refused(line, action):
    with pytest.raises(ConfigError, match=line) as caught:
        action()
    assert "\n" not in str(caught.value)


def two_arguments(state, action):
    return jnp.zeros(())


def a_vector(state, action, next_state):
    return next_state


def no_number(state, action, next_state):
    return jnp.log(-1.0 - jnp.abs(state[0]))


def a_number(state, action, next_state):
    return next_state[0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"reward": two_arguments}, "reward=two_arguments.*three arguments"),
        ({"reward": a_vector}, r"reward=a_vector: returns float32 of shape \(2,\), not one float"),
        ({"reward": no_number}, "reward=no_number: is nan at state"),
        ({"terminal": a_number}, "terminal=a_number: returns float32.*not one bool"),
        ({"horizon": None}, "horizon=None: .*has no time limit"),
        ({"horizon": 0}, "horizon=0: an episode has at least 1 step"),
        ({"algo": "pcmlp-knr"}, "algo=pcmlp-knr: an agent cannot use it; give pcmlp or pcmlp-mppi or "),
        ({"seed": -1}, "seeds=-1: give numbers from 0"),
        ({"settings": ("preset=paper",)}, "preset=paper: pcmlp has none for gym:Cart; leave it out"),
        ({"settings": ("bonus=1",)}, "bonus=1: unknown key"),
        ({"env": Cart(observations=spaces.Dict({"x": spaces.Box(-1, 1, (2,))}))}, "a ndarray where a dict belongs"),
        ({"env": Cart(actions=spaces.Tuple([spaces.Discrete(3)]))}, "its action space is Tuple"),
        ({"env": Cart(actions=spaces.Box(-np.inf, np.inf, (1,)))}, "its actions range over .*give action_scale"),
        ({"env": Cart(observations=spaces.Box(-1, 1, (3,)))}, r"reset gave an observation of shape \(2,\), not \(3,\)"),
        ({"env": object()}, "not a gymnasium.Env but a object"),
        ({"env": "mountain-car"}, "env=mountain-car: this task has its own reward"),
        ({"env": "mountain-cart", "reward": None}, "task=mountain-cart: unknown; the nearest is mountain-car"),
        ({"env": "combination-lock", "reward": None}, "algo=pcmlp: cannot be used with combination-lock"),
    ],
)
def test_bad_input(make, changes, line):
    refused(line, lambda: make(**changes))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"device": "gpux"}, "device=gpux: unknown; give auto, cpu, cuda"),
        ({"device": "cpu:9"}, "device=cpu:9: there are 1 of this kind; give cpu:0"),
        ({"device": "tpu"}, "device=tpu: JAX finds no such device here; give auto or cpu"),
        ({"verbose": 7}, "verbose=7: give 0 .silent. or 1"),
        ({"settings": "bonus_scale=1"}, "settings='bonus_scale=1': give a dict or a list of strings"),
        ({"settings": {"planner": {"update": 1}}}, "planner.update=1: unknown key; the nearest is planner.updates"),
    ],
)
def test_bad_habits(make, changes, line):
    refused(line, lambda: make(**changes))


@pytest.mark.parametrize(
    ("callback", "line"),
    [
        (Listener, r"callback=Listener: is a class; give an object of it, such as Listener\(\)"),
        ([print, 3], "callback=int object is not a function; give a function of .agent, metrics., an object with"),
        (lambda metrics: True, "cannot be called with .agent, metrics.: too many positional arguments"),
        (
            type("Steps", (), {"on_step": lambda self, more: 1})(),
            "on_step cannot be called with .*: missing a required",
        ),
    ],
)
def test_a_callback_of_the_wrong_kind(agent, callback, line):
    refused(line, lambda: agent.learn(EACH, callback))


def test_nested_settings(make, tiny_trpo):
    nested = {"bonus_scale": 0.5, "model": {"sizes": (16, 8)}, "planner": {"updates": 2}}
    algorithm = make(settings=nested, device="cpu").config.algorithm
    assert (algorithm.bonus_scale, algorithm.model.sizes, algorithm.planner.updates) == (0.5, (16, 8), 2)


def test_too_few_steps_or_episodes(agent):
    refused("log_interval=0: give 1 or more", lambda: agent.learn(EACH, log_interval=0))
    refused("eval_episodes=-1: give 0 or more", lambda: agent.learn(EACH, eval_episodes=-1))
    refused("total_timesteps=20.5: not a whole number", lambda: agent.learn(20.5))
    refused("steps=19: less than one iteration, which takes 20 env steps", lambda: agent.learn(19))
    refused("episodes=0: give 1 or more", lambda: agent.evaluate(0))


@pytest.mark.parametrize("observation", [0.3, np.zeros(3), np.zeros((4, 3)), np.zeros((1, 1, 2))])
def test_an_observation_of_another_shape(agent, observation):
    refused(r"observation of shape .*give \(2,\), or \(n, 2\) for a batch", lambda: agent.predict(observation))


def test_a_broken_file(agent, saved, tmp_path):
    broken = tmp_path / "broken"

    def load():
        return DeepPCMLP.load(broken, Cart, reward=at_one)

    data = saved.read_bytes()
    edited = bytearray(data)
    edited[-3] ^= 1
    for content in (data[:-100], data[:50], b"", b"not a file of arrays", bytes(edited)):
        broken.write_bytes(content)
        refused("broken: truncated or edited, or not a saved agent; give a file that `save` wrote", load)
    arrays = load_file(saved)
    save_file(arrays, broken)
    refused("broken: truncated or edited, or not a saved agent", load)
    save_tree(broken, agent.learner, {"format": "pcmlp agent 1"})
    refused("broken: not an agent that this version saved", load)
    header = read_header(saved.read_bytes())
    header["facts"]["iteration"] = 7
    broken.write_bytes(pack(arrays, header))
    refused("broken: truncated or edited", load)
    broken.unlink()
    refused("broken: cannot be read", load)
    broken.mkdir()
    refused("broken: ", load)
    refused("nowhere/agent: cannot be written", lambda: agent.save(tmp_path / "nowhere/agent"))


def test_the_newest_policy_of_a_saved_agent(agent, tmp_path):
    """Beside the deployed one, which here is the policy that explores."""

    def load(iteration=None):
        return DeepPCMLP.load(path, Cart, reward=at_one, iteration=iteration)

    path = tmp_path / "agent"
    agent.save(path)
    explores = load()
    explores._learner = eqx.tree_at(lambda learner: learner.trial.deployed, agent.learner, agent.learner.policy)
    explores.save(path)
    newest = agent.learner.trial.candidate
    for iteration, used in ((None, agent.learner.policy), ("last", newest), (3, newest)):
        loaded = load(iteration)
        assert same(loaded.policy(), take(used, 0))
    assert loaded.evaluate(3) != load().evaluate(3)
    loaded.learn(EACH)
    assert same(loaded.policy(), take(loaded.learner.trial.candidate, 0))
    refused("iteration=2: .*agent has the policy of iteration 3 only; give 3 or last", lambda: load(2))
    refused("iteration=first: give the number of an iteration, from 0, or last", lambda: load("first"))
    refused("iteration=-1: give the number of an iteration", lambda: load(-1))


def test_an_agent_of_another_task(saved):
    class Sledge(Cart):
        pass

    refused("the agent is for gym:Cart, not for mountain-car", lambda: DeepPCMLP.load(saved, "mountain-car"))
    refused("the agent is for gym:Cart, not for gym:Sledge", lambda: DeepPCMLP.load(saved, Sledge, reward=at_one))
    refused("the agent has a function for reward; give reward=", lambda: DeepPCMLP.load(saved, Cart))


def test_a_task_of_the_same_name_and_another_shape(saved):
    wide = spaces.Box(-0.5, 1.5, (2,))
    refused("does not fit the environment", lambda: DeepPCMLP.load(saved, Cart(actions=wide), reward=at_one))


def test_what_is_saved_can_be_read(saved):
    with safe_open(saved, "numpy") as file:
        facts = json.loads(file.metadata()["header"])["facts"]
        assert "model.dynamics.net.weights[0]" in set(file.keys())
    config = facts["config"]
    assert (config["task"]["name"], config["task"]["horizon"]) == ("gym:Cart", HORIZON)
    assert config["model"]["sizes"] == [16, 16]
