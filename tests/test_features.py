"""Feature maps: their exact values, and that the norm bound holds or is refused with a remedy."""

import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import ConfigError
from pcmlp.features import (
    Fourier,
    FourierFeatures,
    NoFeatures,
    OneHot,
    OneHotFeatures,
    Polynomial,
    PolynomialFeatures,
    TableFeatures,
    TaskFeatures,
    check_draw,
    check_norm,
    feature_dim,
)
from pcmlp.features.fourier import cosine, draw_fourier, median_distance
from pcmlp.features.polynomial import exponents
from pcmlp.parts import NAMES
from pcmlp.replay import Transitions
from pcmlp.settings import overlay
from pcmlp.spaces import Box, Finite

STATES = Box((-2.0, 0.0), (1.0, 4.0))
ACTIONS = Box.of(0.5, 1)
MDP = spaces_only(STATES, ACTIONS)
TABLE = spaces_only(Finite(3), Finite(2))


def change(name, **values):
    """Choose features by name with these settings, as `--set` does."""
    overlay(PCMLP(), {"features.name": name} | {f"features.{key}": text for key, text in values.items()}, NAMES)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) * np.array([1, 10, 0.1], np.float32)


@pytest.fixture(scope="module")
def fourier(points):
    return draw_fourier(jr.key(0), jnp.asarray(points), dim=2000, bandwidth=1.5)


def corners(*boxes):
    low, high = np.concatenate([b.low for b in boxes]), np.concatenate([b.high for b in boxes])
    return np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), -1).reshape(-1, low.size)


def test_one_hot_has_a_coordinate_for_each_pair():
    phi = OneHot().draw(jr.key(0), TABLE, Transitions.example(TABLE.states, TABLE.actions))
    every = [phi(jnp.array(s), jnp.array(a)) for s in range(3) for a in range(2)]
    np.testing.assert_array_equal(np.stack(every), np.eye(6))
    check_norm(phi, TABLE)
    assert feature_dim(phi, TABLE) == 6


def test_table_reads_its_rows():
    table = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    phi = TableFeatures(jnp.asarray(table))
    np.testing.assert_array_equal(phi(jnp.array(2), jnp.array(1)), table[2, 1])
    assert feature_dim(phi, TABLE) == 4


@pytest.mark.parametrize(("variables", "degree"), [(1, 3), (2, 2), (3, 3), (5, 2)])
def test_as_many_monomials_as_there_are(variables, degree):
    powers = exponents(variables, degree, constant=True)
    assert len(powers) == len(set(powers)) == math.comb(variables + degree, degree)
    assert all(sum(p) <= degree and len(p) == variables for p in powers)
    assert exponents(variables, degree, constant=False) == powers[1:]


def test_linear_features_of_many_variables_are_cheap():
    """Every exponent up to the degree, filtered, would be 2^40 of them."""
    np.testing.assert_array_equal(exponents(40, 1, constant=False), np.eye(40))


def test_polynomial_values_are_exact():
    phi = Polynomial(degree=2).draw(jr.key(0), MDP, Transitions.example(STATES, ACTIONS))
    s, a = np.array([-1.5, 3.0]), np.array([0.25])
    x = np.concatenate([s, a]) / np.array([2.0, 4.0, 0.5])
    expected = [np.prod(x ** np.array(p)) for p in phi.powers]
    assert phi.powers[:4] == ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    got = phi(jnp.asarray(s, jnp.float32), jnp.asarray(a, jnp.float32))
    np.testing.assert_allclose(got, np.array(expected) / np.sqrt(10), rtol=1e-6)
    assert feature_dim(phi, MDP) == 10


@pytest.mark.parametrize("degree", [1, 3])
def test_polynomial_norm_on_corners(degree):
    phi = PolynomialFeatures.of(STATES, ACTIONS, degree=degree)
    at = jnp.asarray(corners(STATES, ACTIONS), jnp.float32)
    norm = np.linalg.norm(jax.vmap(phi)(at[:, :2], at[:, 2:]), axis=1)
    assert norm.max() == pytest.approx(1, abs=1e-5)  # a corner where every coordinate is at its bound: nothing is lost
    check_norm(phi, MDP)


