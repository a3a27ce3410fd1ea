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
from pcmlp.tasks.knr import DoubleWell, KernelPendulum, LinearSystem, RegulatedPendulum

TASKS = {
    "knr-lds": LinearSystem(),
    "knr-poly": DoubleWell(),
    "knr-pendulum": RegulatedPendulum(),
    "knr-rbf": KernelPendulum(),
}


def cart(s, a):
    grip = np.sign(a) * np.maximum(np.abs(a) - 0.7, 0) / 0.3
    p, v = np.split(s, 2)
    return np.concatenate([p + 0.3 * v, 0.7 * v + 0.3 * grip])


def well(s, a):
    p, v = s
    v = v + 0.3 * (p - p**3 - 0.1 * v + a[0] / 4)
    return np.array([p + 0.3 * v, v])


def pendulum(s, a):
    angle, radius = np.arctan2(s[1], s[0]) + 0.35 * s[2], np.hypot(s[0], s[1])
    height = radius * np.sin(angle)
    return np.array([radius * np.cos(angle), height, s[2] - 0.35 * (height + 0.1 * s[2] - 0.6 * a[0] ** 5)])


@pytest.mark.parametrize(("name", "dynamics"), [("knr-lds", cart), ("knr-poly", well), ("knr-pendulum", pendulum)])
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
    assert jnp.max(jnp.linalg.norm(phi, axis=-1)) <= 1.0 + 1e-5


def test_small_actions_do_nothing_on_the_cart_and_rest_pays_a_hundredth():
    mdp = TASKS["knr-lds"].build().world.mdp
    s = jnp.array([0.3, -0.2, 0.1, 0.0])
    small, none = jnp.array([0.4, -0.5]), jnp.zeros(2)
    np.testing.assert_array_equal(mdp.transition.mean(s, small), mdp.transition.mean(s, none))
    np.testing.assert_allclose(mdp.reward(s, none, s), 0.01, rtol=1e-6)
    assert mdp.reward(s, small, s) < 0.01


def test_reward_is_in_the_unit_interval_and_pays_at_the_goal():
    goals = (
        (LinearSystem(), [2.5, 2.5, 0.0, 0.0]),
        (DoubleWell(), [1.0, 0.0]),
        (RegulatedPendulum(), [-1.0, 0.0, 0.0]),
    )
    for options, goal in goals:
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


def swing(mdp, throttle):
    """Return the states of an episode without noise, for a throttle that is a function of the state."""
    state, visited = mdp.initial(jr.key(0)), []
    for _ in range(mdp.horizon):
        state = mdp.transition.mean(state, throttle(state))
        visited.append(np.asarray(state))
    return np.array(visited)


@pytest.mark.parametrize("name", ["knr-pendulum", "knr-rbf"])
def test_the_pendulum_cannot_be_held_up_and_must_be_swung(name):
    """Full throttle in one direction never lifts it to the horizontal; with the motion, it pays within an episode."""
    mdp = TASKS[name].build().world.mdp
    assert swing(mdp, lambda s: jnp.ones(1))[:, 0].min() > 0
    start = mdp.initial(jr.key(0))

    def best_reward(throttle):
        return max(float(mdp.reward(start, jnp.zeros(1), jnp.asarray(s))) for s in swing(mdp, throttle))

    assert best_reward(lambda s: jnp.ones(1)) < 0.1
    assert best_reward(lambda s: jnp.where(s[2:] < 0, -1.0, 1.0)) > 0.9


def test_a_pendulum_at_rest_says_nothing_about_its_motor():
    """Actions below a third of full throttle move it by less than a tenth of the noise."""
    mdp = TASKS["knr-pendulum"].build().world.mdp
    start = mdp.initial(jr.key(0))
    moved = mdp.transition.mean(start, jnp.array([0.33])) - mdp.transition.mean(start, jnp.zeros(1))
    assert 0 < jnp.max(jnp.abs(moved)) < 0.1 * mdp.transition.sigma


def test_the_kernels_world_is_the_pendulum_up_to_a_few_sigma_and_always_the_same():
    pendulum, kernel, again = (task.build().world.mdp for task in (*list(TASKS.values())[2:], KernelPendulum()))
    np.testing.assert_array_equal(kernel.transition.W, again.transition.W)
    other = KernelPendulum(seed=1).build().world.mdp
    assert not np.allclose(kernel.transition.W, other.transition.W)
    start = pendulum.initial(jr.key(0))
    apart = kernel.transition.mean(start, jnp.zeros(1)) - pendulum.transition.mean(start, jnp.zeros(1))
    assert 0 < jnp.linalg.norm(apart) < 5 * pendulum.transition.sigma


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("knr-lds", "task.horizon=0", "give 1 or more"),
        ("knr-poly", "task.horizon=0", "give 1 or more"),
        ("knr-lds", "task.sigma=0", "above 0"),
        ("knr-lds", "task.dims=0", "give 1"),
        ("knr-lds", "task.dims=17", "16"),
        ("knr-pendulum", "task.dt=1", "at most 0.5"),
        ("knr-rbf", "task.bandwidth=0", "above 0"),
        ("knr-rbf", "task.bandwidth=-1", "above 0"),
        ("knr-rbf", "task.dim=7", "even"),
    ],
)
def test_bad_settings(name, setting, message):
    with pytest.raises(ConfigError, match=f"{setting}.*{message}"):
        resolve(name, settings=(setting,))
