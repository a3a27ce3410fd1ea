"""Streams, draws from d_pi and returns, against exact occupancies and values; the JAX world that runs them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import chisquare

from pcmlp import finite, rollout
from pcmlp.planners.value_iteration import FinitePolicy
from pcmlp.spaces import Finite
from pcmlp.tasks.finite import TabularTransition, start_at_zero
from pcmlp.types import MDP, Policy, never
from pcmlp.world import JaxWorld

HORIZON, STATES, ACTIONS, DRAWS = 6, 4, 3, 10_000


class Reward(eqx.Module):
    table: Float[Array, "S A S"]

    def __call__(self, state, action, next_state):
        return self.table[state, action, next_state]


class Ends(eqx.Module):
    table: Bool[Array, "S A S"]

    def __call__(self, state, action, next_state):
        return self.table[state, action, next_state]


def one(state, action, next_state):
    return jnp.ones(())


def up(key, state, action):
    return state + 1


def at_three(state, action, next_state):
    return next_state == 3


class Scripted(Policy):
    """Plays action[t] at time t."""

    action: Int[Array, " H"]

    def init(self):
        return jnp.zeros((), int)

    def __call__(self, key, carry, state):
        return carry + 1, self.action[carry]

    def deterministic(self):
        return self


ENDLESS = MDP(start_at_zero, up, one, never, Finite(9), Finite(2), 8)  # the state is the time
ENDING = MDP(start_at_zero, up, one, at_three, Finite(9), Finite(2), 8)  # and here an episode has three steps


@pytest.fixture(scope="module")
def mdp():
    """Random, with one in five transitions ending the episode."""
    rng = np.random.default_rng(0)
    shape = (STATES, ACTIONS, STATES)
    table = TabularTransition(jnp.asarray(rng.dirichlet(np.ones(STATES), shape[:2]), jnp.float32))
    reward = Reward(jnp.asarray(rng.uniform(size=shape), jnp.float32))
    ends = Ends(jnp.asarray(rng.random(shape) < 0.2))
    return MDP(start_at_zero, table, reward, ends, Finite(STATES), Finite(ACTIONS), HORIZON)


@pytest.fixture(scope="module")
def policy():
    action = np.random.default_rng(1).integers(ACTIONS, size=(8, STATES))
    return FinitePolicy(jnp.asarray(action[:HORIZON]), jnp.array(0.3), ACTIONS)


@pytest.fixture(scope="module")
def clock_policy():
    return Scripted(jnp.arange(8))


@eqx.filter_jit
def stream(key, mdp, policy, steps):
    return rollout.stream(key, mdp, policy, steps)


@eqx.filter_jit
def many(f, key, mdp, policy):
    return jax.vmap(lambda k: f(k, mdp, policy))(jr.split(key, DRAWS))


def test_stream_begins_anew_where_the_mdp_ends(clock_policy):
    steps = stream(jr.key(0), ENDING, clock_policy, 8)
    np.testing.assert_array_equal(steps.state, [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(steps.action, [0, 1, 2, 0, 1, 2, 0, 1])  # the policy's memory begins anew as well
    np.testing.assert_array_equal(steps.next_state, [1, 2, 3, 1, 2, 3, 1, 2])
    np.testing.assert_array_equal(steps.terminal, [0, 0, 1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(steps.last, [0, 0, 1, 0, 0, 1, 0, 1])
    assert np.asarray(steps.valid).all()


def test_stream_without_ends_is_one_episode(clock_policy):
    steps = stream(jr.key(0), ENDLESS, clock_policy, 8)
    np.testing.assert_array_equal(steps.state, np.arange(8))
    assert not np.asarray(steps.terminal).any()
    np.testing.assert_array_equal(steps.last, np.arange(8) == 7)


def test_a_walk_goes_on_where_it_was_left(clock_policy):
    """State, the policy's memory and the clock of the episode are carried over; the cut is marked."""
    walk = eqx.filter_jit(rollout.walk)
    place, first = walk(jr.key(0), ENDLESS, clock_policy, rollout.begin(jnp.array(0), clock_policy), 3)
    place, second = walk(jr.key(1), ENDLESS, clock_policy, place, 7)
    np.testing.assert_array_equal(first.state, [0, 1, 2])
    np.testing.assert_array_equal(second.state, [3, 4, 5, 6, 7, 0, 1])
    np.testing.assert_array_equal(second.action, second.state)
    np.testing.assert_array_equal(first.last, [0, 0, 1])
    np.testing.assert_array_equal(second.last, [0, 0, 0, 0, 1, 0, 1])  # the horizon of 8, and the cut
    assert (int(place.state), int(place.memory), int(place.clock)) == (2, 2, 2)


def test_first_episode_leaves_out_what_follows(clock_policy):
    steps = rollout.first_episode(stream(jr.key(0), ENDING, clock_policy, 8))
    np.testing.assert_array_equal(steps.valid, np.arange(8) < 3)


