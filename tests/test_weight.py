"""The weight of the bonus and the unit of rewards: what a planner sees, whatever a task pays."""

import dataclasses
import itertools
import math
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spying import HORIZON, KEYS, LINE, PROBES, SCALE, SEEDS, STATES, learn, of_seed, spied

from pcmlp.algorithms.weight import CAREFUL, DIMMING, Weight, is_bold_next, largest_reward, weigh
from pcmlp.imagine import OptimisticReward, nothing_seen, pay_nothing
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.config import resolve
from pcmlp.spaces import Box, Range
from pcmlp.tasks.scaled import ScaledReward
from pcmlp.types import Features, FittedBonus, Unknown, never
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
    assert (float(weight.unit), float(weight.dimming), float(weight.largest)) == (1.0, 1.0, number(largest))
    assert float(weight.scale) == number(c)
    assert not weight.bold
    rescaled = choose(c, True, largest, bold)
    assert in_task(rescaled) == pytest.approx(c)  # in the task's own reward it is the same
    assert float(rescaled.scale) == pytest.approx(c * SIZE / (largest or 1.0))
    assert not rescaled.bold


@pytest.mark.parametrize("rescales", [False, True])
@pytest.mark.parametrize("largest", [1e-4, 0.5, 3.0, 1e6])
def test_auto_is_in_units_of_the_largest_reward(largest, rescales):
    careful, bold = (choose("auto", rescales, largest, flag) for flag in (NO, YES))
    assert in_task(careful) == pytest.approx(CAREFUL * largest)
    assert in_task(bold) == pytest.approx(DIMMING * CAREFUL * largest)
    assert (bool(careful.bold), bool(bold.bold)) == (False, True)
    for weight in (careful, bold):
        assert float(weight.unit) == pytest.approx(largest / SIZE if rescales else 1.0)
        assert float(weight.metrics()["reward_unit"]) == number(largest)
        assert float(weight.metrics()["bold"]) == float(weight.bold)
    # Bold exploring makes the reward small, not the bonus large: planners see a bonus of the same size.
    np.testing.assert_array_equal(bold.scale, careful.scale)


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


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("bold", [NO, YES])
def test_what_is_planned_for_does_not_depend_on_the_scale_of_rewards(factor, bold):
    def planned(factor, explores):
        weight = choose(largest=factor * 3.0, bold=bold)
        reward = OptimisticReward(lambda s, a, t: factor * s[0], pay_nothing, weight.unit_of(explores))
        return jax.vmap(lambda s: reward(s, s, s))(PROBES), weight.scale

    for explores in (YES, NO):
        for ours, theirs in zip(planned(factor, explores), planned(1.0, explores), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_the_largest_reward_is_as_large_as_a_planner_expects():
    assert 3.0 / float(choose(largest=3.0).unit_of(NO)) == pytest.approx(SIZE)
    assert 3.0 / float(choose(largest=3.0, bold=YES).unit_of(YES)) == pytest.approx(SIZE / DIMMING)


def test_only_exploring_is_dimmed():
    bold, careful = choose(bold=YES), choose()
    assert float(bold.unit_of(YES)) == DIMMING * float(bold.unit_of(NO))
    assert float(bold.unit_of(NO)) == float(bold.unit) == float(careful.unit)
    assert float(careful.unit_of(YES)) == float(careful.unit)


@pytest.mark.parametrize(
    ("explored", "bold", "improved", "following"),
    [
        (True, False, False, True),  # careful ones that return no more are followed by a bold one
        (True, False, True, False),  # as long as they return more and more, they go on
        (True, True, False, False),  # a bold one is followed by a careful one
        (True, True, True, False),
        (False, False, False, False),  # what did not explore decides nothing
        (False, True, False, True),
        (False, False, True, False),
        (False, True, True, True),
    ],
)
def test_every_second_exploring_policy_is_bold(explored, bold, improved, following):
    weight = choose(bold=jnp.array(bold))
    assert bool(is_bold_next(weight, jnp.array(explored), jnp.array(improved))) == following


# -- the bonus ---------------------------------------------------------------------------------------------------------


class Constant(FittedBonus):
    """The same bonus everywhere, but NaN at states that are none."""

    features: Features
    amount: float

    def __call__(self, state, action):
        return jnp.where(jnp.isnan(state[0]), jnp.nan, number(self.amount))


def phi(state, action):
    return jnp.concatenate([state, action])


def walked(rewards, valid=True):
    """Rows with these rewards."""
    rewards = jnp.asarray(rewards, jnp.float32)
    n, no = rewards.size, jnp.zeros(rewards.size, bool)
    valid = jnp.broadcast_to(jnp.asarray(valid), n)
    return Transitions(jnp.zeros((n, 1)), jnp.zeros((n, 1)), rewards, jnp.zeros((n, 1)), no, no, valid)


def test_the_bonus_is_weighed_and_capped_as_it_is_planned_for():
    state = jnp.zeros(1)
    for bold, (amount, horizon) in itertools.product((NO, YES), ((2.0, 10), (1e6, 10))):
        weight = choose(bold=bold)
        promised = min(amount * float(weight.scale), horizon)
        assert float(weight.apply(Constant(phi, amount), horizon)(state, state)) == pytest.approx(promised)
        paid = weight.mean_bonus(Constant(phi, amount), phi, walked([1.0, 2.0]), horizon)
        assert float(paid) == pytest.approx(promised * float(weight.unit_of(YES)))  # as the task pays


def test_the_mean_bonus_is_that_of_real_steps():
    """Padding may be anything."""
    rows = walked([0.0, 0.0, 0.0], [True, True, False])
    rows = eqx.tree_at(lambda t: t.state, rows, rows.state.at[2].set(jnp.nan))
    paid = choose().mean_bonus(Constant(phi, 2.0), phi, rows, 10)
    assert float(paid) == pytest.approx(2 * CAREFUL * 3.0)


# -- the largest reward ------------------------------------------------------------------------------------------------


def seen_in(low, high):
    return Range(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))


