"""The probabilistic ensemble: it finds the mean and the noise of a linear system, and nothing spoils it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.models import NeuralEnsemble, OutcomeNet, Probabilistic
from pcmlp.models.outcome import WithOutcome
from pcmlp.models.probabilistic import bootstrap, draw_rows
from pcmlp.parts import NAMES
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.settings import overlay
from pcmlp.spaces import Box

NOISE = np.array([0.1, 0.05])  # of the two coordinates
MEMBERS, ELITES, STEPS, ROWS = 3, 2, 1_000, 1_000
MODEL = Probabilistic(sizes=(32,), members=MEMBERS, elites=ELITES, steps=STEPS, batch=64, rate=3e-3, decay=1e-5)
MDP = spaces_only(Box.of(1.0, 2), Box.of(1.0, 1))


def moved(state, action):
    return state @ np.array([[0.9, 0.2], [-0.2, 0.9]]) + 0.5 * action


def linear(n=ROWS, seed=0):
    """Single steps from anywhere in a square."""
    rng = np.random.default_rng(seed)
    state, action = rng.uniform(-1, 1, (n, 2)), rng.uniform(-1, 1, (n, 1))
    after = moved(state, action) + NOISE * rng.standard_normal((n, 2))
    columns = (state, action, np.zeros(n), after)
    yes = jnp.ones(n, bool)
    return Transitions(*(jnp.asarray(x, jnp.float32) for x in columns), ~yes, yes, yes)


@eqx.filter_jit
def untrained():
    return MODEL.init(jr.key(0), MDP)


@eqx.filter_jit
def fit(model, key, data):
    data, rejected = drop_nonfinite(data)
    model, metrics = MODEL.train(key, MDP, model, Replay(data, jnp.zeros((), int)))
    return model, metrics | rejected


@eqx.filter_jit
def sampled(model, key, state, action, count):
    return jax.vmap(lambda k: model(k, state, action))(jr.split(key, count))


@pytest.fixture(scope="module")
def fitted():
    return fit(untrained(), jr.key(1), linear())


@pytest.mark.parametrize("place", [(0.0, 0.0), (0.5, -0.7)])
def test_mean_and_noise_are_those_of_the_world(fitted, place):
    state, action = jnp.array(place), jnp.array([0.3])
    after = np.asarray(sampled(fitted[0], jr.key(2), state, action, 4_000))
    np.testing.assert_allclose(after.mean(axis=0), moved(np.array(place), 0.3), atol=0.03)
    np.testing.assert_allclose(after.std(axis=0), NOISE, rtol=0.3)


def test_a_member_whose_fit_was_undone_keeps_its_units(fitted):
    """Those of one member doubled, its net's outputs being the same: its steps are twice as long, the others' not."""
    model, _ = fitted
    change = jax.tree.map(lambda x: x.at[1].mul(2.0), model.members.change)
    mixed = eqx.tree_at(lambda m: m.members.change, model, change)
    state, action = jnp.array([0.5, -0.7]), jnp.array([0.3])
    moves = [np.asarray(sampled(m, jr.key(3), state, action, 400)) - np.asarray(state) for m in (model, mixed)]
    ratio = moves[1] / moves[0]
    one, two = np.isclose(ratio, 1.0, rtol=1e-3).all(axis=1), np.isclose(ratio, 2.0, rtol=1e-3).all(axis=1)
    assert (one | two).all()
    assert 100 < two.sum() < 300  # one of two elites


def test_the_held_out_error_is_the_noise_of_unseen_rows(fitted):
    """In the units of `model_error`, of the elites alone."""
    model, metrics = fitted
    measured = eqx.filter_jit(lambda model, rows: model.measure(MDP, rows)["held_out_error"])
    unseen = linear(seed=1)
    assert 0.7 < float(measured(model, unseen)) / float(metrics["model_error"]) < 1.4
    others = jax.tree.map(lambda x: x.at[ELITES:].set(9.0), model.members.learned)
    np.testing.assert_array_equal(
        measured(eqx.tree_at(lambda m: m.members.learned, model, others), unseen), measured(model, unseen)
    )
    assert np.isnan(measured(untrained(), unseen))


def test_metrics_say_what_is_left_is_noise(fitted):
    model, metrics = fitted
    change = np.asarray(model.members.change.std[0])
    expected = np.sqrt(np.mean(np.sum((NOISE / change * np.random.default_rng(0).standard_normal((9_999, 2))) ** 2, 1)))
    assert 0.7 * expected < float(metrics["model_error"]) < 1.2 * expected
    assert float(metrics["model_skipped"]) == 0.0
    assert float(metrics["model_loss"]) < float(metrics["model_loss_mean"])


def test_members_differ_and_the_best_come_first(fitted):
    weights = np.asarray(fitted[0].members.learned.net.weights[0])
    assert weights.shape[0] == MEMBERS
    assert len(np.unique(weights[:, 0, 0])) == MEMBERS
    assert fitted[0].size == ELITES

    # one that begins far off, wherever it is, stays the worst
    off = jnp.array([100.0, 0.0, 0.0])[:, None]
    spoilt = eqx.tree_at(lambda m: m.members.learned.net.biases[-1], untrained(), replace_fn=lambda b: b + off)
    model, _ = fit(spoilt, jr.key(1), linear())
    assert np.abs(np.asarray(model.members.learned.net.biases[-1])).max(axis=1).argmax() == MEMBERS - 1


def test_a_call_draws_a_member_and_its_noise(fitted):
    state, action, key = jnp.array([0.2, 0.1]), jnp.array([0.0]), jr.key(7)
    member_key, noise_key = jr.split(key)
    chosen = int(jr.randint(member_key, (), 0, ELITES))
    alone = fitted[0].member(chosen)(noise_key, state, action)
    np.testing.assert_allclose(fitted[0](key, state, action), alone, rtol=1e-5)


def test_weights_are_not_gathered_for_each_state(fitted):
    """A call for many states is some products of all of them with each member's matrices."""
    states, actions, keys = jnp.zeros((50, 2)), jnp.zeros((50, 1)), jr.split(jr.key(0), 50)
    program = str(jax.make_jaxpr(lambda model, *rows: jax.vmap(model)(*rows))(fitted[0], keys, states, actions))
    assert "f32[50,3,32]" not in program
    assert "f32[50,2,3,32]" not in program


