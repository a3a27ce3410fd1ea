"""Numbers that misbehave: each fault put where it would arise, and what the compiled stage makes of it.

The stage is compiled once. Its faults come in through its arrays: samples, a learner, the amount that a reward pays.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from pcmlp.algorithms import deep, framework
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.trials import Trial
from pcmlp.bonus import CappedBonus, Covariance, Ellipse, Elliptical
from pcmlp.features import RandomNetwork
from pcmlp.heads import GaussianHead
from pcmlp.imagine import bounds_around, imagine, nothing_seen, pay_nothing
from pcmlp.models import Neural
from pcmlp.planners import CEM, MPPI, TRPO, UniformPolicy
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.runs.findings import may_be_unseen
from pcmlp.spaces import Box
from pcmlp.trees import as_inputs, stack_inputs
from pcmlp.types import MDP, Planner, Problem, never
from pcmlp.world import JaxWorld

HORIZON, SAMPLES, STEPS, RIDGE, SCALE = 10, 40, 6, 0.01, 0.3
KEYS = jr.split(jr.key(0), 2)  # what goes wrong for the first seed must not matter to the second
STATES, ACTIONS = Box.of(3.0, 1), Box.of(1.0, 1)
NAN, INF = jnp.nan, jnp.inf


# -- a line, whose right half pays what a test says --------------------------------------------------------------------


class Paid(eqx.Module):
    amount: Float[Array, ""]

    def __call__(self, state, action, next_state):
        return jnp.where(next_state[0] > 0, self.amount, -next_state[0])


def initial(key):
    return jr.uniform(key, (1,), minval=-1.0, maxval=1.0)


def move(key, state, action):
    return STATES.clip(state + 0.5 * ACTIONS.clip(action))


def line(amount=1.0):
    return MDP(initial, move, Paid(jnp.float32(amount)), never, STATES, ACTIONS, HORIZON)


class SampledNetwork(RandomNetwork):
    """phi in the units of the first data, although the spaces have bounds."""

    def draw(self, key, mdp, samples):
        return self.over_samples(key, samples)


PLANNER = TRPO(updates=3, streams=4, length=5, policy_sizes=(4,), value_sizes=(4,), value_batch=10, value_epochs=1)
DEEP = Deep(
    features=SampledNetwork(sizes=(8,), action_weight=1.0),
    model=Neural(sizes=(8,), steps=STEPS, batch=8),
    planner=PLANNER,
    samples_per_policy=SAMPLES,
    replay_size=100,
    ridge=RIDGE,
    bonus_scale=SCALE,
    rounds=1,
    replay_starts=0.2,
    margin=1.0,
)


def improve(learner, samples, n=1, amount=1.0):
    return deep._improve(KEYS, stack_inputs([DEEP] * len(KEYS)), line(amount), learner, samples, jnp.array(n))


def without_record(node):
    if not isinstance(node, Trial):
        return node
    return dataclasses.replace(node, record=jnp.where(node.proven, node.record, jnp.float32(0)))


def seen(metrics):
    """Return the metrics without those that may have nothing to show yet."""
    return {name: values for name, values in metrics.items() if not may_be_unseen(name)}


def numbers(tree):
    """Whether all floats are finite, but for the record of a policy that has not walked, which is -inf."""
    tree = jax.tree.map(without_record, tree, is_leaf=lambda node: isinstance(node, Trial))
    return all(np.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def same(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs if eqx.is_array(x))


def of_seed(tree, seed):
    return jax.tree.map(lambda x: x[seed] if eqx.is_array(x) else x, tree)


def skipped(metrics, seed=0):
    """What was counted, without what is 0."""
    counted = {name: float(x[seed]) for name, x in metrics.items() if name.endswith(("_skipped", "_rejected"))}
    return {name: count for name, count in counted.items() if count}


@pytest.fixture(scope="module")
def first():
    return DEEP.start(KEYS, line(), 3)


@pytest.fixture(scope="module")
def samples(first):
    return JaxWorld(line()).collect(KEYS, first.policy, SAMPLES)[0]


@pytest.fixture(scope="module")
def healthy(first, samples):
    return improve(first, samples)


def spoilt(samples, **rows):
    """The samples with other numbers in rows of the first seed."""
    for name, (where, number) in rows.items():
        samples = eqx.tree_at(
            lambda t, name=name: getattr(t, name), samples, getattr(samples, name).at[0, where].set(number)
        )
    return samples


# -- the stage ---------------------------------------------------------------------------------------------------------


def test_nothing_is_counted_where_nothing_is_wrong(healthy):
    learner, metrics = healthy
    names = {"model", "covariance", "value", "policy"}
    assert {f"{name}_skipped" for name in names} | {"rows_rejected", "rewards_rejected"} <= set(metrics)
    assert skipped(metrics, 0).keys() <= {"policy_skipped"}  # a line search may find nothing
    assert float(metrics["policy_skipped"][0]) < 1
    assert numbers((learner, seen(metrics)))


@pytest.mark.fault(
    "observations that are NaN, infinite or absurdly large reach the stage",
    "the rows are not learned from, and counted",
)
def test_rows_that_are_not_numbers(first, samples, healthy):
    """A state, an action, one too large to be squared; a reward alone; padding is not counted."""
    bad = np.array([3, 7, 9])
    faulty = spoilt(samples, state=(3, NAN), action=(7, NAN), next_state=(9, 1e20), reward=(11, INF), valid=(20, False))
    faulty = spoilt(faulty, state=(20, NAN))
    learner, metrics = improve(first, faulty)
    assert skipped(metrics).items() >= {"rows_rejected": 3.0, "rewards_rejected": 1.0}.items()
    assert numbers((learner, seen(metrics)))
    np.testing.assert_array_equal(learner.env_steps, [SAMPLES - 1, SAMPLES])  # they were walked

    one = of_seed(learner, 0)
    kept = np.setdiff1d(np.arange(SAMPLES), [*bad, 20])
    assert np.flatnonzero(one.replay.data.valid).tolist() == kept.tolist()
    state, after = (np.asarray(x)[0, kept] for x in (samples.state, samples.next_state))
    action = np.clip(np.asarray(samples.action)[0, kept], -1, 1)
    np.testing.assert_allclose(one.model.inputs.mean, np.concatenate([state, action], 1).mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(one.seen.high, np.maximum(state.max(0), after.max(0)))
    phi = np.asarray(jax.vmap(one.features)(jnp.asarray(state), jnp.asarray(action)), np.float64)
    np.testing.assert_allclose(one.covariance.matrix, RIDGE * np.eye(8) + phi.T @ phi / SAMPLES, rtol=1e-4, atol=1e-6)
    assert same(of_seed(learner, 1), of_seed(healthy[0], 1))


@pytest.mark.fault("the first samples are all NaN", "nothing is learned; the next iteration continues")
def test_a_run_whose_first_samples_are_all_lost(first, samples, healthy):
    """There is nothing to learn from, and the next iteration does as if it were the first."""
    lost, metrics = improve(first, spoilt(samples, next_state=(slice(None), NAN)))
    assert skipped(metrics)["rows_rejected"] == SAMPLES
    assert numbers(eqx.tree_at(lambda l: l.seen, lost, None))
    assert (lost.seen.low[0] > lost.seen.high[0]).all()  # nowhere, as at the start
    after, metrics = improve(lost, samples, n=2)
    assert "rows_rejected" not in skipped(metrics)
    assert numbers((after, metrics))
    np.testing.assert_array_equal(after.seen.low, healthy[0].seen.low)


@pytest.mark.fault("a moment of phi that is NaN", "the covariance is unchanged, and the moment is counted as skipped")
def test_a_moment_that_is_no_number_is_not_added(samples, healthy):
    learner = healthy[0]
    scale = learner.bonus.features.scale
    wild = eqx.tree_at(lambda l: l.bonus.features.scale, learner, scale.at[0].set(1e30))
    after, metrics = improve(wild, samples, n=2)
    assert skipped(metrics)["covariance_skipped"] == 1
    assert "covariance_skipped" not in skipped(metrics, 1)
    for name in ("matrix", "kahan_error"):
        new, old = (getattr(covariance, name) for covariance in (after.covariance, learner.covariance))
        np.testing.assert_array_equal(new[0], old[0])
        assert not np.array_equal(new[1], old[1])
    assert numbers(after)
    bonus = CappedBonus(of_seed(after.bonus, 0), SCALE, float(HORIZON))
    assert 0 <= float(bonus(jnp.ones(1), jnp.ones(1))) <= HORIZON


@pytest.mark.fault("a model whose loss is NaN or explodes", "the step is skipped, the fit undone, and it is counted")
def test_a_model_that_has_exploded_stays_and_is_counted(samples, healthy):
    """Its predictions are as wrong as they were, and still they are numbers."""
    learner = healthy[0]
    wild = eqx.tree_at(lambda l: l.model.net.weights[-1], learner, learner.model.net.weights[-1].at[0].multiply(1e30))
    after, metrics = improve(wild, samples, n=2)
    assert skipped(metrics)["model_skipped"] == STEPS
    assert "model_skipped" not in skipped(metrics, 1)
    assert same(of_seed(after.model.net, 0), of_seed(wild.model.net, 0))
    assert numbers(after)


@pytest.mark.parametrize("amount", [1e30, -1e30, 3e38, np.nan, np.inf])
@pytest.mark.fault("a reward of 1e30 or NaN", "no policy or value net takes it in; the learner stays in numbers")
def test_a_reward_that_misbehaves(first, samples, amount):
    """One too large for its square stops TRPO and nothing else; one that is no number pays nothing."""
    learner, metrics = improve(first, samples, amount=amount)
    assert numbers(learner)
    for policy in (learner.policy, learner.trial.candidate):
        assert numbers(jax.vmap(lambda p: p(jr.key(0), (), jnp.ones(1))[1])(policy))
    if np.isfinite(amount):
        assert skipped(metrics) == {"policy_skipped": 1.0, "value_skipped": 1.0}
    else:
        assert "value_skipped" not in skipped(metrics)
        assert float(metrics["policy_skipped"][0]) < 1
        assert np.isfinite(metrics["planned_reward"]).all()


def test_bounds_before_anything_was_seen_are_what_is_possible():
    states = Box([-1.0, -INF], [1.0, INF])
    allowed = bounds_around(states, nothing_seen(states), 1.0, True)
    np.testing.assert_array_equal([allowed.low, allowed.high], [states.low, states.high])


# -- rows, covariance, bonus -------------------------------------------------------------------------------------------


def rows_of(state, action=None):
    n = state.shape[0]
    no = jnp.zeros(n, bool)
    action = jnp.zeros((n, 1)) if action is None else action
    return Transitions(jnp.asarray(state), action, jnp.zeros(n), jnp.asarray(state), no, no, ~no)


def test_no_window_goes_on_after_a_row_that_was_rejected():
    rows, counted = jax.jit(drop_nonfinite)(rows_of(jnp.arange(8.0)[:, None], jnp.zeros((8, 1)).at[4].set(NAN)))
    assert float(counted["rows_rejected"]) == 1
    windows = eqx.filter_jit(Replay.windows)(Replay(rows, jnp.zeros((), int)), jr.key(0), 200, 3)
    states, valid = np.asarray(windows.state)[..., 0], np.asarray(windows.valid)
    from_two = states[:, 0] == 2
    assert from_two.any()
    np.testing.assert_array_equal(valid[from_two], [[True, True, False]] * from_two.sum())
    from_three = states[:, 0] == 3
    assert from_three.any()
    np.testing.assert_array_equal(valid[from_three], [[True, False, False]] * from_three.sum())


def test_states_of_a_finite_mdp_are_always_numbers():
    rows = Transitions(jnp.arange(3), jnp.arange(3), jnp.zeros(3), jnp.arange(3), *[jnp.ones(3, bool)] * 3)
    cleaned, counted = jax.jit(drop_nonfinite)(rows)
    assert same(cleaned, rows)
    assert float(counted["rows_rejected"]) == 0


@pytest.mark.parametrize(
    "moment",
    [
        jnp.eye(3).at[1, 1].set(NAN),
        jnp.eye(3).at[0, 2].set(INF),
        -2.0 * jnp.eye(3),  # what rounding can make of a moment: Sigma would not be positive
        jnp.full((3, 3), 3e38),
    ],
)
@pytest.mark.fault("a singular covariance", "it is not taken; the one before stays")
def test_a_covariance_without_a_factor_is_refused(moment):
    covariance = Covariance(jnp.eye(3), jnp.full((3, 3), 1e-9), jnp.array(False))
    add = eqx.filter_jit(Covariance.add)
    kept = add(covariance, moment)
    assert float(kept.metrics(1.0)["covariance_skipped"]) == 1
    assert same((kept.matrix, kept.kahan_error), (covariance.matrix, covariance.kahan_error))
    more = add(kept, 0.5 * jnp.eye(3))
    assert float(more.metrics(1.0)["covariance_skipped"]) == 0
    np.testing.assert_allclose(more.matrix, 1.5 * np.eye(3), atol=1e-6)


def identity(state, action):
    return state


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
@pytest.mark.fault("the bonus of any state, NaN included", "it is in [0, H]")
def test_the_bonus_is_between_nothing_and_the_cap(scale):
    ellipse = Elliptical().init(jr.key(0), identity, jnp.diag(jnp.array([1.0, 1e-6])))
    bonus, broken = (
        CappedBonus(b, jnp.float32(scale), 5.0) for b in (ellipse, Ellipse(identity, jnp.full((2, 2), NAN)))
    )
    numbers = [0.0, 1.0, -1.0, 1e-30, 1e20, 3e38, -3e38, np.inf, -np.inf, np.nan]
    states = jnp.array([(x, y) for x in numbers for y in numbers], jnp.float32)
    for b in (bonus, broken):
        paid = np.asarray(eqx.filter_jit(lambda b: jax.vmap(lambda s: b(s, s))(states))(b))
        assert ((paid >= 0) & (paid <= 5)).all()
        assert (paid[np.isnan(np.asarray(states)).any(1)] == 0).all()


# -- the model's fit ---------------------------------------------------------------------------------------------------


def walk_of(n=400, seed=0):
    rng = np.random.default_rng(seed)
    state, action = rng.uniform(-1, 1, (2, n, 1)).astype(np.float32)
    no = jnp.zeros(n, bool)
    after = state + 0.1 * np.sin(3 * state + action)
    return Transitions(*map(jnp.asarray, (state, action, np.zeros(n, np.float32), after)), no, ~no, ~no)


@eqx.filter_jit
def train(model, fitted, key, replay):
    return model.train(key, line(), fitted, replay)


def small(**settings):
    return Neural(**({"sizes": (8,), "batch": 8, "unroll": 1} | settings))


@pytest.mark.fault("a gradient of the model's fit a million times too large", "that step is skipped and counted")
def test_a_step_with_an_absurd_gradient_is_skipped():
    """One row in 400 is far out, where a unit of the net that nothing else wakes answers a billion times too much. Only
    the batches with that row are skipped, and the others train."""
    part = small(steps=40, decay=0.0)
    model = part.init(jr.key(0), line())
    weights, biases = model.net.weights, model.net.biases
    sleeping = (
        (weights[0].at[:, 0].set(jnp.array([0.0, 1.0])), weights[1].at[0].set(1e8)),
        (
            biases[0].at[0].set(-10.0),
            biases[1],
        ),
    )
    model = eqx.tree_at(lambda m: (m.net.weights, m.net.biases), model, sleeping)
    data = walk_of()
    data = eqx.tree_at(lambda d: d.action, data, data.action.at[0].set(1e3))
    replay = Replay(data, jnp.zeros((), int))
    key = jr.key(1)
    rows, _ = eqx.filter_jit(Replay.window_rows)(replay, key, 40 * 8, 1)
    hit = (np.asarray(rows).reshape(40, 8) == 0).any(1)
    assert 0 < hit.sum() < 5
    assert not hit[-4:].any()  # it would be in the loss at the end
    fitted, metrics = train(part, model, key, replay)
    assert float(metrics["model_skipped"]) == hit.sum()
    taken = [int(x) for x in jax.tree.leaves(fitted.optimiser) if x.dtype == jnp.int32]
    assert taken == [40 - hit.sum()]
    assert not np.array_equal(fitted.net.biases[1], model.net.biases[1])
    moments = [x for x in jax.tree.leaves(fitted.optimiser) if x.dtype == jnp.float32]
    assert max(np.abs(x).max() for x in moments) < 10


@pytest.mark.fault("a model's fit that explodes", "the model of before stays; all steps count as skipped")
def test_a_fit_that_explodes_is_undone():
    replay = Replay(walk_of(), jnp.zeros((), int))
    part = small(steps=20)
    model, metrics = train(part, part.init(jr.key(0), line()), jr.key(0), replay)
    assert float(metrics["model_skipped"]) == 0
    after, metrics = train(dataclasses.replace(part, rate=30.0), model, jr.key(1), replay)
    assert np.isfinite(metrics["model_loss"])  # it is all in numbers
    assert float(metrics["model_loss"]) > 100
    assert float(metrics["model_skipped"]) == 20
    assert same(after, model)


def test_a_model_is_fitted_to_the_rows_that_are_numbers():
    data = walk_of()
    bad = eqx.tree_at(
        lambda d: (d.state, d.next_state), data, (data.state.at[5].set(INF), data.next_state.at[8].set(-1e38))
    )
    rows, rejected = eqx.filter_jit(drop_nonfinite)(bad)
    part = small(steps=20)
    fitted, metrics = train(part, part.init(jr.key(0), line()), jr.key(0), Replay(rows, jnp.zeros((), int)))
    assert float(rejected["rows_rejected"]) == 2
    assert float(metrics["model_skipped"]) == 0
    assert numbers((fitted, metrics))
    kept = np.setdiff1d(np.arange(400), [5, 8])
    np.testing.assert_allclose(fitted.change.std, np.std(np.asarray(data.next_state - data.state)[kept]), rtol=1e-4)


# -- planners ----------------------------------------------------------------------------------------------------------


def faults(n):
    """x, u, advantages of which one kind is not fit for a step."""
    x, u, weight = jr.normal(jr.key(1), (n, 1)), jr.normal(jr.key(2), (n, 1)), jr.normal(jr.key(3), (n,))
    return {
        "nothing": (x, u, weight),
        "no advantage": (x, u, jnp.zeros(n)),
        "nearly none": (x, u, 1e-30 * weight),
        "NaN": (x, u, weight.at[0].set(NAN)),
        "inf": (x, u, weight.at[0].set(INF)),
        "huge": (x, u, 1e30 * weight),
        "no state": (x.at[0].set(NAN), u, weight),
        "no action": (x, u.at[0].set(INF), weight),
    }


@pytest.mark.parametrize("fault", faults(2))
@pytest.mark.fault("a policy gradient of zero or NaN", "the policy stays, and it is counted")
def test_an_actor_takes_a_step_that_gains_or_none(fault):
    actor = GaussianHead.of(jr.key(0), 1, 1, sizes=(4,))
    new, kl, improvement = eqx.filter_jit(PLANNER.natural_step)(actor, *faults(50)[fault])
    assert numbers((new, kl, improvement))
    assert same(new, actor) == (fault != "nothing")
    assert (improvement > 0) == (kl > 0) == (fault == "nothing")


def test_imagined_rewards_that_are_no_numbers_pay_nothing():
    right, left = jnp.ones(1), -jnp.ones(1)
    for amount in (NAN, INF, -INF):
        mdp = imagine(line(amount), move, lambda s, a: jnp.float32(0.25))
        assert float(mdp.reward(right, right, right)) == 0.25
        assert float(mdp.reward(right, right, left)) == 1.25
    assert float(imagine(line(1e30), move, pay_nothing).reward(right, right, right)) == pytest.approx(1e30)


SHOOTERS = (
    CEM(num_plans=50, plan_length=4, iterations=3, elites=5),
    MPPI(num_plans=50, plan_length=4, temperature=0.01, noise_cov=0.3),
)


class Push(eqx.Module):
    """An imagination gone wrong where a plan goes faster than `limit`."""

    limit: Float[Array, ""]

    def __call__(self, key, state, action):
        return jnp.where(action > self.limit, NAN, state + action)


@eqx.filter_jit
def refine(shooter, limit, amount, plan):
    push, reward = Push(jnp.float32(limit)), lambda s, a, s2: amount - jnp.sum((s2 - 0.4) ** 2)
    mdp = MDP(initial, push, reward, never, STATES, ACTIONS, 4)
    return shooter.refine(jr.key(0), imagine(mdp, mdp.transition, pay_nothing), jnp.zeros(1), plan)


@pytest.mark.parametrize("shooter", SHOOTERS, ids=["cem", "mppi"])
@pytest.mark.fault("plans whose returns are NaN", "they rank below all others; if all are NaN, the plan is unchanged")
def test_plans_that_are_no_numbers(shooter):
    plan = jnp.array([[0.1], [-0.3], [0.5], [0.7]])
    none, good = jnp.float32(-2.0), jnp.float32(0.5)
    # No plan has a return, or none that leaves room for another: the plan stays.
    np.testing.assert_array_equal(refine(shooter, none, jnp.float32(0.0), plan), plan)
    np.testing.assert_array_equal(refine(shooter, good, jnp.float32(3e38), plan), plan)
    # Any return is better than none, however bad.
    for amount in (0.0, -1e12):
        better = np.asarray(refine(shooter, good, jnp.float32(amount), jnp.zeros((4, 1))))
        assert (better <= 0.5).all()
        assert np.isfinite(better).all()


# -- Algorithm 1 -------------------------------------------------------------------------------------------------------


class UniformPlanner(Planner):
    """Uniform play, whatever the MDP."""

    def init(self, key, mdp):
        return UniformPolicy(mdp.actions)

    def plan(self, key, mdp, policy):
        return policy, {}


@pytest.mark.fault(
    "NaN in the rows or rewards of Algorithm 1", "not learned from; a policy that made one is not the best"
)
def test_algorithm_1_does_the_same():
    def phi(state, action):
        return 0.2 * jnp.concatenate([state, action])

    world = JaxWorld(line())
    algo = PCMLP(phi, small(steps=3), UniformPlanner(), samples_per_policy=20, ridge=1.0).bind(Problem(world))
    learner = algo.start(KEYS, world.mdp, 2)
    samples, _ = world.collect(KEYS, learner.policy, 20)
    faulty = spoilt(samples, state=(3, NAN), action=(7, INF), reward=(11, INF))

    def improved(learner, samples):
        copied = jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, learner)  # it is used up
        return framework._improve((KEYS, as_inputs(algo), world.mdp, samples, samples, jnp.array(1)), copied)

    after, metrics = improved(learner, faulty)
    assert skipped(metrics) == {"rows_rejected": 2.0, "rewards_rejected": 1.0}
    assert numbers(eqx.tree_at(lambda l: l.values, after, None))
    assert float(after.values[0, 0]) == -np.inf  # not the best, with a reward that is no number
    state, action = (np.delete(np.asarray(x)[0], [3, 7], axis=0) for x in (samples.state, samples.action))
    seen = 0.2 * np.concatenate([state, action], axis=1)
    np.testing.assert_allclose(after.covariance.matrix[0], np.eye(2) + seen.T @ seen / 20, rtol=1e-5)
    wild = eqx.tree_at(lambda l: l.covariance.matrix, learner, -learner.covariance.matrix)
    _, metrics = improved(wild, samples)
    assert skipped(metrics)["covariance_skipped"] == 1
