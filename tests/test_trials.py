"""Which policy is deployed, and which one walks next.

A policy here has two numbers: what its real episodes return, and what the model promises of it.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from spying import KEYS, LINE, SEEDS, WORLD, Notes, Spy, learn, same, spied

from pcmlp.algorithms import trials
from pcmlp.algorithms.learner import find_walkers
from pcmlp.algorithms.trials import LEAST, MARGIN, TOLERANCE, Trial, choose_start, is_clearly_more, propose, settle
from pcmlp.algorithms.weight import weigh
from pcmlp.imagine import imagine
from pcmlp.models import Known
from pcmlp.planners import MPPI
from pcmlp.replay import Transitions
from pcmlp.rollout import mean_first_return
from pcmlp.runs.config import resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import load_run
from pcmlp.runs.train import train
from pcmlp.spaces import Box
from pcmlp.types import MDP, Policy, never

HORIZON, LARGEST = 5, 1.0
FLAGS = ("tries", "repeats", "found", "failed")
NOT_PROVEN = ("exploring", "newest", "imagined", "walked")


class Steady(Policy):
    """A policy that always takes the same action: what a real episode returns, and what the model says it returns."""

    action: Float[Array, "2"]
    noise: Float[Array, ""]  # added to the action
    bonus: Float[Array, ""]  # 1: it was planned with the bonus

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, self.action + self.noise

    def deterministic(self):
        return dataclasses.replace(self, noise=jnp.float32(0))

    def without_bonus(self):
        return dataclasses.replace(self, bonus=jnp.float32(0))


def steady(real, promised=None, noise=50.0, bonus=1.0):
    return Steady(
        jnp.array([real, real if promised is None else promised], jnp.float32), *map(jnp.float32, (noise, bonus))
    )


@functools.cache  # another function would be compiled again
def imagined_by(doubt=0.0, unit=1.0):
    """The imagination: it pays what is promised, more or less of it in each episode, in a unit."""

    def started(key):
        return jr.uniform(key, (1,), minval=-1.0, maxval=1.0)

    def reward(state, action, next_state):
        return (action[1] + doubt * state[0]) / HORIZON / unit

    spaces = Box.of(10.0, 1), Box.of(1000.0, 2)
    return MDP(started, lambda key, state, action: state, reward, never, *spaces, HORIZON)


def walked(returns):
    """Real steps: a whole episode for each return, and the beginning of another one."""
    episodes = np.repeat(np.asarray(returns, np.float32)[:, None] / (HORIZON - 1), HORIZON, axis=1)
    ends = np.broadcast_to(np.arange(HORIZON) == HORIZON - 2, episodes.shape)
    rows = np.zeros((episodes.size, 1), np.float32)
    last, valid = np.broadcast_to(np.arange(HORIZON) >= HORIZON - 2, episodes.shape), np.ones(episodes.size, bool)
    arrays = (rows, np.tile(rows, 2), episodes.ravel(), rows, np.ravel(ends), np.ravel(last), valid)
    return Transitions(*map(jnp.asarray, arrays))


_settle, _propose = eqx.filter_jit(settle), eqx.filter_jit(propose)


def settled(trial, returned, rule="proven", n=5, largest=LARGEST, exploring=None):
    """The trial after a walk with these returns; the exploring policy is number 7."""
    returned = (returned,) if isinstance(returned, float) else returned
    return _settle(trial, rule, exploring or steady(7.0), walked(returned), HORIZON, jnp.float32(largest), jnp.array(n))


def test_a_policy_that_searches_and_has_returned_more_is_shown_without_the_bonus():
    """It is then a candidate, which is deployed: it must not search for novelty."""
    mdp = imagine(WORLD.mdp, WORLD.mdp.transition, Distance())
    planner = MPPI(num_plans=4, plan_length=2)
    exploring = planner.init(jr.key(0), mdp)
    trial = Trial.new(planner.init(jr.key(1), mdp).without_bonus())
    asked = exploring, walked((9.0,)), HORIZON, jnp.float32(LARGEST), jnp.array(5)
    after, _ = eqx.filter_eval_shape(lambda trial: settle(trial, "newest", *asked), trial)
    assert jax.tree.structure(after.candidate) == jax.tree.structure(trial.candidate)
    assert not [part for part in jax.tree.leaves(after, is_leaf=is_distance) if is_distance(part)]


class Distance(eqx.Module):
    """A bonus that is not a plain function."""

    def __call__(self, state, action):
        return jnp.sum(state**2)


def is_distance(part):
    return isinstance(part, Distance)


def proposed(trial, planned, rule="proven", n=5, doubt=0.0, unit=1.0, largest=LARGEST):
    """The trial with a new candidate."""
    weight = weigh(0.1, False, 1.0, jnp.float32(largest), jnp.array(False))
    weight = eqx.tree_at(lambda w: w.unit, weight, jnp.float32(unit))
    return _propose(jr.key(n), rule, imagined_by(doubt, unit), trial, planned, weight, jnp.array(n))


def trial_of(deployed=1.0, candidate=2.0, record=None, base=0.0, walks=1.0, **flags):
    """A trial; with a record, its deployed policy is proven."""
    numbers = {"record": -jnp.inf, "walks": 0.0} if record is None else {"record": record, "walks": walks}
    changes = {name: jnp.float32(value) for name, value in (numbers | {"base": base}).items()}
    changes |= {name: jnp.array(flag) for name, flag in flags.items()}
    return dataclasses.replace(Trial.new(steady(deployed)), candidate=steady(candidate), **changes)


def number(policy):
    return float(policy.action[0])


def facts(trial):
    """All of a trial, with the numbers of its policies."""
    policies = {"deployed": number(trial.deployed), "candidate": number(trial.candidate)}
    rest = {name: np.asarray(getattr(trial, name)).tolist() for name in (*FLAGS, "record", "walks", "base")}
    return policies | rest


# -- the trial ---------------------------------------------------------------------------------------------------------


def test_a_new_trial_explores_and_knows_nothing():
    trial = Trial.new(steady(1.0))
    assert facts(trial) == dict.fromkeys(FLAGS, False) | {"record": -np.inf, "walks": 0.0, "base": 0.0} | {
        "deployed": 1.0,
        "candidate": 1.0,
    }
    assert (bool(trial.explores), bool(trial.proven)) == (True, False)


@pytest.mark.parametrize(("flags", "who"), [({}, 7.0), ({"tries": True}, 2.0), ({"repeats": True}, 1.0)])
def test_who_walks_next(flags, who):
    """An exploring policy with its noise, the others without."""
    walker = trial_of(record=1.0, **flags).walker(steady(7.0))
    assert (number(walker), float(walker.noise)) == (who, 50.0 if who == 7.0 else 0.0)


@pytest.mark.parametrize(
    ("than", "base", "largest", "least"),
    [
        (0.0, 0.0, 1.0, LEAST),  # nothing was gained yet: a share of what a step may pay
        (100.0, 0.0, 1.0, 100 + MARGIN * 100),  # much was: a share of that
        (-100.0, -300.0, 1.0, -100 + MARGIN * 200),  # returns may be costs
        (-5.0, 0.0, 1.0, -5.0 + LEAST),  # less than the first policy returned
        (3.0, 3.0, 0.0, 3.0),  # nothing was ever paid
    ],
)
def test_clearly_more(than, base, largest, least):
    asked = [bool(is_clearly_more(*map(jnp.float32, (least + step, than, base, largest)))) for step in (-0.01, 0.01)]
    assert asked == [False, True]


# -- settle: what a walk has shown -------------------------------------------------------------------------------------


def test_the_first_walk_is_the_base_and_shows_nothing_else():
    """A return is the mean of whole episodes."""
    trial, metrics = settled(trial_of(), (3.0, 5.0), n=1, largest=0.0)
    assert facts(trial) == facts(trial_of()) | {"base": pytest.approx(4.0)}
    assert metrics == {"walked_return": pytest.approx(4.0), "tried": 0.0, "repeated": 0.0, "found": 0.0}


@pytest.mark.parametrize("record", [None, 10.0])
@pytest.mark.parametrize("rule", ["walked", "proven"])
def test_what_an_exploring_walk_has_found(rule, record):
    """The policy of a walk that returned clearly more than the record or, as long as there is none, than the base, is
    the candidate. Only where no trials are made, it is deployed at once."""
    least = (record or 0.0) + max(MARGIN * (record or 0.0), LEAST * LARGEST)
    trial = trial_of(record=record, walks=4.0)
    after, metrics = settled(trial, least + 0.01, rule)
    shown = {"deployed": 7.0, "record": pytest.approx(least + 0.01), "walks": 1.0} if rule == "walked" else {}
    assert facts(after) == facts(trial) | {"candidate": 7.0, "found": True} | shown
    assert (float(metrics["found"]), float(metrics["tried"])) == (1.0, 0.0)
    assert facts(settled(trial, least - 0.01, rule)[0]) == facts(trial)


@pytest.mark.parametrize("base", [-100.0, 0.0, 40.0])
@pytest.mark.parametrize(
    ("gained", "succeeds"),
    [
        (10 * TOLERANCE - 0.1, False),
        (10 * TOLERANCE + 0.1, True),  # nearly the record
        (10 * (1 + MARGIN) + 0.1, True),
        (-50.0, False),
    ],
)
def test_a_trial_is_deployed_unless_it_did_worse(gained, succeeds, base):
    """It is measured from the base: a return below 0 may be nearly a record."""
    trial = trial_of(record=base + 10.0, base=base, tries=True, walks=3.0)
    after, metrics = settled(trial, base + gained)
    shown = {"deployed": 2.0, "record": pytest.approx(base + gained, abs=1e-4), "walks": 1.0}
    assert facts(after) == facts(trial) | (shown if succeeds else {"failed": True})
    assert (float(metrics["tried"]), float(metrics["found"])) == (1.0, 0.0)


@pytest.mark.parametrize(("returned", "succeeds"), [(LEAST * LARGEST + 0.01, True), (LEAST * LARGEST - 0.01, False)])
def test_the_first_policy_to_be_proven_returned_clearly_more_than_the_base(returned, succeeds):
    after, _ = settled(trial_of(tries=True), returned)
    assert (bool(after.proven), bool(after.failed)) == (succeeds, not succeeds)
    assert (number(after.deployed), float(after.record)) == (
        (2.0, np.float32(returned)) if succeeds else (1.0, -np.inf)
    )


@pytest.mark.parametrize("returned", [0.0, 10.0, 40.0])
def test_a_record_is_the_mean_of_the_walks_of_the_deployed_policy(returned):
    """So one lucky episode does not decide for ever."""
    trial = trial_of(record=10.0, walks=2.0, repeats=True)
    after, metrics = settled(trial, returned)
    assert facts(after) == facts(trial) | {"record": pytest.approx((2 * 10.0 + returned) / 3), "walks": 3.0}
    assert (float(metrics["tried"]), float(metrics["repeated"]), float(metrics["found"])) == (0.0, 1.0, 0.0)


def test_what_a_walk_has_shown_is_forgotten_by_the_next_one():
    trial = trial_of(record=10.0, found=True, failed=True)
    assert facts(settled(trial, 0.0)[0]) == facts(trial_of(record=10.0))


# -- the model judges --------------------------------------------------------------------------------------------------


def test_two_policies_are_judged_without_noise_in_the_same_episodes():
    ours, theirs = trials.judge(jr.key(0), imagined_by(doubt=1.0), steady(3.0), steady(5.0, noise=0.0))
    assert ours.shape == (trials.JUDGED,)
    np.testing.assert_allclose(theirs - ours, 2.0, rtol=1e-5)
    assert len(np.unique(ours)) == trials.JUDGED
    np.testing.assert_allclose(ours, 3.0, atol=1.0)


@pytest.mark.parametrize(
    ("rule", "proven", "promised", "begins"),
    [("proven", True, 7.1, 1.0), ("proven", True, 7.0, 7.0), ("proven", True, 6.9, 7.0), ("proven", False, 7.1, 7.0)]
    + [("proven", True, jnp.nan, 7.0)]
    + [(rule, True, 7.1, 7.0) for rule in NOT_PROVEN],
)
def test_a_plan_begins_with_what_returns_more_in_the_model(rule, proven, promised, begins):
    """With the deployed policy only if it is proven."""
    deployed, exploring = steady(1.0, promised), steady(7.0)
    assert number(choose_start(jr.key(0), rule, imagined_by(), jnp.array(proven), deployed, exploring)) == begins


@pytest.mark.parametrize("rule", ["exploring", "newest"])
@pytest.mark.parametrize("record", [None, 10.0])
def test_two_rules_ask_no_model(rule, record):
    """The last policy is deployed whatever it promises; the exploring one as it is, with its bonus."""
    trial, metrics = proposed(trial_of(record=record, found=True), steady(3.0, -100.0), rule)
    for policy in (trial.deployed, trial.candidate):
        assert (number(policy), float(policy.bonus)) == (3.0, float(rule == "exploring"))
    assert (bool(trial.explores), metrics) == (True, {})


@pytest.mark.parametrize(
    ("ours", "promised", "deployed"),
    [(1.0, 0.9, 1.0), (1.0, 1.0, 3.0), (1.0, 1.1, 3.0), (jnp.nan, -9.0, 3.0), (1.0, jnp.nan, 1.0)],
)
def test_imagined_deploys_what_the_model_prefers(ours, promised, deployed):
    """Of equal policies the newer one; never one that the model makes no number of."""
    trial, metrics = proposed(trial_of(ours, record=10.0, found=True), steady(3.0, promised), "imagined", n=4)
    assert (number(trial.deployed), number(trial.candidate), bool(trial.explores)) == (deployed, 3.0, True)
    assert (float(trial.candidate.bonus), set(metrics)) == (0.0, {"candidate_imagined", "deployed_imagined"})


@pytest.mark.parametrize("unit", [0.01, 100.0])
def test_promises_are_in_the_tasks_own_reward(unit):
    _, metrics = proposed(trial_of(10.0, record=12.0), steady(3.0, 15.0), unit=unit)
    wanted = {"candidate_imagined": 15.0, "deployed_imagined": 10.0, "record": 12.0}
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("rule", ["walked", "proven"])
@pytest.mark.parametrize(
    ("promised", "n", "flags", "deployed"),
    [
        (1.0 + LEAST - 0.01, 5, {}, 1.0),
        (1.0 + LEAST + 0.01, 5, {}, 3.0),
        (-50.0, 1, {}, 3.0),  # the first one
        (-50.0, 5, {"failed": True}, 3.0),  # the last candidate has been tried, in vain
    ],
)
def test_without_a_record_the_model_decides_between_the_last_two_candidates(rule, promised, n, flags, deployed):
    trial, metrics = proposed(trial_of(1.0, **flags), steady(3.0, promised), rule, n)
    assert number(trial.deployed) == number(trial.candidate) == deployed
    assert np.isnan(metrics["record"])


@pytest.mark.parametrize("rule", ["walked", "proven"])
@pytest.mark.parametrize("promised", [-50.0, 50.0])
def test_the_model_replaces_no_policy_that_is_proven(rule, promised):
    trial, _ = proposed(trial_of(1.0, record=10.0), steady(3.0, promised), rule)
    assert (number(trial.deployed), number(trial.candidate)) == (1.0, 3.0)
    assert float(trial.candidate.bonus) == 0.0


# -- propose: who walks next -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "n"), [({}, 1), ({}, 5), ({"record": 10.0}, 4), ({"record": 10.0, "found": True}, 5)]
)
def test_a_policy_that_continues_is_never_tried(flags, n):
    """Its own exploring walk shows what it is worth; the candidate is always the newest."""
    trial, _ = proposed(trial_of(1.0, **flags), steady(3.0, 500.0), "walked", n=n)
    assert (bool(trial.explores), number(trial.candidate)) == (True, 3.0)


@pytest.mark.parametrize("record", [None, 10.0])
def test_what_a_walk_has_found_is_tried_whatever_it_promises(record):
    trial, metrics = proposed(trial_of(9.0, candidate=-50.0, record=record, found=True), steady(3.0))
    assert (bool(trial.tries), number(trial.candidate)) == (True, -50.0)
    assert float(metrics["candidate_imagined"]) == -50.0
    assert number(trial.deployed) == (-50.0 if record is None else 9.0)


def test_the_first_candidate_is_tried_whatever_it_promises():
    trial, _ = proposed(trial_of(1.0), steady(3.0, -50.0), n=1)
    assert (bool(trial.tries), bool(trial.repeats), number(trial.walker(steady(7.0)))) == (True, False, 3.0)


@pytest.mark.parametrize(
    ("record", "deployed", "promised", "tries"),
    [
        (10.0, 10.0, 10 * (1 + MARGIN) + 0.1, True),
        (10.0, 10.0, 10 * (1 + MARGIN) - 0.1, False),
        (10.0, 5.0, 8.0, True),  # the model thinks little of the deployed policy, too
        (10.0, 50.0, 20.0, True),  # and what it promises is no more than the record
        (10.0, 50.0, 10.1, False),
    ],
)
def test_a_promise_of_clearly_more_is_tried(record, deployed, promised, tries):
    trial, _ = proposed(trial_of(deployed, record=record), steady(3.0, promised))
    assert (bool(trial.tries), bool(trial.repeats)) == (tries, False)


@pytest.mark.parametrize(("doubt", "tries"), [(0.5, True), (15.0, False)])
def test_the_spread_of_a_promise_is_taken_off(doubt, tries):
    """Not as long as nothing is proven: then the model only decides what is tried first."""
    assert bool(proposed(trial_of(10.0, record=10.0), steady(3.0, 15.0), doubt=doubt)[0].tries) == tries
    assert bool(proposed(trial_of(10.0), steady(3.0, 15.0), doubt=doubt)[0].tries)


@pytest.mark.parametrize(("promised", "hopes"), [(LEAST - 0.01, False), (LEAST + 0.01, True)])
def test_a_policy_that_is_not_proven_is_tried_if_it_promises_more_than_the_first_returned(promised, hopes):
    for trial, planned in (
        (trial_of(promised), steady(3.0, -9.0)),  # the one that is deployed already
        (trial_of(1.0, failed=True), steady(3.0, promised)),
    ):
        assert bool(proposed(trial, planned)[0].tries) == hopes


@pytest.mark.parametrize("flags", [{"tries": True}, {"repeats": True}])
@pytest.mark.parametrize(("record", "n", "promised"), [(None, 5, 500.0), (10.0, 4, 500.0), (10.0, 4, -9.0)])
def test_after_a_walk_that_did_not_explore_the_next_one_does(record, n, promised, flags):
    assert bool(proposed(trial_of(1.0, record=record, **flags), steady(3.0, promised), n=n)[0].explores)


@pytest.mark.parametrize(
    ("record", "promised", "walks"),
    [(10.0, 9.9, "repeats"), (10.0, 10.1, "tries"), (10.0, 99.0, "tries"), (None, -9.0, "explores")],
)
def test_in_every_fourth_iteration_a_preferred_candidate_or_the_deployed_policy_walks(record, promised, walks):
    for n in range(2, 10):
        deployed = 10.0 if record else -10.0
        trial, _ = proposed(trial_of(deployed, record=record), steady(3.0, promised), n=n)
        walker = walks if n % 4 == 0 or promised == 99.0 else "explores"
        assert [name for name in ("explores", "tries", "repeats") if bool(getattr(trial, name))] == [walker]


# -- many iterations ---------------------------------------------------------------------------------------------------


def play(seed, count=40, factor=1.0, rule="proven"):
    """Return the trial before each walk, what the walk returned, and the trial after it. Policies are of random worth,
    their promises are off by as much, and all rewards are multiplied by a factor."""
    rng = np.random.default_rng(seed)
    trial, exploring, steps = Trial.new(steady(0.0)), steady(0.0), []
    for n in range(1, count + 1):
        noise, found, worth, error = rng.normal(size=4) * (1.0, 2.0, 3.0, 3.0)
        returned = number(trial.walker(exploring)) + factor * float(noise)
        after, _ = settled(trial, returned, rule, n, factor, exploring)
        steps.append((trial, returned, after))
        exploring, worth = steady(factor * (found + 0.1 * n)), factor * (worth + 0.2 * n)
        planned = steady(worth, worth + factor * error)
        trial, _ = proposed(after, planned, rule, n, 0.3 * factor, 0.01 * factor, factor)
    return steps


@pytest.fixture(scope="module")
def games():
    return [play(seed) for seed in range(3)]


def test_at_least_every_second_walk_explores(games):
    for game in games:
        explores = [bool(before.explores) for before, *_ in game]
        assert explores[:2] == [True, False]
        assert all(a or b for a, b in zip(explores, explores[1:], strict=False))


def test_what_is_deployed_has_been_tried_and_has_its_own_walks_as_its_record(games):
    changes = 0
    for game in games:
        own = []
        for (before, returned, after), (following, *_) in zip(game, game[1:], strict=False):
            if before.proven:
                assert number(before.deployed) == number(after.deployed) or bool(before.tries)
                assert number(after.deployed) == number(following.deployed)  # a proposal replaces nothing
            if after.proven and bool(before.tries) and not bool(after.failed):
                base, record = float(after.base), float(before.record)
                assert not before.proven or returned - base > TOLERANCE * (record - base)
                own, changes = [], changes + 1
            if after.proven and not bool(before.explores | after.failed):
                own.append(returned)
            assert int(after.walks) == len(own)
            assert float(after.record) == (pytest.approx(np.mean(own), rel=1e-4, abs=1e-4) if own else -np.inf)
    assert changes > 3


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_decisions_do_not_depend_on_the_scale_of_rewards(games, factor):
    for seed, game in enumerate(games):
        for (_, _, ours), (_, _, theirs) in zip(play(seed, factor=factor), game, strict=True):
            mine, wanted = facts(ours), facts(theirs)
            for name in ("record", "base", "deployed", "candidate"):
                assert mine.pop(name) == pytest.approx(factor * wanted.pop(name), rel=1e-3, abs=1e-3 * factor)
            assert mine == wanted


@pytest.mark.parametrize("rule", NOT_PROVEN)
def test_without_trials_every_walk_explores(rule):
    assert all(bool(before.explores) for before, *_ in play(0, 12, rule=rule))


# -- Algorithm 2 with these rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("deploys", ["exploring", "newest", "imagined", "proven"])
def test_a_rule_is_one_that_a_planner_and_a_task_allow(deploys):
    assert spied(deploys=deploys, fresh=True).rule == deploys
    assert spied(deploys=deploys, fresh=False).rule == ("walked" if deploys == "proven" else deploys)
    usual = deploys if deploys == "exploring" else "newest"
    assert dataclasses.replace(spied(deploys=deploys), planner=MPPI()).rule == usual
    assert spied(deploys=deploys, reward_free=True).rule == usual


ALGO = spied(deploys="proven", fresh=True, bonus_scale="auto")


@pytest.fixture(scope="module")
def run():
    return [iteration for iteration, _ in learn(ALGO, 5)]


def test_the_walker_of_each_seed_collects(run):
    chosen = eqx.tree_at(lambda l: l.trial.tries, run[0].learner, jnp.array([True, False]))
    for seed, policy in enumerate((chosen.trial.candidate, chosen.policy)):
        np.testing.assert_array_equal(find_walkers(chosen, "proven").reward[seed], policy.reward[seed])


def test_what_a_stage_logs(run):
    for n, (learner, metrics, samples, _) in enumerate(run, 1):
        returned = jax.vmap(lambda rows: mean_first_return(rows, LINE.horizon))(samples)
        np.testing.assert_allclose(metrics["walked_return"], returned, rtol=1e-5)
        np.testing.assert_array_equal(np.isnan(metrics["record"]), ~np.asarray(learner.trial.proven))
        explored = run[n - 2].learner.trial.explores if n > 1 else np.ones(SEEDS, bool)
        np.testing.assert_array_equal(metrics["tried"] + metrics["repeated"], 1.0 - np.asarray(explored))
        np.testing.assert_array_equal(metrics["found"], learner.trial.found)
    assert learner.trial.base[0] != learner.trial.base[1]  # seeds have trials of their own


class Walker(Notes):
    """A policy that goes left at a speed, which planning does not change."""

    speed: Float[Array, ""]

    def __call__(self, key, carry, state):
        return carry, -self.speed[None]


class KeepsSpeed(Spy):
    """A planner that leaves the speed as it is, so that it shows with whom a plan began."""

    def init(self, key, mdp):
        return Walker(**vars(super().init(key, mdp)), speed=jnp.zeros(()))

    def plan(self, key, mdp, policy):
        planned, metrics = super().plan(key, mdp, policy)
        return Walker(**vars(planned), speed=policy.speed), metrics


def test_the_plan_of_the_candidate_begins_with_what_returns_more():
    """In the newest model, without the bonus; exploring plans begin anew."""
    algo = dataclasses.replace(ALGO, planner=KeepsSpeed(), model=Known())
    learner = algo.start(KEYS, LINE, 3)
    speeds = jnp.array([0.5, -0.5])  # left pays
    for walks, begins in ((0.0, [0.0, 0.0]), (1.0, [0.5, 0.0])):
        given = jnp.full(SEEDS, walks), jnp.zeros(SEEDS), speeds
        began = eqx.tree_at(lambda l: (l.trial.walks, l.trial.record, l.trial.deployed.speed), learner, given)
        after = algo.iterate(KEYS, WORLD, began, 2).learner
        np.testing.assert_array_equal(after.policy.speed, 0.0)
        if walks:
            np.testing.assert_array_equal(after.trial.candidate.speed, begins)


def test_an_evaluation_selects_nothing(run):
    learner = run[1].learner
    kept = jax.tree.map(lambda x: jnp.array(x) if eqx.is_array(x) else x, learner)
    WORLD.evaluate(jr.split(jr.key(1), SEEDS), learner.deployed(), 3)
    assert same(learner, kept)
    assert same(ALGO.iterate(KEYS, WORLD, learner, 3).learner, run[2].learner)


def test_a_run_learns_the_same_however_it_is_evaluated(tiny_trpo, tmp_path):
    runs = [tmp_path / name for name in ("usual", "seldom and long")]
    for run, own in zip(runs, ({}, {"eval_every": 10_000, "eval_episodes": 7}), strict=True):
        given = {"task.horizon": 20, "eval_every": 0, "eval_episodes": 2, **own}
        settings = (*tiny_trpo, *(f"{key}={value}" for key, value in given.items()))
        config = resolve("point-umaze", "pcmlp", (3, 8), 120, settings)
        assert (config.algorithm.rule, config.algorithm.bonus_scale) == ("proven", "auto")
        train(config, run)
    usual, other = (read_metrics(run) for run in runs)
    learned = [name for name in usual if not name.startswith(("eval_", "explore_", "certificate", "promised"))]
    learned = [name for name in learned if not name.endswith(("_s", "seconds"))]
    assert {"walked_return", "tried", "repeated", "found", "record", "bonus_weight", "model_loss"} <= set(learned)
    assert eqx.tree_equal(*(load_run(run).policies for run in runs))
    for name in learned:
        np.testing.assert_array_equal(other[name], usual[name], err_msg=name)
