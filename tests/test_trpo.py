"""TRPO piece by piece against plain computations, and on a probe whose optimum is known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from visited import visited

from pcmlp.heads import GaussianHead
from pcmlp.planners.trpo import TRPO, advantages, conjugate_gradient
from pcmlp.replay import Transitions
from pcmlp.rollout import mean_return
from pcmlp.spaces import Box
from pcmlp.types import MDP, never

STATES, ACTIONS = Box.of(2.0, 1), Box(jnp.array([-1.0]), jnp.array([3.0]))
HORIZON = 10


def initial(key):
    return jr.uniform(key, (1,), minval=-1.0, maxval=1.0)


def move(key, state, action):
    return state + 0.5 * (ACTIONS.clip(action) - 1.0)


def be_at_zero(state, action, next_state):
    return -jnp.sum(next_state**2)


MDP_ = MDP(initial, move, be_at_zero, never, STATES, ACTIONS, HORIZON)
PLANNER = TRPO(updates=10, streams=30, length=HORIZON, value_batch=100)


@eqx.filter_jit
def plan(key, policy):
    return PLANNER.plan(key, MDP_, policy)


@pytest.fixture(scope="module")
def planned():
    policy = PLANNER.init(jr.key(0), MDP_)
    steps = [policy]
    for i in range(6):
        policy, metrics = plan(jr.key(i), policy)
        steps.append(policy)
    return steps, metrics


def test_it_finds_the_optimum_of_a_probe(planned):
    """From anywhere in [-1, 1] one or two full actions lead to 0: the return is about -E[max(|s| - 1, 0)^2] = 0."""
    (first, *_, last), _ = planned
    value = eqx.filter_jit(mean_return)
    before = value(jr.key(9), MDP_, first.deterministic(), 100)
    after = value(jr.key(9), MDP_, last.deterministic(), 100)
    assert before < -2.5
    assert after > -0.15


def test_steps_stay_in_the_trust_region_and_gain(planned):
    _, metrics = planned
    assert 0 < metrics["kl"] <= 1.5 * PLANNER.kl_bound
    assert metrics["improvement"] > 0


def test_it_is_traced_once(planned):
    (policy, *_), _ = planned
    count = 0

    def counted(state, action, next_state):
        nonlocal count
        count += 1
        return be_at_zero(state, action, next_state)

    mdp = eqx.tree_at(lambda m: m.reward, MDP_, counted)
    small = TRPO(updates=1, streams=2, length=3, value_batch=2, value_epochs=1)
    run = eqx.filter_jit(small.plan)
    policy, _ = run(jr.key(0), mdp, policy)
    once = count
    for i in range(3):
        policy, _ = run(jr.key(i), mdp, policy)
    assert once > 0
    assert count == once


def test_streams_go_on_from_update_to_update(planned):
    """Their clocks are spread over the horizon, so at every step a few of them begin anew."""
    (policy, *_), _ = planned
    short = TRPO(updates=1, streams=HORIZON, length=4, value_batch=8, value_epochs=1)
    places = short.start_streams(jr.key(0), MDP_, policy)
    np.testing.assert_array_equal(places.clock, np.arange(HORIZON))
    assert (np.abs(places.state) <= 1.0).all()
    _, after, _ = eqx.filter_jit(short.update)(jr.key(1), MDP_, policy, places)
    np.testing.assert_array_equal(after.clock, (np.arange(HORIZON) + 4) % HORIZON)


def test_a_batch_of_more_than_there_is_is_all_there_is(planned):
    (policy, *_), _ = planned
    x, target = jr.normal(jr.key(0), (30, 1)), jr.normal(jr.key(1), (30,))
    small, large = (
        eqx.filter_jit(TRPO(value_batch=n, value_epochs=1).fit_value)(jr.key(2), policy, x, target) for n in (30, 256)
    )
    assert np.isfinite(large[2])
    for was, now in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        np.testing.assert_array_equal(was, now)


def test_actions_cover_the_range_and_controls_invert_them():
    policy = PLANNER.init(jr.key(0), MDP_)
    _, mean = policy.deterministic()(jr.key(0), (), jnp.zeros(1))
    np.testing.assert_allclose(mean, [1.0], atol=0.1)  # the middle of [-1, 3]
    _, action = policy(jr.key(3), (), jnp.zeros(1))
    control = policy.actions.to_unit(action)
    np.testing.assert_allclose(1.0 + 2.0 * control, action, rtol=1e-6)


def test_units_are_those_of_the_box_where_it_has_any():
    """A coordinate without bounds, with useless ones, or that cannot vary is taken as it is."""
    most = float(np.finfo(np.float32).max)
    states = Box(jnp.array([1.0, -jnp.inf, -most, 5.0]), jnp.array([3.0, jnp.inf, most, 5.0]))
    units = TRPO().init(jr.key(0), dataclasses.replace(MDP_, states=states)).units
    np.testing.assert_array_equal([units.mean, units.std], [[2, 0, 0, 0], [1, 1, 1, 1]])


def test_advantages_against_a_plain_loop():
    rng = np.random.default_rng(0)
    n, discount, trace = 12, 0.9, 0.8
    reward, value, after = rng.normal(size=(3, n))
    terminal = rng.random(n) < 0.2
    last = terminal | (rng.random(n) < 0.2)
    last[-1] = True
    expected = np.zeros(n)
    for start in range(n):
        factor = 1.0
        for t in range(start, n):
            delta = reward[t] + discount * (0.0 if terminal[t] else after[t]) - value[t]
            expected[start] += factor * delta
            factor *= discount * trace
            if last[t]:
                break
    blank = jnp.zeros((n, 1))
    steps = Transitions(
        blank,
        blank,
        jnp.asarray(reward, jnp.float32),
        blank,
        jnp.asarray(terminal),
        jnp.asarray(last),
        jnp.ones(n, bool),
    )
    got = advantages(steps, jnp.asarray(value, jnp.float32), jnp.asarray(after, jnp.float32), discount, trace)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_conjugate_gradient_solves_in_as_many_steps_as_dimensions():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    matrix = root @ root.T + np.eye(6)
    b = rng.normal(size=6)
    got = conjugate_gradient(lambda v: jnp.asarray(matrix, jnp.float32) @ v, jnp.asarray(b, jnp.float32), 6)
    np.testing.assert_allclose(got, np.linalg.solve(matrix, b), rtol=1e-3, atol=1e-4)
    early = conjugate_gradient(lambda v: jnp.asarray(matrix, jnp.float32) @ v, jnp.asarray(b, jnp.float32), 1)
    assert not np.allclose(early, got, rtol=1e-2)


def test_fisher_product_is_the_hessian_of_the_divergence():
    actor = GaussianHead.of(jr.key(0), 2, 2, sizes=(4,), std=0.7)
    actor = eqx.tree_at(lambda a: a.net.weights[-1], actor, jr.normal(jr.key(1), (4, 2)))
    theta, unravel = ravel_pytree(actor)
    x = jr.normal(jr.key(2), (20, 2))
    old = jax.vmap(actor)(x)

    def divergence(theta):
        return jnp.mean(jax.vmap(lambda s, g: g.kl(unravel(theta)(s)))(x, old))

    hessian = jax.jit(jax.hessian(divergence))(theta)
    product = jax.jit(lambda theta, v: PLANNER.fisher_product(theta, unravel, x)(v))
    columns = jax.vmap(lambda v: product(theta, v))(jnp.eye(theta.shape[0]))
    np.testing.assert_allclose(columns - PLANNER.damping * jnp.eye(theta.shape[0]), hessian, rtol=1e-3, atol=1e-4)


def test_seeds_side_by_side_as_alone():
    """Of two searches along a line one may end before the other; neither changes the other."""
    heads = eqx.filter_vmap(lambda k: GaussianHead.of(k, 1, 1, sizes=(4,)))(jr.split(jr.key(0), 2))
    x, u = jr.normal(jr.key(1), (2, 50, 1)), jr.normal(jr.key(2), (2, 50, 1))
    weight = jnp.stack([u[0, :, 0], -(u[1, :, 0] ** 4)])
    step = TRPO(kl_bound=0.5, damping=0.0).natural_step
    together = eqx.filter_jit(eqx.filter_vmap(step))(heads, x, u, weight)
    for i in range(2):
        alone = eqx.filter_jit(step)(jax.tree.map(lambda w, i=i: w[i], heads), x[i], u[i], weight[i])
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[i], theirs, rtol=1e-4, atol=1e-5)
    assert not np.isclose(together[1][0], together[1][1], rtol=0.1)


def test_a_useless_direction_changes_nothing():
    """No advantage, no gradient: the line search accepts no step, and nothing becomes NaN."""
    actor = GaussianHead.of(jr.key(0), 1, 1)
    x, u = jr.normal(jr.key(1), (50, 1)), jr.normal(jr.key(2), (50, 1))
    new, kl, improvement = eqx.filter_jit(PLANNER.natural_step)(actor, x, u, jnp.zeros(50))
    for was, now in zip(jax.tree.leaves(actor), jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(was, now)
    assert (kl, improvement) == (0.0, 0.0)


@pytest.mark.slow
def test_entropy_keeps_noise_where_nothing_pays():
    """A flat reward: advantages are rounding and chance, and the entropy is all there is to gain."""
    flat = eqx.tree_at(lambda m: m.reward, MDP_, lambda state, action, next_state: jnp.zeros(()))
    noise = {}
    for entropy in (0.0, 0.05):
        planner = TRPO(updates=10, streams=30, length=HORIZON, value_batch=100, entropy=entropy)
        policy, _ = eqx.filter_jit(planner.plan)(jr.key(1), flat, PLANNER.init(jr.key(0), MDP_))
        noise[entropy] = float(jnp.exp(policy.actor.log_std[0]))
    assert noise[0.05] > noise[0.0] + 0.05


@pytest.mark.slow
def test_the_objective_has_the_entropy_in_it():
    """With advantages of 0 it is all of the gain: the weight times the growth of log std."""
    actor = GaussianHead.of(jr.key(0), 1, 1)
    x, u = jr.normal(jr.key(1), (64, 1)), jr.normal(jr.key(2), (64, 1))
    for entropy in (0.0, 0.3):
        planner = TRPO(entropy=entropy)
        new, _, gain = planner.natural_step(actor, x, u, jnp.zeros(64))
        np.testing.assert_allclose(gain, entropy * (new.log_std - actor.log_std)[0], atol=1e-6)
    assert gain > 0


def test_states_without_bounds_are_normalised_by_the_replay():
    """A coordinate with bounds keeps their units, an unbounded one gets those of the replay; a trained policy and its
    values stay the same functions."""
    states = Box(jnp.array([-2.0, -jnp.inf]), jnp.array([4.0, jnp.inf]))
    mdp = dataclasses.replace(MDP_, states=states)
    rows = jnp.stack([jnp.linspace(-1.0, 1.0, 50), jnp.linspace(300.0, 340.0, 50)], axis=1)
    policy = PLANNER.init(jr.key(0), mdp)
    seen = PLANNER.renormalise(mdp, policy, visited(rows, states, ACTIONS))
    np.testing.assert_allclose(seen.units.mean, [1.0, 320.0], rtol=1e-5)
    np.testing.assert_allclose(seen.units.std, [3.0, np.std(np.linspace(300.0, 340.0, 50))], rtol=1e-4)

    count = eqx.tree_at(lambda p: p.critic_state[0].count, seen, jnp.array(1))  # as if it had been trained
    later = PLANNER.renormalise(mdp, count, visited(rows * 1.5, states, ACTIONS))
    assert not np.allclose(later.units.mean, seen.units.mean)
    for state in (jnp.array([0.3, 310.0]), jnp.array([-1.0, 500.0])):
        np.testing.assert_allclose(later.value(state), seen.value(state), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(later(jr.key(1), (), state)[1], seen(jr.key(1), (), state)[1], atol=1e-4)


def test_bounded_states_keep_their_units():
    policy = PLANNER.init(jr.key(0), MDP_)
    assert PLANNER.renormalise(MDP_, policy, visited(jnp.full((5, 1), 9.0), STATES, ACTIONS)) is policy
