"""The bonus by distillation falls where there are data, stays elsewhere, and is one pure record."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.algorithms.rnd import Distillation
from pcmlp.bonus import CappedBonus
from pcmlp.features import RandomNetwork, SubsetFeatures
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Box

STATES, ACTIONS = Box.of(1.0, 2), Box.of(1.0, 1)
PHI = RandomNetwork(sizes=(32, 32), action_weight=1.0).over_boxes(jr.key(7), STATES, ACTIONS)
NOVELTY = Distillation(steps=300, batch=64, sizes=(32, 32))
SCALE, CAP = 0.5, 3.0
SIGMA = jnp.eye(32)


def rows(key, count, low, high):
    state = jr.uniform(key, (count, 2), minval=low, maxval=high)
    yes = jnp.ones(count, bool)
    return Transitions(state, state[:, :1] * 0.0, jnp.zeros(count), state, ~yes, yes, yes)


NEAR, FAR = rows(jr.key(0), 300, -0.9, -0.1), rows(jr.key(1), 300, 0.4, 0.9)
REPLAY = Replay.empty(NEAR, 500).add(NEAR)


@eqx.filter_jit
def paid(bonus, data):
    return jnp.mean(jax.vmap(CappedBonus(bonus, SCALE, CAP))(data.state, data.action))


improve = eqx.filter_jit(lambda key, last, replay: NOVELTY.update(key, last, PHI, SIGMA, replay))


@pytest.fixture(scope="module")
def bonuses():
    found = [NOVELTY.init(jr.key(3), PHI, SIGMA)]
    for n in range(3):
        found.append(improve(jr.key(n), found[-1], REPLAY))
    return found


def test_it_falls_where_data_are_and_stays_elsewhere(bonuses):
    near, far = ([float(paid(bonus, data)) for bonus in bonuses[1:]] for data in (NEAR, FAR))
    assert near[-1] < 0.1 * far[-1]
    assert near[-1] < near[0]
    assert far[-1] > 0.5 * far[0]


def test_data_elsewhere_make_it_fall_there(bonuses):
    both = improve(jr.key(9), bonuses[-1], REPLAY.add(jax.tree.map(lambda x: x[:200], FAR)))
    assert paid(both, FAR) < 0.2 * paid(bonuses[-1], FAR)


def test_its_unit_is_the_running_mean_square_of_errors_before_they_are_learned(bonuses):
    errors = np.asarray(jax.vmap(bonuses[0].error)(NEAR.state, NEAR.action))
    np.testing.assert_allclose(bonuses[1].mean_square, np.mean(errors**2), rtol=0.15)
    assert [float(bonus.count) for bonus in bonuses] == [0.0, 1.0, 2.0, 3.0]
    then = np.asarray(jax.vmap(bonuses[1].error)(NEAR.state, NEAR.action))
    np.testing.assert_allclose(bonuses[2].mean_square, (np.mean(errors**2) + np.mean(then**2)) / 2, rtol=0.15)


def test_it_is_the_scaled_error_up_to_the_horizon(bonuses):
    bonus = bonuses[1]
    for state, scale in ((FAR.state[0], 0.5), (jnp.array([0.1, -0.2]), 1.5)):
        scaled = CappedBonus(bonus, scale, CAP)
        wanted = scale * bonus.error(state, jnp.zeros(1)) / jnp.sqrt(bonus.mean_square)
        np.testing.assert_allclose(scaled(state, jnp.zeros(1)), min(float(wanted), CAP), rtol=1e-5)
    capped = CappedBonus(bonus, SCALE, CAP)
    assert float(capped(jnp.full(2, 1e6), jnp.zeros(1))) == CAP
    assert float(capped(jnp.full(2, jnp.nan), jnp.zeros(1))) == 0.0


def test_it_returns_what_it_was_given(bonuses):
    """Or the second iteration would compile again."""

    def kinds(bonus):
        leaves, structure = jax.tree.flatten(bonus)
        return structure, [(x.shape, x.dtype, x.weak_type) if eqx.is_array(x) else x for x in leaves]

    assert kinds(bonuses[1]) == kinds(bonuses[2])
    assert jax.tree.structure(bonuses[0]) == jax.tree.structure(bonuses[1])


def test_errors_that_are_no_numbers_are_not_learned(bonuses):
    wild = rows(jr.key(4), 500, 1e30, 2e30)
    kept = improve(jr.key(5), bonuses[1], REPLAY.add(wild))
    assert eqx.tree_equal(kept, bonuses[1])


def test_of_some_coordinates():
    phi = SubsetFeatures(RandomNetwork(sizes=(16,)).over_boxes(jr.key(7), Box.of(1.0, 1), ACTIONS), (1,))
    bonus = Distillation(steps=5, batch=8, sizes=(16,)).init(jr.key(0), phi, jnp.eye(16))
    ours, theirs = (bonus(jnp.array([x, 0.3]), jnp.zeros(1)) for x in (-0.5, 0.7))
    assert ours == theirs > 0
