"""The weight of the bonus and the unit of rewards: what a planner sees, whatever a task pays."""

import dataclasses
import math
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spying import HORIZON, KEYS, LINE, PROBES, SCALE, SEEDS, STATES, learn, of_seed, spied

from pcmlp.algorithms.weight import SHARE, largest_reward, weigh
from pcmlp.imagine import Unknown, nothing_seen
from pcmlp.planners import SAC
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.config import resolve
from pcmlp.spaces import Box, Range
from pcmlp.tasks.scaled import ScaledReward
from pcmlp.types import Features, FittedBonus
from pcmlp.world import JaxWorld

SIZE = 100.0  # the largest reward of a step that a planner expects
FACTORS = (0.01, 100.0)
YES, NO = jnp.array(True), jnp.array(False)


def number(value):
    return jnp.float32(value)


def choose(scale="auto", rescales=True, largest=3.0, bold=NO):
    return weigh(scale, rescales, SIZE, number(largest), bold)


def in_task(weight):
    """The weight of the bonus in the task's own reward: c."""
    return float(weight.metrics()["bonus_weight"])


# -- weigh -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bold", [NO, YES])
@pytest.mark.parametrize("largest", [0.0, 3.0, 1e-4])
@pytest.mark.parametrize("c", [0.0, 0.3, 5.0])
def test_a_number_is_used_as_it_is_and_never_bold(c, largest, bold):
    weight = choose(c, False, largest, bold)
    assert (float(weight.unit), float(weight.scale), bool(weight.bold)) == (1.0, number(c), False)
    rescaled = choose(c, True, largest, bold)
    assert in_task(rescaled) == pytest.approx(c)  # in the task's own reward it is the same
    assert float(rescaled.scale) == pytest.approx(c * SIZE / (largest or 1.0))
    assert not rescaled.bold


@pytest.mark.parametrize("bold", [NO, YES])
@pytest.mark.parametrize("rescales", [False, True])
@pytest.mark.parametrize("largest", [1e-4, 0.5, 3.0, 1e6])
def test_auto_is_a_share_of_the_largest_reward(largest, rescales, bold):
    weight = choose("auto", rescales, largest, bold)
    assert float(weight.unit) == pytest.approx(largest / SIZE if rescales else 1.0)
    assert float(weight.scale) == pytest.approx(SHARE * (SIZE if rescales else largest))
    assert in_task(weight) == pytest.approx(SHARE * largest)
    logged = weight.metrics()
    assert (float(logged["largest_reward"]), float(logged["bold"])) == (number(largest), float(bold))
    assert bool(weight.bold) == bool(bold)


@pytest.mark.parametrize("scale", ["auto", 0.3])
def test_before_anything_was_paid_the_unit_is_that_of_a_reward_of_one(scale):
    """And what was paid is still nothing."""
    nothing, one = choose(scale, largest=0.0), choose(scale, largest=1.0)
    assert (float(nothing.unit), float(nothing.scale)) == (float(one.unit), float(one.scale))
    assert float(nothing.largest) == 0.0


def test_auto_is_an_input_of_the_program():
    """As a number is: the text is NaN in there, and both run one program."""
    traced = []

    @eqx.filter_jit
    def compiled(scale, rescales):
        traced.append(scale)
        return weigh(scale, rescales, SIZE, number(3.0), YES)

    for scale, found in (("auto", math.nan), (0.3, 0.3)):
        for rescales in (False, True):
            ours, theirs = compiled(number(found), jnp.array(rescales)), choose(scale, rescales, bold=YES)
            assert eqx.tree_equal(ours, theirs, rtol=1e-6).item()
    assert len(traced) == 1


def test_a_unit_makes_the_largest_reward_as_large_as_the_planner_expects():
    for planner in (spied().planner, SAC()):
        algo = dataclasses.replace(spied(rescales=True), planner=planner)
        assert 3.0 / float(algo.weigh(number(3.0), NO).unit) == pytest.approx(planner.reward_size)
    assert spied().planner.reward_size != SAC.reward_size


# -- the bonus ---------------------------------------------------------------------------------------------------------