def largest_of(reward, states=STATES, seen=None, rows=None, key=0):
    mdp = dataclasses.replace(LINE, reward=reward, states=states)
    seen = nothing_seen(states) if seen is None else seen
    rows = walked([0.0], False) if rows is None else rows
    if states.size > 1:
        rows = jax.tree.map(lambda x: jnp.tile(x, (1, states.size)) if x.ndim == 2 else x, rows)
        rows = eqx.tree_at(lambda t: t.action, rows, rows.action[:, :1])
    replay = Replay.empty(rows, 8).add(rows)
    return float(eqx.filter_jit(largest_reward)(jr.key(key), mdp, seen, replay))


def place(state, action, next_state):
    return state[0]


def effort(state, action, next_state):
    return -5.0 * action[0] ** 2


def test_a_reward_that_is_given_is_asked_everywhere():
    """In the whole observation space and for all actions, whatever was seen; a cost counts as a reward does."""
    assert largest_of(place) == pytest.approx(3.0, rel=0.01)
    assert largest_of(place, Box([0.0], [1.0])) == pytest.approx(1.0, rel=0.01)
    assert largest_of(effort) == pytest.approx(5.0, rel=0.01)
    assert largest_of(place, seen=seen_in([-0.1], [0.1])) == largest_of(place)


def test_what_was_paid_counts_too():
    rows = walked([-7.0, 2.0, 99.0], [True, True, False])
    for reward in (place, Unknown()):
        assert largest_of(reward, rows=rows) == 7.0
    assert largest_of(place, rows=walked([0.5])) == largest_of(place)


