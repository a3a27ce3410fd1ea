"""LC3's optimistic oracle: the ball, the search over pairs of a plan and a model, Thompson sampling, and bad input."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.algorithms.framework import learn
from pcmlp.errors import ConfigError
from pcmlp.experiments import oracle, rules
from pcmlp.experiments.job import SCALES
from pcmlp.experiments.verdict import Kept
from pcmlp.imagine import imagine, pay_nothing
from pcmlp.models import ConfidenceBall, PosteriorDraw
from pcmlp.models.ball import Ball, Belief
from pcmlp.models.knr import KNRTransition
from pcmlp.planners import CEM, Optimistic
from pcmlp.planners.optimistic import pair_returns
from pcmlp.planners.shooting import plan_returns
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.config import build, resolve
from pcmlp.spaces import Box
from pcmlp.tasks.knr import LinearSystem, StartAt
from pcmlp.types import MDP, never

TINY = ("planner.num_pairs=8", "planner.elites=2", "planner.updates=2", "planner.starts=2", "planner.particles=1")
TINY_CEM = ("num_plans=8", "elites=2", "warmup=1", "iterations=1")
SMALL = (*TINY, *(f"planner.search.{setting}" for setting in TINY_CEM))


def own_action(state, action):
    """Return phi(s, a) = a."""
    return action


def closeness(state, action, next_state):
    """Return a reward that is largest, 1, at s' = 2."""
    return jnp.exp(-jnp.sum((next_state - 2.0) ** 2))


def line(centre, beta, *, noise=0.0):
    """Return the imagined MDP s' = w a of one step, with w within `beta` of the centre."""
    belief = Belief(jnp.full((1, 1), centre), jnp.eye(1), jnp.zeros(()))
    ball = Ball(belief, jnp.asarray(beta), own_action, noise)
    return imagine(
        MDP(StartAt(jnp.zeros(1)), ball, closeness, never, Box.of(9.0, 1), Box.of(1.0, 1), 1), ball, pay_nothing
    )


def rows(world, key, n):
    """Return steps from random states, with random actions."""
    mdp = world.mdp
    state_key, action_key, move_key = jr.split(key, 3)
    state = jax.vmap(mdp.states.sample)(jr.split(state_key, n))
    action = jax.vmap(mdp.actions.sample)(jr.split(action_key, n))
    after = jax.vmap(mdp.transition)(jr.split(move_key, n), state, action)
    no = jnp.zeros(n, bool)
    return Replay(Transitions(state, action, jnp.zeros(n), after, no, no, ~no), jnp.array(n))


def bound(model):
    """Return the model of the cart in one dimension, with its data."""
    problem = LinearSystem(dims=1).build()
    own = problem.model
    return problem, dataclasses.replace(model, features=problem.features, sigma=own.sigma, radius=own.radius)


@pytest.mark.parametrize(("centre", "beta"), [(0.5, 0.25), (-1.0, 0.5), (1.0, 2.0), (0.1, 0.05)])
def test_the_oracle_finds_the_best_of_the_ball_that_a_grid_finds(centre, beta):
    mdp = line(centre, beta)
    weights, actions = np.linspace(centre - beta, centre + beta, 2001), np.linspace(-1, 1, 201)
    best = np.exp(-((weights[:, None] * actions[None] - 2.0) ** 2)).max()
    (plan, direction), _ = Optimistic().best_pair(jr.key(0), mdp, jnp.zeros((1, 1)))
    found = pair_returns(jr.key(1), mdp, jnp.zeros(1), (plan[None], direction[None]), 1)[0]
    np.testing.assert_allclose(found, best, rtol=1e-3)


def test_the_promise_grows_with_the_ball():
    values = []
    for beta in (1e-6, 0.2, 0.5, 1.0):
        policy, metrics = Optimistic().plan(jr.key(0), mdp := line(0.5, beta), Optimistic().init(jr.key(0), mdp))
        assert abs(policy.mdp.transition.W[0, 0] - 0.5) <= beta * (1 + 1e-5) + 1e-6
        values.append(float(metrics["planned_value"]))
    assert np.all(np.diff(values) > 0.01)