class Constant(FittedBonus):
    """The same bonus everywhere, but NaN at states that are none."""

    features: Features
    amount: float

    def __call__(self, state, action):
        return jnp.where(jnp.isnan(state[0]), jnp.nan, number(self.amount))


class FirstCoordinate(FittedBonus):
    """A bonus that is the first feature."""

    features: Features

    def __call__(self, state, action):
        return self.features(state, action)[0]


def phi(state, action):
    return jnp.concatenate([state, action])


def walked(rewards, valid=True, size=1):
    """Rows with these rewards, and states of some size."""
    rewards = jnp.asarray(rewards, jnp.float32)
    n, no = rewards.size, jnp.zeros(rewards.size, bool)
    valid = jnp.broadcast_to(jnp.asarray(valid), n)
    return Transitions(jnp.zeros((n, size)), jnp.zeros((n, 1)), rewards, jnp.zeros((n, size)), no, no, valid)


@pytest.mark.parametrize("bold", [NO, YES])
@pytest.mark.parametrize(("amount", "planned"), [(2.0, 2.0 * SHARE * SIZE), (1e6, 10.0)])
def test_the_bonus_is_weighed_and_capped_as_it_is_planned_for(amount, planned, bold):
    """Its mean is logged as the task pays."""
    weight, bonus, state = choose(bold=bold), Constant(phi, amount), jnp.zeros(1)
    assert float(weight.apply(bonus, 10)(state, state)) == pytest.approx(planned)
    paid = weight.mean_bonus(bonus, phi, walked([1.0, 2.0]), 10)
    assert float(paid) == pytest.approx(planned * 3.0 / SIZE)


def test_the_mean_bonus_is_that_of_real_steps():
    """Padding may be anything."""
    bonus = FirstCoordinate(phi)
    rows = eqx.tree_at(lambda t: t.state, walked([0.0] * 3, [True, True, False]), jnp.array([[1.0], [3.0], [99.0]]))
    assert float(choose().mean_bonus(bonus, phi, rows, 10)) == pytest.approx(2 * SHARE * 3.0)


def test_the_mean_bonus_is_that_of_the_given_features():
    """The first ones were drawn before there were samples."""
    rows = eqx.tree_at(lambda t: t.state, walked([0.0]), jnp.ones((1, 1)))
    paid = choose().mean_bonus(FirstCoordinate(phi), lambda s, a: 5.0 * phi(s, a), rows, 10)
    assert float(paid) == pytest.approx(5 * SHARE * 3.0)


# -- the largest reward ------------------------------------------------------------------------------------------------


def largest_of(reward, states=STATES, seen=None, margin=0.0, rows=None, key=0):
    mdp = dataclasses.replace(LINE, reward=reward, states=states)
    seen = nothing_seen(states) if seen is None else Range(*map(jnp.float32, seen))
    rows = walked([0.0], False, states.size) if rows is None else rows
    return float(
        eqx.filter_jit(largest_reward)(jr.key(key), mdp, seen, margin, Replay.empty(rows, 8).add(rows), jnp.zeros(()))
    )


def place(state, action, next_state):
    return state[0]


def effort(state, action, next_state):
    return -5.0 * action[0] ** 2


def stay(state, action, next_state):
    return 2.0 - jnp.abs(next_state[0] - state[0])


@pytest.mark.parametrize(
    ("reward", "states", "largest"),
    [
        (place, STATES, 3.0),  # a cost counts as a reward does
        (place, Box([0.0], [1.0]), 1.0),
        (effort, STATES, 5.0),
        (stay, STATES, 2.0),
        (lambda s, a, t: 0.0 * s[0], STATES, 0.0),
    ],
)
def test_a_reward_that_is_given_is_asked_in_the_whole_observation_space(reward, states, largest):
    """And for all actions, whatever was seen."""
    everywhere = largest_of(reward, states)
    assert everywhere == pytest.approx(largest, rel=0.01)
    assert everywhere <= largest
    assert largest_of(reward, states, ([-0.1], [0.1]), margin=9.0) == everywhere


