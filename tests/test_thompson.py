"""The posterior of a linear regression against numpy's, and what is drawn from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.features import Fourier
from pcmlp.models.outcome import OutcomeNet, WithOutcome
from pcmlp.models.thompson import Thompson, posterior
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Box

DIM, ROWS, RIDGE = 12, 400, 0.3
MDP = spaces_only(Box.of(jnp.inf, 2), Box.of(1.0, 1))
THOMPSON = Thompson(features=Fourier(dim=DIM), ridge=RIDGE)
FIRST = THOMPSON.init(jr.key(5), MDP)


def samples(key, count=ROWS, noise=0.05):
    state_key, action_key, noise_key = jr.split(key, 3)
    state = 3.0 * jr.normal(state_key, (count, 2))
    action = jr.uniform(action_key, (count, 1), minval=-1.0, maxval=1.0)
    change = jnp.stack([0.1 * jnp.sin(state[:, 0]) + 0.2 * action[:, 0], 5.0 * jnp.cos(0.5 * state[:, 1])], axis=1)
    change = change + noise * jr.normal(noise_key, change.shape)
    no = jnp.zeros(count, bool)
    valid = jnp.arange(count) % 7 != 0
    return Transitions(state, action, jnp.zeros(count), state + change, no, no, valid)


DATA = samples(jr.key(0))


@eqx.filter_jit
def train(key, fitted, data, model=THOMPSON):
    return model.train(key, MDP, fitted, Replay(data, jnp.zeros((), int)))


@pytest.fixture(scope="module")
def fitted():
    return train(jr.key(1), FIRST, DATA)


@pytest.fixture(scope="module")
def regression(fitted):
    """By numpy, in double precision: W_mean, Sigma and the spread of the noise, over the rows free of the fit."""
    valid = np.asarray(DATA.valid)
    phi = np.asarray(jax.vmap(fitted[0].features)(DATA.state, DATA.action), np.float64)[valid]
    change = np.asarray(DATA.next_state - DATA.state, np.float64)[valid]
    target = (change - change.mean(axis=0)) / change.std(axis=0)
    sigma = phi.T @ phi + RIDGE * np.eye(DIM)
    W = np.linalg.solve(sigma, phi.T @ target)
    free = (len(target) - DIM) * target.shape[1]
    return W, sigma, np.sqrt(np.sum((phi @ W - target) ** 2) / free)


def test_the_mean_is_ridge_regression(fitted, regression):
    model, metrics = fitted
    W, _, residual = regression
    np.testing.assert_allclose(model.mean, W, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(metrics["model_loss"], residual, rtol=1e-3)
    assert metrics["model_skipped"] == 0


def test_draws_have_the_covariance_of_the_posterior(fitted, regression):
    W, sigma, residual = regression
    draws = np.asarray(jax.vmap(lambda key: train(key, fitted[0], DATA)[0].W)(jr.split(jr.key(2), 4000)), np.float64)
    np.testing.assert_allclose(draws.mean(axis=0), W, atol=0.1 * np.abs(W).max())
    wanted = residual**2 * np.linalg.inv(sigma)
    for output in range(2):
        np.testing.assert_allclose(np.cov(draws[:, :, output].T), wanted, atol=0.1 * np.abs(wanted).max())
    between = np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]
    assert abs(between) < 0.08


def test_the_root_is_that_of_the_inverse():
    phi, target = jr.normal(jr.key(3), (50, 6)), jr.normal(jr.key(4), (50, 2))
    _, root = posterior(phi, target, 0.5)
    gram = np.asarray(phi, np.float64).T @ np.asarray(phi, np.float64) + 0.5 * np.eye(6)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(gram), rtol=1e-3, atol=1e-6)


def test_a_step_is_the_draw_in_the_units_of_differences(fitted):
    model, _ = fitted
    state, action = DATA.state[3], DATA.action[3]
    change = np.asarray(DATA.next_state - DATA.state)[np.asarray(DATA.valid)]
    for chosen, W in ((model, model.W), (model.expected(), model.mean)):
        wanted = state + change.mean(axis=0) + change.std(axis=0) * (model.features(state, action) @ W)
        np.testing.assert_allclose(chosen(jr.key(0), state, action), wanted, rtol=1e-4)


def test_the_expected_model_keeps_its_outcome(fitted):
    both = WithOutcome(THOMPSON, OutcomeNet(sizes=(4,))).init(jr.key(5), MDP)
    both = eqx.tree_at(lambda m: m.dynamics, both, fitted[0])
    np.testing.assert_array_equal(both.expected().dynamics.W, fitted[0].mean)
    assert eqx.tree_equal(both.expected().outcome, both.outcome)


def test_data_make_it_sure(fitted):
    def doubt(model):
        return float(jnp.linalg.norm(model.W - model.mean))

    more = train(jr.key(1), FIRST, samples(jr.key(6), 20 * ROWS))[0]
    assert doubt(more) < 0.5 * doubt(fitted[0])


def test_sigma_may_be_given(fitted):
    known = Thompson(features=Fourier(dim=DIM), ridge=RIDGE, sigma=0.0)
    model = train(jr.key(1), FIRST, DATA, known)[0]
    np.testing.assert_array_equal(model.W, model.mean)
    np.testing.assert_allclose(model.mean, fitted[0].mean, rtol=1e-5)


def test_phi_is_drawn_from_the_first_data_and_stays(fitted):
    first = fitted[0].features
    other = train(jr.key(8), fitted[0], samples(jr.key(9)))[0].features
    assert eqx.tree_equal(first, other)
    assert not np.allclose(first.units, FIRST.features.units)


def test_data_that_are_no_numbers_change_nothing(fitted):
    wild = eqx.tree_at(lambda d: d.next_state, DATA, jnp.full_like(DATA.next_state, jnp.inf))
    model, metrics = train(jr.key(1), fitted[0], wild)
    assert metrics["model_skipped"] == 1
    assert eqx.tree_equal(model, fitted[0])


def test_a_model_without_data_stands_still():
    state = jnp.array([0.3, -2.0])
    np.testing.assert_array_equal(FIRST(jr.key(0), state, jnp.ones(1)), state)