def test_with_many_data_the_optimistic_plan_is_the_ordinary_one():
    """Sigma is huge, so that the ball is a point: the plan is as good as one that CEM makes at the centre."""
    problem, model = bound(ConfidenceBall())
    mdp = problem.world.mdp
    small = Belief(mdp.transition.W, 1e-6 * jnp.eye(3), jnp.zeros(()))
    imagined = imagine(mdp, model.choose(jr.key(0), small), pay_nothing)
    planner = Optimistic(search=CEM(num_plans=50, elites=5, warmup=4))
    policy, metrics = planner.plan(jr.key(0), imagined, planner.init(jr.key(0), imagined))
    np.testing.assert_allclose(policy.mdp.transition.W, mdp.transition.W, atol=1e-4)
    ordinary, planned = planner.inner.plan(jr.key(0), mdp, planner.inner.init(jr.key(0), mdp))
    assert planned["planned_value"] > 3  # it reaches the goal
    ours = plan_returns(jr.key(3), mdp, mdp.initial(jr.key(0)), jnp.stack([policy.start, ordinary.start]), 32)
    assert ours[0] > ours[1] - 1.0
    np.testing.assert_allclose(metrics["planned_value"], metrics["centre_value"], atol=1.0)


def test_members_fill_the_ball_and_never_leave_it():
    problem, model = bound(ConfidenceBall(ridge=0.01))
    mdp, replay = problem.world.mdp, rows(problem.world, jr.key(1), 30)
    fitted, _ = model.train(jr.key(0), mdp, model.init(jr.key(0), mdp), replay)
    phi = np.asarray(jax.vmap(problem.features)(replay.data.state, replay.data.action), np.float64)
    sigma = phi.T @ phi + 0.01 * np.eye(3)
    for length in (0.5, 1.0, 7.0):
        direction = jr.normal(jr.key(2), fitted.shape)
        direction = length * direction / jnp.linalg.norm(direction)
        gap = np.asarray(fitted.member(direction).W - fitted.belief.mean, np.float64)
        distance = np.sqrt(np.trace(gap @ sigma @ gap.T))
        np.testing.assert_allclose(distance, min(length, 1.0) * fitted.beta, rtol=1e-3)


def test_the_truth_is_in_the_ball_that_is_proved_and_often_outside_a_small_one():
    problem, model = bound(ConfidenceBall(ridge=1e-4))
    mdp, truth = problem.world.mdp, problem.world.mdp.transition.W

    @jax.vmap
    def distance(key):
        fitted, _ = model.train(key, mdp, model.init(key, mdp), rows(problem.world, key, 40))
        gap = jnp.linalg.solve(fitted.belief.root.T, (truth - fitted.belief.mean).T)
        return jnp.linalg.norm(gap), fitted.beta

    gaps, beta = distance(jr.split(jr.key(0), 50))
    assert jnp.all(gaps <= beta)
    assert jnp.mean(gaps > 0.1 * beta) > 0.5  # so the test would notice a radius that is ten times too large


def test_draws_have_the_mean_and_the_covariance_of_the_posterior():
    problem, model = bound(PosteriorDraw(ridge=0.01))
    mdp, data = problem.world.mdp, rows(problem.world, jr.key(1), 30)
    draws = jax.vmap(lambda key: model.train(key, mdp, model.init(key, mdp), data)[0].W)(jr.split(jr.key(0), 4000))
    phi = np.asarray(jax.vmap(problem.features)(data.data.state, data.data.action), np.float64)
    inverse = np.linalg.inv(phi.T @ phi + 0.01 * np.eye(3))
    mean = (np.asarray(data.data.next_state, np.float64).T @ phi) @ inverse
    std = model.sigma * np.sqrt(np.diag(inverse))
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * std.max() / np.sqrt(4000))
    for output in range(2):
        covariance = np.cov(np.asarray(draws[:, output]).T)
        units = np.outer(std, std)
        np.testing.assert_allclose(covariance / units, inverse * model.sigma**2 / units, atol=0.1)


def learned(settings, iterations=2):
    config = resolve("knr-lds", "lc3-oracle", (0, 1), 40 * iterations, settings)
    problem, algo = build(config)
    return list(learn(jr.split(jr.key(0), 2), algo, problem, iterations))


def test_an_iteration_plans_in_a_model_of_the_ball_and_pays_no_bonus():
    *_, (learner, metrics, _) = learned(SMALL)
    assert isinstance(learner.model, Ball)
    chosen = learner.policy.mdp.transition
    assert isinstance(chosen, KNRTransition)
    assert not jnp.array_equal(chosen.W, learner.model.belief.mean)
    assert not np.asarray(metrics["bonus_mean"]).any()
    assert np.all(np.asarray(metrics["direction"]) > 0)