@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    ("low", "high", "seen"),
    [(-np.inf, np.inf, (-4.0, 0.0)), (0.0, np.inf, (0.0, 4.0)), (-np.inf, 0.0, (-4.0, 0.0))],
)
def test_without_bounds_it_is_asked_near_what_was_seen(low, high, seen, margin):
    """Of two coordinates, the first one has bounds."""
    states, seen = Box([-1.0, low], [1.0, high]), ([-0.1, seen[0]], [0.1, seen[1]])
    furthest = largest_of(lambda s, a, t: 10.0 * s[1], states, seen, margin)
    assert furthest == pytest.approx(40.0 * (1 + margin), rel=0.1)
    assert furthest <= 40.0 * (1 + margin)
    assert largest_of(place, states, seen, margin) == pytest.approx(1.0, rel=0.01)


def test_before_anything_was_seen_there_may_be_nowhere_to_ask():
    assert largest_of(place, Box([-np.inf], [np.inf])) == 0.0


def test_what_was_paid_counts_too():
    rows = walked([-7.0, 2.0, 99.0], [True, True, False])
    assert largest_of(place, rows=rows) == largest_of(Unknown(), rows=rows) == 7.0
    assert largest_of(place, rows=walked([0.5])) == largest_of(place)


@pytest.mark.parametrize(("rewards", "largest"), [([0.25, 0.0], 0.25), ([0.0, 0.0], 0.0)])
def test_a_reward_that_is_learned_is_known_where_it_was_paid(rewards, largest):
    assert largest_of(Unknown(), rows=walked(rewards)) == largest
    assert largest_of(Unknown()) == 0.0  # nothing was walked


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_reward_that_is_not_finite_does_not_count(bad):
    def spoilt(state, action, next_state):
        return jnp.where(state[0] < -1.0, bad, state[0])

    assert largest_of(spoilt) == pytest.approx(1.0, rel=0.01)
    assert largest_of(lambda s, a, t: jnp.full((), bad)) == 0.0
    assert largest_of(Unknown(), rows=walked([bad, -2.0])) == 2.0


def test_where_a_reward_is_asked_depends_on_the_key():
    assert len({largest_of(place, key=key) for key in range(3)}) == 3


# -- a whole stage -----------------------------------------------------------------------------------------------------


AUTO = {"bonus_scale": "auto", "rescales": True, "fresh": True, "deploys": "proven"}


def paying(factor):
    """The line with all rewards multiplied."""
    return JaxWorld(dataclasses.replace(LINE, reward=ScaledReward(LINE.reward, number(factor))))


def iterations_of(algo, world=None, count=5):
    return [iteration for iteration, _ in learn(algo, count, world=world or paying(1.0))]


@pytest.fixture(scope="module")
def run():
    return iterations_of(spied(**AUTO))


def bonus_at_probes(learner):
    bonus = learner.weight.apply(learner.bonus, HORIZON)
    return np.asarray(jax.vmap(bonus)(PROBES[:, :1], jnp.clip(PROBES[:, 1:], -1.0, 1.0)))


