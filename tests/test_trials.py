"""Which policy is deployed, and which one walks next.

A policy here has two numbers: what its real episodes return, and what the model promises of it.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from spying import KEYS, LINE, SEEDS, WORLD, learn, same, spied

from pcmlp.algorithms import trials
from pcmlp.algorithms.deep import walkers
from pcmlp.algorithms.trials import LEAST, MARGIN, TOLERANCE, Trial, is_clearly_more, propose, settle
from pcmlp.algorithms.weight import weigh
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
STATES, ACTIONS = Box.of(10.0, 1), Box.of(1000.0, 2)
RULES = ("exploring", "newest", "imagined", "walked", "proven")


class Steady(Policy):
    """The same action always: what a real episode returns, and what the model says that it returns."""

    action: Float[Array, "2"]
    noise: Float[Array, ""]
    bonus: Float[Array, ""]  # 1: it was planned with the bonus

    def init(self):
        return ()

    def __call__(self, key, carry, state):
        return carry, self.action

    def deterministic(self):
        return dataclasses.replace(self, noise=jnp.float32(0))

    def without_bonus(self):
        return dataclasses.replace(self, bonus=jnp.float32(0))


def steady(real, promised=None, bonus=1.0):
    return Steady(jnp.array([real, real if promised is None else promised], jnp.float32), *map(jnp.float32, (1, bonus)))


def started(key):
    return jr.uniform(key, (1,), minval=-1.0, maxval=1.0)


def stay(key, state, action):
    return state


def imagined_by(doubt=0.0, unit=1.0):
    """The imagination: it pays what is promised, more or less of it in each episode, in a unit."""

    def reward(state, action, next_state):
        return (action[1] + doubt * state[0]) / HORIZON / unit

    def nowhere(key):
        return jnp.full(1, jnp.nan)  # imagined episodes that are to be learned from do not begin where real ones do

    return MDP(nowhere, stay, reward, never, STATES, ACTIONS, HORIZON)


REAL = MDP(started, stay, lambda s, a, t: a[0] / HORIZON, never, STATES, ACTIONS, HORIZON)


def walked(returns):
    """Real steps: a whole episode for each return, and the beginning of another one."""
    episodes = np.repeat(np.asarray(returns, np.float32)[:, None] / (HORIZON - 1), HORIZON, axis=1)
    ends = np.broadcast_to(np.arange(HORIZON) == HORIZON - 2, episodes.shape)
    rows = np.zeros((episodes.size, 1), np.float32)
    last, valid = np.broadcast_to(np.arange(HORIZON) >= HORIZON - 2, episodes.shape), np.ones(episodes.size, bool)
    arrays = (rows, np.tile(rows, 2), episodes.ravel(), rows, np.ravel(ends), np.ravel(last), valid)
    return Transitions(*map(jnp.asarray, arrays))


def weight_of(largest=LARGEST, unit=1.0):
    weight = weigh(0.1, False, 1.0, jnp.float32(largest), jnp.array(False))
    return eqx.tree_at(lambda w: w.unit, weight, jnp.float32(unit))


_settle, _propose = eqx.filter_jit(settle), eqx.filter_jit(propose)


def settled(trial, returned, exploring=None, n=5, largest=LARGEST):
    """The trial after a walk with these returns."""
    returned = (returned,) if isinstance(returned, float) else returned
    exploring = exploring or steady(0.0)
    return _settle(trial, exploring, walked(returned), HORIZON, jnp.float32(largest), jnp.array(n))


def proposed(trial, candidate, rule="proven", n=5, doubt=0.0, weight=None):
    """The trial with a new candidate."""
    weight = weight or weight_of()
    imagined = imagined_by(doubt, float(weight.unit))
    return _propose(jr.key(n), rule, REAL, imagined, trial, candidate, weight, jnp.array(n))


def trial_of(deployed=1.0, candidate=2.0, record=None, base=0.0, **flags):
    """A trial; with a record, its deployed policy is proven by one walk."""
    trial = Trial.new(steady(deployed, bonus=0.0))
    known = -jnp.inf if record is None else record
    changes = {"record": known, "walks": float(record is not None), "base": base}
    numbers = {name: jnp.float32(value) for name, value in changes.items()}
    switches = {name: jnp.array(flag) for name, flag in flags.items() if name != "walks"}
    numbers |= {"walks": jnp.float32(flags["walks"])} if "walks" in flags else {}
    return dataclasses.replace(trial, candidate=steady(candidate, bonus=0.0), **numbers, **switches)


def number(policy):
    return float(policy.action[0])


def facts(trial):
    """Everything but the policies."""
    names = ("tries", "repeats", "failed", "improved", "record", "walks", "base")
    return {name: np.asarray(getattr(trial, name)).tolist() for name in names}


# -- the trial ---------------------------------------------------------------------------------------------------------


def test_a_new_trial_explores_and_knows_nothing():
    trial = Trial.new(steady(1.0))
    assert bool(trial.explores)
    assert not trial.proven
    assert facts(trial) == {
        **dict.fromkeys(("tries", "repeats", "failed", "improved"), False),
        "record": -np.inf,
        "walks": 0.0,
        "base": 0.0,
    }
    assert eqx.tree_equal(trial.deployed, trial.candidate)


@pytest.mark.parametrize(
    ("flags", "who"), [({}, 7.0), ({"tries": True}, 2.0), ({"repeats": True}, 1.0)], ids=["explores", "tries", "again"]
)
def test_who_walks_next(flags, who):
    """An exploring policy with its noise, the others without."""
    trial = trial_of(record=1.0, **flags)
    walker = trial.walker(steady(7.0))
    assert number(walker) == who
    assert float(walker.noise) == float(trial.explores) == float(who == 7.0)


@pytest.mark.parametrize(
    ("than", "base", "largest", "least"),
    [
        (0.0, 0.0, 1.0, LEAST),  # nothing was gained yet: a share of what a step may pay
        (100.0, 0.0, 1.0, 100 + MARGIN * 100),  # much was: a share of that
        (-100.0, -300.0, 1.0, -100 + MARGIN * 200),  # returns may be costs
        (-5.0, 0.0, 1.0, -5.0 + LEAST),  # less than the first policy returned
        (3.0, 3.0, 0.0, 3.0),  # nothing was ever paid
        (1e6, 0.0, 1e4, 1e6 + MARGIN * 1e6),
    ],
)
def test_clearly_more(than, base, largest, least):
    def asked(value):
        return bool(is_clearly_more(*map(jnp.float32, (value, than, base, largest))))

    step = 1e-3 * max(1.0, abs(least))
    assert asked(least + step)
    assert not asked(least - step)


# -- settle ------------------------------------------------------------------------------------------------------------


def test_a_return_is_of_whole_episodes():
    assert float(mean_first_return(walked((1.0, 4.0)), HORIZON)) == pytest.approx(2.5)


def test_the_first_walk_is_the_base_and_deploys_nothing():
    trial, metrics = settled(Trial.new(steady(1.0)), (3.0, 5.0), exploring=steady(9.0), n=1, largest=0.0)
    assert facts(trial) == facts(Trial.new(steady(1.0))) | {"base": pytest.approx(4.0)}
    assert number(trial.deployed) == 1.0
    assert float(metrics["walked_return"]) == pytest.approx(4.0)
    assert (float(metrics["tried"]), float(metrics["repeated"])) == (0.0, 0.0)


@pytest.mark.parametrize("record", [None, 10.0])
def test_an_exploring_walk_that_returned_clearly_more_is_deployed(record):
    """More than the record or, as long as there is none, than the base."""
    known = record or 0.0
    least = known + max(MARGIN * known, LEAST * LARGEST)
    trial, exploring = trial_of(record=record), steady(7.0)
    after, metrics = settled(trial, least + 0.01, exploring)
    assert number(after.deployed) == 7.0
    assert facts(after) == facts(trial) | {"improved": True, "record": pytest.approx(least + 0.01), "walks": 1.0}
    assert (float(metrics["tried"]), float(metrics["repeated"])) == (0.0, 0.0)
    before, _ = settled(trial, least - 0.01, exploring)
    assert eqx.tree_equal(before, trial)  # no more and no less


def test_a_new_record_forgets_the_walks_of_the_last_one():
    after, _ = settled(trial_of(record=10.0, walks=4.0), 20.0)
    assert (float(after.record), float(after.walks)) == (20.0, 1.0)


@pytest.mark.parametrize(
    ("returned", "succeeds", "improves"),
    [
        (10 * TOLERANCE - 0.01, False, False),
        (10 * TOLERANCE + 0.01, True, False),  # nearly the record
        (10.0, True, False),
        (10 * (1 + MARGIN) + 0.01, True, True),
        (-50.0, False, False),
    ],
)
def test_a_trial_is_deployed_unless_it_did_worse(returned, succeeds, improves):
    """A deployed policy that has shown what it returns is not replaced by one that returned less in its trial."""
    trial = trial_of(record=10.0, tries=True, walks=3.0)
    after, metrics = settled(trial, returned)
    assert number(after.deployed) == (2.0 if succeeds else 1.0)
    assert (bool(after.failed), bool(after.improved)) == (not succeeds, improves)
    assert float(after.record) == pytest.approx(returned if succeeds else 10.0)
    assert float(after.walks) == (1.0 if succeeds else 3.0)
    assert (float(metrics["tried"]), float(metrics["repeated"])) == (1.0, 0.0)


@pytest.mark.parametrize("base", [-100.0, 40.0])
def test_a_trial_is_measured_from_the_base(base):
    """A return below 0 may be nearly a record."""
    trial = trial_of(record=base + 50.0, base=base, tries=True)
    assert number(settled(trial, base + 50 * TOLERANCE + 0.1)[0].deployed) == 2.0
    assert number(settled(trial, base + 50 * TOLERANCE - 0.1)[0].deployed) == 1.0


@pytest.mark.parametrize(("returned", "succeeds"), [(LEAST * LARGEST + 0.01, True), (LEAST * LARGEST - 0.01, False)])
def test_a_policy_that_is_deployed_by_the_model_is_proven_by_its_own_walk(returned, succeeds):
    trial = trial_of(repeats=True)
    after, metrics = settled(trial, returned)
    assert number(after.deployed) == 1.0  # it is deployed already
    assert bool(after.proven) == succeeds
    assert bool(after.failed) == (not succeeds)
    assert float(after.record) == (pytest.approx(returned) if succeeds else -np.inf)
    assert (float(metrics["tried"]), float(metrics["repeated"])) == (1.0, 0.0)


@pytest.mark.parametrize("returned", [0.0, 10.0, 40.0])
def test_a_record_is_the_mean_of_the_walks_of_the_deployed_policy(returned):
    """So one lucky episode does not stay one."""
    trial = trial_of(record=10.0, walks=2.0, repeats=True)
    after, metrics = settled(trial, returned)
    wanted = {"record": pytest.approx((2 * 10.0 + returned) / 3), "walks": 3.0}
    assert facts(after) == facts(trial) | wanted
    assert number(after.deployed) == 1.0
    assert (float(metrics["tried"]), float(metrics["repeated"])) == (0.0, 1.0)


def test_what_failed_is_forgotten_by_the_next_walk():
    trial = trial_of(record=10.0, failed=True, improved=True)
    assert facts(settled(trial, 0.0)[0]) == facts(trial) | {"failed": False, "improved": False}


# -- propose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["exploring", "newest"])
@pytest.mark.parametrize("record", [None, 10.0])
def test_two_rules_ask_no_model(rule, record):
    """The last policy is deployed whatever it promises; the exploring one as it is, with its bonus."""
    trial, metrics = proposed(trial_of(record=record), steady(3.0, -100.0), rule)
    assert number(trial.deployed) == number(trial.candidate) == 3.0
    assert float(trial.deployed.bonus) == float(trial.candidate.bonus) == float(rule == "exploring")
    assert bool(trial.explores)
    assert metrics == {}


@pytest.mark.parametrize(("promised", "deployed"), [(0.9, 1.0), (1.0, 3.0), (1.1, 3.0)])
def test_imagined_deploys_what_the_model_prefers(promised, deployed):
    """Of equal policies the newer one."""
    trial, metrics = proposed(trial_of(1.0), steady(3.0, promised), "imagined")
    assert number(trial.deployed) == deployed
    assert number(trial.candidate) == 3.0
    assert float(trial.deployed.bonus) == 0.0
    assert bool(trial.explores)
    assert float(metrics["candidate_imagined"]) == pytest.approx(promised)
    assert float(metrics["deployed_imagined"]) == pytest.approx(1.0)


def test_imagined_leaves_a_policy_that_the_model_makes_no_number_of():
    lost = trial_of(jnp.nan)
    assert number(proposed(lost, steady(3.0, -9.0), "imagined")[0].deployed) == 3.0
    assert number(proposed(trial_of(1.0), steady(3.0, jnp.nan), "imagined")[0].deployed) == 1.0


@pytest.mark.parametrize("rule", ["walked", "proven"])
class TestWithoutARecord:
    """The model decides between the last two candidates."""

    @pytest.mark.parametrize(("promised", "deployed"), [(1.0 + LEAST - 0.01, 1.0), (1.0 + LEAST + 0.01, 3.0)])
    def test_what_promises_clearly_more(self, rule, promised, deployed):
        trial, metrics = proposed(trial_of(1.0), steady(3.0, promised), rule)
        assert number(trial.deployed) == deployed
        assert number(trial.candidate) == 3.0
        assert np.isnan(metrics["record"])

    @pytest.mark.parametrize(("n", "flags"), [(1, {}), (5, {"failed": True})])
    def test_the_first_one_and_one_after_a_failure(self, rule, n, flags):
        trial, _ = proposed(trial_of(1.0, **flags), steady(3.0, -50.0), rule, n=n)
        assert number(trial.deployed) == 3.0

    def test_one_that_is_proven_stays(self, rule):
        for promised in (-50.0, 50.0):
            trial, metrics = proposed(trial_of(1.0, record=10.0), steady(3.0, promised), rule)
            assert number(trial.deployed) == 1.0
            assert number(trial.candidate) == 3.0
            assert float(metrics["record"]) == 10.0


def test_a_policy_that_continues_is_never_tried():
    """Its own exploring walk shows what it is worth."""
    for record, n in ((None, 1), (None, 5), (10.0, 4), (10.0, 5)):
        trial, _ = proposed(trial_of(1.0, record=record), steady(3.0, 500.0), "walked", n=n)
        assert bool(trial.explores)


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
    assert number(trial.deployed) == deployed


def test_the_first_candidate_walks_whatever_it_promises():
    trial, _ = proposed(trial_of(1.0), steady(3.0, -50.0), n=1)
    assert (bool(trial.tries), bool(trial.repeats)) == (False, True)
    assert number(trial.walker(steady(7.0))) == 3.0


def test_an_uncertain_promise_is_not():
    """Its standard deviation over imagined episodes is taken off."""
    assert bool(proposed(trial_of(10.0, record=10.0), steady(3.0, 15.0), doubt=0.5)[0].tries)
    assert not bool(proposed(trial_of(10.0, record=10.0), steady(3.0, 15.0), doubt=15.0)[0].tries)


@pytest.mark.parametrize("flags", [{"tries": True}, {"repeats": True}])
def test_after_a_walk_that_did_not_explore_the_next_one_does(flags):
    for record, n in ((None, 5), (10.0, 4), (10.0, 5)):
        trial, _ = proposed(trial_of(1.0, record=record, **flags), steady(3.0, 500.0), n=n)
        assert bool(trial.explores)


@pytest.mark.parametrize(("promised", "hopes"), [(LEAST - 0.01, False), (LEAST + 0.01, True)])
def test_a_policy_that_the_model_has_deployed_walks_if_it_promises_more_than_the_first(promised, hopes):
    for trial, candidate in (
        (trial_of(promised), steady(3.0, -9.0)),
        (trial_of(1.0, failed=True), steady(3.0, promised)),
    ):
        after, _ = proposed(trial, candidate)
        assert (bool(after.tries), bool(after.repeats)) == (False, hopes)


def test_the_deployed_policy_walks_again_now_and_then():
    walks = [bool(proposed(trial_of(10.0, record=10.0), steady(3.0, 9.0), n=n)[0].repeats) for n in range(2, 14)]
    every = trials._AGAIN
    assert walks == [n % every == 0 for n in range(2, 14)]
    assert not bool(proposed(trial_of(10.0, record=10.0), steady(3.0, 99.0), n=every)[0].repeats)  # the candidate walks


@pytest.mark.parametrize("unit", [0.01, 100.0])
def test_promises_are_in_the_tasks_own_reward(unit):
    _, metrics = proposed(trial_of(10.0, record=10.0), steady(3.0, 15.0), weight=weight_of(unit=unit))
    assert float(metrics["candidate_imagined"]) == pytest.approx(15.0, rel=1e-5)
    assert float(metrics["deployed_imagined"]) == pytest.approx(10.0, rel=1e-5)


# -- many iterations ---------------------------------------------------------------------------------------------------


class Step:
    """What happened in an iteration: the trial before and after its walk, who walked, and what that returned."""

    def __init__(self, before, walker, returned, after):
        self.before, self.walker, self.returned, self.after = before, walker, returned, after


def play(seed, count=40, factor=1.0, rule="proven"):
    """Iterations with policies of random worth, whose promises are off by as much; all rewards times a factor."""
    rng = np.random.default_rng(seed)
    trial, exploring, steps, largest = Trial.new(steady(0.0, bonus=0.0)), steady(0.0), [], factor
    for n in range(1, count + 1):
        lucky, noise, found, worth, error = rng.normal(size=5) * (1.0, 0.5, 2.0, 3.0, 3.0)
        walker = trial.walker(exploring)
        returned = float(walker.action[0]) + factor * float(noise + lucky)
        after, _ = settled(trial, (returned,), exploring, n, largest)
        steps.append(Step(trial, walker, returned, after))
        gained = 0.2 * n
        exploring = steady(factor * (found + 0.5 * gained))
        candidate = steady(factor * (worth + gained), factor * (worth + gained + error))
        trial, _ = proposed(after, candidate, rule, n, doubt=0.3 * factor, weight=weight_of(largest, 0.01 * factor))
    return steps


SEQUENCES = range(3)


@pytest.fixture(scope="module")
def sequences():
    return [play(seed) for seed in SEQUENCES]


def test_at_least_every_second_walk_explores(sequences):
    for steps in sequences:
        explores = [bool(step.before.explores) for step in steps]
        assert explores[0]
        assert all(a or b for a, b in zip(explores, explores[1:], strict=False))
        assert not all(explores)  # or there is nothing to see


def test_no_proven_policy_gives_way_to_one_that_did_worse(sequences):
    changes = 0
    for steps in sequences:
        for step in steps:
            before, after = step.before, step.after
            if not before.proven or eqx.tree_equal(before.deployed, after.deployed):
                continue
            changes += 1
            gained, record = step.returned - float(after.base), float(before.record) - float(after.base)
            tolerance = TOLERANCE if bool(before.tries) else 1.0
            assert gained > tolerance * record
            assert number(after.deployed) == number(step.walker)
            assert float(after.record) == pytest.approx(step.returned, rel=1e-5)
    assert changes


def test_a_proposal_replaces_no_proven_policy(sequences):
    for steps in sequences:
        for step, following in zip(steps, steps[1:], strict=False):
            if step.after.proven:
                assert eqx.tree_equal(step.after.deployed, following.before.deployed)
                assert float(following.before.record) == float(step.after.record)


def test_a_record_is_never_of_a_walk_that_was_not_the_deployed_policys(sequences):
    for steps in sequences:
        own = []
        for step in steps:
            if not eqx.tree_equal(step.before.deployed, step.after.deployed) or not step.before.proven:
                own = []
            if step.after.proven and number(step.walker) == number(step.after.deployed):
                own.append(step.returned)
            if step.after.proven:
                assert float(step.after.record) == pytest.approx(np.mean(own), rel=1e-4, abs=1e-4)
                assert int(step.after.walks) == len(own)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_decisions_do_not_depend_on_the_scale_of_rewards(sequences, factor):
    for seed, steps in zip(SEQUENCES, sequences, strict=True):
        for ours, theirs in zip(play(seed, factor=factor), steps, strict=True):
            for name in ("before", "after"):
                mine, wanted = facts(getattr(ours, name)), facts(getattr(theirs, name))
                for scaled in ("record", "base"):
                    assert mine.pop(scaled) == pytest.approx(factor * wanted.pop(scaled), rel=1e-3, abs=1e-3 * factor)
                assert mine == wanted
                deployed = [number(getattr(step, name).deployed) for step in (ours, theirs)]
                assert deployed[0] == pytest.approx(factor * deployed[1], rel=1e-4, abs=1e-4 * factor)


@pytest.mark.parametrize("rule", ["exploring", "newest", "imagined", "walked"])
def test_without_trials_every_walk_explores(rule):
    for step in play(0, 12, rule=rule):
        assert bool(step.before.explores)
        if rule in ("exploring", "newest"):
            assert number(step.before.deployed) == number(step.before.candidate)


# -- Algorithm 2 with these rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("deploys", ["exploring", "newest", "imagined", "proven"])
def test_a_rule_is_one_that_a_planner_and_a_task_allow(deploys):
    assert spied(deploys=deploys, fresh=True).rule == deploys
    assert spied(deploys=deploys, fresh=False).rule == ("walked" if deploys == "proven" else deploys)
    usual = deploys if deploys == "exploring" else "newest"
    assert dataclasses.replace(spied(deploys=deploys), planner=MPPI()).rule == usual
    assert spied(deploys=deploys, reward_free=True).rule == usual


@pytest.fixture(scope="module")
def run():
    return [iteration for iteration, _ in learn(spied(deploys="proven", fresh=True, bonus_scale="auto"), 6)]


def test_the_walker_collects(run):
    """The samples are of whoever the trial chose, for each seed."""
    learner = run[0].learner
    chosen = eqx.tree_at(lambda l: (l.trial.tries, l.trial.repeats), learner, (jnp.array([True, False]),) * 2)
    chosen = eqx.tree_at(lambda l: l.trial.repeats, chosen, jnp.array([False, False]))
    found = walkers(chosen)
    for seed, policy in ((0, learner.trial.candidate), (1, learner.policy)):
        np.testing.assert_array_equal(found.reward[seed], policy.reward[seed])


def test_what_a_stage_logs(run):
    flags = ("tried", "repeated")
    for n, (learner, metrics, samples, _) in enumerate(run, 1):
        returned = jax.vmap(lambda rows: mean_first_return(rows, LINE.horizon))(samples)
        np.testing.assert_allclose(metrics["walked_return"], returned, rtol=1e-5)
        assert {"candidate_imagined", "deployed_imagined", "record", *flags} <= set(metrics)
        proven = np.asarray(learner.trial.proven)
        np.testing.assert_array_equal(np.isnan(metrics["record"]), ~proven)
        if n > 1:
            before = run[n - 2].learner.trial
            for seed in range(SEEDS):
                walked = sum(float(metrics[name][seed]) for name in flags)
                assert walked == float(not before.explores[seed])


def test_seeds_have_trials_of_their_own(run):
    learner = run[-1].learner
    for name in ("tries", "repeats", "failed", "improved", "record", "walks", "base"):
        assert getattr(learner.trial, name).shape == (SEEDS,)
    assert learner.trial.base[0] != learner.trial.base[1]


def test_an_evaluation_selects_nothing(run):
    """Neither the learner nor what is learned next depends on how, or whether, policies are evaluated."""
    algo, learner = spied(deploys="proven", fresh=True, bonus_scale="auto"), run[1].learner
    kept = jax.tree.map(lambda x: jnp.array(x) if eqx.is_array(x) else x, learner)
    WORLD.evaluate(jr.split(jr.key(1), SEEDS), learner.deployed(), 3)
    assert same(learner, kept)
    assert same(algo.iterate(KEYS, WORLD, learner, 3).learner, run[2].learner)


@pytest.mark.parametrize("changes", [{"eval_every": 10_000}, {"eval_episodes": 7}])
def test_a_run_learns_the_same_however_it_is_evaluated(tiny_trpo, tmp_path, changes):
    runs = tmp_path / "usual", tmp_path / "other"
    for run, own in zip(runs, ({}, changes), strict=True):
        given = {"task.horizon": 20, "eval_every": 0, "eval_episodes": 2, **own}
        settings = (*tiny_trpo, *(f"{key}={value}" for key, value in given.items()))
        config = resolve("point-umaze", "pcmlp", (3, 8), 120, settings)
        assert (config.algorithm.rule, config.algorithm.bonus_scale) == ("proven", "auto")
        train(config, run)
    assert eqx.tree_equal(*(load_run(run).policies for run in runs))
    ours, theirs = map(read_metrics, runs)
    learned = [name for name in ours if not name.startswith(("eval_", "explore_", "certificate", "promised"))]
    learned = [name for name in learned if not name.endswith(("_s", "seconds"))]
    assert {"walked_return", "tried", "repeated", "record", "bonus_weight", "model_loss"} <= set(learned)
    for name in learned:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
