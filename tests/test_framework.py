"""Algorithm 1 line by line, on a combination lock and on a clock whose state is the time."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from pcmlp.algorithms import framework
from pcmlp.algorithms.framework import PCMLP, learn
from pcmlp.errors import ConfigError
from pcmlp.features import OneHot, OneHotFeatures
from pcmlp.models import Tabular
from pcmlp.replay import Transitions
from pcmlp.settings import check_value, settings_of
from pcmlp.spaces import Box, Finite
from pcmlp.tasks.finite import CombinationLock, LowRank, TabularTransition, start_at_zero
from pcmlp.trees import as_inputs
from pcmlp.types import MDP, Problem, never
from pcmlp.world import JaxWorld

HORIZON, ACTIONS, SEEDS, ITERATIONS = 6, 3, 3, 50
RIDGE, SCALE = 0.5, 1.1
LOCK = CombinationLock(horizon=HORIZON, actions=ACTIONS).build()
KEYS = jr.split(jr.key(0), SEEDS)
TRACES = Counter()


def counted_features(state, action):
    TRACES["features"] += 1
    return LOCK.features(state, action)


class CountedReward(eqx.Module):
    reward: eqx.Module

    def __call__(self, state, action, next_state):
        TRACES["reward"] += 1  # traced by collecting and by planning
        return self.reward(state, action, next_state)


COUNTED = eqx.tree_at(lambda p: p.world.mdp.reward, LOCK, CountedReward(LOCK.world.mdp.reward))


def lock_algo(**changes):
    inputs = {"samples_per_policy": 2 * HORIZON, "ridge": RIDGE, "bonus_scale": SCALE}
    return PCMLP(features=counted_features, **(inputs | changes))


def learn_lock(keys, num_iterations=ITERATIONS, **changes):
    return learn(keys, lock_algo(**changes), COUNTED, num_iterations)


@pytest.fixture(scope="module")
def run():
    """(learner, metrics, samples) after every iteration, and how often anything had been traced by then."""
    history = []
    for result in learn_lock(KEYS):
        history.append((*result, dict(TRACES)))
    return history


def pairs(samples, seed):
    """Row of each sample's (s, a) in the one-hot features."""
    return np.asarray(samples.state[seed]) * ACTIONS + np.asarray(samples.action[seed])


def test_fifty_iterations_are_traced_once(run):
    after = [traces for *_, traces in run]
    assert len(after) == ITERATIONS
    assert after[0]["features"] > 0
    assert after[0]["reward"] > 0
    assert after[-1] == after[0]


@pytest.mark.parametrize("task", [LOCK, LowRank(members=3, horizon=2).build()], ids=["lock", "low-rank"])
def test_a_stage_returns_what_it_was_given(task):
    """Shapes and types (weak ones too) stay, or the second iteration would compile again."""
    algo, mdp = as_inputs(PCMLP(samples_per_policy=6).bind(task)), task.world.mdp
    before = eqx.filter_eval_shape(framework._start, KEYS, algo, mdp, 3)
    samples = eqx.filter_eval_shape(lambda k, p: task.world.collect(k, p, 6)[0], KEYS, before.policy)
    after, _ = eqx.filter_eval_shape(framework._improve, (KEYS, algo, mdp, samples, samples, jnp.array(1)), before)

    def kinds(learner):
        leaves, structure = jax.tree.flatten(learner)
        return structure, [getattr(x, "weak_type", None) for x in leaves], leaves

    assert kinds(after) == kinds(before)


def test_covariance_is_the_sum_of_second_moments(run):
    covariance = np.stack([RIDGE * np.eye(8 * ACTIONS)] * SEEDS)
    for learner, metrics, samples, _ in run[:20]:
        for seed in range(SEEDS):
            phi = np.eye(8 * ACTIONS)[pairs(samples, seed)]
            assert phi.shape[0] == 2 * HORIZON
            covariance[seed] += phi.T @ phi / phi.shape[0]
        np.testing.assert_allclose(learner.covariance.matrix, covariance, rtol=1e-5, atol=1e-6)
        gain = np.linalg.slogdet(covariance / RIDGE)[1]
        np.testing.assert_allclose(metrics["info_gain"], gain, rtol=1e-4)