def test_draw_is_uniform_over_time_and_costs_the_steps_to_get_there(clock_policy):
    rows, steps = many(rollout.draw, jr.key(1), ENDLESS, clock_policy)
    time = np.asarray(rows.state)[:, 0]
    np.testing.assert_array_equal(steps.valid.sum(1), time + 1)
    np.testing.assert_array_equal(steps.last, steps.valid & (np.asarray(steps.state) == time[:, None]))
    assert np.asarray(rows.valid).all()
    assert np.asarray(rows.last).all()
    assert chisquare(np.bincount(time, minlength=8)).pvalue > 1e-3


def test_draw_after_the_end_costs_the_episode_and_is_not_valid(clock_policy):
    rows, steps = many(rollout.draw, jr.key(2), ENDING, clock_policy)
    valid, steps, time = np.asarray(rows.valid)[:, 0], np.asarray(steps.valid.sum(1)), np.asarray(rows.state)[:, 0]
    np.testing.assert_array_equal(steps[valid], time[valid] + 1)
    assert (steps[~valid] == 3).all()
    assert valid.mean() == pytest.approx(3 / 8, abs=4 * np.sqrt(0.25 / DRAWS))
    np.testing.assert_array_equal(np.asarray(rows.terminal)[valid, 0], time[valid] == 2)


def test_draw_is_from_the_exact_occupancy(mdp, policy):
    rows, _ = many(rollout.draw, jr.key(3), mdp, policy)
    exact = np.asarray(finite.occupancy(mdp, policy.probabilities()), np.float64).mean(0).ravel()  # d_pi
    pair = np.asarray(rows.state * ACTIONS + rows.action)[:, 0]
    counts = np.bincount(pair[np.asarray(rows.valid)[:, 0]], minlength=STATES * ACTIONS)
    lost = 1 - exact.sum()
    assert 0.1 < lost < 0.9  # the test is about ends as well
    seen = np.append(counts, DRAWS - counts.sum())
    expected = np.append(exact, lost) * DRAWS
    kept = expected > 0
    assert seen[~kept].sum() == 0
    assert chisquare(seen[kept], expected[kept] / expected[kept].sum() * DRAWS).pvalue > 1e-3


def test_returns_have_the_exact_mean(mdp, policy):
    returns = np.asarray(many(rollout.episode_return, jr.key(4), mdp, policy))
    exact = float(finite.value(mdp, policy.probabilities()))
    assert returns.mean() == pytest.approx(exact, abs=4 * returns.std() / np.sqrt(DRAWS))
    assert returns.std() > 0.1


def test_return_stops_at_the_end_of_the_episode(clock_policy):
    mean = eqx.filter_jit(rollout.mean_return)
    assert float(mean(jr.key(0), ENDING, clock_policy, 3)) == 3.0
    assert float(mean(jr.key(0), ENDLESS, clock_policy, 3)) == 8.0


@pytest.fixture(scope="module")
def world():
    return JaxWorld(ENDING)


@pytest.fixture(scope="module")
def two_policies(clock_policy):
    """One for each of two seeds."""
    return eqx.tree_at(lambda p: p.action, clock_policy, jnp.stack([jnp.arange(8), 10 + jnp.arange(8)]))


def test_world_collects_whole_horizons(world, two_policies):
    rows, steps = world.collect(jr.split(jr.key(5), 2), two_policies, 17)
    assert rows.reward.shape == (2, 24)
    np.testing.assert_array_equal(steps.valid.sum(1), [24, 24])
    np.testing.assert_array_equal(rows.state[0], np.tile([0, 1, 2, 0, 1, 2, 0, 1], 3))
    np.testing.assert_array_equal(rows.last[0], np.tile([0, 0, 1, 0, 0, 1, 0, 1], 3))
    np.testing.assert_array_equal(rows.action - rows.state, np.array([[0], [10]]) + np.zeros(24, int))


def test_world_draws_and_counts(world, two_policies):
    rows, steps = world.draw(jr.split(jr.key(6), 2), two_policies, 50)
    valid, time = np.asarray(rows.valid), np.asarray(rows.state)
    assert valid.shape == (2, 50)
    np.testing.assert_array_equal(steps.valid.sum(1), np.where(valid, time + 1, 3).sum(1))
    assert not np.array_equal(valid[0], valid[1])


def test_world_evaluates_the_deterministic_policy():
    def pays_action(state, action, next_state):
        return action.astype(jnp.float32)

    world = JaxWorld(eqx.tree_at(lambda m: m.reward, ENDLESS, pays_action))
    policies = eqx.filter_vmap(lambda e: FinitePolicy(jnp.ones((8, 9), int), e, 2))(jnp.array([0.9, 0.0]))
    returns = world.evaluate(jr.split(jr.key(7), 2), policies, 5)
    np.testing.assert_array_equal(returns, np.full((2, 5), 8.0))  # seed 0 without its epsilon
