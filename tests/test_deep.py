"""Algorithm 2 line by line, with a planner that writes down which MDP it was given.

Whole, with TRPO and MPPI, it is in test_agent.py.
"""

import dataclasses
import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from spying import (
    DRAWN,
    HORIZON,
    ITERATIONS,
    KEYS,
    LINE,
    MARGIN,
    PROBES,
    RIDGE,
    ROOM,
    ROUNDS,
    SAMPLES,
    SCALE,
    SEEDS,
    SHARE,
    TRACES,
    learn,
    of_seed,
    same,
    spied,
)

from pcmlp.algorithms import deep
from pcmlp.algorithms.deep import imagination
from pcmlp.algorithms.starts import imagined_starts
from pcmlp.algorithms.trials import Trial, propose
from pcmlp.bonus import CappedBonus
from pcmlp.errors import ConfigError
from pcmlp.imagine import bounds_around, expand_range, nothing_seen
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Box, Coordinates, Finite, Range
from pcmlp.trees import as_inputs, stack_inputs
from pcmlp.types import FittedModel, Policy, Problem
from pcmlp.world import JaxWorld


@pytest.fixture(scope="module")
def first():
    return spied().start(KEYS, LINE, ITERATIONS)


@pytest.fixture(scope="module")
def run(first):
    return [iteration for iteration, _ in learn(spied())]


def phi_of(learner, samples, seed):
    """phi at the actions that were done."""
    features = of_seed(learner.features, seed)
    action = jnp.clip(samples.action[seed], -1.0, 1.0)
    return np.asarray(jax.vmap(features)(samples.state[seed], action), np.float64)


def test_a_stage_is_traced_once():
    """Over iterations, and for another bonus, no covariance, or a longer run."""
    after = [traces for _, traces in learn(spied())]
    assert after[0]["features"] > 0
    assert after[-1] == after[0]
    others = [{"covariance": False}, {"margin": 9.0}, {"replay_starts": 0.0}, {"rescales": True}]
    for changes in (*others, *({"bonus_scale": c} for c in (0.0, "auto"))):
        learn(spied(**changes), iterations=2)
    learn(spied(), iterations=1, planned=50)
    assert dict(TRACES) == after[0]


def test_seeds_side_by_side_as_one_after_another(first, run):
    """A GPU does the former, a CPU the latter."""
    side_by_side = eqx.filter_vmap(deep.improve, in_axes=(0, None, None, eqx.if_array(0), eqx.if_array(0), None))
    algo = as_inputs(spied())
    learner, metrics = eqx.filter_jit(side_by_side)(KEYS, algo, LINE, first, run[0].samples, jnp.array(1))
    ours, theirs = (jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in ((learner, metrics), run[0][:2]))
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(y).max())))


def test_a_stage_returns_what_it_was_given(first, run):
    """Shapes and types, weak ones too, or the second iteration would compile again."""

    def kinds(learner):
        leaves, structure = jax.tree.flatten(learner)
        return structure, [(x.shape, x.dtype, x.weak_type) for x in leaves if eqx.is_array(x)]

    assert kinds(run[0].learner) == kinds(first)


def test_covariance_is_the_ridge_and_the_moments(run):
    for seed in range(SEEDS):
        covariance = RIDGE * np.eye(16)
        for learner, metrics, samples, _ in run:
            phi = phi_of(learner, samples, seed)
            covariance += phi.T @ phi / SAMPLES
            np.testing.assert_allclose(learner.covariance.matrix[seed], covariance, rtol=1e-4, atol=1e-6)
            gain = np.linalg.slogdet(covariance / RIDGE)[1]
            np.testing.assert_allclose(metrics["info_gain"][seed], gain, rtol=1e-3)


def test_phi_is_drawn_from_the_first_samples_and_stays(first, run):
    frozen = run[0].learner.features
    assert not same(frozen, first.features)
    assert all(same(iteration.learner.features, frozen) for iteration in run[1:])
    samples = run[0].samples
    np.testing.assert_allclose(frozen.normaliser.mean[:, :1], np.mean(samples.state, axis=1), rtol=1e-3, atol=1e-5)
    norms = [np.linalg.norm(phi_of(run[0].learner, samples, seed), axis=1).max() for seed in range(SEEDS)]
    np.testing.assert_allclose(norms, 0.5, rtol=1e-4)  # a margin of 2