def test_bonus_mean_is_what_the_last_plan_was_promised(run):
    """b_{n-1}, before the samples of pi_n are in the covariance, on the samples of pi_n."""
    diagonal = np.full((SEEDS, 8 * ACTIONS), RIDGE)
    for learner, metrics, samples, _ in run[:20]:
        for seed in range(SEEDS):
            bonus = np.minimum(2 * SCALE / np.sqrt(diagonal[seed]), HORIZON)
            np.testing.assert_allclose(metrics["bonus_mean"][seed], bonus[pairs(samples, seed)].mean(), rtol=1e-4)
        diagonal = np.asarray(jax.vmap(jnp.diag)(learner.covariance.matrix))
    assert metrics["bonus_mean"].max() < run[0][1]["bonus_mean"].min()


def test_model_is_fitted_to_all_samples_so_far(run):
    counts, steps = np.zeros((SEEDS, 8, ACTIONS, 8)), 0
    for learner, _, samples, _ in run[:20]:
        for seed in range(SEEDS):
            rows = (np.asarray(x[seed]) for x in (samples.state, samples.action, samples.next_state))
            np.add.at(counts[seed], tuple(rows), 1)
        steps += 2 * HORIZON
        np.testing.assert_array_equal(learner.model.counts, counts)
        np.testing.assert_array_equal(learner.env_steps, np.full(SEEDS, steps))


def test_every_plan_joins_the_cover_and_is_played_next(run):
    before = lock_algo().bind(COUNTED).start(KEYS, COUNTED.world.mdp, ITERATIONS)
    np.testing.assert_array_equal(before.cover.size, np.ones(SEEDS))
    for n, (learner, _, _, _) in enumerate(run[:5], 1):
        np.testing.assert_array_equal(learner.cover.size, np.full(SEEDS, n + 1))
        np.testing.assert_array_equal(learner.cover.stacked.action[:, n], learner.policy.action)
        np.testing.assert_array_equal(learner.cover.stacked.action[:, n - 1], before.policy.action)
        before = learner
    # pi_2 plays its own actions: the samples of iteration 2 are those of the policy planned in iteration 1
    policy, samples = run[0][0].policy, run[1][2]
    time = np.tile(np.arange(HORIZON), 2)
    for seed in range(SEEDS):
        np.testing.assert_array_equal(samples.action[seed], policy.action[seed][time, np.asarray(samples.state[seed])])


def test_best_is_the_argmax_of_sample_returns(run):
    returns = np.array([np.asarray(s.reward).sum(1) / 2 for _, _, s, _ in run])  # two episodes an iteration
    for n in (3, ITERATIONS):
        learner = run[n - 1][0]
        np.testing.assert_allclose(learner.values[:, :n], returns[:n].T, rtol=1e-6)
        assert (np.asarray(learner.values[:, n:]) == -np.inf).all()
        best = eqx.filter_vmap(lambda l: l.deployed())(learner)
        expected = [learner.cover.stacked.action[i, returns[:n, i].argmax()] for i in range(SEEDS)]
        np.testing.assert_array_equal(best.action, np.stack(expected))
        np.testing.assert_array_equal(learner.deployed().action, best.action)  # also without a vmap by the caller
    np.testing.assert_allclose(run[-1][1]["sample_return"], returns[-1], rtol=1e-6)