def test_thompson_sampling_draws_another_model_for_each_seed_and_iteration():
    settings = ("preset=thompson", *(f"planner.{setting}" for setting in TINY_CEM))
    drawn = [learner.policy.mdp.transition.W for learner, *_ in learned(settings)]
    assert len({float(W[seed, 0, 0]) for W in drawn for seed in range(2)}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("task.dims=6",), r"most_parameters=200: W has 216 \(12 x 18\).*algo=pcmlp-knr.*216 or more"),
        (("planner.most_parameters=0",), "most_parameters=0: give 1 or more"),
        (("model.beta=0",), "model.beta=0.0: give a number above 0"),
        (("model.beta=-1",), "model.beta=-1.0: give a number above 0"),
        (("model.beta=nan",), "model.beta=nan: not a finite number"),
        (("model.ridge=0",), "model.ridge=0.0: give 1e-06"),
        (("planner.elites=200",), "planner.elites=200: give 1 to planner.num_pairs=100"),
        (("model.name=knr-draw",), "planner.name=optimistic: needs a confidence ball.*model.name=knr-ball"),
        (("bonus_scale=1",), "bonus_scale=1: has no effect with lc3-oracle"),
        (("planner.search.name=mppi",), "planner.search.name=MPPI: .* give cem"),
        (("planner.name=trpo",), "planner.name=trpo: lc3-oracle takes optimistic or cem"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(settings, message):
    with pytest.raises(ConfigError, match=message):
        build(resolve("knr-lds", "lc3-oracle", (0,), 80, settings))


def test_the_limit_can_be_raised():
    problem, algo = build(resolve("knr-lds", "lc3-oracle", (0,), 80, ("task.dims=6", "planner.most_parameters=216")))
    W = algo.model.init(jr.key(0), problem.world.mdp).shape
    assert W[0] * W[1] == algo.planner.most_parameters == 216


def test_other_tasks_are_refused():
    with pytest.raises(ConfigError, match="lc3-oracle"):
        resolve("combination-lock", "lc3-oracle")


def test_the_ball_of_a_model_without_features_says_which_tasks_have_them():
    with pytest.raises(ConfigError, match="needs a task that is a regulator, such as knr-lds"):
        ConfidenceBall().phi()
    assert eqx.is_array(line(0.0, 1.0).transition.beta)


def search_rows(ordinary, optimistic):
    """Return the columns of oracle_search.csv that the rule reads."""
    made = {"ordinary": ordinary, "optimistic": optimistic}
    return [
        {"oracle": name, "parameters": str(6 * dims**2), "searches_needed": needed}
        for name, all_needed in made.items()
        for dims, needed in enumerate(all_needed, 1)
    ]


@pytest.mark.parametrize(
    ("near", "ordinary", "optimistic", "holds"),
    [
        (("10 of 10",) * 2, ("4", "4"), ("4", "16"), True),
        (("10 of 10",) * 2, ("4", "4"), ("4", ""), True),  # not even the best of all searches
        (("10 of 10", "9 of 10"), ("4", "4"), ("4", "16"), False),
        (("10 of 10",) * 2, ("1", "16"), ("4", "16"), False),
        (("10 of 10",) * 2, ("4", "1"), ("4", "4"), False),
        (("10 of 10",) * 2, ("", ""), ("4", "16"), False),  # the ordinary oracle never finds enough
    ],
)
def test_the_claim_holds_if_only_the_optimistic_oracle_needs_more(monkeypatch, near, ordinary, optimistic, holds):
    samples = [{"method": "pcmlp", "near": text} for text in near] + [{"method": "thompson", "near": "0 of 10"}]
    tables = {"samples": samples, "search": search_rows(ordinary, optimistic)}
    monkeypatch.setattr(Kept, "table", lambda kept, place: tables[place])
    finding = rules.needs_no_optimism(Kept(Path(), {}), ("samples", "search"))
    assert finding.holds is holds
    assert "6, 24 parameters" in finding.figures


def test_the_best_of_several_searches_is_averaged_over_groups():
    values = np.array([[1.0, 3.0, 2.0, 0.0], [4.0, 4.0, 5.0, 9.0]])
    np.testing.assert_array_equal(oracle.best_of(values, 1), [1.5, 5.5])
    np.testing.assert_array_equal(oracle.best_of(values, 2), [2.5, 6.5])
    np.testing.assert_array_equal(oracle.best_of(values, 4), [3.0, 9.0])


@pytest.mark.slow  # it compiles searches of each kind
def test_measurements_at_smoke_scale_have_a_row_for_each_oracle_and_size(monkeypatch):
    monkeypatch.setattr(oracle, "_DIMS", (1,))
    for job in oracle.jobs():
        job.config()
    (ordinary, optimistic) = oracle.searches(SCALES["smoke"])
    assert (ordinary["oracle"], optimistic["oracle"]) == ("ordinary", "optimistic")
    assert optimistic["parameters"] == 6
    assert optimistic["seconds"] > 0
    assert ordinary["share_of_1"] <= 1
    (best,) = oracle.reference(SCALES["smoke"])
    assert best["planning_in_the_truth"] > -1