@pytest.mark.parametrize("changes", [{}, {"bonus_scale": SCALE}, {"rescales": False}, {"fresh": False}])
def test_a_planner_sees_rewards_in_units_and_a_weighed_bonus(changes):
    """Careful: r / unit + w b. Bold: w b. To deploy: r / unit. What begins anew and finds its weight may be bold."""
    reward, bold = -np.asarray(PROBES[:, 0]), []
    for learner, *_ in iterations_of(spied(**AUTO | {"deploys": "newest"} | changes)):
        for seed in range(SEEDS):
            one = of_seed(learner, seed)
            bonus, in_units = bonus_at_probes(one), reward / float(one.weight.unit)
            explored = bonus + (0.0 if one.weight.bold else in_units)
            np.testing.assert_allclose(one.policy.reward, explored, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(one.deployed().reward, in_units, rtol=1e-5)
            assert (bonus > 0).all()
            assert float(one.weight.largest) == pytest.approx(3.0, rel=0.01)
            bold.append(bool(one.weight.bold))
    assert set(bold) == ({True, False} if changes in ({}, {"rescales": False}) else {False})


def test_every_second_exploring_policy_is_bold(run):
    """Walks that do not explore change nothing. The first policy that was planned is careful."""
    before = of_seed(run[0].learner, slice(None))
    assert not before.weight.bold.any()
    for learner, metrics, *_ in run[1:]:
        wanted = jnp.where(before.trial.explores, ~before.weight.bold, before.weight.bold)
        np.testing.assert_array_equal(learner.weight.bold, wanted)
        np.testing.assert_array_equal(metrics["bold"], wanted.astype(np.float32))
        before = learner


@pytest.mark.parametrize("factor", FACTORS)
def test_the_scale_of_a_task_changes_neither_plans_nor_decisions(run, factor):
    """All that is in units of the reward is multiplied by the factor, and nothing else is changed."""
    scaled = iterations_of(spied(**AUTO), paying(factor))
    for n, ((ours, found, *_), (theirs, known, *_)) in enumerate(zip(scaled, run, strict=True), 1):
        for name in ("policy", "trial.deployed", "trial.candidate"):
            mine, wanted = (attrgetter(name)(learner).reward for learner in (ours, theirs))
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)
        for name in ("tries", "repeats", "found", "failed", "walks"):
            np.testing.assert_array_equal(getattr(ours.trial, name), getattr(theirs.trial, name))
        for name in ("base", "record"):
            np.testing.assert_allclose(getattr(ours.trial, name), factor * getattr(theirs.trial, name), rtol=1e-4)
        np.testing.assert_array_equal(ours.weight.bold, theirs.weight.bold)
        np.testing.assert_allclose(ours.weight.scale, theirs.weight.scale, rtol=1e-5)
        promised = ["bonus_mean"] if n > 1 else []  # the first policy was promised a bonus before anything was paid
        for name in (*promised, "bonus_weight", "largest_reward", "walked_return", "candidate_imagined"):
            np.testing.assert_allclose(found[name], factor * known[name], rtol=1e-3, err_msg=name)
    assert any(learner.weight.bold.any() for learner, *_ in run)


def test_the_unit_is_kept_when_the_replay_forgets():
    """The largest reward so far, of each seed, although what paid it is no longer in the replay."""
    algo = spied(**AUTO)
    mdp = dataclasses.replace(LINE, reward=lambda s, a, t: 0.5 + 0.0 * s[0])
    learner = eqx.tree_at(lambda l: l.weight.largest, algo.start(KEYS, mdp, 2), jnp.array([0.1, 10.0]))
    after = algo.iterate(KEYS, JaxWorld(mdp), learner, 1).learner
    np.testing.assert_array_equal(after.weight.largest, [0.5, 10.0])
    np.testing.assert_allclose(after.weight.unit, [0.005, 0.1], rtol=1e-6)


def test_the_papers_preset_weighs_nothing():
    """It goes through the same lines: one policy, a unit of 1, and the paper's c."""
    printed = resolve("mountain-car", settings=("preset=paper",)).algorithm
    assert (printed.deploys, printed.rescales, printed.bonus_scale) == ("exploring", False, 5.0)
    assert (printed.rule, printed.exploits, printed.plans) == ("exploring", False, printed.rounds)
    as_printed = {name: getattr(printed, name) for name in ("deploys", "rescales", "bonus_scale", "fresh")}
    for learner, metrics, *_ in iterations_of(spied(**as_printed), count=3):
        for name, value in (("unit", 1.0), ("scale", 5.0), ("bold", False)):
            np.testing.assert_array_equal(getattr(learner.weight, name), value)
        np.testing.assert_array_equal(metrics["bonus_weight"], 5.0)
        assert eqx.tree_equal(learner.deployed(), learner.policy)
        assert np.asarray(learner.trial.explores).all()
        for seed in range(SEEDS):
            one = of_seed(learner, seed)
            planned = -np.asarray(PROBES[:, 0]) + bonus_at_probes(one)
            np.testing.assert_allclose(one.policy.reward, planned, rtol=1e-4, atol=1e-4)
