"""Model-free TRPO and SAC: a probe whose optimum is known, padding that changes nothing, units, runs that go on."""

import dataclasses
import io
import shutil

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces
from rich.console import Console
from same_run import assert_same_run

from pcmlp.algorithms.model_free import ModelFree
from pcmlp.errors import ConfigError
from pcmlp.heads import GaussianHead
from pcmlp.nets import Normaliser, RunningMoments
from pcmlp.planners import SAC, TRPO
from pcmlp.planners.trpo import advantages
from pcmlp.replay import Transitions, pick_valid
from pcmlp.rollout import end_at_gaps, mean_first_return, split_streams
from pcmlp.runs.config import build, from_json, resolve, to_json
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.train import train
from pcmlp.spaces import Box, Finite
from pcmlp.tasks import TASKS
from pcmlp.types import MDP, Problem, never
from pcmlp.world import JaxWorld

STATES, ACTIONS = Box.of(2.0, 1), Box([-1.0], [3.0])
HORIZON = 5
TINY = {
    "trpo": ("samples_per_policy=40", "planner.policy_sizes=8", "planner.value_sizes=8", "planner.value_batch=20"),
    "sac": ("samples_per_policy=20", "planner.sizes=8,8", "planner.batch=16", "replay_size=50"),
}


def be_at_zero(state, action, next_state):
    return -jnp.sum(next_state**2)


# From anywhere in [-1, 1] one full action leads to 0, so the best return is 0 or nearly.
PROBE = JaxWorld(
    MDP(
        lambda key: jr.uniform(key, (1,), minval=-1.0, maxval=1.0),
        lambda key, state, action: state + 0.5 * (ACTIONS.clip(action) - 1.0),
        be_at_zero,
        never,
        STATES,
        ACTIONS,
        HORIZON,
    )
)


def returns_of(algo, num_iterations, seeds=2):
    """Return the mean returns of the probe before and after learning, and the last metrics."""
    keys = jnp.stack([jr.key(100 + i) for i in range(seeds)])
    learner = algo.start(keys, PROBE.mdp, num_iterations)
    before = np.mean(PROBE.evaluate(keys, learner.deployed(), 50), axis=1)
    for n in range(1, num_iterations + 1):
        learner, metrics, samples, walked = algo.iterate(keys, PROBE, learner, n)
    assert len(walked) == 1
    rows = samples.reward.shape[1]
    np.testing.assert_array_equal(learner.env_steps, [num_iterations * rows] * seeds)
    return before, np.mean(PROBE.evaluate(keys, learner.deployed(), 50), axis=1), metrics


@pytest.mark.slow
def test_trpo_finds_the_optimum_of_a_probe():
    planner = TRPO(policy_sizes=(16,), value_sizes=(16,), value_batch=50, value_rate=3e-3)
    before, after, metrics = returns_of(ModelFree(planner, samples_per_policy=300, normalise=True), 40)
    assert (before < -1.0).all()
    assert (after > -0.15).all()
    assert (metrics["kl"] <= 1.5 * planner.kl_bound).all()


@pytest.mark.slow
def test_sac_finds_the_optimum_of_a_probe():
    planner = SAC(sizes=(32, 32), batch=64, rate=3e-3, entropy=-2.0, normed=False)
    algo = ModelFree(planner, samples_per_policy=40, normalise=False, replay_size=1_000)
    before, after, metrics = returns_of(algo, 20)
    assert (before < -1.0).all()
    assert (after > -0.15).all()
    assert (metrics["temperature"] < 1.0).all()


def steps_of(state, reward, terminal, last, valid):
    """One stream, [1, n, ...]."""
    state = jnp.array(state, jnp.float32)[:, None]
    row = Transitions(
        state=state,
        action=jnp.ones_like(state) + 0.3 * state,
        reward=jnp.array(reward, jnp.float32),
        next_state=state + 1.0,
        terminal=jnp.array(terminal, bool),
        last=jnp.array(last, bool),
        valid=jnp.array(valid, bool),
    )
    return jax.tree.map(lambda x: x[None], row)