def test_the_held_out_error_is_of_the_model_before_its_fit(run):
    """The model of the last iteration on the samples of this one; none was fitted before the first."""
    assert np.isnan(run[0].metrics["held_out_error"]).all()
    for before, (_, metrics, samples, _) in itertools.pairwise(run):
        for seed in range(SEEDS):
            model = of_seed(before.learner.model, seed)
            played = deep.with_executed_actions(of_seed(samples, seed), LINE)
            predicted = jax.vmap(model.difference)(played.state, played.action)
            errors = np.abs(predicted - (played.next_state - played.state)) / float(model.change.std[0])
            np.testing.assert_allclose(metrics["held_out_error"][seed], errors.mean(), rtol=1e-3)


def test_bonus_mean_is_what_the_last_plan_was_promised(run):
    """b_{n-1} over the states that pi_n visited, before they are in the covariance; b_0 knows the ridge alone."""
    covariance = np.stack([RIDGE * np.eye(16)] * SEEDS)
    for learner, metrics, samples, _ in run:
        for seed in range(SEEDS):
            phi = phi_of(learner, samples, seed)
            squared = np.sum(phi * np.linalg.solve(covariance[seed], phi.T).T, axis=1)
            expected = np.mean(np.minimum(2 * SCALE * np.sqrt(squared), HORIZON))
            np.testing.assert_allclose(metrics["bonus_mean"][seed], expected, rtol=1e-3)
        covariance = np.asarray(learner.covariance.matrix, np.float64)
    assert (run[-1].metrics["bonus_mean"] < run[0].metrics["bonus_mean"]).all()


def test_env_steps_and_a_replay_that_forgets_the_oldest(run):
    rows = []
    for n, (learner, _, samples, walked) in enumerate(run, 1):
        np.testing.assert_array_equal(learner.env_steps, np.full(SEEDS, n * SAMPLES))
        assert same(walked[0], samples)
        rows.append(np.asarray(samples.state)[..., 0])
        newest = np.concatenate(rows, axis=1)[:, -ROOM:]
        for seed in range(SEEDS):
            replay = of_seed(learner.replay, seed)
            in_order = np.roll(np.asarray(replay.data.state)[:, 0], -int(replay.head))
            np.testing.assert_array_equal(in_order[-newest.shape[1] :], newest[seed])
            assert int(replay.data.valid.sum()) == newest.shape[1]


def test_a_checkpoint_without_the_replay_is_made_whole_by_what_was_walked(run):
    walked = [steps for iteration in run for steps in iteration.walked]
    learner = run[-1].learner
    assert len(walked) * SAMPLES > ROOM  # rows were written over
    light = spied().without_replay(learner)
    assert light.replay.data.state.shape[:2] == (SEEDS, 0)
    assert same(spied().restore_replay(light, LINE, walked), learner)


def test_what_is_learned_from_is_what_was_done(run):
    """Policies ask for up to twice the range. The samples say so, the replay has what the world did."""
    learner, _, samples, _ = run[1]
    assert np.abs(samples.action).max() > 1.5
    replayed = np.asarray(learner.replay.data.action)
    assert np.abs(replayed).max() == 1.0
    np.testing.assert_array_equal(replayed[:, SAMPLES : 2 * SAMPLES], np.clip(samples.action, -1, 1))


def capped(bonus):
    return CappedBonus(bonus, SCALE, float(HORIZON))


