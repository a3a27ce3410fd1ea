"""LQR against SciPy's Riccati solution; CEM and MPPI against LQR; shooting without knowing what it shoots in."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
from lqr import LQR

from pcmlp import rollout
from pcmlp.imagine import imagine
from pcmlp.models.knr import KNRTransition
from pcmlp.planners import CEM, MPPI, ShootingPolicy
from pcmlp.planners.shooting import correlation_factor, plan_returns
from pcmlp.spaces import Box
from pcmlp.tasks.finite import CombinationLock
from pcmlp.types import MDP, never

A = np.array([[1.0, 0.2], [0.0, 0.9]])
B = np.array([[0.0], [0.3]])
Q = np.diag([1.0, 0.1])
R = np.array([[0.1]])
STATES, ACTIONS = Box.of(10.0, 2), Box.of(5.0, 1)  # bounds wide enough never to bind
START = jnp.array([1.0, 0.0])


class LinearFeatures(eqx.Module):
    """phi(s, a) = (s, a) / 20, of norm at most 1 over the box."""

    def __call__(self, state, action):
        return jnp.concatenate([state, action]) / 20.0


def cost(state, action, next_state):
    quadratic = state @ jnp.asarray(Q, jnp.float32) @ state + action @ jnp.asarray(R, jnp.float32) @ action
    return -quadratic


def tracking(state, action, next_state):
    """To be at 2, with terms of degree 2, 1 and 0, on the state after the step."""
    return -((next_state[0] - 2.0) ** 2) - 0.1 * jnp.sum(action**2)


def system(horizon: int, sigma: float = 0.0, reward=cost) -> MDP:
    W = 20.0 * jnp.asarray(np.concatenate([A, B], axis=1), jnp.float32)
    knr = KNRTransition(W, LinearFeatures(), sigma)
    return MDP(lambda key: START, knr, reward, never, STATES, ACTIONS, horizon)


@eqx.filter_jit
def lqr_policy(mdp: MDP):
    planner = LQR()
    return planner.plan(jr.key(0), mdp, planner.init(jr.key(0), mdp))


def test_long_horizon_gain_is_the_stationary_riccati_solution():
    policy, metrics = lqr_policy(system(200))
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    np.testing.assert_allclose(policy.gain[0][:, :2], -K, rtol=1e-3)
    np.testing.assert_allclose(policy.gain[0][:, 2], 0.0, atol=1e-4)
    np.testing.assert_allclose(metrics["planned_value"], -START @ P @ START, rtol=1e-3)


def test_every_finite_horizon_gain_is_that_of_a_plain_recursion():
    policy, _ = lqr_policy(system(5))
    P = np.zeros((2, 2))
    for h in reversed(range(5)):
        K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        np.testing.assert_allclose(policy.gain[h][:, :2], -K, rtol=1e-4, atol=1e-5)
        P = Q + A.T @ P @ (A - B @ K)


def test_lqr_keeps_its_promise_also_with_linear_terms_and_noise():
    """The planned value is the return without noise, and noise costs the same under any other gain that is near."""
    mdp = system(15, reward=tracking)
    policy, metrics = lqr_policy(mdp)
    mean_return = eqx.filter_jit(rollout.mean_return)
    np.testing.assert_allclose(mean_return(jr.key(1), mdp, policy, 1), metrics["planned_value"], rtol=1e-3)

    noisy = system(15, sigma=0.1, reward=tracking)
    own = mean_return(jr.key(2), noisy, policy, 500)
    for shift in (-0.3, 0.3):
        other = eqx.tree_at(lambda p: p.gain, policy, policy.gain + shift)
        assert mean_return(jr.key(2), noisy, other, 500) < own


def no_action_cost(state, action, next_state):
    return -jnp.sum(state**2)


def test_lqr_refuses_what_is_not_concave_and_what_has_no_mean():
    with pytest.raises(Exception, match="strictly concave in the action"):
        jax.block_until_ready(lqr_policy(system(5, reward=no_action_cost)))
    lock = CombinationLock(horizon=3).build().world.mdp
    with pytest.raises(TypeError, match=r"no mean\(s, a\)"):
        lqr_policy(lock)


_CEM = CEM(num_plans=300, plan_length=15, iterations=8, elites=15, noise_std=0.3, correlation=0.0, warmup=20)
SHOOTERS = {
    "cem": _CEM,
    "cem of pets": dataclasses.replace(_CEM, truncated=True, smoothing=0.1),
    "mppi": MPPI(num_plans=1000, plan_length=15, temperature=0.01, noise_cov=0.004, warmup=20),
}


@pytest.mark.parametrize("name", SHOOTERS)
def test_shooting_is_within_two_percent_of_lqr(name):
    mdp = system(15)
    best = rollout.episode_return(jr.key(0), mdp, lqr_policy(mdp)[0])
    planner = SHOOTERS[name]

    @jax.jit
    def returned(key):
        policy, _ = planner.plan(key, mdp, planner.init(key, mdp))
        return rollout.episode_return(key, mdp, policy)

    shot = returned(jr.key(3))
    assert best < 0
    assert best * 1.02 <= shot <= best * 0.999, f"{name}: {shot} against {best}"


def test_a_planner_does_not_know_whether_the_mdp_is_real():
    """The imagination of a world with its own transition and no bonus is planned in as the world is."""
    mdp = system(6, sigma=0.1)
    copy = imagine(mdp, mdp.transition, lambda state, action: jnp.zeros(()))
    planner = CEM(num_plans=20, plan_length=6, iterations=2, elites=4, warmup=2)
    plan = eqx.filter_jit(planner.plan)
    plans = [plan(jr.key(0), m, planner.init(jr.key(0), m))[0].start for m in (mdp, copy)]
    np.testing.assert_array_equal(*plans)


def test_all_plans_meet_the_same_noise_and_actions_are_clipped():
    mdp = system(4, sigma=1.0)
    plan = jr.normal(jr.key(1), (4, 1))
    both = plan_returns(jr.key(0), mdp, START, jnp.stack([plan, plan]), 3)
    assert both[0] == both[1]
    beyond = jnp.stack([jnp.full((4, 1), 5.0), jnp.full((4, 1), 50.0)])
    np.testing.assert_array_equal(*plan_returns(jr.key(0), mdp, START, beyond, 1))


def test_rewards_after_a_terminal_state_do_not_count():
    mdp = MDP(
        lambda key: jnp.zeros(1),
        lambda key, s, a: s + 1.0,
        lambda s, a, s2: jnp.ones(()),
        lambda s, a, s2: s2[0] >= 2.0,
        Box.of(10.0, 1),
        Box.of(1.0, 1),
        10,
    )
    returns = plan_returns(jr.key(0), mdp, jnp.zeros(1), jnp.zeros((1, 10, 1)), 1)
    np.testing.assert_array_equal(returns, [2.0])


def test_a_policy_shifts_its_plan_and_starts_every_episode_with_the_same():
    planner = MPPI(num_plans=2, plan_length=3, temperature=1.0, noise_cov=1e-12, warmup=1)
    mdp = system(3)
    start = jnp.array([[1.0], [2.0], [3.0]])
    policy = ShootingPolicy(planner, mdp, start, None)
    carry, action = policy(jr.key(0), policy.init(), START)
    np.testing.assert_allclose(action, [1.0], atol=1e-4)
    np.testing.assert_allclose(carry, [[2.0], [3.0], [0.0]], atol=1e-4)
    np.testing.assert_array_equal(policy.init(), start)


def test_planning_keeps_the_better_of_the_old_plan_and_a_new_one():
    """A warm start near the optimum beats refining nothing; a terrible one is dropped."""
    mdp = system(15)
    planner = CEM(num_plans=50, plan_length=15, iterations=1, elites=5, noise_std=0.05, warmup=1)
    plan = eqx.filter_jit(planner.plan)
    nothing = planner.init(jr.key(0), mdp)
    thorough = dataclasses.replace(SHOOTERS["cem"], warmup=10)
    better, _ = eqx.filter_jit(thorough.plan)(jr.key(0), mdp, nothing)
    good = eqx.tree_at(lambda p: p.start, nothing, better.start)
    terrible = eqx.tree_at(lambda p: p.start, nothing, jnp.full((15, 1), 5.0))
    with_good, with_terrible, from_nothing = (plan(jr.key(1), mdp, p)[1] for p in (good, terrible, nothing))
    assert with_good["planned_value"] > from_nothing["planned_value"]
    np.testing.assert_allclose(with_terrible["planned_value"], from_nothing["planned_value"], rtol=1e-6)


def test_mppi_weights_are_those_of_the_pseudocode():
    """One update against a plain loop over plans and steps."""
    mdp = system(4)
    shooter = MPPI(num_plans=6, plan_length=4, temperature=0.3, noise_cov=0.01)
    plan = jnp.array([[0.1], [-0.2], [0.3], [0.0]])
    updated = shooter.refine(jr.key(5), mdp, START, plan)

    noise_key, _ = jr.split(jr.key(5))
    variance = 0.01 * 5.0**2  # noise_cov is in units of half the action range
    noise = np.sqrt(variance) * np.asarray(jr.normal(noise_key, (6, 4, 1)))
    S = np.zeros(6)
    for k in range(6):
        s = np.asarray(START)
        for t in range(4):
            a = np.asarray(plan)[t] + noise[k, t]
            S[k] += s @ Q @ s + a @ R @ a + 0.3 * float(plan[t, 0]) / variance * noise[k, t, 0]
            s = A @ s + B @ a
    w = np.exp(-(S - S.min()) / 0.3)
    w /= w.sum()
    np.testing.assert_allclose(updated, np.asarray(plan) + np.einsum("k,kta->ta", w, noise), rtol=1e-3, atol=1e-4)


def test_noise_of_many_sizes_finds_the_goal_and_keeps_what_is_good():
    """Where only a far goal pays, small noise cannot find it and large noise alone cannot keep a plan that has it."""

    def pays(state, action, next_state):
        return jnp.where(jnp.abs(next_state[0] - 3.0) < 0.05, 10.0, 0.0) - 1e-3 * jnp.sum(action**2)

    mdp = MDP(lambda key: jnp.zeros(1), lambda key, s, a: s + a, pays, never, Box.of(10.0, 1), Box.of(1.0, 1), 4)

    def best(least: float, std: float) -> float:
        shooter = MPPI(num_plans=64, plan_length=4, temperature=0.01, noise_cov=std**2, least_noise=least)

        @jax.jit
        def refined(plan):
            return jax.lax.fori_loop(0, 12, lambda i, p: shooter.refine(jr.key(i), mdp, jnp.zeros(1), p), plan)

        plan = refined(jnp.zeros((4, 1)))
        return float(plan_returns(jr.key(0), mdp, jnp.zeros(1), plan[None], 1)[0])

    assert best(0.01, 5.0) > 9.0
    assert best(1.0, 0.05) < 1.0
    scales = MPPI(num_plans=3, least_noise=0.01).scales()
    np.testing.assert_allclose(scales, [0.01, 0.1, 1.0], rtol=1e-5)


def test_a_plan_is_made_of_what_actuators_can_do():
    """Noise of a hundred times the range: every action of the plan is a mean of clipped ones."""
    shooter = MPPI(num_plans=8, plan_length=4, noise_cov=1e4, temperature=1e6)
    plan = np.asarray(shooter.refine(jr.key(1), system(4), START, jnp.zeros((4, 1))))
    assert np.abs(plan).max() <= 5.0
    # with weights all alike, a mean of plus and minus the bound: a quarter of the range apart
    np.testing.assert_allclose(plan / 1.25, np.round(plan / 1.25), atol=0.1)


def test_correlated_noise_has_unit_variance_and_the_asked_correlation():
    mix = np.asarray(correlation_factor(6, 0.7), np.float64)
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    np.testing.assert_allclose(mix @ mix.T, 0.7**lag, atol=1e-5)
    np.testing.assert_allclose(correlation_factor(4, 0.0), np.eye(4), atol=1e-6)


@pytest.mark.parametrize("last", [0.0, 0.5])
def test_truncated_noise_is_at_most_as_far_as_the_nearer_bound(last):
    """Where more is always better, it comes near to the bound and does not reach it, as clipped plans do."""
    actions = Box(jnp.array([-1.0]), jnp.array([3.0]))

    def refined(sign, start, **settings):
        def paid(state, action, next_state):
            return sign * jnp.sum(action)

        mdp = MDP(lambda key: jnp.zeros(1), lambda key, s, a: s, paid, never, Box.of(10.0, 1), actions, 1)
        search = {"num_plans": 1000, "iterations": 1, "elites": 1, "truncated": True, **settings}
        shooter = CEM(plan_length=1, correlation=0.0, **search)
        return float(eqx.filter_jit(shooter.refine)(jr.key(0), mdp, jnp.zeros(1), jnp.full((1, 1), start))[0, 0])

    most, least = refined(1.0, last), refined(-1.0, last)  # of a thousand, the elite being the best
    room = last + 1.0  # the lower bound is the nearer one; half of that is less than the std, which is 2
    assert last + 0.9 * room < most <= last + room
    assert last - 0.9 * room > least >= last - room
    steady = {"elites": 100, "smoothing": 0.1}
    assert refined(1.0, most, **steady) < refined(1.0, most, iterations=8, **steady) < 3.0
    assert refined(1.0, most, iterations=8, **steady) > 2.8
    assert refined(1.0, most, iterations=8, **steady, truncated=False) == 3.0


@pytest.mark.parametrize("low", [0.0, 0.5])
def test_a_truncated_search_has_room_where_zero_is_no_action_or_the_least(low):
    """Where plans began at zero they would stay at a bound, from which there is no way."""
    actions = Box(jnp.array([low]), jnp.array([1.5]))

    def paid(state, action, next_state):
        return -jnp.sum((action - 0.7) ** 2)

    mdp = MDP(lambda key: jnp.zeros(1), lambda key, s, a: s, paid, never, Box.of(10.0, 1), actions, 3)
    search = CEM(num_plans=50, plan_length=3, iterations=5, elites=5, correlation=0.0, truncated=True)
    planner = dataclasses.replace(search, warmup=1, restarts=2)
    policy, _ = eqx.filter_jit(planner.plan)(jr.key(0), mdp, planner.init(jr.key(0), mdp))
    np.testing.assert_allclose(policy.start, 0.7, atol=0.05)
    plan, action = policy(jr.key(1), policy.init(), jnp.zeros(1))
    np.testing.assert_allclose(action, 0.7, atol=0.05)
    np.testing.assert_array_equal(plan[-1], actions.middle)
    random = np.concatenate([planner.random_plan(key, mdp) for key in jr.split(jr.key(2), 100)])
    assert np.all((random > low) & (random < 1.5))
    assert random.std() > 0.1


def test_smoothing_keeps_a_share_of_the_last_plan():
    mdp = system(4)
    shooter = CEM(num_plans=30, plan_length=4, iterations=1, elites=3, correlation=0.0)
    last = 0.1 * jr.normal(jr.key(1), (4, 1))
    refined, smoothed = (
        dataclasses.replace(shooter, smoothing=share).refine(jr.key(0), mdp, START, last) for share in (0.0, 0.25)
    )
    np.testing.assert_allclose(smoothed, 0.25 * last + 0.75 * refined, atol=1e-6)
    assert np.abs(refined - last).max() > 0.05


def test_a_plan_that_explodes_is_never_chosen():
    """A wrong model can send a plan to infinity; neither planner may take NaN for the best."""

    def explode(key, state, action):
        return jnp.where(action > 0.5, jnp.nan, state + action)

    def paid(state, action, next_state):
        return -jnp.sum((next_state - 0.4) ** 2)

    mdp = MDP(lambda key: jnp.zeros(1), explode, paid, never, Box.of(10.0, 1), Box.of(1.0, 1), 1)
    for shooter in (
        CEM(num_plans=200, plan_length=1, iterations=4, elites=20),
        MPPI(num_plans=200, plan_length=1, temperature=0.01, noise_cov=0.3),
    ):
        plan = eqx.filter_jit(shooter.refine)(jr.key(0), mdp, jnp.zeros(1), jnp.zeros((1, 1)))
        np.testing.assert_allclose(plan, [[0.4]], atol=0.15)
