"""An ensemble: members are single models, they agree where there were data and not elsewhere."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.models import Neural
from pcmlp.parts import NAMES
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import overlay
from pcmlp.spaces import Box

MEMBERS = 4
MODEL = Neural(sizes=(32, 32), members=MEMBERS, steps=200, unroll=1, batch=64)
MDP = spaces_only(Box.of(1.0, 1), Box.of(1.0, 1))


def wave(n=300, seed=0):
    """s' = s + 0.1 sin(3 s) + 0.05 a for s in [-1, 1], in episodes of one step."""
    rng = np.random.default_rng(seed)
    state, action = (rng.uniform(-1, 1, (n, 1)).astype(np.float32) for _ in range(2))
    after = state + 0.1 * np.sin(3 * state) + 0.05 * action
    columns = (state, action, np.zeros(n, np.float32), after)
    yes = jnp.ones(n, bool)
    return Transitions(*(jnp.asarray(x) for x in columns), ~yes, yes, yes)


DATA = wave()
TRACES = []


@jax.jit
def fit(model, key, data):
    TRACES.append(1)
    return MODEL.train(key, MDP, model, Replay(data, jnp.zeros((), int)))


@jax.jit
def predictions(model, states, actions):
    """Return what each member predicts, [rows, members, 1]."""

    def of_all(state, action):
        return jax.vmap(lambda member: member(jr.key(0), state, action))(model.members)

    return jax.vmap(of_all)(states, actions)


@jax.jit
def disagreement(model, state, action):
    return jax.vmap(model.disagreement)(state, action)


@pytest.fixture(scope="module")
def untrained():
    return jax.jit(lambda key: MODEL.init(key, MDP))(jr.key(0))


@pytest.fixture(scope="module")
def fitted(untrained):
    return fit(untrained, jr.key(1), DATA)


def test_members_start_apart_and_see_their_own_windows(untrained, fitted):
    for model in (untrained, fitted[0]):
        weights = np.asarray(model.members.net.weights[0])
        assert weights.shape == (MEMBERS, 2, 32)
        assert all((weights[i] != weights[j]).any() for i in range(MEMBERS) for j in range(i))
    # The same first weights part all the same: only the windows differ.
    twins = jax.tree.map(lambda x: jnp.stack([x[0]] * MEMBERS), untrained)
    grown, _ = fit(twins, jr.key(1), DATA)
    weights = np.asarray(grown.members.net.weights[0])
    assert (weights[0] != weights[1]).any()


def test_it_learns(untrained, fitted):
    """The mean error falls at least 5-fold."""

    def error(model):
        predicted = np.asarray(predictions(model, DATA.state, DATA.action))
        return np.mean(np.abs(predicted - np.asarray(DATA.next_state)[:, None]))

    assert error(fitted[0]) < error(untrained) / 5


def test_a_call_is_one_of_the_members(fitted):
    model, _ = fitted
    state, action = jnp.array([0.3]), jnp.array([-0.2])
    each = np.asarray(predictions(model, state[None], action[None]))[0]
    one = jax.jit(lambda m: m(jr.key(0), state, action))
    np.testing.assert_allclose(each, [one(model.member(i)) for i in range(MEMBERS)], atol=1e-6)
    calls = np.asarray(jax.jit(jax.vmap(lambda k: model(k, state, action)))(jr.split(jr.key(0), 400)))
    which = np.argmin(np.abs(calls - each.T), axis=1)
    np.testing.assert_allclose(calls[:, 0], each[which, 0], atol=1e-6)
    assert (np.bincount(which, minlength=MEMBERS) > 60).all()  # 100 each on average


def test_disagreement_is_the_spread_in_units_of_a_difference(fitted):
    model, _ = fitted
    state, action = jnp.array([1.9]), jnp.array([0.5])
    differences = [np.asarray(model.member(i).difference(state, action)) for i in range(MEMBERS)]
    by_hand = np.linalg.norm(np.std(differences, axis=0) / np.asarray(model.member(0).change.std))
    assert float(model.disagreement(state, action)) == pytest.approx(float(by_hand), rel=1e-4)


def test_members_agree_where_the_data_are(fitted):
    """At least 4 times less inside than at 3 to 4 times the data's reach."""
    model, _ = fitted
    inside = np.asarray(disagreement(model, DATA.state, DATA.action))
    outside = np.asarray(disagreement(model, 3.5 + 0.5 * DATA.state, DATA.action))
    assert outside.mean() > 4 * inside.mean()


def test_fitting_again_is_the_same_trace(fitted):
    before = len(TRACES)
    fit(fitted[0], jr.key(2), DATA)
    assert len(TRACES) == before


def test_no_members_are_refused():
    with pytest.raises(ConfigError, match=r"^model\.members=0: give 1 or more \(networks; "):
        overlay(Deep(), {"model.members": "0"}, NAMES)