def test_what_is_not_counted_changes_nothing():
    """The padding of a spoilt episode between two good ones, whatever is in it."""
    planner = TRPO(policy_sizes=(8,), value_sizes=(8,), value_batch=8, value_epochs=1)
    policy = planner.init(jr.key(0), PROBE.mdp)
    learn = eqx.filter_jit(lambda steps: planner.learn(jr.key(1), policy, steps, steps.valid))

    def padded(junk):
        return steps_of(
            [0.1, -0.4, 0.7, junk, junk, 0.2, -0.9, 0.5],
            [1.0, 2.0, -1.0, junk, junk, 0.5, 0.0, 3.0],
            [0, 0, 1, 0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0, 0, 0, 1],
            [1, 1, 1, 0, 0, 1, 1, 1],
        )

    (one, first), (other, second) = learn(padded(0.0)), learn(padded(50.0))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)
    assert first == second
    assert first["improvement"] > 0
    assert first["planned_reward"] == pytest.approx(5.5 / 6)
    (counted, _) = learn(eqx.tree_at(lambda t: t.valid, padded(50.0), jnp.ones((1, 8), bool)))
    assert not np.allclose(jax.tree.leaves(counted.actor)[0], jax.tree.leaves(one.actor)[0], atol=1e-6)


def test_a_stream_is_cut_where_what_follows_is_not_counted():
    """No advantage comes from beyond: the row before is worth its reward and its next state's value."""
    steps = steps_of([0.1, -0.4, 0.7], [1.0, 2.0, 100.0], [0, 0, 1], [0, 0, 1], [1, 1, 0])
    values, after = jnp.array([0.5, 0.25, 0.0]), jnp.array([0.25, 4.0, 0.0])

    def gains(steps):
        return np.asarray(advantages(jax.tree.map(lambda x: x[0], steps), values, after, 1.0, 1.0))

    np.testing.assert_allclose(gains(end_at_gaps(steps, steps.valid))[:2], [1 + 2 + 4 - 0.5, 2 + 4 - 0.25])
    assert gains(steps)[0] > 100


def test_draws_are_of_valid_rows_and_reach_all_of_them():
    valid = jnp.array([False, True, False, False, True, True, False])
    drawn = pick_valid(jr.uniform(jr.key(0), (20, 10)), valid)
    assert drawn.shape == (20, 10)
    assert set(np.unique(drawn)) == {1, 4, 5}
    assert pick_valid(jnp.array([0.0, 0.99999994]), valid).tolist() == [1, 5]
    assert pick_valid(jnp.array([0.5]), jnp.zeros(3, bool)).tolist() == [0]


def test_running_units_are_those_of_all_rows():
    x = 3.0 + 2.0 * jr.normal(jr.key(0), (60, 2)) * jnp.array([1.0, 0.0])[None, :]
    valid = jr.bernoulli(jr.key(1), 0.7, (60,))
    running = RunningMoments.empty(2)
    for part in (slice(0, 10), slice(10, 11), slice(11, 60)):
        running = running.add(x[part], valid[part])
    whole = Normaliser.fit(x, valid)
    np.testing.assert_allclose(running.normaliser().mean, whole.mean, rtol=1e-5)
    np.testing.assert_allclose(running.normaliser().std, whole.std, rtol=1e-4)
    assert running.normaliser().std[1] == 1.0  # it does not vary


