"""The three classes P and how each is fitted, against numpy, scipy and brute force."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chisquare
from spaces_only import spaces_only

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import ConfigError
from pcmlp.features import TableFeatures
from pcmlp.models import KNR, KNRTransition, LinearMDP, Tabular, TaskModel
from pcmlp.models.finite import CountedTransition, check_class
from pcmlp.models.knr import averaged_sgd, constrained_least_squares, target_bound
from pcmlp.parts import NAMES
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import overlay
from pcmlp.spaces import Box, Finite

S, A, D, U = 4, 2, 3, 12
FINITE = spaces_only(Finite(S), Finite(A))
PLANE = spaces_only(Box.of(1.0, 2), Box.of(1.0, 1))


def finite_rows(state, action, next_state, valid=None):
    n = len(state)
    no = np.zeros(n, bool)
    valid = np.ones(n, bool) if valid is None else valid
    columns = (state, action, np.zeros(n, np.float32), next_state, no, no, valid)
    return Transitions(*(jnp.asarray(x) for x in columns))


@eqx.filter_jit
def fit(model, data, mdp=FINITE, fitted=None):
    """Train the model that `fitted` is, or an untrained one."""
    fitted = model.init(jr.key(0), mdp) if fitted is None else fitted
    return model.train(jr.key(0), mdp, fitted, Replay(data, jnp.zeros((), int)))


def random_rows(rng, n, valid=None):
    return finite_rows(rng.integers(S, size=n), rng.integers(A, size=n), rng.integers(S, size=n), valid)


# -- tabular ----------------------------------------------------------------------------------------------------------


def test_tabular_counts():
    data = finite_rows([0, 0, 0, 1, 3], [1, 1, 1, 0, 1], [2, 2, 0, 1, 3])
    model, metrics = fit(Tabular(), data)
    p = np.asarray(model.probabilities())
    np.testing.assert_allclose(p[0, 1], [1 / 3, 0, 2 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(p[1, 0], np.eye(S)[1])
    np.testing.assert_allclose(metrics["model_loss"], -(2 * np.log(2 / 3) + np.log(1 / 3)) / 5, rtol=1e-5)


def test_tabular_remembers_what_it_has_counted():
    data = random_rows(np.random.default_rng(0), 30)
    once, loss = fit(Tabular(), data)
    first, _ = fit(Tabular(), jax.tree.map(lambda x: x[:10], data))
    second, later = fit(Tabular(), jax.tree.map(lambda x: x[10:], data), fitted=first)
    np.testing.assert_array_equal(second.counts, once.counts)
    assert later == loss


def test_tabular_unvisited_pairs_predict_staying():
    valid = np.array([True, False, True])
    model, _ = fit(Tabular(), finite_rows([0, 1, 2], [0, 0, 1], [3, 3, 0], valid))
    p = np.asarray(model.probabilities())
    np.testing.assert_array_equal(p.argmax(-1), [[3, 0], [1, 1], [2, 0], [3, 3]])  # (1, 0) was padding
    np.testing.assert_array_equal(p.max(-1), np.ones((S, A)))
    assert int(model(jr.key(0), jnp.array(1), jnp.array(0))) == 1


def test_tabular_samples_its_probabilities():
    model = CountedTransition(jnp.zeros((S, A, S)).at[2, 1].set(jnp.array([1.0, 0.0, 3.0, 6.0])))
    drawn = jax.vmap(lambda k: model(k, jnp.array(2), jnp.array(1)))(jr.split(jr.key(1), 3000))
    counts = np.bincount(np.asarray(drawn), minlength=S)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]], [300, 900, 1800]).pvalue > 1e-3


# -- linear MDP -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    phi = TableFeatures(jnp.asarray(rng.dirichlet(np.ones(D), (S, A)), jnp.float32))
    return LinearMDP(phi, jnp.asarray(rng.dirichlet(np.ones(S), (U, D)), jnp.float32))


def member_of(model, fitted):
    """Return which member of the class a fit has chosen."""
    (found,) = np.flatnonzero((np.asarray(model.upsilon) == np.asarray(fitted.mu)).all((1, 2)))
    return found


def test_linear_mdp_begins_with_its_prior(linear):
    for prior in (0, 5):
        model = LinearMDP(linear.features, linear.upsilon, prior)
        assert member_of(model, model.init(jr.key(0), FINITE)) == prior


def brute_force(model, data):
    phi, upsilon = np.asarray(model.features.phi, np.float64), np.asarray(model.upsilon, np.float64)
    score = np.zeros(len(upsilon))
    s, a, y, valid = (np.asarray(x) for x in (data.state, data.action, data.next_state, data.valid))
    for u in range(len(upsilon)):
        for i in np.flatnonzero(valid):
            score[u] += np.log(phi[s[i], a[i]] @ upsilon[u, :, y[i]])
    return score


@pytest.mark.parametrize("seed", range(4))
def test_linear_mdp_is_the_maximum_likelihood(linear, seed):
    rng = np.random.default_rng(seed)
    data = random_rows(rng, 60, rng.random(60) < 0.5)
    score = brute_force(linear, data)
    fitted, metrics = fit(linear, data)
    assert member_of(linear, fitted) == score.argmax()
    valid = int(np.asarray(data.valid).sum())
    np.testing.assert_allclose(metrics["model_loss"], -score.max() / valid, rtol=1e-4)


def test_linear_mdp_ignores_padding(linear):
    """The padding alone would have chosen another member."""
    rng = np.random.default_rng(5)
    good, padding = random_rows(rng, 40), finite_rows(*np.zeros((3, 400), int), np.zeros(400, bool))
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), good, padding)
    counted = eqx.tree_at(lambda t: t.valid, both, jnp.ones(440, bool))
    chosen = [member_of(linear, fit(linear, data)[0]) for data in (good, both, counted)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_linear_mdp_never_chooses_what_the_data_exclude():
    """One row that is impossible under a member outweighs any number that it explains a little better."""
    phi = TableFeatures(jnp.ones((2, 1, 1)))
    upsilon = jnp.array([[[1.0, 0.0]], [[0.9, 0.1]]])
    state = np.zeros(5000, int)
    next_state = state.copy()
    next_state[-1] = 1  # 4,999 rows at ln(1 / 0.9): 527 nats for the first member
    data = finite_rows(state, np.zeros(5000, int), next_state)
    model = LinearMDP(phi, upsilon)
    assert member_of(model, fit(model, data)[0]) == 1


def test_linear_mdp_finds_the_truth_among_neighbours(linear):
    truth = linear.member(7)
    rng = np.random.default_rng(6)
    p, s, a = np.asarray(truth.probabilities(), np.float64), rng.integers(S, size=2000), rng.integers(A, size=2000)
    y = np.array([rng.choice(S, p=p[i, j] / p[i, j].sum()) for i, j in zip(s, a, strict=True)])
    assert member_of(linear, fit(linear, finite_rows(s, a, y))[0]) == 7


def test_linear_mdp_samples_its_probabilities(linear):
    first = linear.init(jr.key(0), FINITE)
    p = np.asarray(first.probabilities())
    np.testing.assert_allclose(p, np.asarray(linear.features.phi) @ np.asarray(linear.upsilon[0]), rtol=1e-5)
    drawn = jax.vmap(lambda k: first(k, jnp.array(1), jnp.array(1)))(jr.split(jr.key(2), 3000))
    expected = 3000 * p[1, 1] / p[1, 1].sum()
    assert chisquare(np.bincount(np.asarray(drawn), minlength=S), expected).pvalue > 1e-3


def test_linear_mdp_samples_where_rounding_made_a_probability_negative():
    phi = TableFeatures(jnp.array([[[1.0, 1.0]], [[1.0, 1.0]]]) / jnp.sqrt(2.0))
    mu = jnp.array([[[2.0, -1.0], [-0.58578644, 1.0 - 1e-6]]])  # signed factors: <mu(1), phi> is -7e-7
    model = LinearMDP(phi, mu).member(0)
    assert float(model.probabilities()[0, 0, 1]) < 0
    drawn = jax.vmap(lambda k: model(k, jnp.array(0), jnp.array(0)))(jr.split(jr.key(3), 50))
    assert (np.asarray(drawn) == 0).all()


def bad_class(kind, good):
    if kind == "sums to 1.2":
        return good.at[3].multiply(1.2)
    if kind == "negative":
        return good.at[3, 0].set(jnp.array([1.5, -0.5, 0.0, 0.0]))
    if kind == "nan":
        return good.at[3, 0, 0].set(jnp.nan)
    return {"rank": good[:, :-1], "states": good[:, :, :-1], "axes": good[0], "empty": good[:0]}[kind]


@pytest.mark.parametrize("kind", ["sums to 1.2", "negative", "nan", "rank", "states", "axes", "empty"])
def test_check_class_refuses(linear, kind):
    check_class(linear.features, linear.upsilon)
    bad = bad_class(kind, linear.upsilon)
    message = rf"\[members, {D}, {S}\]" if kind in ("rank", "states", "axes", "empty") else r"upsilon\[3\] .*\(1 of 12"
    with pytest.raises(ConfigError, match=message):
        LinearMDP(linear.features, bad)


# -- kernelized nonlinear regulator -----------------------------------------------------------------------------------


def half(state, action):
    """phi of five coordinates with norm at most 1 for what the tests draw."""
    return jnp.concatenate([state, action, state[:1] * action]) / 5.0


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(3)
    phi = rng.normal(size=(40, 5)).astype(np.float32)
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    W = rng.normal(size=(3, 5))
    target = (phi @ W.T + 0.1 * rng.normal(size=(40, 3))).astype(np.float32)
    return phi, target


solve = jax.jit(constrained_least_squares, static_argnums=2)


def test_knr_unconstrained_is_least_squares(regression):
    phi, target = regression
    expected = np.linalg.lstsq(phi.astype(np.float64), target.astype(np.float64), rcond=None)[0].T
    got = solve(jnp.asarray(phi), jnp.asarray(target), 100.0)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.5])
def test_knr_constrained_is_the_constrained_optimum(regression, radius):
    phi, target = (x.astype(np.float64) for x in regression)
    W = np.asarray(solve(jnp.asarray(regression[0]), jnp.asarray(regression[1]), radius), np.float64)
    assert np.linalg.norm(W) <= radius * (1 + 1e-5)

    def loss(w):
        return np.sum((phi @ w.reshape(3, 5).T - target) ** 2)

    ball = {"type": "ineq", "fun": lambda w: radius**2 - w @ w}
    best = minimize(loss, np.full(15, 0.1), constraints=[ball], method="SLSQP", options={"maxiter": 300, "ftol": 1e-12})
    assert loss(W.ravel()) <= best.fun * (1 + 1e-5)
    np.testing.assert_allclose(W, best.x.reshape(3, 5), atol=1e-3)
    # the conditions of Karush, Kuhn and Tucker: the gradient is -nu W with one nu >= 0
    gradient = (W @ phi.T - target.T) @ phi
    nu = -np.sum(gradient * W) / np.sum(W * W)
    assert nu > 0
    np.testing.assert_allclose(gradient, -nu * W, atol=1e-3)


def test_knr_least_squares_of_least_norm_where_data_lack_a_direction(regression):
    phi, target = regression[0].copy(), regression[1]
    phi[:, 2] = phi[:, 1]  # two coordinates that are never apart
    phi[:, 4] = 0.0
    expected = np.linalg.lstsq(phi.astype(np.float64), target.astype(np.float64), rcond=1e-6)[0].T
    got = np.asarray(solve(jnp.asarray(phi), jnp.asarray(target), 100.0))
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(got[:, 4], 0, atol=1e-6)
    nothing = solve(jnp.zeros((40, 5)), jnp.zeros((40, 3)), 1.0)
    np.testing.assert_array_equal(nothing, np.zeros((3, 5)))


@pytest.mark.parametrize(("corrected", "radius"), [(False, 1.5), (True, 0.6)])
def test_knr_sgd_is_the_recursion(regression, corrected, radius):
    """A plain loop in the same order; the radius is small enough that projections happen."""
    phi, target = regression
    valid = np.random.default_rng(4).random(40) < 0.8
    sigma = 0.2
    data = (jnp.asarray(phi), jnp.asarray(target), jnp.asarray(valid))
    got = averaged_sgd(jr.key(5), *data, sigma, radius, corrected=corrected)

    order = np.asarray(jr.permutation(jr.key(5), 40))
    M = valid.sum()
    B = theory.state_bound(radius, sigma, 3, int(M), 0.1 / 2)  # the other half of delta is SGD's
    rate = (theory.sgd_rate if corrected else theory.sgd_rate_stated)(radius, B, int(M))
    assert radius + sigma * np.sqrt(2 * 3 * np.log(2 * 3 * M / 0.1)) == pytest.approx(B)
    assert float(target_bound(radius, sigma, 3, float(M), 0.1)) == pytest.approx(B, rel=1e-5)
    W, iterates, projections = np.zeros((3, 5)), [], 0
    for i in order[valid[order]]:
        iterates.append(W)
        W = W - rate * np.outer(W @ phi[i] - target[i], phi[i])
        norm = np.linalg.norm(W)
        projections += norm > radius
        W = W * min(1.0, radius / norm)
    assert projections > 0
    assert len(iterates) == M
    np.testing.assert_allclose(got, np.mean(iterates, axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "sgd"])
def test_knr_fit_learns_the_dynamics_and_ignores_padding(method):
    rng = np.random.default_rng(7)
    W = jnp.asarray(rng.normal(size=(2, 4)), jnp.float32)
    n = 600
    state, action = rng.uniform(-1, 1, (n, 2)).astype(np.float32), rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    phi = np.asarray(jax.vmap(half)(jnp.asarray(state), jnp.asarray(action)))
    next_state = (phi @ np.asarray(W).T + 0.01 * rng.normal(size=(n, 2))).astype(np.float32)
    valid = rng.random(n) < 0.7
    next_state[~valid] = 1e6
    no = jnp.zeros(n, bool)
    data = Transitions(
        jnp.asarray(state), jnp.asarray(action), jnp.zeros(n), jnp.asarray(next_state), no, no, jnp.asarray(valid)
    )
    radius = 1.2 * float(jnp.linalg.norm(W))
    model = KNR(method=method, radius=radius, features=half, sigma=0.01)
    np.testing.assert_array_equal(model.init(jr.key(0), PLANE).W, jnp.zeros_like(W))
    fitted, metrics = fit(model, data, PLANE)
    assert float(jnp.linalg.norm(fitted.W)) <= radius * (1 + 1e-5)
    kept = phi[valid].astype(np.float64)
    error = np.mean(np.sum((kept @ np.asarray(fitted.W).T - next_state[valid]) ** 2, axis=1))
    np.testing.assert_allclose(metrics["model_loss"], error, rtol=1e-3)
    nothing = np.mean(np.sum(next_state[valid] ** 2, axis=1))
    if method == "exact":
        expected = np.linalg.lstsq(kept, next_state[valid].astype(np.float64), rcond=None)[0].T
        np.testing.assert_allclose(fitted.W, expected, rtol=1e-3, atol=1e-4)
        assert error < 1e-3 * nothing + 4e-4
    else:
        assert error < 0.9 * nothing  # one pass of averaged SGD has only begun


def test_knr_samples_have_the_mean_and_the_variance():
    W = jnp.array([[1.0, 0.0, 2.0, 0.0], [0.0, -1.0, 0.5, 1.0]])
    model = KNRTransition(W, half, 0.3)
    state, action = jnp.array([0.5, -1.0]), jnp.array([0.8])
    drawn = np.asarray(jax.vmap(lambda k: model(k, state, action))(jr.split(jr.key(8), 20_000)))
    mean = np.asarray(W) @ np.array([0.5, -1.0, 0.8, 0.4]) / 5
    np.testing.assert_allclose(model.mean(state, action), mean, rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=4 * 0.3 / np.sqrt(20_000))
    np.testing.assert_allclose(np.cov(drawn.T), 0.09 * np.eye(2), atol=0.09 * 5 / np.sqrt(20_000) * 2)


@pytest.mark.parametrize("text", ["0.0", "-1.0"])
def test_knr_refuses_a_radius_that_is_not_positive(text):
    with pytest.raises(ConfigError, match=rf"^model\.radius={text}: give a number above 0, or none \("):
        overlay(PCMLP(), {"model.name": "knr", "model.radius": text}, NAMES)


def test_classes_that_only_a_task_defines_are_refused_without_one():
    with pytest.raises(ConfigError, match=r"^model: needs a task that is a regulator, such as knr-lds"):
        KNR(radius=1.0).init(jr.key(0), PLANE)
    with pytest.raises(ConfigError, match=r"^model\.name=task: only Algorithm 1 .*; give neural$"):
        TaskModel().init(jr.key(0), PLANE)
