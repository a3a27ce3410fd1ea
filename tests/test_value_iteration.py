"""Value iteration against every policy of a tiny MDP."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.stats import chisquare

from pcmlp import finite
from pcmlp.imagine import imagine
from pcmlp.models.finite import CountedTransition
from pcmlp.planners.value_iteration import FinitePolicy, ValueIteration
from pcmlp.spaces import Finite
from pcmlp.tasks.finite import RewardOfState, TabularTransition, start_at_zero
from pcmlp.types import MDP, never

S, A, H = 2, 3, 3


class Reward(eqx.Module):
    table: Float[Array, "S A S"]

    def __call__(self, state, action, next_state):
        return self.table[state, action, next_state]


def ends_in_one(state, action, next_state):
    return (next_state == 1) & (action == 2)


def no_bonus(state, action):
    return jnp.zeros(())


def bonus_of_one(state, action):
    return jnp.where(action == 1, 5.0, 0.0)


value = eqx.filter_jit(finite.value)
plan = eqx.filter_jit(lambda key, mdp: ValueIteration().plan(key, mdp, ValueIteration().init(key, mdp)))


@pytest.fixture(scope="module", params=[0, 1, 2])
def counts(request):
    return np.random.default_rng(request.param).integers(1, 6, size=(S, A, S))


def world_of(counts, terminal=ends_in_one):
    p = counts / counts.sum(-1, keepdims=True)
    reward = np.random.default_rng(int(counts.sum())).uniform(size=(S, A, S))
    transition = TabularTransition(jnp.asarray(p, jnp.float32))
    paid = Reward(jnp.asarray(reward, jnp.float32))
    return MDP(start_at_zero, transition, paid, terminal, Finite(S), Finite(A), H)


def test_no_policy_is_better(counts):
    mdp = world_of(counts)
    policy, metrics = plan(jr.key(0), mdp)
    every = np.array(list(itertools.product(range(A), repeat=H * S))).reshape(-1, H, S)
    table = jax.nn.one_hot(jnp.asarray(every), A)
    values = np.asarray(eqx.filter_vmap(value, in_axes=(None, 0))(mdp, table))
    assert values.max() - np.sort(values)[len(values) // 2] > 0.05  # the choice matters
    np.testing.assert_allclose(metrics["planned_value"], values.max(), rtol=1e-5)
    np.testing.assert_allclose(value(mdp, policy.probabilities()), values.max(), rtol=1e-5)


def test_same_plan_in_the_world_and_in_an_imagined_copy(counts):
    mdp = world_of(counts)
    copy = imagine(mdp, CountedTransition(jnp.asarray(counts, jnp.float32)), no_bonus)
    real, promised_real = plan(jr.key(1), mdp)
    imagined, promised = plan(jr.key(1), copy)
    np.testing.assert_array_equal(real.action, imagined.action)
    np.testing.assert_allclose(promised["planned_value"], promised_real["planned_value"], rtol=1e-6)


def test_imagined_reward_is_reward_plus_bonus(counts):
    mdp = world_of(counts, never)
    extra = imagine(mdp, mdp.transition, bonus_of_one)
    policy, metrics = plan(jr.key(2), extra)
    assert (np.asarray(policy.action) == 1).all()
    np.testing.assert_allclose(metrics["planned_value"], value(mdp, policy.probabilities()) + 5 * H, rtol=1e-5)


def test_ties_are_broken_at_random():
    """Actions 1 and 2 are equally good, 0 is not, and 3 is better than them by less than rounding."""
    reward = np.zeros((S, 4, S), np.float32)
    reward[:, 1:] = 1.0
    reward[:, 3] += 1e-6
    transition = TabularTransition(jnp.full((S, 4, S), 1 / S))
    mdp = MDP(start_at_zero, transition, Reward(jnp.asarray(reward)), never, Finite(S), Finite(4), H)
    policies = eqx.filter_jit(eqx.filter_vmap(lambda k: plan(k, mdp)[0].action))(jr.split(jr.key(3), 500))
    played = np.asarray(policies)
    assert (played != 0).all()
    assert chisquare(np.bincount(played.ravel(), minlength=4)[1:]).pvalue > 1e-3
    together = [np.corrcoef(played[:, 0, 0], played[:, h, s])[0, 1] for h, s in [(0, 1), (1, 0), (2, 1)]]
    assert np.abs(together).max() < 0.2  # each time and state on its own


def test_a_small_difference_is_no_tie():
    reward = np.zeros((S, A, S), np.float32)
    reward[:, 2] = 1e-3
    transition = TabularTransition(jnp.full((S, A, S), 1 / S))
    mdp = MDP(start_at_zero, transition, Reward(jnp.asarray(reward)), never, Finite(S), Finite(A), H)
    assert (np.asarray(plan(jr.key(4), mdp)[0].action) == 2).all()


def test_the_first_policy_is_uniform():
    mdp = world_of(np.ones((S, A, S)))
    policy = ValueIteration().init(jr.key(0), mdp)
    for same in (policy, policy.deterministic()):  # uniform play prefers no action: without noise it is still uniform
        np.testing.assert_allclose(same.probabilities(), np.full((H, S, A), 1 / A), rtol=1e-6)
    act = jax.vmap(lambda k: policy(k, policy.init(), jnp.array(0))[1])
    assert chisquare(np.bincount(np.asarray(act(jr.split(jr.key(1), 3000))), minlength=A)).pvalue > 1e-3
    planned, _ = plan(jr.key(0), mdp)
    assert jax.tree.structure(policy) == jax.tree.structure(planned)


def test_policy_plays_by_the_clock_and_epsilon():
    action = jnp.array([[0, 1], [2, 0], [1, 1]])
    policy = FinitePolicy(action, jnp.zeros(()), A)
    carry = policy.init()
    for h in range(H):
        carry, played = policy(jr.key(h), carry, jnp.array(1))
        assert int(played) == int(action[h, 1])
    noisy = eqx.tree_at(lambda p: p.epsilon, policy, jnp.array(0.6))
    np.testing.assert_allclose(noisy.probabilities()[0, 0], [0.6, 0.2, 0.2], rtol=1e-6)
    act = jax.vmap(lambda k: noisy(k, noisy.init(), jnp.array(0))[1])
    played = np.bincount(np.asarray(act(jr.split(jr.key(5), 3000))), minlength=A)
    assert chisquare(played, 3000 * np.array([0.6, 0.2, 0.2])).pvalue > 1e-3
    np.testing.assert_allclose(noisy.deterministic().probabilities()[0, 0], [1, 0, 0])


def test_reward_of_the_next_state():
    """A walk of three steps to the state that pays."""
    table = np.zeros((4, 2, 4), np.float32)
    table[:, 0] = np.eye(4)
    table[np.arange(4), 1, np.minimum(np.arange(4) + 1, 3)] = 1
    transition = TabularTransition(jnp.asarray(table))
    mdp = MDP(start_at_zero, transition, RewardOfState(jnp.eye(4)[3]), never, Finite(4), Finite(2), 5)
    assert float(plan(jr.key(0), mdp)[1]["planned_value"]) == pytest.approx(3.0)
