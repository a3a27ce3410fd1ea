"""A search that a policy guides chooses among what that would do, and makes nothing up."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from pcmlp.planners import GuidedPolicy
from pcmlp.rollout import episode_return
from pcmlp.spaces import Box
from pcmlp.types import MDP, Policy, never


class LeftOrRight(Policy):
    """Half a step, either way, and never a whole one."""

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, jnp.where(jr.uniform(key, (1,)) < 0.5, -0.5, 0.5)

    def deterministic(self):
        return self


def to_the_right(state, action, next_state):
    return (next_state - state)[0]


def line(reward=to_the_right, terminal=never):
    spaces = Box.of(np.inf, 1), Box.of(1.0, 1)
    return MDP(lambda key: jnp.zeros(1), lambda key, state, action: state + action, reward, terminal, *spaces, 20)


@eqx.filter_jit
def first_actions(mdp, num_plans=100, plan_length=3):
    """Of thirty searches at 0."""
    policy = GuidedPolicy(LeftOrRight(), mdp, num_plans, plan_length)
    return jax.vmap(lambda k: policy(k, (), jnp.zeros(1))[1][0])(jr.split(jr.key(0), 30))


def test_the_first_action_of_the_best_plan_is_chosen():
    """To the right, by as much as the guide goes; the other way, where that pays."""
    np.testing.assert_array_equal(first_actions(line()), 0.5)
    np.testing.assert_array_equal(first_actions(line(lambda s, a, n: s[0] - n[0])), -0.5)


def test_it_looks_as_far_as_its_plans():
    """Left pays at once, right more, three steps on."""

    def reward(state, action, next_state):
        return jnp.where(next_state[0] > 1.4, 5.0, jnp.where((state[0] == 0) & (next_state[0] < 0), 1.0, 0.0))

    np.testing.assert_array_equal(first_actions(line(reward), plan_length=2), -0.5)
    np.testing.assert_array_equal(first_actions(line(reward), plan_length=3), 0.5)


def test_nothing_counts_behind_an_end():
    """To the left is the end, and much to be had behind it; to the right a little."""

    def reward(state, action, next_state):
        return jnp.where(state[0] < 0, 9.0, jnp.where(next_state[0] > 0, 0.1, 0.0))

    np.testing.assert_array_equal(first_actions(line(reward)), -0.5)
    np.testing.assert_array_equal(first_actions(line(reward, lambda s, a, n: n[0] < 0)), 0.5)


def test_the_noise_of_the_model_is_the_same_for_all_plans():
    """It is larger than what the guide does, and chooses nothing."""

    def noisy(key, state, action):
        return state + action + 5.0 * jr.normal(key, state.shape)

    np.testing.assert_array_equal(first_actions(dataclasses.replace(line(), transition=noisy)), 0.5)


def test_a_return_that_is_no_number_is_never_the_best():
    some = line(lambda s, a, n: jnp.where(n[0] > 0, jnp.nan, 0.0))
    np.testing.assert_array_equal(first_actions(some), -0.5)
    none = first_actions(line(lambda s, a, n: jnp.array(jnp.nan)))
    assert set(np.unique(none)) == {-0.5, 0.5}  # as the guide would


def test_a_search_gets_further_than_its_guide():
    """The guide stays about where it is; with four of its ways to choose from at every step it leaves."""
    mdp = line()
    policy = GuidedPolicy(LeftOrRight(), mdp, num_plans=4, plan_length=6)
    walked = eqx.filter_jit(lambda policy, keys: jax.vmap(lambda k: episode_return(k, mdp, policy))(keys))
    gained, alone = (np.mean(walked(p, jr.split(jr.key(1), 32))) for p in (policy, LeftOrRight()))
    assert abs(alone) < 1.5  # of 10
    assert gained > 3.0
