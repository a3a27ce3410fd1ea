"""Ornstein-Uhlenbeck noise: its statistics, and that only samples have it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.algorithms.noise import NoisyPolicy, add_noise
from pcmlp.rollout import stream
from pcmlp.spaces import Box
from pcmlp.types import MDP, Policy, never

STATES, ACTIONS = Box.of(1.0, 1), Box([-1.0, 0.0], [3.0, 1.0])
THETA, SIGMA = 0.15, 0.3
STEPS = 40_000


class Still(Policy):
    """Plays the middle, and counts."""

    middle: jax.Array

    def init(self):
        return jnp.zeros((), int)

    def __call__(self, key, carry, state):
        return carry + 1, self.middle

    def deterministic(self):
        return self


def no_reward(state, action, next_state):
    return jnp.zeros(())


REST = MDP(lambda key: jnp.zeros(1), lambda key, s, a: s, no_reward, never, STATES, ACTIONS, 5)


def noisy(sigma=SIGMA, seeds=2):
    policies = Still(jnp.broadcast_to(jnp.array([1.0, 0.5]), (seeds, 2)))
    return add_noise(policies, sigma, REST)


def of_seed(tree, seed):
    return jax.tree.map(lambda x: x[seed], tree)


@pytest.fixture(scope="module")
def noise():
    """In units of half the range."""
    policy = of_seed(noisy(), 0)

    def step(carry, key):
        return policy(key, carry, jnp.zeros(1))

    _, actions = jax.lax.scan(step, policy.init(), jr.split(jr.key(0), STEPS))
    return np.asarray(jax.vmap(ACTIONS.to_unit)(actions))


def test_its_std_is_the_stationary_one(noise):
    wanted = SIGMA / np.sqrt(1.0 - (1.0 - THETA) ** 2)
    np.testing.assert_allclose(noise[1000:].std(axis=0), wanted, rtol=0.05)
    np.testing.assert_allclose(noise[1000:].mean(axis=0), 0.0, atol=0.06)


@pytest.mark.parametrize("lag", [1, 5])
def test_a_push_lasts(noise, lag):
    for x in noise[1000:].T:
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1] - (1.0 - THETA) ** lag) < 0.04


def test_coordinates_are_pushed_apart(noise):
    assert abs(np.corrcoef(noise[1000:].T)[0, 1]) < 0.1


def test_an_episode_begins_without_noise_and_remembers_what_the_policy_does():
    policy = of_seed(noisy(), 1)
    memory, noise = policy.init()
    assert memory == 0
    assert np.all(noise == 0)
    carry = policy.init()
    for key in jr.split(jr.key(3), 3):
        carry, _ = policy(key, carry, jnp.zeros(1))
    assert carry[0] == 3
    assert np.any(carry[1] != 0)


def test_episodes_of_a_stream_do_not_inherit_it():
    steps = stream(jr.key(0), REST, of_seed(noisy(), 0), 10_000)
    noise = np.abs(np.asarray(jax.vmap(ACTIONS.to_unit)(steps.action))).reshape(-1, 5, 2)
    grown = noise.mean(axis=(0, 2))
    np.testing.assert_allclose(grown[0], SIGMA * np.sqrt(2 / np.pi), rtol=0.06)  # one step of it, not the stationary
    assert np.all(np.diff(grown) > 0)


def test_what_is_evaluated_has_none():
    policies = noisy()
    assert isinstance(policies, NoisyPolicy)
    assert isinstance(of_seed(policies, 0).deterministic(), Still)
    assert eqx.tree_equal(of_seed(policies, 1).deterministic(), of_seed(policies, 1).policy)
    assert isinstance(noisy(sigma=0.0), Still)