def test_a_reward_that_is_learned_is_known_where_it_was_paid():
    assert largest_of(Unknown(), rows=walked([0.25, 0.0])) == 0.25
    assert largest_of(Unknown(), rows=walked([0.0, 0.0])) == 0.0
    assert largest_of(Unknown()) == 0.0  # nothing was walked


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_reward_that_is_not_finite_does_not_count(bad):
    def spoilt(state, action, next_state):
        return jnp.where(state[0] < -1.0, bad, state[0])

    assert largest_of(spoilt) == pytest.approx(1.0, rel=0.01)
    assert largest_of(lambda s, a, t: jnp.full((), bad)) == 0.0
    assert largest_of(Unknown(), rows=walked([bad, -2.0])) == 2.0


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0)])
def test_without_bounds_it_is_asked_where_states_were_seen(bounds):
    """Of two coordinates, the other one has bounds."""
    states = Box([-1.0, bounds[0]], [1.0, bounds[1]])
    seen = seen_in([-0.1, -4.0], [0.1, 2.0])

    def other(state, action, next_state):
        return 10.0 * state[1] + state[0]

    assert largest_of(other, states, seen) == pytest.approx(41.0, rel=0.05)
    assert largest_of(other, states) == 0.0  # nothing was seen, so there is nowhere to ask


def test_where_a_reward_is_asked_depends_on_the_key():
    assert len({largest_of(place, key=key) for key in range(3)}) == 3


# -- a whole stage -----------------------------------------------------------------------------------------------------


AUTO = {"bonus_scale": "auto", "rescales": True, "fresh": True}


def paying(factor):
    """The line with all rewards multiplied."""
    return JaxWorld(dataclasses.replace(LINE, reward=ScaledReward(LINE.reward, number(factor))))


def iterations_of(algo, world=None, count=4):
    return [iteration for iteration, _ in learn(algo, count, world=world or paying(1.0))]


@pytest.fixture(scope="module")
def run():
    return iterations_of(spied(**AUTO, deploys="proven"))


def bonus_at_probes(learner, weight):
    bonus = weight.apply(learner.bonus, HORIZON)
    return np.asarray(jax.vmap(bonus)(PROBES[:, :1], jnp.clip(PROBES[:, 1:], -1.0, 1.0)))