def test_linear_case_without_constant():
    phi = PolynomialFeatures.of(STATES, ACTIONS, degree=1, constant=False)
    got = phi(jnp.array([-1.0, 2.0]), jnp.array([0.5]))
    np.testing.assert_allclose(got, np.array([-0.5, 0.5, 1.0]) / np.sqrt(3), rtol=1e-6)
    np.testing.assert_array_equal(phi(jnp.zeros(2), jnp.zeros(1)), np.zeros(3))
    twice = phi(jnp.array([-2.0, 4.0]), jnp.array([1.0]))
    np.testing.assert_allclose(twice, 2 * got, rtol=1e-6)


def test_polynomial_of_no_degree_is_refused():
    with pytest.raises(ConfigError, match=r"^features\.degree=0: give 1 or more \("):
        change("polynomial", degree="0")


def test_a_polynomial_of_too_many_monomials_is_refused():
    many = spaces_only(Box.of(1.0, 60), ACTIONS)
    with pytest.raises(ConfigError, match=r"^features\.degree=3: 41664 monomials; give a lower degree$"):
        check_draw(Polynomial(degree=3), many)


@pytest.mark.parametrize(
    ("features", "mdp", "remedy"), [(OneHot(), MDP, "give fourier"), (Polynomial(), TABLE, "give one-hot")]
)
def test_features_of_the_other_kind_of_space_are_refused(features, mdp, remedy):
    with pytest.raises(ConfigError, match=f"^features.name=.*: needs .*; {remedy}"):
        check_draw(features, mdp)


def test_no_features_are_zero_and_those_of_a_task_are_not_drawn():
    example = Transitions.example(STATES, ACTIONS)
    np.testing.assert_array_equal(NoFeatures().draw(jr.key(0), MDP, example)(jnp.ones(2), jnp.ones(1)), [0.0])
    with pytest.raises(ConfigError, match=r"^features\.name=task: .*; give random-network or fourier"):
        check_draw(TaskFeatures(), MDP)


def test_fourier_norm_is_one_everywhere(fourier):
    at = 100 * np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    norm = np.linalg.norm(jax.vmap(fourier)(jnp.asarray(at[:, :2]), jnp.asarray(at[:, 2:])), axis=1)
    np.testing.assert_allclose(norm, 1, rtol=1e-5)


def test_fourier_inner_products_are_the_kernel(fourier, points):
    phi = np.asarray(jax.vmap(fourier)(jnp.asarray(points[:, :2]), jnp.asarray(points[:, 2:])), np.float64)
    x = points / points.std(0)
    squared = ((x[:, None] - x[None]) ** 2).sum(-1)
    kernel = np.exp(-squared / (2 * 1.5**2))
    # 1,000 frequencies: a standard deviation of at most 1 / sqrt(2,000) at each of 780 pairs
    assert np.abs(phi @ phi.T - kernel).max() < 5 / np.sqrt(2000)
    assert kernel.min() < 0.05


def test_median_heuristic(points):
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))[np.triu_indices(40, 1)]
    np.testing.assert_allclose(median_distance(jnp.asarray(points)), np.median(distance), rtol=1e-5)
    scaled = points / points.std(0)
    distance = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(-1))[np.triu_indices(40, 1)]
    by_itself = draw_fourier(jr.key(1), jnp.asarray(points), dim=8)
    given = draw_fourier(jr.key(1), jnp.asarray(points), dim=8, bandwidth=float(np.median(distance)))
    np.testing.assert_allclose(by_itself.frequencies, given.frequencies, rtol=1e-4)


def test_fourier_survives_coordinates_that_do_not_vary(points):
    """Constant columns, and so many equal rows that the median distance is 0."""
    still = points.copy()
    still[:, 1] = 1000.1
    phi = draw_fourier(jr.key(2), jnp.asarray(still), dim=64)
    near, far = (phi(jnp.array([0.0, 1000.1 + shift]), jnp.zeros(1)) for shift in (0.0, 0.01))
    assert float(near @ far) > 0.99  # a small change is a small change
    same = draw_fourier(jr.key(2), jnp.ones((10, 3)), dim=64)
    assert np.isfinite(same(jnp.zeros(2), jnp.zeros(1))).all()


def first_data(points):
    """And padding far out."""
    rows = jnp.asarray(np.concatenate([points, np.full((40, 3), 1e6, np.float32)]))
    no = jnp.zeros(80, bool)
    return Transitions(rows[:, :2], rows[:, 2:], jnp.zeros(80), rows[:, :2], no, no, jnp.arange(80) < 40)


