"""A search that a policy guides chooses among what that would do, and makes nothing up."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from pcmlp.planners import Guided
from pcmlp.planners.shooting import ShootingPolicy
from pcmlp.rollout import episode_return
from pcmlp.types import MDP, AbstractPolicy, Box, never

LENGTH = 6
ACTIONS = Box(-jnp.ones(1), jnp.ones(1))


class LeftOrRight(AbstractPolicy):
    """Half a step, either way, and never a whole one."""

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, jnp.where(jr.uniform(key, (1,)) < 0.5, -0.5, 0.5)

    def deterministic(self):
        return self


def to_the_right(state, action, next_state):
    return (next_state - state)[0]


def line(reward=to_the_right, terminal=never, horizon=20):
    return MDP(lambda key: jnp.zeros(1), lambda key, state, action: state + action, reward, terminal, horizon)


def shooter(num_plans=200):
    return Guided(ACTIONS, LeftOrRight(), num_plans=num_plans, plan_length=LENGTH)


def refined(mdp, plan, num_plans=200):
    return np.asarray(shooter(num_plans).refine(jr.key(0), mdp, jnp.zeros(1), plan))


def test_the_best_of_what_the_guide_would_do_is_chosen():
    """Of 2^6 ways that the guide may go 200 episodes have the best one, which CEM would better with whole steps."""
    np.testing.assert_array_equal(refined(line(), jnp.zeros((LENGTH, 1))), np.full((LENGTH, 1), 0.5))


def test_what_is_left_of_the_last_plan_is_kept_while_nothing_is_better():
    best = jnp.full((LENGTH, 1), 0.9)
    np.testing.assert_array_equal(refined(line(), best), best)
    # asked for more than can be done, it is worth what is done
    wild = jnp.concatenate([jnp.full((3, 1), 50.0), jnp.full((LENGTH - 3, 1), -1.0)])
    np.testing.assert_array_equal(refined(line(), wild), np.full((LENGTH, 1), 0.5))


def test_nothing_counts_behind_an_end():
    """Whoever goes left at once ends there and is paid 1; to the right three steps at most are paid."""

    def reward(state, action, next_state):
        return jnp.where(next_state[0] < -0.4, 1.0, jnp.where(next_state[0] > 0.4, 0.3, -1.0))

    mdp = line(reward, lambda s, a, n: jnp.abs(n[0]) > 0.4)
    assert refined(mdp, jnp.zeros((LENGTH, 1)))[0, 0] == -0.5


def test_the_last_plan_stays_where_no_return_is_a_number():
    mdp = line(lambda s, a, n: jnp.array(jnp.nan))
    last = jnp.full((LENGTH, 1), 0.25)
    np.testing.assert_array_equal(refined(mdp, last), last)
    some = line(lambda s, a, n: jnp.where(n[0] < 0, jnp.nan, n[0]))
    assert (refined(some, jnp.zeros((LENGTH, 1))) == 0.5).all()


def test_a_search_gets_further_than_its_guide():
    """The guide stays about where it is; chosen among four of its ways at every step it leaves."""
    mdp = line()
    policy = ShootingPolicy(shooter(4), mdp, jnp.zeros((LENGTH, 1)))
    walked = eqx.filter_jit(lambda policy, keys: jax.vmap(lambda k: episode_return(k, mdp, policy))(keys))
    gained, alone = (np.mean(walked(p, jr.split(jr.key(1), 32))) for p in (policy, LeftOrRight()))
    assert abs(alone) < 1.0  # of 10
    assert gained > 5.0
