"""PC-PG: who took which step after a roll-in, what is counted and learned from, and a probe that only a bonus finds."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.algorithms.pc_pg import PCPG, PCPGLearner, RollIn
from pcmlp.cover import Cover
from pcmlp.errors import ConfigError
from pcmlp.planners import TRPO
from pcmlp.runs.config import build, from_json, resolve, to_json
from pcmlp.runs.train import train
from pcmlp.spaces import Box
from pcmlp.types import MDP
from pcmlp.world import JaxWorld

STATES, ACTIONS = Box.of(2.0, 1), Box.of(1.0, 1)
HORIZON = 8
TINY = (
    "samples_per_policy=20",
    "updates=2",
    "batch_steps=40",
    "features.sizes=8,8",
    "planner.policy_sizes=8",
    "planner.value_sizes=8",
    "planner.value_batch=20",
    "task.horizon=20",
    "eval_episodes=2",
)


def world(terminal):
    return JaxWorld(
        MDP(
            lambda key: jr.uniform(key, (1,), minval=-0.1, maxval=0.1),
            lambda key, state, action: STATES.clip(state + 0.5 * ACTIONS.clip(action)),
            lambda state, action, next_state: jnp.zeros(()),
            terminal,
            STATES,
            ACTIONS,
            HORIZON,
        )
    )


def always(policy, value):
    """The policy with that action, whatever the state."""
    net = jax.tree.map(jnp.zeros_like, policy.actor.net)
    net = eqx.tree_at(lambda n: n.biases[-1], net, jnp.array([value]))
    silent = jnp.full_like(policy.actor.log_std, -20.0)
    return eqx.tree_at(lambda p: (p.actor.net, p.actor.log_std), policy, (net, silent))


def test_whose_step_it_was_is_known_from_the_episode():
    """The cover goes left and right, the policy hardly moves; episodes that end early are followed by others."""
    there = world(lambda state, action, next_state: jnp.abs(next_state[0]) > 1.4)
    policy = TRPO(policy_sizes=(4,), value_sizes=(4,)).init(jr.key(0), there.mdp)
    cover = Cover.of(always(policy, -0.9), 3).push(always(policy, 0.9))
    roll_in = RollIn(cover, always(policy, 0.01), jr.key(5), HORIZON)
    batched = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, roll_in)
    rows, _ = there.collect(jr.key(1)[None], batched, 200 * HORIZON)
    streams = jax.tree.map(lambda x: x[0].reshape(-1, HORIZON, *x.shape[2:]), rows)
    own = jax.vmap(roll_in.learner_steps)(streams)
    np.testing.assert_array_equal(own, np.abs(streams.action[..., 0]) < 0.5)
    assert np.asarray(streams.terminal).sum() > 10  # some of them did
    played = np.asarray(streams.action[:, 0, 0])
    assert {round(float(x), 2) for x in np.unique(np.round(played, 2))} == {-0.9, 0.01, 0.9}
    # the steps of a roll-in are uniform in 0 ... H - 1, so one in H begins with the policy's own
    assert abs(np.mean(np.asarray(own)[:, 0]) - 1 / HORIZON) < 0.08


def test_padding_begins_another_episode():
    there = world(lambda state, action, next_state: jnp.array(False))
    policy = TRPO(policy_sizes=(4,), value_sizes=(4,)).init(jr.key(0), there.mdp)
    roll_in = RollIn(Cover.of(policy, 2), policy, jr.key(5), HORIZON)
    batched = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, roll_in)
    rows, _ = there.collect(jr.key(1)[None], batched, HORIZON)
    stream = jax.tree.map(lambda x: x[0], rows)
    whole = roll_in.learner_steps(stream)
    spoilt = jax.tree.map(lambda x: jnp.concatenate([jnp.zeros_like(x[:3]), x]), stream)
    np.testing.assert_array_equal(roll_in.learner_steps(spoilt)[3:], whole)


@pytest.mark.slow
def test_every_real_step_is_counted_and_the_cover_grows():
    config = resolve("mountain-car", "pc-pg", (0, 1), 400, TINY)
    assert config.steps_per_iteration == 20 + 2 * 40
    problem, algo = build(config)
    assert isinstance(algo, PCPG)
    keys = jnp.stack([jr.key(0), jr.key(1)])
    learner = algo.start(keys, problem.world.mdp, config.num_iterations)
    before = jax.tree.leaves(learner.policy)
    for n in (1, 2):
        learner, metrics, samples, walked = algo.iterate(keys, problem.world, learner, n)
    assert isinstance(learner, PCPGLearner)
    assert samples.reward.shape == (2, 20)
    assert [rows.reward.shape[1] for rows in walked] == [20, 40, 40]
    np.testing.assert_array_equal(learner.env_steps, [200, 200])
    np.testing.assert_array_equal(learner.cover.size, [3, 3])
    assert ((metrics["learned_share"] > 0) & (metrics["learned_share"] < 1)).all()
    assert (metrics["bonus_mean"] > 0).all()
    for then, now in zip(before, jax.tree.leaves(learner.policy), strict=True):
        if then.ndim > 2:  # weights
            assert not np.array_equal(then, now)


@pytest.mark.slow
def test_the_best_of_the_cover_is_deployed():
    problem, algo = build(resolve("mountain-car", "pc-pg", (0, 1), 400, TINY))
    learner = algo.start(jnp.stack([jr.key(0), jr.key(1)]), problem.world.mdp, 4)
    weights = learner.cover.stacked.actor.log_std
    marked = jnp.broadcast_to(jnp.arange(weights.shape[1], dtype=jnp.float32)[None, :, None], weights.shape)
    values = learner.values.at[:, 1].set(jnp.array([5.0, 1.0])).at[:, 2].set(jnp.array([4.0, 2.0]))
    learner = eqx.tree_at(lambda l: (l.cover.stacked.actor.log_std, l.values), learner, (marked, values))
    np.testing.assert_array_equal(learner.deployed().actor.log_std[:, 0], [1.0, 2.0])


def widths(scale):
    """How much of the valley the third policy's own samples span, explored with no reward."""
    settings = ("reward_free=true", f"bonus_scale={scale}", "features.sizes=32,32", "samples_per_policy=200")
    small = ("planner.policy_sizes=16", "planner.value_sizes=16", "planner.value_epochs=3")
    config = resolve("mountain-car", "pc-pg", (100, 101, 102), 60_000, (*settings, *small))
    problem, algo = build(config)
    world = algo.explored_world(problem)
    keys = jnp.stack([jr.key(seed) for seed in (100, 101, 102)])
    learner, gained = algo.start(keys, world.mdp, config.num_iterations), []
    for n in range(1, 4):
        learner, metrics, samples, _ = algo.iterate(keys, world, learner, n)
        gained.append(np.asarray(metrics["info_gain"]))
    assert (np.diff(gained, axis=0) > 0).all()
    return np.ptp(np.asarray(samples.state)[:, :, 0], axis=1)


