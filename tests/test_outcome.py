"""Rewards and ends that are learned: that they are those of the world, and that a fit cannot spoil them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.imagine import Unknown, unknown_functions
from pcmlp.models import Neural, OutcomeNet
from pcmlp.models.outcome import WithOutcome
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.run import blank_unseen
from pcmlp.runs.train import outcome_notes
from pcmlp.spaces import Box
from pcmlp.types import never

NET = OutcomeNet(steps=400, batch=64, rate=3e-3)
MDP = spaces_only(Box.of(1.0, 2), Box.of(1.0, 1))


def reward(state, action, next_state):
    return 10.0 * (next_state[0] - state[0]) - action[0] ** 2


def ended(state, action, next_state):
    return next_state[1] > 0.8


def rows(key, count=1_000):
    keys = jr.split(key, 3)
    state, action = jr.uniform(keys[0], (count, 2), minval=-1.0), jr.uniform(keys[1], (count, 1), minval=-1.0)
    next_state = state + 0.1 * jr.normal(keys[2], (count, 2))
    of_rows = (jax.vmap(f)(state, action, next_state) for f in (reward, ended))
    true = jnp.ones(count, bool)
    paid, over = of_rows
    return Transitions(state, action, paid, next_state, over, true, true)


@eqx.filter_jit
def trained(key, data):
    return NET.train(key, NET.init(key, MDP), Replay(data, jnp.zeros((), int)))


@pytest.fixture(scope="module")
def learned():
    return trained(jr.key(0), rows(jr.key(1)))


def test_the_reward_is_that_of_samples_it_has_not_seen(learned):
    outcome, metrics = learned
    new = rows(jr.key(2))
    predicted = jax.vmap(outcome.reward)(new.state, new.action, new.next_state)
    assert float(jnp.sqrt(jnp.mean((predicted - new.reward) ** 2))) < 0.15 * float(jnp.std(new.reward))
    assert 0 < float(metrics["reward_error"]) < 0.15


def test_ends_and_continuations_are_told_apart(learned):
    outcome, metrics = learned
    new = rows(jr.key(3))
    said = np.asarray(jax.vmap(outcome.terminal)(new.state, new.action, new.next_state))
    truth = np.asarray(new.terminal)
    assert said.dtype == bool
    assert 0.03 < truth.mean() < 0.3
    assert said[truth].mean() > 0.8
    assert said[~truth].mean() < 0.03
    assert float(metrics["end_error"]) < 0.12


def test_no_more_is_imagined_than_was_ever_paid(learned):
    outcome, _ = learned
    data = rows(jr.key(1))
    far = jnp.array([1e6, -1e6])
    for step in (far, -far):
        imagined = float(outcome.reward(jnp.zeros(2), jnp.zeros(1), step))
        assert float(jnp.min(data.reward)) <= imagined <= float(jnp.max(data.reward))


def test_padding_counts_for_nothing():
    data = rows(jr.key(1))
    padded = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)]), data)
    padded = eqx.tree_at(lambda t: t.reward, padded, padded.reward.at[1_000:].set(1e6))
    outcome = trained(jr.key(0), padded)[0]
    assert float(outcome.most) == float(jnp.max(data.reward))
    np.testing.assert_allclose(outcome.paid.mean, jnp.mean(data.reward)[None], rtol=1e-4)


def test_errors_of_what_was_never_seen_are_no_numbers():
    data = rows(jr.key(1))
    same = eqx.tree_at(lambda t: (t.reward, t.terminal), data, (jnp.ones(1_000), jnp.zeros(1_000, bool)))
    outcome, metrics = trained(jr.key(0), same)
    assert np.isnan(metrics["reward_error"])
    assert np.isnan(metrics["end_error"])
    assert metrics["outcome_skipped"] == 0
    cells = blank_unseen({"end_error": np.nan, "reward_error": 0.5, "model_loss": np.inf})
    assert cells == {"end_error": None, "reward_error": 0.5, "model_loss": np.inf}
    assert float(outcome.reward(*(x[0] for x in (data.state, data.action, data.next_state)))) == 1.0  # it was trained


def test_the_last_lines_say_whose_errors_mean_nothing():
    row = {"env_steps": 2_000, "outcome_skipped": 0.0, "reward_error": 0.2, "end_error": 0.1}
    blind = {**row, "end_error": None}
    assert outcome_notes([row, row]) == []
    assert outcome_notes([{"env_steps": 0}]) == []  # reward and end are known, or nothing was learned yet
    assert outcome_notes([{**blind, "outcome_skipped": 1.0}]) == []  # it has another reason
    (line,) = outcome_notes([blind, blind])
    assert line.startswith("no end of an episode was seen in 2,000 steps: end_error is empty")
    (line,) = outcome_notes([{**row, "reward_error": None}, row])
    assert "no two different rewards were seen in 2,000 steps by 1 of 2 seeds" in line


def test_a_fit_that_is_no_number_is_undone():
    data = rows(jr.key(1))
    before = NET.init(jr.key(0), MDP)
    broken = eqx.tree_at(lambda o: o.net.biases[-1], before, jnp.array([jnp.nan, 0.0]))
    after, metrics = eqx.filter_jit(NET.train)(jr.key(0), broken, Replay(data, jnp.zeros((), int)))
    assert np.isnan(metrics["reward_error"])
    assert metrics["outcome_skipped"] == 1
    np.testing.assert_array_equal(after.inputs.std, before.inputs.std)


def test_only_what_is_unknown_is_learned():
    dynamics = Neural(sizes=(4,))
    model = WithOutcome(dynamics, NET).init(jr.key(0), MDP)
    for known_reward, known_end, names in (
        (Unknown(), Unknown(), ["reward", "termination"]),
        (reward, Unknown(), ["termination"]),
        (Unknown(), never, ["reward"]),
        (reward, never, []),
    ):
        world = dataclasses.replace(MDP, reward=known_reward, terminal=known_end)
        assert unknown_functions(world) == names
        mdp = model.complete(world)
        assert (mdp.reward is reward) == (known_reward is reward)
        assert (mdp.terminal is never) == (known_end is never)
        assert mdp.transition is world.transition
        assert unknown_functions(mdp) == []
        assert not isinstance(mdp.reward, Unknown)
        assert not isinstance(mdp.terminal, Unknown)
    assert dynamics.init(jr.key(0), MDP).complete(MDP) is MDP