def test_exploring_is_planned_for_reward_and_bonus_and_deploying_for_reward(run):
    for learner, *_ in run:
        for seed in range(SEEDS):
            one = of_seed(learner, seed)
            reward = -np.asarray(PROBES[:, 0])
            bonus = jax.vmap(capped(one.bonus))(PROBES[:, :1], jnp.clip(PROBES[:, 1:], -1.0, 1.0))
            np.testing.assert_allclose(one.policy.reward, reward + bonus, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(one.trial.candidate.reward, reward)
            assert (np.asarray(bonus) > 0).all()


def test_deploying_starts_from_this_iterations_exploring(run):
    for n, (learner, *_) in enumerate(run, 1):
        np.testing.assert_array_equal(learner.policy.plans, np.full(SEEDS, n * ROUNDS))
        np.testing.assert_array_equal(learner.trial.candidate.plans, learner.policy.plans + 1)
        assert same(learner.deployed(), learner.trial.candidate)


def test_the_exploring_policy_can_be_deployed():
    """As in the paper: one policy, planned for reward and bonus, explores and is deployed."""
    algo = spied(deploys="exploring")
    assert not algo.evaluates_exploring
    assert same(algo.start(KEYS, LINE, 2).deployed(), algo.start(KEYS, LINE, 2).policy)
    for n, ((learner, *_), _) in enumerate(learn(algo, iterations=2), 1):
        np.testing.assert_array_equal(learner.policy.plans, np.full(SEEDS, n * ROUNDS))
        assert same(learner.deployed(), learner.policy)


@pytest.mark.slow
def test_an_exploring_policy_can_begin_anew():
    for (learner, *_), _ in learn(spied(fresh=True), iterations=2):
        np.testing.assert_array_equal(learner.policy.plans, np.full(SEEDS, ROUNDS))
        np.testing.assert_array_equal(learner.trial.candidate.plans, learner.policy.plans + 1)


def test_both_plan_in_the_last_model_within_what_was_seen(run):
    low, high = np.full(SEEDS, np.inf), np.full(SEEDS, -np.inf)
    for learner, _, samples, _ in run:
        seen = np.concatenate([samples.state, samples.next_state], axis=1)[..., 0]
        low, high = np.minimum(low, seen.min(1)), np.maximum(high, seen.max(1))
        np.testing.assert_array_equal(learner.seen.low[:, 0], low)
        np.testing.assert_array_equal(learner.seen.high[:, 0], high)
        least, most = np.maximum(-3, low - MARGIN * (high - low)), np.minimum(1, high + MARGIN * (high - low))
        np.testing.assert_array_equal(learner.policy.next_state, learner.trial.candidate.next_state)
        np.testing.assert_allclose(learner.policy.reached[:, 0, 0], least, rtol=1e-6)
        np.testing.assert_allclose(learner.policy.reached[:, 1, 0], most, rtol=1e-6)
        one = of_seed(learner, 0)
        model = jax.vmap(partial(one.model, jr.key(0)))(PROBES[:, :1], jnp.clip(PROBES[:, 1:], -1.0, 1.0))
        np.testing.assert_allclose(one.policy.next_state[:, 0], np.clip(model[:, 0], least[0], most[0]), rtol=1e-5)


def test_a_share_of_imagined_episodes_begins_at_states_of_the_replay(run):
    for learner, *_ in run:
        for seed in range(SEEDS):
            replay = of_seed(learner.replay.data, seed)
            been = np.asarray(replay.state)[np.asarray(replay.valid), 0]
            starts = np.asarray(learner.policy.starts[seed])[:, 0]
            of_replay = np.isin(starts, been)
            assert of_replay.mean() == pytest.approx(SHARE, abs=4 * np.sqrt(SHARE * (1 - SHARE) / DRAWN))
            assert (np.abs(starts[~of_replay]) <= 0.1).all()  # the world's own
            assert (np.abs(starts[of_replay]) > 0.1).any()


def test_seeds_have_their_own_features_and_models(first, run):
    for learner in (first, run[-1].learner):
        for weights in (learner.features.net.weights[0], learner.model.net.weights[0]):
            assert not np.isclose(weights[0], weights[1]).any()
    assert not np.isclose(run[0].samples.action[0], run[0].samples.action[1]).any()


def test_the_control_pays_as_much_as_the_cover_would():
    """Its bonus is a multiple of |phi|, and has the mean over the samples that the bonus of Sigma_n has there."""
    history = [iteration for iteration, _ in learn(spied(covariance=False), iterations=3)]
    assert (history[-1].metrics["info_gain"] > history[0].metrics["info_gain"]).all()  # Sigma_n grows all the same
    for learner, _, samples, _ in history:
        for seed in range(SEEDS):
            phi, sigma = phi_of(learner, samples, seed), np.asarray(learner.covariance.matrix[seed], np.float64)
            cover = 2 * np.sqrt(np.einsum("ni,ij,nj->n", phi, np.linalg.inv(sigma), phi))
            static = 2 * np.linalg.norm(phi @ np.asarray(learner.bonus.whitener[seed]), axis=1)
            assert static.mean() == pytest.approx(cover.mean(), rel=1e-3)
            ratio = static / np.linalg.norm(phi, axis=1)
            np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-4)