def test_a_fourier_draw_is_over_bounded_boxes_and_else_over_the_first_data(points):
    boxed = Fourier(dim=8).draw(jr.key(0), MDP, first_data(points))
    np.testing.assert_allclose(boxed.units, np.array([3, 4, 1]) / 12**0.5, rtol=0.1)  # std of uniform points
    endless = spaces_only(Box.of(jnp.inf, 2), ACTIONS)
    fitted = Fourier(dim=8).draw(jr.key(0), endless, first_data(points))
    np.testing.assert_allclose(fitted.units, points.std(0), rtol=0.25)  # 500 of the 40 rows, none of the padding
    assert np.isfinite(fitted.frequencies).all()
    nothing = eqx.tree_at(lambda t: t.valid, first_data(points), jnp.zeros(80, bool))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(Fourier(dim=8).draw(jr.key(0), endless, nothing)))


def test_the_weight_of_actions_in_a_fourier_draw(points):
    maps = [Fourier(dim=8, action_weight=w, bandwidth=1.0) for w in (1.0, 0.2)]
    one, light = (features.draw(jr.key(0), MDP, first_data(points)) for features in maps)
    np.testing.assert_array_equal(one.frequencies, light.frequencies)
    np.testing.assert_allclose(light.units / one.units, [1, 1, 5], rtol=1e-6)


@pytest.mark.parametrize(("dim", "remedy"), [(0, "2 or more"), (1, "2 or more"), (7, "an even number")])
def test_odd_fourier_dimension_is_refused(dim, remedy):
    with pytest.raises(ConfigError, match=f"^features.dim={dim}: .*give {remedy}"):
        change("fourier", dim=str(dim))


def test_bandwidth_must_be_positive():
    with pytest.raises(ConfigError, match=r"^features\.bandwidth=0\.0: give a number above 0, or none \("):
        change("fourier", bandwidth="0")


def test_large_norm_is_refused_with_the_norm_and_the_remedy():
    phi = PolynomialFeatures.of(STATES, ACTIONS, degree=1, scale=2.0)  # four coordinates of 2 at a corner
    with pytest.raises(ConfigError, match=re.escape("norm 4 ")) as refused:
        check_norm(phi, MDP)
    remedy = float(re.search(r"multiply features\.scale by ([\d.]+)", str(refused.value)).group(1))
    check_norm(PolynomialFeatures.of(STATES, ACTIONS, degree=1, scale=2.0 * remedy), MDP)


def test_large_or_undefined_norm_of_a_table_is_refused():
    table = np.full((3, 2, 4), 0.5, np.float32)
    check_norm(TableFeatures(jnp.asarray(table)), TABLE)
    table[2, 1] = 1.0  # at one pair only
    with pytest.raises(ConfigError, match="norm 2 "):
        check_norm(TableFeatures(jnp.asarray(table)), TABLE)
    table[2, 1] = np.nan
    with pytest.raises(ConfigError, match="norm nan"):
        check_norm(TableFeatures(jnp.asarray(table)), TABLE)


@pytest.mark.parametrize(
    ("features", "states", "actions"),
    [
        (PolynomialFeatures.of(STATES, ACTIONS, degree=2), Box.of(1.0, 3), ACTIONS),
        (FourierFeatures(jnp.ones((4, 3)), jnp.ones(3)), STATES, Box.of(1.0, 2)),
        (OneHotFeatures(3, 2), Finite(4), Finite(2)),
        (OneHotFeatures(3, 2), Finite(3), Finite(1)),
        (TableFeatures(jnp.zeros((3, 2, 4))), Finite(5), Finite(2)),
        (TableFeatures(jnp.zeros((3, 2, 4))), Finite(3), Finite(3)),
    ],
    ids=["polynomial", "fourier", "one-hot states", "one-hot actions", "table states", "table actions"],
)
def test_features_of_another_task_are_refused(features, states, actions):
    with pytest.raises(ConfigError, match=f"states of size {states.size} and actions of size {actions.size}"):
        check_norm(features, spaces_only(states, actions))


def test_the_vectorised_cosine_is_one():
    x = np.concatenate([np.linspace(-1000, 1000, 20_001), np.linspace(-8, 8, 4_001)]).astype(np.float32)
    for quarters in (0, 1):
        exact = np.cos(x.astype(np.float64) - quarters * np.pi / 2)
        found = cosine(jnp.asarray(x), jnp.full(x.shape, quarters, int))
        np.testing.assert_allclose(found, exact, atol=2e-7)