@pytest.mark.parametrize("changes", [{}, {"bonus_scale": SCALE}, {"rescales": False}, {"fresh": False}])
def test_a_planner_sees_rewards_in_units_and_a_weighed_bonus(run, changes):
    """Exploring: r / (unit dimming) + w b. Deploying: r / unit."""
    history = iterations_of(spied(**AUTO | changes, deploys="proven")) if changes else run
    reward, bold = -np.asarray(PROBES[:, 0]), []
    for learner, *_ in history:
        for seed in range(SEEDS):
            one = of_seed(learner, seed)
            weight = one.weight
            bonus = bonus_at_probes(one, weight)
            explored = reward / (float(weight.unit) * float(weight.dimming)) + bonus
            np.testing.assert_allclose(one.policy.reward, explored, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(one.trial.candidate.reward, reward / float(weight.unit), rtol=1e-5)
            assert (bonus > 0).all()
            assert float(weight.largest) == pytest.approx(3.0, rel=0.01)
            bold.append(bool(weight.bold))
    assert any(bold) == (changes in ({}, {"rescales": False}))  # only auto, and only a policy that begins anew


@pytest.mark.parametrize("factor", FACTORS)
def test_the_scale_of_a_task_changes_neither_plans_nor_decisions(run, factor):
    """All that is in units of the reward is multiplied by the factor, and nothing else is changed."""
    scaled = iterations_of(spied(**AUTO, deploys="proven"), paying(factor))
    for n, ((ours, found, *_), (theirs, known, *_)) in enumerate(zip(scaled, run, strict=True), 1):
        for name in ("policy", "trial.deployed", "trial.candidate"):
            mine, wanted = (attrgetter(name)(learner).reward for learner in (ours, theirs))
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)
        for name in ("tries", "repeats", "failed", "improved", "walks"):
            np.testing.assert_array_equal(getattr(ours.trial, name), getattr(theirs.trial, name))
        for name in ("base", "record"):
            np.testing.assert_allclose(getattr(ours.trial, name), factor * getattr(theirs.trial, name), rtol=1e-4)
        np.testing.assert_array_equal(ours.weight.dimming, theirs.weight.dimming)
        np.testing.assert_allclose(ours.weight.scale, theirs.weight.scale, rtol=1e-5)
        promised = ["bonus_mean"] if n > 1 else []  # the first policy was promised a bonus before anything was paid
        for name in (*promised, "bonus_weight", "reward_unit", "walked_return", "candidate_imagined"):
            np.testing.assert_allclose(found[name], factor * known[name], rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("rescales", [False, True])
def test_with_a_number_a_stage_never_plans_boldly(rescales):
    for learner, metrics, *_ in iterations_of(spied(fresh=True, deploys="proven", rescales=rescales)):
        np.testing.assert_allclose(metrics["bonus_weight"], SCALE, rtol=1e-6)
        np.testing.assert_array_equal(metrics["bold"], 0.0)
        if not rescales:
            np.testing.assert_array_equal(learner.weight.unit, 1.0)
            np.testing.assert_array_equal(learner.weight.scale, np.float32(SCALE))


def test_exploring_takes_turns(run):
    """Careful, then bold, then careful again: no walk of the line returns clearly more than another."""
    dimming = np.array([learner.weight.dimming for learner, *_ in run])
    assert set(np.unique(dimming)) == {1.0, DIMMING}


def test_the_unit_is_kept_when_the_replay_forgets():
    """The largest reward so far, although only the newest steps are in the replay."""
    algo = spied(**AUTO, deploys="proven", replay_size=HORIZON, samples_per_policy=HORIZON)
    before = 0.0
    for learner, *_ in iterations_of(algo):
        assert (np.asarray(learner.weight.largest) >= before).all()
        before = np.asarray(learner.weight.largest)


def test_the_papers_preset_weighs_nothing():
    """It goes through the same lines: one policy, a unit of 1, and the paper's c."""
    printed = resolve("mountain-car", settings=("preset=paper",)).algorithm
    assert (printed.deploys, printed.rescales, printed.bonus_scale) == ("exploring", False, 5.0)
    assert (printed.rule, printed.exploits, printed.plans) == ("exploring", False, printed.rounds)
    as_printed = {name: getattr(printed, name) for name in ("deploys", "rescales", "bonus_scale", "fresh")}
    for learner, metrics, *_ in iterations_of(spied(**as_printed)):
        for name, value in (("unit", 1.0), ("dimming", 1.0), ("scale", 5.0)):
            np.testing.assert_array_equal(getattr(learner.weight, name), value)
        np.testing.assert_array_equal(metrics["bonus_weight"], 5.0)
        assert eqx.tree_equal(learner.deployed(), learner.policy)
        assert np.asarray(learner.trial.explores).all()
        for seed in range(SEEDS):
            one = of_seed(learner, seed)
            planned = -np.asarray(PROBES[:, 0]) + bonus_at_probes(one, one.weight)
            np.testing.assert_allclose(one.policy.reward, planned, rtol=1e-4, atol=1e-4)


def test_weights_of_seeds_are_their_own():
    """One seed was paid ten times as much."""
    algo = spied(**AUTO)
    mdp = dataclasses.replace(LINE, reward=lambda s, a, t: 0.0 * s[0], terminal=never)
    learner = algo.start(KEYS, mdp, 2)
    learner = eqx.tree_at(lambda l: l.weight.largest, learner, jnp.array([1.0, 10.0]))
    after = algo.iterate(KEYS, JaxWorld(mdp), learner, 1).learner
    np.testing.assert_array_equal(after.weight.largest, [1.0, 10.0])
    np.testing.assert_allclose(after.weight.unit, [0.01, 0.1], rtol=1e-6)
    assert isinstance(after.weight, Weight)