def test_seeds_together_as_alone(run):
    alone = learn_lock(KEYS[1:2])
    for n, (learner, metrics, samples) in zip(range(8), alone, strict=False):
        together, metrics_together, samples_together, _ = run[n]
        np.testing.assert_array_equal(samples.state[0], samples_together.state[1])
        np.testing.assert_array_equal(samples.action[0], samples_together.action[1])
        np.testing.assert_array_equal(learner.env_steps[0], together.env_steps[1])
        np.testing.assert_array_equal(learner.policy.action[0], together.policy.action[1])
        np.testing.assert_allclose(learner.covariance.matrix[0], together.covariance.matrix[1], rtol=1e-5)
        np.testing.assert_allclose(learner.bonus.bonus.whitener[0], together.bonus.bonus.whitener[1], rtol=1e-5)
        for name in metrics:
            np.testing.assert_allclose(metrics[name][0], metrics_together[name][1], rtol=1e-5)
    assert n == 7


def test_seeds_differ(run):
    assert len({np.asarray(run[0][2].action[seed]).tobytes() for seed in range(SEEDS)}) == SEEDS


def solved(history):
    """The first iteration with a return of 1, for each seed."""
    return [next((n for n, r in enumerate(history, 1) if r[seed] > 0), None) for seed in range(SEEDS)]


def test_lock_is_opened_by_the_bonus_and_not_without(run):
    """3^6 = 729 codes: without a bonus plans are random, and 40 of them for each of three seeds do not find one."""
    with_bonus = solved([np.asarray(metrics["sample_return"]) for _, metrics, _, _ in run[:40]])
    assert all(n is not None for n in with_bonus)
    returns = LOCK.world.evaluate(KEYS, run[39][0].deployed(), 2)
    np.testing.assert_array_equal(returns, np.ones((SEEDS, 2)))

    without = learn_lock(KEYS, 40, bonus_scale=0.0)
    metrics = [metrics for _, metrics, _ in without]
    assert solved([np.asarray(m["sample_return"]) for m in metrics]) == [None] * SEEDS
    assert all((np.asarray(m["bonus_mean"]) == 0).all() for m in metrics)


def test_the_control_has_a_constant_bonus_where_phi_has_a_constant_norm():
    """Sigma_n grows, and the control pays what the cover's bonus pays on average, the same for every pair."""
    for learner, metrics, samples in learn_lock(KEYS[:1], 3, covariance=False):
        assert metrics["info_gain"] > 0
        sigma = np.asarray(learner.covariance.matrix[0], np.float64)
        assert np.ptp(np.diag(sigma)) > 0.1  # rows that were visited, and rows that were not
        every = np.linalg.norm(np.asarray(learner.bonus.bonus.whitener[0]), axis=1)
        np.testing.assert_allclose(every, every[0], rtol=1e-5)
        chosen = np.asarray(samples.state[0]) * ACTIONS + np.asarray(samples.action[0])
        np.testing.assert_allclose(every[0], (np.diag(sigma)[chosen] ** -0.5).mean(), rtol=1e-3)


# -- the paper's draws ------------------------------------------------------------------------------------------------

CLOCK = 5


def action_pays(state, action, next_state):
    return action.astype(jnp.float32)


def clock_problem():
    """Return a problem whose state is the time, so that a drawn row tells how many steps it took to get there."""
    table = np.zeros((CLOCK + 1, 2, CLOCK + 1), np.float32)
    table[np.arange(CLOCK + 1), :, np.minimum(np.arange(CLOCK + 1) + 1, CLOCK)] = 1
    transition = TabularTransition(jnp.asarray(table))
    return Problem(JaxWorld(MDP(start_at_zero, transition, action_pays, never, Finite(CLOCK + 1), Finite(2), CLOCK)))


def clock_algo(**inputs):
    return PCMLP(features=OneHot(), model=Tabular(), ridge=1.0, bonus_scale=1.0, **inputs)