@pytest.mark.slow
def test_it_is_the_bonus_that_leaves_the_valley():
    """Without one there is nothing to learn from, and noise alone stays near the middle."""
    assert np.min(widths(0.05)) > 1.25 * np.max(widths(0.0))


@pytest.mark.slow
def test_a_run_that_goes_on_is_the_uninterrupted_one(tmp_path, monkeypatch):
    config, console = resolve("mountain-car", "pc-pg", (0, 1), 300, TINY), Console(file=io.StringIO())
    train(config, tmp_path / "whole", console=console)
    iterate = PCPG.iterate

    def dies(self, keys, world, learner, n):
        if n == 3:
            raise OSError("killed")
        return iterate(self, keys, world, learner, n)

    with monkeypatch.context() as patch:
        patch.setattr(PCPG, "iterate", dies)
        with pytest.raises(OSError, match="killed"):
            train(config, tmp_path / "cut", console=console)
    train(config, tmp_path / "cut", console=console, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    with pytest.raises(ConfigError, match="cannot be extended"):
        train(resolve("mountain-car", "pc-pg", (0, 1), 500, TINY), tmp_path / "cut", console=console, resume=True)


@pytest.mark.parametrize("task", ["mountain-car", "acrobot", "pendulum", "point-umaze"])
def test_presets_build_and_read_back(task):
    config = resolve(task, "pc-pg")
    assert from_json(to_json(config)) == config
    assert isinstance(build(config)[1], PCPG)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("model.sizes=8", "pc-pg has no such setting .it is one of pcmlp, .* leave it out"),
        ("features.name=none", "random-network or fourier"),
        ("updates=0", "1 or more"),
        ("batch_steps=0", "1 or more"),
        ("rounds=2", "pc-pg has no such setting .it is one of pcmlp, .* leave it out"),
        ("ridge=0", "give 1e-06 to"),
    ],
)
def test_bad_settings(setting, remedy):
    with pytest.raises(ConfigError, match=remedy):
        build(resolve("pendulum", "pc-pg", settings=(setting,)))