def test_a_trained_policy_is_the_same_in_other_units():
    planner = TRPO(policy_sizes=(8,), value_sizes=(8,), value_batch=8, value_epochs=1)
    policy = planner.init(jr.key(0), PROBE.mdp)
    rows, _ = PROBE.collect(jr.key(1)[None], jax.tree.map(lambda x: x[None], policy), 20)
    steps = split_streams(jax.tree.map(lambda x: x[0], rows), HORIZON)
    trained, _ = eqx.filter_jit(planner.learn)(jr.key(2), policy, steps)
    units = Normaliser(jnp.array([5.0]), jnp.array([7.0]))
    for state in (jnp.array([0.3]), jnp.array([-1.5])):
        same = trained.with_normaliser(units)
        np.testing.assert_allclose(same(jr.key(0), (), state)[1], trained(jr.key(0), (), state)[1], rtol=1e-4)
        before = trained.critic(trained.units(state))
        np.testing.assert_allclose(same.critic(units(state)), before, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(policy.with_normaliser(units).critic.weights[0], policy.critic.weights[0])


def test_the_return_is_of_first_episodes():
    one = steps_of([0] * 4, [1.0, 2.0, 4.0, 8.0], [0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1])
    rows = jax.tree.map(lambda x: jnp.concatenate([x[0], x[0]]), one)
    assert mean_first_return(rows, 4) == 3.0
    spoilt = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:4])]), rows)  # a stream of padding
    assert mean_first_return(spoilt, 4) == 3.0


class Corridor(gymnasium.Env):
    """Pays for where it is, and ends at the right end."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.1, 0.1)
        return np.array([self.x]), {}

    def step(self, action):
        self.x += 0.2 * float(action[0])
        return np.array([self.x]), 1.0 + self.x, self.x > 0.3, False, {}


gymnasium.register("pcmlp-test/Free-Corridor-v0", Corridor, max_episode_steps=10)
ANY = "gym:pcmlp-test/Free-Corridor-v0"


def said_by(config, out, *, resume=False):
    console = Console(file=io.StringIO(), width=200)
    train(config, out, console=console, resume=resume)
    return console.file.getvalue()


@pytest.mark.parametrize("algo", ["trpo", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_run_that_goes_on_is_the_uninterrupted_one(algo, tmp_path):
    """In an environment on the host whose episodes end early; SAC's replay is smaller than what was walked."""

    def config(steps):
        return resolve(ANY, algo, (3, 4), steps, (*TINY[algo], "eval_episodes=3", "eval_every=0"))

    each = int(config(200).steps_per_iteration)
    said = said_by(config(4 * each), tmp_path / "whole")
    assert "learned from the samples" not in said
    said_by(config(2 * each), tmp_path / "cut")
    assert "continuing after iteration 2" in said_by(config(4 * each), tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    columns = read_metrics(tmp_path / "whole")
    assert np.max(columns["env_steps"]) == 4 * each
    assert "promised" not in columns
    assert "certificate" not in columns
    again = shutil.copytree(tmp_path / "whole", tmp_path / "again")
    assert "nothing to resume" in said_by(config(4 * each), again, resume=True)


@pytest.mark.parametrize("task", ["mountain-car", "acrobot", "pendulum", "point-umaze", ANY])
@pytest.mark.parametrize("algo", ["trpo", "sac"])
def test_presets_build_and_read_back(algo, task):
    config = resolve(task, algo)
    assert isinstance(config.algorithm, ModelFree)
    written = to_json(config)
    assert from_json(written) == config
    assert "bonus_scale" not in written
    assert ("replay_size" in written) == (algo == "sac")
    problem, made = build(config)
    assert isinstance(made, ModelFree)
    assert isinstance(made.planner, TRPO if algo == "trpo" else SAC)
    assert made.samples_per_policy >= problem.world.mdp.horizon
    learner = eqx.filter_eval_shape(lambda keys: made.start(keys, problem.world.mdp, 1), jr.key(0)[None])
    if algo == "trpo":
        assert learner.replay is None
    else:
        assert learner.replay.data.reward.shape == (1, made.replay_size)


@pytest.mark.parametrize("algo", ["trpo", "pc-pg"])
def test_the_trust_region_is_one_for_each_dimension_of_actions(algo):
    """As in sb3-contrib, whose KL is a mean over them; ours is the sum."""
    for task in ("pendulum", "point-umaze"):
        planner = build(resolve(task, algo))[1].planner
        assert planner.per_dimension
        assert (planner.kl_bound, planner.damping) == (0.01, 0.1)


@pytest.mark.parametrize("size", [1, 2])
def test_a_step_per_dimension_is_one_of_a_larger_region(size):
    actor = GaussianHead.of(jr.key(0), 1, size, sizes=(8,))
    x, u, weight = (jr.normal(jr.key(i), shape) for i, shape in enumerate([(40, 1), (40, size), (40,)], 1))
    each = TRPO(kl_bound=0.01, damping=0.1, per_dimension=True)
    whole = TRPO(kl_bound=0.01 * size, damping=0.1 * size)
    (ours, kl, gain), (theirs, *others) = (
        eqx.filter_jit(planner.natural_step)(actor, x, u, weight) for planner in (each, whole)
    )
    assert 0.005 * size < float(kl) <= 0.015 * size
    np.testing.assert_allclose([kl, gain], others, rtol=1e-4)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.kind == "robot"])
