"""The two regulators are what their docstrings say, and their features have norm at most 1."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.errors import ConfigError
from pcmlp.features import check_norm
from pcmlp.models import KNR, KNRTransition
from pcmlp.runs.config import resolve
from pcmlp.tasks.knr import DoubleWell, LinearSystem

TASKS = {"knr-lds": LinearSystem(), "knr-poly": DoubleWell()}


def cart(s, a):
    grip = np.sign(a) * np.maximum(np.abs(a) - 0.7, 0) / 0.3
    p, v = np.split(s, 2)
    return np.concatenate([p + 0.3 * v, 0.7 * v + 0.3 * grip])


def well(s, a):
    p, v = s
    v = v + 0.3 * (p - p**3 - 0.1 * v + a[0] / 4)
    return np.array([p + 0.3 * v, v])


@pytest.mark.parametrize(("name", "dynamics"), [("knr-lds", cart), ("knr-poly", well)])
def test_mean_dynamics(name, dynamics):
    mdp = TASKS[name].build().world.mdp
    for key in jr.split(jr.key(0), 50):
        state_key, action_key = jr.split(key)
        s, a = mdp.states.sample(state_key), mdp.actions.sample(action_key)
        expected = dynamics(np.asarray(s, np.float64), np.asarray(a, np.float64))
        np.testing.assert_allclose(mdp.transition.mean(s, a), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_the_cart_moves_alike_in_every_dimension(dims):
    """In each dimension it is the same cart, with 6 dims^2 parameters in all."""
    task = LinearSystem(dims=dims).build()
    mdp, alone = task.world.mdp, LinearSystem(dims=1).build().world.mdp.transition
    assert isinstance(mdp.transition, KNRTransition)
    assert isinstance(alone, KNRTransition)
    assert mdp.transition.W.size == 6 * dims**2
    check_norm(task.features, mdp)
    for key in jr.split(jr.key(0), 20):
        state_key, action_key = jr.split(key)
        s, a = mdp.states.sample(state_key), mdp.actions.sample(action_key)
        moved = mdp.transition.mean(s, a)
        for i in range(dims):
            own = [i, dims + i]
            np.testing.assert_allclose(moved[jnp.array(own)], alone.mean(s[jnp.array(own)], a[i : i + 1]), atol=1e-5)
    at_goal = jnp.repeat(jnp.array([np.sqrt(12.5 / dims), 0.0], jnp.float32), dims)
    assert mdp.reward(mdp.initial(jr.key(0)), jnp.zeros(dims), at_goal) == 1.0


@pytest.mark.parametrize("name", TASKS)
def test_the_learner_starts_from_nothing_in_a_class_that_has_the_truth(name):
    task = TASKS[name].build()
    mdp = task.world.mdp
    truth = mdp.transition
    assert isinstance(task.model, KNR)
    assert isinstance(truth, KNRTransition)
    unfitted = task.model.init(jr.key(0), mdp)
    assert unfitted.W.shape == truth.W.shape
    assert not unfitted.W.any()
    assert unfitted.sigma == truth.sigma == TASKS[name].sigma
    assert jnp.linalg.norm(truth.W) <= task.model.radius
    check_norm(task.features, mdp)


@pytest.mark.parametrize("name", TASKS)
def test_full_throttle_stays_where_phi_is_bounded(name):
    """Random bang-bang play, which goes furthest, never leaves the box that phi is scaled for by more than noise."""
    task = TASKS[name].build()
    mdp = task.world.mdp

    def episode(key):
        throttle_key, move_key = jr.split(key)
        hold = jr.choice(throttle_key, jnp.array([-1.0, 1.0]), (mdp.actions.size,))

        def step(state, step_key):
            state = mdp.transition(step_key, state, hold)
            return state, task.features(state, hold)

        return jax.lax.scan(step, mdp.initial(key), jr.split(move_key, mdp.horizon))[1]

    phi = jax.vmap(episode)(jr.split(jr.key(0), 50))
    assert jnp.max(jnp.linalg.norm(phi, axis=-1)) <= 1.0


def test_small_actions_do_nothing_on_the_cart_and_rest_pays_a_hundredth():
    mdp = TASKS["knr-lds"].build().world.mdp
    s = jnp.array([0.3, -0.2, 0.1, 0.0])
    small, none = jnp.array([0.4, -0.5]), jnp.zeros(2)
    np.testing.assert_array_equal(mdp.transition.mean(s, small), mdp.transition.mean(s, none))
    np.testing.assert_allclose(mdp.reward(s, none, s), 0.01, rtol=1e-6)
    assert mdp.reward(s, small, s) < 0.01


def test_reward_is_in_the_unit_interval_and_pays_at_the_goal():
    for options, goal in ((LinearSystem(), [2.5, 2.5, 0.0, 0.0]), (DoubleWell(), [1.0, 0.0])):
        world = options.build().world
        size = world.mdp.actions.size
        at_goal, start = jnp.array(goal), world.mdp.initial(jr.key(0))
        assert world.mdp.reward(start, jnp.zeros(size), at_goal) == 1.0
        np.testing.assert_allclose(world.mdp.reward(start, jnp.ones(size), start), 0.0, atol=1e-7)


def test_holding_the_throttle_does_not_leave_the_left_well():
    """The barrier is higher than the actuator is strong: the task needs swinging."""
    mdp = TASKS["knr-poly"].build().world.mdp
    state = mdp.initial(jr.key(0))
    for _ in range(mdp.horizon):
        state = mdp.transition.mean(state, jnp.ones(1))
        assert state[0] < 0


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("knr-lds", "task.horizon=0", "give 1 or more"),
        ("knr-poly", "task.horizon=0", "give 1 or more"),
        ("knr-lds", "task.sigma=0", "above 0"),
        ("knr-lds", "task.dims=0", "give 1"),
        ("knr-lds", "task.dims=17", "16"),
    ],
)
def test_bad_settings(name, setting, message):
    with pytest.raises(ConfigError, match=f"{setting}.*{message}"):
        resolve(name, settings=(setting,))
