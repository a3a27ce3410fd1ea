"""The imagined MDP: what is the world's and what is not, and that imagination keeps within its bounds."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.stats import chisquare

from pcmlp.imagine import (
    RewardFree,
    Starts,
    SwitchedBonus,
    bounds_around,
    drop_bonus,
    expand_range,
    imagine,
    nothing_seen,
    pay_nothing,
    restrict,
)
from pcmlp.nets import MLP
from pcmlp.replay import Transitions
from pcmlp.rollout import stream
from pcmlp.spaces import Box, Range
from pcmlp.types import MDP, Policy

BOUNDS = Range(jnp.array([-1.0, -0.2, -1e9]), jnp.array([0.5, 0.3, 2.0]))
STATES = Box((-1e9,) * 3, (1e9,) * 3)
ACTIONS = Box((-1.0, 0.0), (1.0, 4.0))
YES, NO = jnp.array(True), jnp.array(False)
MODELS, HORIZON = 20, 30


class RandomModel(eqx.Module):
    """A network of weights of any size: what a model may do where it has no data."""

    net: MLP
    size: Float[Array, ""]

    def __call__(self, key, state, action):
        return state + self.size * self.net(jnp.concatenate([state, action]))


class Wild(Policy):
    """Asks for far more than the actuators can do."""

    def init(self):
        return None

    def __call__(self, key, carry, state):
        return carry, 10.0 * jr.normal(key, (2,))

    def deterministic(self):
        return self


def at_origin(key):
    return jnp.zeros(3)


def stay(key, state, action):
    return state


def pays(state, action, next_state):
    return jnp.sum(state) + 10.0 * jnp.sum(action) + 100.0 * jnp.sum(next_state)


def ends(state, action, next_state):
    return next_state[0] > 0.4


def novelty(state, action):
    return 1000.0 * jnp.sum(action)


WORLD = MDP(at_origin, stay, pays, ends, STATES, ACTIONS, HORIZON)
ROW = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.25]), jnp.array([1.0, 0.0, 0.0])


def test_the_imagination_is_the_world_but_for_its_transition_and_bonus():
    def model(key, state, action):
        return state + 1.0

    mdp = imagine(WORLD, model, novelty)
    assert (mdp.initial, mdp.terminal, mdp.horizon) == (at_origin, ends, HORIZON)
    assert mdp.boxes == (STATES, ACTIONS)
    np.testing.assert_array_equal(mdp.transition(jr.key(0), ROW[0], ROW[1]), [2, 3, 4])
    assert mdp.reward(*ROW) == 6.0 + 7.5 + 100.0 + 750.0
    assert imagine(WORLD, model, pay_nothing).reward(*ROW) == pays(*ROW)
    assert drop_bonus(mdp).reward(*ROW) == pays(*ROW)
    assert drop_bonus(mdp).transition is model


@pytest.mark.parametrize("silly", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_reward_that_is_not_finite_counts_as_0(silly):
    world = eqx.tree_at(lambda m: m.reward, WORLD, lambda state, action, next_state: jnp.array(silly))
    assert imagine(world, stay, novelty).reward(*ROW) == 750.0


def test_reward_free_exploration_is_for_the_bonus_alone():
    def reward_free(explores):
        return imagine(dataclasses.replace(WORLD, reward=RewardFree(pays, explores)), stay, novelty)

    assert reward_free(YES).reward(*ROW) == 750.0
    assert reward_free(NO).reward(*ROW) == pays(*ROW) + 750.0
    assert reward_free(YES).terminal is ends


def test_no_bonus_for_asking_for_more_than_full_throttle():
    bonus = SwitchedBonus(novelty, YES, ACTIONS)
    assert bonus(ROW[0], jnp.array([7.0, 9.0])) == bonus(ROW[0], jnp.array([1.0, 4.0])) == 5000.0
    assert bonus(ROW[0], jnp.array([-7.0, -9.0])) == -1000.0


def test_no_bonus_for_a_policy_to_deploy():
    assert SwitchedBonus(novelty, YES, ACTIONS)(*ROW[:2]) == 750.0
    assert SwitchedBonus(novelty, NO, ACTIONS)(*ROW[:2]) == 0.0


@pytest.fixture(scope="module")
def imagined():
    """Episodes in random models, [models, steps], and what the models were asked."""
    starts = jnp.asarray(np.random.default_rng(0).uniform(-0.2, 0.3, (5, 3)), jnp.float32)

    @jax.jit
    @jax.vmap
    def episodes(key, size):
        net_key, run_key = jr.split(key)
        model = RandomModel(MLP.of(net_key, (5, 16, 3), "relu", bias=1.0), size)
        return stream(run_key, restrict(imagine(WORLD, model, pay_nothing), BOUNDS, starts), Wild(), HORIZON)

    sizes = 10.0 ** jnp.linspace(-3, 6, MODELS)
    return starts, episodes(jr.split(jr.key(1), MODELS), sizes)


def test_imagined_states_never_leave_the_bounds(imagined):
    """Whatever the model says; and every bound was met."""
    _, steps = imagined
    reached = np.asarray(steps.next_state)
    assert np.isfinite(reached).all()
    assert (reached >= np.asarray(BOUNDS.low)).all()
    assert (reached <= np.asarray(BOUNDS.high)).all()
    assert (reached == np.asarray(BOUNDS.low)).any((0, 1)).all()
    assert (reached == np.asarray(BOUNDS.high)).any((0, 1)).all()


def test_imagined_episodes_begin_at_the_given_states(imagined):
    starts, steps = imagined
    begins = np.concatenate([np.ones((MODELS, 1), bool), np.asarray(steps.last)[:, :-1]], axis=1)
    first = np.asarray(steps.state)[begins]
    assert {tuple(row) for row in first} == {tuple(row) for row in np.asarray(starts)}


def test_the_model_sees_what_an_actuator_does():
    def echo(key, state, action):
        return jnp.concatenate([action, jnp.zeros(1)])

    hundred = jnp.full(3, 100.0)
    mdp = restrict(imagine(WORLD, echo, pay_nothing), Range(-hundred, hundred), jnp.zeros((1, 3)))
    for asked, done in (((7.0, 9.0), (1.0, 4.0)), ((-7.0, -9.0), (-1.0, 0.0)), ((0.5, 3.0), (0.5, 3.0))):
        np.testing.assert_array_equal(mdp.transition(jr.key(0), jnp.zeros(3), jnp.array(asked))[:2], done)


def test_starts_are_uniform_over_their_rows():
    starts = Starts(jnp.arange(7.0)[:, None])
    drawn = np.asarray(jax.jit(jax.vmap(starts))(jr.split(jr.key(2), 7000)))[:, 0].astype(int)
    assert chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3


def test_bounds_are_the_observation_space_and_what_was_seen_with_a_margin():
    states = Box((-10.0, -jnp.inf, 0.0), (10.0, jnp.inf, 1.0))
    low, high = jnp.array([-1.0, 2.0, 0.2]), jnp.array([1.0, 4.0, 0.4])
    near = bounds_around(states, Range(low, high), 3.0, True)
    np.testing.assert_allclose(near.low, [-7.0, -4.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(near.high, [7.0, 10.0, 1.0], atol=1e-6)
    anywhere = bounds_around(states, Range(low, high), 3.0, False)
    assert np.isneginf(anywhere.low).all()
    assert np.isposinf(anywhere.high).all()
    # before anything was seen: the observation space, also with a margin of 0 and without bounds
    for margin in (0.0, 3.0):
        first = bounds_around(states, nothing_seen(states), margin, True)
        np.testing.assert_array_equal(first.low, states.low)
        np.testing.assert_array_equal(first.high, states.high)


def test_the_range_that_was_seen_grows_with_valid_rows_alone():
    state, after = jnp.array([[0.0, 5.0], [99.0, 99.0]]), jnp.array([[1.0, -5.0], [-99.0, 99.0]])
    no = jnp.zeros(2, bool)
    rows = Transitions(state, jnp.zeros((2, 1)), jnp.zeros(2), after, no, no, jnp.array([True, False]))
    seen = expand_range(nothing_seen(Box.of(100.0, 2)), rows)
    np.testing.assert_array_equal(seen.low, [0.0, -5.0])
    np.testing.assert_array_equal(seen.high, [1.0, 5.0])
    more = expand_range(seen, eqx.tree_at(lambda t: (t.state, t.valid), rows, (state - 3.0, rows.valid)))
    np.testing.assert_array_equal(more.low, [-3.0, -5.0])
    np.testing.assert_array_equal(more.high, [1.0, 5.0])