def test_iid_draws_and_fresh_fit_samples():
    K, M = 8, 11
    algo = clock_algo(samples_per_policy=K, draws="iid", fit_samples=M)
    steps, drawn, diagonal = 0, set(), np.ones(2 * (CLOCK + 1))
    for learner, metrics, samples in learn(KEYS[:1], algo, clock_problem(), 4):
        assert samples.state.shape == (1, K)
        rows = jax.tree.map(lambda x: np.asarray(x[0]), learner.replay.data)
        assert rows.state.shape == (M,)
        assert rows.valid.all()
        counts = np.zeros((CLOCK + 1, 2, CLOCK + 1))
        np.add.at(counts, (rows.state, rows.action, rows.next_state), 1)
        np.testing.assert_array_equal(learner.model.counts[0], counts)  # M rows and none of the earlier iterations'
        drawn.add((rows.state.tobytes(), rows.action.tobytes()))
        steps += np.sum(samples.state[0] + 1) + np.sum(rows.state + 1)
        assert int(learner.env_steps[0]) == steps
        np.add.at(diagonal, np.asarray(samples.state[0]) * 2 + np.asarray(samples.action[0]), 1 / K)
        np.testing.assert_allclose(jnp.diag(learner.covariance.matrix[0]), diagonal, rtol=1e-5)
        value = CLOCK * np.mean(samples.reward[0])  # H times the mean reward of a draw from d_pi
        np.testing.assert_allclose(metrics["sample_return"][0], value, rtol=1e-5)
    assert len(drawn) == 4


def test_fit_samples_of_whole_episodes():
    """M is rounded up to whole episodes, all of which are fitted to: cutting them would favour late steps."""
    problem = clock_problem()
    algo = clock_algo(samples_per_policy=CLOCK, fit_samples=CLOCK + 1).bind(problem)
    learner = eqx.filter_eval_shape(lambda k: algo.start(k, problem.world.mdp, 4), KEYS)
    rows, _ = eqx.filter_eval_shape(lambda k, p: problem.world.collect(k, p, CLOCK + 1), KEYS, learner.policy)
    assert learner.replay.data.state.shape == rows.state.shape == (SEEDS, 2 * CLOCK)


def test_an_example_is_finite_where_a_space_has_no_bounds():
    most = float(np.finfo(np.float32).max)
    states = Box(jnp.array([-jnp.inf, 0.0, -most, 2.0]), jnp.array([jnp.inf, jnp.inf, most, 3.0]))
    row = Transitions.example(states, Finite(2))
    assert row.state.shape == (1, 4)
    assert np.isfinite(row.state).all()
    assert 2 <= float(row.state[0, 3]) <= 3
    assert row.action.dtype == jnp.int32
    assert not np.asarray(row.valid).any()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ridge": 0.0}, "ridge=0.0"),
        ({"ridge": float("inf")}, "ridge=inf"),
        ({"bonus_scale": -1.0}, "bonus_scale=-1.0"),
        ({"bonus_scale": float("nan")}, "bonus_scale=nan"),
        ({"samples_per_policy": 0}, "samples_per_policy=0"),
        ({"fit_samples": 0}, "fit_samples=0"),
        ({"draws": "idd"}, "draws=idd"),
        ({"covariance": "of"}, "covariance=of"),
    ],
)
def test_bad_inputs_of_the_algorithm(settings, line):
    with pytest.raises((ConfigError, jaxtyping.TypeCheckError), match=f"{line}: give|covariance|draws"):
        PCMLP(**settings)
    ((name, value),) = settings.items()
    field = next(field for field in settings_of(PCMLP) if field.name == name)
    with pytest.raises(ConfigError, match=f"{line}: give"):  # also where the types of inputs are not checked
        check_value(field, value)


def test_features_of_another_size_or_norm_are_refused():
    with pytest.raises(ConfigError, match="do not take"):
        PCMLP(features=OneHotFeatures(3, 2)).bind(LOCK)

    def long(state, action):
        return 7.0 * LOCK.features(state, action)

    with pytest.raises(ConfigError, match="norm 7"):
        PCMLP(features=long).bind(LOCK)