def test_robots_have_presets(task):
    for algo in ("trpo", "sac", "pc-pg"):
        assert resolve(task, algo).num_iterations >= 10


@pytest.mark.parametrize(
    ("algo", "setting", "remedy"),
    [
        ("trpo", "model.sizes=8", "trpo has no such setting .it is one of pcmlp, .* leave it out"),
        ("trpo", "model.name=neural", "trpo has no such setting .it is one of pcmlp, .* leave it out"),
        ("sac", "bonus_scale=1", "sac has no such setting .it is one of pcmlp, .* leave it out"),
        ("sac", "features.name=fourier", "sac has no such setting .it is one of pcmlp, .* leave it out"),
        ("sac", "features.dim=10", "sac has no such setting .it is one of pcmlp-mppi.; leave it out"),
        ("trpo", "reward_free=true", "one of pcmlp, pcmlp-mppi, rnd, random, pc-pg.; leave it out"),
        ("sac", "reward_free=true", "one of pcmlp, pcmlp-mppi, rnd, random, pc-pg.; leave it out"),
        ("trpo", "rounds=2", "trpo has no such setting .it is one of pcmlp, .* leave it out"),
        ("trpo", "draws=iid", "one of pcmlp-linear, pcmlp-knr, lc3-oracle.; leave it out"),
        ("trpo", "planner.streams=3", "learns from real steps and imagines none; leave it out"),
        ("trpo", "planner.name=sac", "trpo takes trpo"),
        ("trpo", "replay_size=1000", "does not keep steps after an update; leave it out"),
        ("trpo", "planner.value_epochs=0", "1 or more"),
        ("trpo", "samples_per_policy=10", "less than one episode"),
        ("sac", "replay_size=10", "200"),
        ("sac", "replay_size=none", "not a whole number; give one"),
        ("sac", "updates_per_step=0", "above 0"),
        ("sac", "planner.batch=0", "1 or more"),
        ("sac", "preset=dense", "sac has none for pendulum; leave it out"),
    ],
)
def test_bad_settings(algo, setting, remedy):
    with pytest.raises(ConfigError, match=remedy) as error:
        resolve("pendulum", algo, settings=(setting,))
    assert str(error.value).startswith(setting.split("=")[0])


def test_bad_inputs(tmp_path):
    with pytest.raises(ConfigError, match="replay_size=0"):
        ModelFree(SAC(), replay_size=0)
    finite = Problem(JaxWorld(dataclasses.replace(PROBE.mdp, states=Finite(3))))
    with pytest.raises(ConfigError, match="vectors"):
        ModelFree(SAC()).bind(finite)
    with pytest.raises(ConfigError, match="no certificate"):
        train(resolve("pendulum", "sac"), tmp_path / "run", stop_when_certified=1.0)