def test_a_bootstrap_leaves_out_a_third():
    valid = jnp.arange(20_000) < 10_000
    counts = np.asarray(bootstrap(jr.key(0), valid))
    assert not counts[10_000:].any()
    assert abs(counts[:10_000].mean() - 1.0) < 0.05
    assert abs((counts[:10_000] == 0).mean() - np.exp(-1)) < 0.02
    rows = np.asarray(draw_rows(jr.key(1), jnp.asarray(counts), valid, 5_000))
    assert (counts[rows] > 0).all()
    assert (np.asarray(draw_rows(jr.key(1), jnp.zeros(20_000), valid, 100)) < 10_000).all()


@pytest.mark.parametrize("silly", [np.nan, np.inf, 1e30])
def test_silly_rows_are_left_out(silly):
    data = linear(64)
    spoilt = eqx.tree_at(lambda t: t.next_state, data, data.next_state.at[3, 0].set(silly))
    model, metrics = fit(untrained(), jr.key(1), spoilt)
    assert float(metrics["rows_rejected"]) == 1.0
    assert all(np.isfinite(x).all() for x in map(np.asarray, jax.tree.leaves(model)))


def test_a_fit_that_cannot_be_right_is_undone():
    """Weights that are no numbers give no step; the model stays as it was."""
    model = untrained()
    broken = eqx.tree_at(lambda m: m.members.learned.net.weights[0], model, replace_fn=lambda w: w * jnp.nan)
    after, metrics = fit(broken, jr.key(1), linear(64))
    assert float(metrics["model_skipped"]) == STEPS
    np.testing.assert_array_equal(after.members.inputs.mean, broken.members.inputs.mean)


def test_it_learns_rewards_beside_itself():
    data = linear(64)
    replay = Replay(eqx.tree_at(lambda t: t.reward, data, data.state[:, 0]), jnp.zeros((), int))
    few = Probabilistic(sizes=(8,), members=2, steps=2, batch=8)
    both = WithOutcome(few, OutcomeNet(steps=8, batch=8))
    model, metrics = eqx.filter_jit(lambda k: both.train(k, MDP, both.init(k, MDP), replay))(jr.key(0))
    assert {"model_error", "reward_error", "end_error"} <= set(metrics)
    assert model(jr.key(0), data.state[0], data.action[0]).shape == (2,)


def test_bad_sizes():
    settings = {"model.name": "probabilistic", "model.members": "3", "model.elites": "4"}
    with pytest.raises(ConfigError, match=r"^model\.elites=4: give 1 to model.members=3, or none for all$"):
        overlay(Deep(), settings, NAMES)
    assert Probabilistic(members=3).init(jr.key(0), MDP).size == 3
    assert not isinstance(eqx.filter_eval_shape(MODEL.init, jr.key(0), MDP), NeuralEnsemble)