def test_no_bonus_is_no_difference():
    for (learner, metrics, *_), _ in learn(spied(bonus_scale=0.0), iterations=2):
        np.testing.assert_array_equal(learner.policy.reward, learner.trial.candidate.reward)
        np.testing.assert_array_equal(metrics["bonus_mean"], 0.0)
        learner = eqx.tree_at(lambda l: l.trial.record, learner, jnp.zeros(SEEDS))  # -inf: nothing has walked
        numbers = learner, {name: x for name, x in metrics.items() if name != "held_out_error"}  # empty at first
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(numbers, eqx.is_inexact_array)))


def test_where_reward_and_novelty_disagree(first):
    """All samples on the left, where the reward is: exploring prefers the right, deploying the left."""
    rng = np.random.default_rng(0)
    state = rng.uniform(-1.5, -0.5, (SEEDS, SAMPLES, 1)).astype(np.float32)
    action = rng.uniform(-1, 1, (SEEDS, SAMPLES, 1)).astype(np.float32)
    no, yes = jnp.zeros((SEEDS, SAMPLES), bool), jnp.ones((SEEDS, SAMPLES), bool)
    reward, next_state = jnp.asarray(-state[..., 0]), jnp.asarray(state + 0.2 * action)
    rows = (jnp.asarray(state), jnp.asarray(action), reward, next_state, no, yes, yes)
    samples = jax.vmap(Transitions)(*rows)
    learner, _ = deep._improve(KEYS, stack_inputs([spied()] * SEEDS), LINE, first, samples, jnp.array(1))
    right = np.asarray(PROBES[:, 0]) > 0.5
    there = (np.asarray(PROBES[:, 0]) > -1.4) & (np.asarray(PROBES[:, 0]) < -0.6)
    assert right.any()
    assert there.any()
    exploring, deploying = np.asarray(learner.policy.reward), np.asarray(learner.trial.candidate.reward)
    assert (exploring[:, right].min(1) > exploring[:, there].max(1)).all()
    assert (deploying[:, right].max(1) < deploying[:, there].min(1)).all()


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_exploring_reward_free_ignores_the_reward(run):
    one = of_seed(run[-1].learner, 0)
    row = jnp.array([-0.5]), jnp.array([5.0]), jnp.array([-0.4])
    for free, paid in ((True, 0.0), (False, 0.4)):
        algo = spied(reward_free=free)
        imagined = partial(imagination, algo, LINE, one.bonus, one.seen, jnp.zeros((1, 1)), one.weight, one.model)
        exploring, deploying = (imagined(jnp.array(explores)).reward(*row) for explores in (True, False))
        assert float(exploring) == pytest.approx(paid + float(capped(one.bonus)(row[0], jnp.array([1.0]))), rel=1e-5)
        assert float(deploying) == pytest.approx(0.4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_or_no_imagined_episodes_begin_at_the_replay(share):
    rows = Transitions(*[jnp.full((3, 1), 0.7)] * 2, jnp.zeros(3), jnp.zeros((3, 1)), *[jnp.ones(3, bool)] * 3)
    replay = Replay.empty(rows, 8).add(rows)  # and five rows that were never written
    starts = eqx.filter_jit(imagined_starts)(jr.key(0), LINE, replay, 1024, share, 0.0)
    if share:
        np.testing.assert_array_equal(starts, np.float32(0.7))
    else:
        assert np.abs(starts).max() <= 0.1
        assert np.unique(starts).size > 100


def test_a_goal_may_be_wherever_what_should_reach_it_was():
    """Or a goal that was moved there would be moved back by the first imagined step."""
    infinite = [np.inf] * 3
    states = Box([-np.inf] * 3, infinite, Coordinates(goals=((2, 0),)))
    seen = Range(jnp.array([-5.0, 0.0, 1.0]), jnp.array([2.0, 1.0, 3.0]))
    allowed = bounds_around(states, seen, 0.0, True)
    np.testing.assert_array_equal(allowed.low, [-5, 0, -5])
    np.testing.assert_array_equal(allowed.high, [2, 1, 3])
    unseen = bounds_around(states, nothing_seen(states), 1.0, True)
    np.testing.assert_array_equal(unseen.high, infinite)


def test_bounds_are_what_is_possible_and_what_was_seen_with_a_margin():
    states = Box([-1.0, -np.inf, 0.0], [1.0, np.inf, np.inf])
    seen = Range(jnp.array([-0.5, -3.0, 1.0]), jnp.array([0.0, 5.0, 2.0]))
    allowed = bounds_around(states, seen, 2.0, True)
    np.testing.assert_array_equal(allowed.low, [-1, -19, 0])
    np.testing.assert_array_equal(allowed.high, [1, 21, 4])
    exact = bounds_around(states, seen, 0.0, True)
    np.testing.assert_array_equal([exact.low, exact.high], [seen.low, seen.high])
    for margin in (0.0, 1.0):  # before anything was seen, all that is possible
        for nothing in (nothing_seen(states), Range(states.low, states.high)):
            first = bounds_around(states, nothing, margin, True)
            np.testing.assert_array_equal([first.low, first.high], [states.low, states.high])


class RunAway(FittedModel):
    """A model whose states leave every range."""

    def __call__(self, key, state, action):
        return 100.0 * state


@pytest.mark.parametrize("bounded", [False, True])
def test_bounds_can_be_switched_off(run, bounded):
    one = of_seed(run[-1].learner, 0)
    algo, starts = spied(bounded=bounded), jnp.zeros((1, 1))
    mdp = imagination(algo, LINE, one.bonus, one.seen, starts, one.weight, RunAway(), jnp.array(False))
    reached = float(mdp.transition(jr.key(0), jnp.array([-1.0]), jnp.zeros(1))[0])
    assert reached >= -3.0 if bounded else reached == -100.0


def test_seen_counts_both_ends_of_a_step_and_no_padding():
    nowhere = Range(jnp.full(1, jnp.inf), jnp.full(1, -jnp.inf))
    state, after = jnp.array([[0.0], [1.0], [50.0]]), jnp.array([[-2.0], [0.5], [-50.0]])
    no = jnp.zeros(3, bool)
    rows = Transitions(state, state, jnp.zeros(3), after, no, no, jnp.array([True, True, False]))
    seen = expand_range(nowhere, rows)
    np.testing.assert_array_equal([seen.low, seen.high], [[-2], [1]])
    more = expand_range(seen, eqx.tree_at(lambda t: t.valid, rows, no))
    np.testing.assert_array_equal([more.low, more.high], [[-2], [1]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples_per_policy", 0),
        ("replay_size", 0),
        ("rounds", 0),
        ("ridge", 0.0),
        ("ridge", float("nan")),
        ("bonus_scale", -1.0),
        ("bonus_scale", float("inf")),
        ("replay_starts", 1.5),
        ("margin", -0.5),
    ],
)
def test_bad_inputs_of_the_algorithm(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}: ") as refused:
        spied(**{name: value})
    assert "\n" not in str(refused.value)


def test_integers_as_states_are_refused():
    finite = Problem(JaxWorld(dataclasses.replace(LINE, states=Finite(3))))
    with pytest.raises(ConfigError, match="vectors; use pcmlp-linear"):
        spied().bind(finite)


class Steady(Policy):
    action: Float[Array, "1"]

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, self.action

    def deterministic(self):
        return self


@pytest.mark.parametrize("new", [-1.0, 1.0])
def test_of_two_policies_the_better_imagined_is_deployed(new):
    """Left pays."""
    trial, candidate = Trial.new(Steady(jnp.array([-new]))), Steady(jnp.array([new]))
    weight = spied().weigh(jnp.zeros(()), jnp.array(False))
    trial, _ = propose(jr.key(0), "imagined", LINE, trial, candidate, weight, jnp.array(3))
    assert isinstance(trial.deployed, Steady)
    np.testing.assert_array_equal(trial.deployed.action, [-1.0])
