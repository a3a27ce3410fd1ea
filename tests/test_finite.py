"""Exact values and occupancies against the sum over every trajectory."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Shaped

from pcmlp import finite
from pcmlp.spaces import Finite
from pcmlp.tasks.finite import TabularTransition, start_at_zero
from pcmlp.types import MDP

S, A, H = 3, 2, 4


class Lookup(eqx.Module):
    table: Shaped[Array, "S A S"]

    def __call__(self, state, action, next_state):
        return self.table[state, action, next_state]


def random_mdp(seed, ending):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(S, 0.5), (S, A))
    reward = rng.normal(size=(S, A, S))
    end = rng.random((S, A, S)) < ending
    policy = rng.dirichlet(np.ones(A), (H, S))
    mdp = MDP(
        start_at_zero,
        TabularTransition(jnp.asarray(p, jnp.float32)),
        Lookup(jnp.asarray(reward, jnp.float32)),
        Lookup(jnp.asarray(end)),
        Finite(S),
        Finite(A),
        H,
    )
    return mdp, (p, reward, end), policy


def every_trajectory(p, reward, end, policy, first, start):
    """The value of `start` at time `first` and the occupancies from there, one trajectory at a time."""
    value, occupancy = 0.0, np.zeros((H, S, A))
    for length in range(1, H - first + 1):
        for path in itertools.product(range(A), range(S), repeat=length):
            state, weight = start, 1.0
            for t in range(length):
                action, after = path[2 * t], path[2 * t + 1]
                weight *= policy[first + t, state, action] * p[state, action, after]
                if t < length - 1:
                    weight *= not end[state, action, after]
                    state = after
            value += weight * reward[state, action, after]  # the reward of the last of `length` steps
            occupancy[first + length - 1, state, action] += weight
    return value, occupancy


@pytest.mark.parametrize(("seed", "ending"), [(0, 0.0), (1, 0.3), (2, 0.6)])
def test_against_every_trajectory(seed, ending):
    mdp, (p, reward, end), policy = random_mdp(seed, ending)
    probabilities = jnp.asarray(policy, jnp.float32)
    value, occupancy = every_trajectory(p, reward, end, policy, 0, 0)
    np.testing.assert_allclose(finite.value(mdp, probabilities), value, rtol=1e-4, atol=1e-5)
    got = np.asarray(finite.occupancy(mdp, probabilities))
    np.testing.assert_allclose(got, occupancy, rtol=1e-4, atol=1e-6)
    mass = got.sum((1, 2))
    assert mass[0] == pytest.approx(1)
    assert (mass[-1] < 0.999) == (ending > 0)

    values = np.asarray(finite.values(mdp, probabilities))
    assert values.shape == (H + 1, S)
    np.testing.assert_array_equal(values[-1], np.zeros(S))
    for first, start in [(0, 1), (1, 2), (2, 0), (3, 1)]:
        expected, _ = every_trajectory(p, reward, end, policy, first, start)
        np.testing.assert_allclose(values[first, start], expected, rtol=1e-4, atol=1e-5)


def test_value_is_occupancy_times_reward():
    mdp, _, policy = random_mdp(3, 0.2)
    probabilities = jnp.asarray(policy, jnp.float32)
    reward, _ = finite.tables(mdp)
    total = np.sum(np.asarray(finite.occupancy(mdp, probabilities)) * np.asarray(reward))
    np.testing.assert_allclose(finite.value(mdp, probabilities), total, rtol=1e-5)


def test_tables_pay_for_the_step_that_ends():
    mdp, (p, reward, end), _ = random_mdp(4, 0.5)
    expected, go_on = finite.tables(mdp)
    np.testing.assert_allclose(expected, (p * reward).sum(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(go_on, np.where(end, 0, p), rtol=1e-6)


def test_a_transition_that_is_not_finite_is_refused():
    def drift(key, state, action):
        return state + action

    mdp = eqx.tree_at(lambda m: m.transition, random_mdp(5, 0.0)[0], drift)
    with pytest.raises(TypeError, match=r"function has no probabilities\(\).*finite MDP.*use CEM or MPPI"):
        finite.tables(mdp)
