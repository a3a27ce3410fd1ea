"""Random network features: their norm, that they stay as they are, and a bonus that falls where data have been."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.bonus import CappedBonus, Elliptical, second_moment
from pcmlp.errors import ConfigError
from pcmlp.features import RandomNetwork, check_norm, feature_dim
from pcmlp.features.checks import largest_norm
from pcmlp.parts import NAMES
from pcmlp.replay import Transitions
from pcmlp.settings import overlay
from pcmlp.spaces import Box

STATES = Box((-1.2, -0.07), (0.6, 0.07))  # mountain-car's
ACTIONS = Box.of(1.0, 1)
MDP = spaces_only(STATES, ACTIONS)
SIZES = (100, 100)
BOTH = ["boxes", "samples"]


def near_the_start(n=400, seed=0):
    """What random actions see of a mountain car: the bottom of its valley."""
    rng = np.random.default_rng(seed)
    state = rng.normal([-0.5, 0.0], [0.1, 0.008], (n, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    no = jnp.zeros(n, bool)
    columns = (state, action, np.zeros(n, np.float32), state)
    return Transitions(*(jnp.asarray(x) for x in columns), no, no, jnp.ones(n, bool))


DATA = near_the_start()


def network(**settings):
    return RandomNetwork(**{"sizes": SIZES, "action_weight": 1.0, **settings})


@eqx.filter_jit
def over_boxes(key):
    return network().over_boxes(key, STATES, ACTIONS)


@eqx.filter_jit
def over_samples(key, data, **settings):
    return network(**settings).over_samples(key, data)


@pytest.fixture(scope="module")
def features():
    return {"boxes": over_boxes(jr.key(0)), "samples": over_samples(jr.key(0), DATA)}


@jax.jit
def values(phi, states, actions):
    return jax.vmap(phi)(states, actions)


def norms(phi, data):
    return np.linalg.norm(values(phi, data.state, data.action), axis=1)


def bonus_of(phi, covariance):
    return CappedBonus(Elliptical().init(jr.key(0), phi, covariance), 1.0, 1e9)


def test_phi_is_its_formula(features):
    phi = features["boxes"]
    x = (np.array([0.1, 0.02, 0.5]) - [-0.3, 0, 0]) / (np.array([1.8, 0.14, 2]) / 12**0.5)
    for W, b in zip(phi.net.weights[:-1], phi.net.biases[:-1], strict=True):
        x = np.maximum(x @ np.asarray(W) + np.asarray(b), 0)
    actual = phi(jnp.array([0.1, 0.02]), jnp.array([0.5]))
    np.testing.assert_allclose(actual, float(phi.scale) * x, atol=1e-5)
    assert feature_dim(phi, MDP) == SIZES[-1]


@pytest.mark.parametrize("seed", range(3))
def test_the_norm_is_at_most_1_over_the_box(seed):
    """And close to it somewhere: 1 over the slack of 1.02."""
    phi = over_boxes(jr.key(seed))
    check_norm(phi, MDP)
    assert float(largest_norm(phi, STATES, ACTIONS)) == pytest.approx(1 / 1.02, abs=0.005)


def test_the_norm_is_at_most_1_over_a_box_of_many_dimensions():
    """Corners are too many to list: 5,000 random ones do not exceed what the gradients found."""
    states, actions = Box.of(3.0, 30), Box.of(0.4, 6)
    phi = jax.jit(lambda k: network(norm=0.5).over_boxes(k, states, actions))(jr.key(0))
    signs = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (5000, 36)), jnp.float32)
    found = np.linalg.norm(values(phi, 3.0 * signs[:, :30], 0.4 * signs[:, 30:]), axis=1)
    assert 0.3 < found.max() <= 0.5


def test_the_norm_over_the_first_data_leaves_a_margin(features):
    """Twice as far as the data it is `norm`, and one constant scales every point, far ones too."""
    half, tenth = features["samples"], over_samples(jr.key(0), DATA, norm=0.2)
    assert norms(half, DATA).max() == pytest.approx(0.5, rel=1e-5)
    assert norms(tenth, DATA).max() == pytest.approx(0.1, rel=1e-5)
    for s in (*DATA.state[:3], jnp.array([40.0, -3.0])):
        np.testing.assert_allclose(tenth(s, jnp.zeros(1)), 0.2 * half(s, jnp.zeros(1)), rtol=1e-4)


def test_padding_does_not_count():
    padded = eqx.tree_at(
        lambda d: (d.state, d.valid), DATA, (DATA.state.at[300:].set(1e3), DATA.valid.at[300:].set(False))
    )
    phi, first = over_samples(jr.key(0), padded), jax.tree.map(lambda x: x[:300], DATA)
    np.testing.assert_allclose(phi.normaliser.mean[:2], np.mean(np.asarray(first.state), axis=0), rtol=1e-4)
    assert norms(phi, first).max() == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("name", BOTH)
def test_outside_the_norm_grows_at_most_linearly(features, name):
    """|phi(x) - phi(y)| <= scale |W_1| |W_2| |x - y|, and nothing is clipped."""
    phi = features[name]
    spectral = np.prod([np.linalg.norm(np.asarray(W), 2) for W in phi.net.weights[:-1]])
    x, y = DATA.state[0], jnp.array([40.0, -3.0])
    change = float(jnp.linalg.norm(phi(y, jnp.zeros(1)) - phi(x, jnp.zeros(1))))
    distance = float(jnp.linalg.norm((y - x) / phi.normaliser.std[:2]))
    assert 1.0 < change <= float(phi.scale) * spectral * distance * (1 + 1e-5)


@pytest.mark.parametrize("name", BOTH)
def test_phi_is_not_homogeneous(features, name):
    """Twice as far from the normaliser's mean is another direction of phi; without biases it would be the same."""

    def cosine(phi):
        mean, std = phi.normaliser.mean, phi.normaliser.std
        one, two = (phi(mean[:2] + t * std[:2], mean[2:] + t * std[2:]) for t in (0.5, 1.5))
        return float(jnp.sum(one * two) / (jnp.linalg.norm(one) * jnp.linalg.norm(two)))

    phi = features[name]
    rays = eqx.tree_at(lambda p: p.net.biases, phi, jax.tree.map(jnp.zeros_like, phi.net.biases))
    assert cosine(rays) == pytest.approx(1.0, abs=1e-5)
    assert cosine(phi) < 0.97


@pytest.mark.parametrize("name", BOTH)
def test_the_bonus_falls_where_data_have_been_and_not_elsewhere(features, name):
    """15 policies that all stayed at the bottom of the valley, ridge 1e-3: there the bonus falls 6-fold or more (17
    and 8), near the goal half as much or less (2.5 and 3.3)."""
    phi = features[name]

    @jax.jit
    def falls(states):
        ridge = 1e-3 * jnp.eye(SIZES[-1])
        before, after = (bonus_of(phi, ridge + n * second_moment(phi, DATA)) for n in (0.0, 15.0))
        return jax.vmap(lambda s: before(s, jnp.zeros(1)) / after(s, jnp.zeros(1)))(states)

    goal = jnp.array([[0.45, 0.03], [0.5, 0.05]])
    fall = np.asarray(falls(jnp.concatenate([goal, DATA.state])))
    assert fall[2:].mean() > 6
    assert fall[:2].mean() < 0.5 * fall[2:].mean()


def test_phi_is_frozen_and_seeds_differ():
    """It is arrays only, so a stage may carry it, and `vmap` makes one for each seed; later data cannot reach it."""
    made = jax.jit(jax.vmap(lambda k: over_samples(k, DATA)))(jr.split(jr.key(0), 2))
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(made))
    alone = over_samples(jr.split(jr.key(0), 2)[1], DATA)
    for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(x[1], y, atol=1e-5)
    assert (np.asarray(made.net.weights[0][0]) != np.asarray(made.net.weights[0][1])).any()
    with pytest.raises(AttributeError):
        alone.normaliser = made.normaliser


def test_a_draw_is_over_the_boxes_where_they_are_bounded_and_else_over_the_first_data(features):
    most = float(np.finfo(np.float32).max)
    endless = Box((-jnp.inf, -1.0), (jnp.inf, 1.0))
    for states, name in ((STATES, "boxes"), (endless, "samples"), (Box.of(most, 2), "samples")):
        drawn = eqx.filter_jit(network().draw)(jr.key(0), spaces_only(states, ACTIONS), DATA)
        for x, y in zip(jax.tree.leaves(drawn), jax.tree.leaves(features[name]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_weight_of_actions(features):
    """Of weight 0.2, the whole range of an action changes phi as little as a fifth of it did."""
    light = network(action_weight=0.2).draw(jr.key(0), MDP, DATA)
    for name, phi in (("boxes", light), ("samples", over_samples(jr.key(0), DATA, action_weight=0.2))):
        heavy = features[name]
        s, middle = DATA.state[0], heavy.normaliser.mean[2:]
        here, there = (heavy(s, middle + 0.2 * a) / heavy.scale for a in (-1.0, 1.0))
        for a, value in ((-1.0, here), (1.0, there)):
            np.testing.assert_allclose(phi(s, middle + a) / phi.scale, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("key", "text", "remedy"),
    [
        ("sizes", "", "give at least one number, each 1 or more"),
        ("sizes", "100,0", "give at least one number, each 1 or more"),
        ("norm", "2.0", "give a number above 0 and at most 1"),
        ("norm", "0.0", "give a number above 0 and at most 1"),
        ("action_weight", "0.0", "give a number above 0"),
    ],
)
def test_bad_input(key, text, remedy):
    with pytest.raises(ConfigError, match=f"^features.{key}={text}: {remedy}"):
        overlay(Deep(), {f"features.{key}": text}, NAMES)
