"""The finite tasks are what their docstrings say."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp import finite
from pcmlp.errors import ConfigError
from pcmlp.features import check_norm
from pcmlp.planners.value_iteration import ValueIteration
from pcmlp.runs.config import resolve
from pcmlp.tasks import TASKS
from pcmlp.tasks.finite import CombinationLock, LowRank

PLANNER = ValueIteration()
value = eqx.filter_jit(finite.value)


@eqx.filter_jit
def plan(mdp):
    return PLANNER.plan(jr.key(0), mdp, PLANNER.init(jr.key(0), mdp))


def code_of(task):
    """The action that moves on from each digit."""
    table = np.asarray(task.world.mdp.transition.probabilities())
    H = task.world.mdp.horizon
    return table[np.arange(H), :, np.arange(H) + 1].argmax(1).tolist()


@pytest.mark.parametrize(("horizon", "actions"), [(1, 2), (20, 5)])
def test_lock_optimum_and_uniform_play(horizon, actions):
    task = CombinationLock(horizon=horizon, actions=actions).build()
    mdp = task.world.mdp
    policy, metrics = plan(mdp)
    assert float(metrics["planned_value"]) == pytest.approx(1.0)
    assert np.asarray(policy.action)[np.arange(horizon), np.arange(horizon)].tolist() == code_of(task)
    uniform = PLANNER.init(jr.key(0), mdp).probabilities()
    assert float(value(mdp, uniform)) == pytest.approx(actions ** float(-horizon), rel=1e-4)
    table = np.asarray(mdp.transition.probabilities())
    np.testing.assert_array_equal(table.sum(-1), np.ones((horizon + 2, actions)))
    assert task.success_return == 0.5


def test_lock_one_wrong_action_breaks_it():
    task = CombinationLock(horizon=4, actions=3).build()
    policy, _ = plan(task.world.mdp)
    for h in range(4):
        wrong = (policy.probabilities()[h] + 1) % 2
        changed = policy.probabilities().at[h].set(jnp.asarray(wrong / wrong.sum(1, keepdims=True)))
        assert float(value(task.world.mdp, changed)) == 0.0


def test_lock_code_depends_on_the_seed():
    codes = [code_of(CombinationLock(horizon=12, actions=4, seed=seed).build()) for seed in (0, 0, 1, 2)]
    assert codes[0] == codes[1]
    assert codes[0] != codes[2] != codes[3] != codes[0]
    assert len(set(codes[0])) > 1


def test_lock_comes_with_its_features_and_an_empty_model():
    task = CombinationLock(horizon=4, actions=3).build()
    mdp = task.world.mdp
    check_norm(task.features, mdp)
    np.testing.assert_array_equal(task.model.init(jr.key(0), mdp).counts, np.zeros((6, 3, 6)))
    assert (mdp.states.size, mdp.actions.size) == (6, 3)


@pytest.fixture(scope="module", params=[0, 1])
def low_rank(request):
    return LowRank(members=100, seed=request.param).build()


def test_low_rank_truth_is_a_distribution_in_the_class(low_rank):
    truth = low_rank.world.mdp.transition
    p = np.asarray(truth.probabilities())
    assert p.shape == (12, 4, 12)
    assert p.min() >= 0
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)
    assert np.linalg.matrix_rank(p.reshape(48, 12), tol=1e-4) == 5
    upsilon = np.asarray(low_rank.model.upsilon)
    assert upsilon.shape == (100, 5, 12)
    inside = [np.allclose(np.asarray(low_rank.features.phi) @ mu, p, atol=1e-6) for mu in upsilon]
    assert sum(inside) == 1


def test_low_rank_has_neighbours_at_all_scales(low_rank):
    upsilon = np.asarray(low_rank.model.upsilon)
    distance = np.abs(upsilon[1:] - upsilon[0]).sum(-1).max(-1)  # the worst factor, in L1
    assert distance.min() < 0.05
    assert distance.max() > 0.5
    assert np.histogram(distance, bins=[0, 0.05, 0.2, 0.5, 2])[0].min() > 5


def test_low_rank_learner_does_not_begin_with_the_truth(low_rank):
    upsilon = np.asarray(low_rank.model.upsilon)
    distance = np.abs(upsilon - upsilon[0]).sum((1, 2))
    assert low_rank.model.prior == distance.argmax() != 0
    mdp = low_rank.world.mdp
    np.testing.assert_array_equal(low_rank.model.init(jr.key(0), mdp).mu, upsilon[low_rank.model.prior])
    np.testing.assert_array_equal(mdp.transition.mu, upsilon[0])


def test_low_rank_features_have_norm_at_most_one(low_rank):
    check_norm(low_rank.features, low_rank.world.mdp)
    phi = np.asarray(low_rank.features.phi)
    np.testing.assert_allclose(phi.sum(-1), 1, rtol=1e-5)
    assert np.linalg.norm(phi, axis=-1).max() > 0.9  # one constant, not normalised point by point
    assert np.linalg.norm(phi, axis=-1).min() < 0.8


def test_low_rank_planning_pays(low_rank):
    mdp = low_rank.world.mdp
    uniform = float(value(mdp, PLANNER.init(jr.key(0), mdp).probabilities()))
    assert float(plan(mdp)[1]["planned_value"]) > 1.5 * uniform > 0


def test_low_rank_class_from_a_file(tmp_path):
    small = {"horizon": 3, "states": 4, "actions": 2, "rank": 2}
    upsilon = np.random.default_rng(0).dirichlet(np.ones(4), (6, 2))
    np.save(tmp_path / "good.npy", upsilon)
    task = LowRank(**small, upsilon=str(tmp_path / "good.npy")).build()
    np.testing.assert_allclose(task.model.upsilon, upsilon, rtol=1e-6)
    truth = np.asarray(task.features.phi) @ upsilon[0]
    np.testing.assert_allclose(task.world.mdp.transition.probabilities(), truth, rtol=1e-5)

    np.save(tmp_path / "shape.npy", upsilon[:, :, :3])
    np.save(tmp_path / "axes.npy", upsilon[0])
    np.save(tmp_path / "sum.npy", 2 * upsilon)
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    np.savez(tmp_path / "several.npz", upsilon, upsilon)
    (tmp_path / "text.npy").write_text("1 2 3")
    for name, message in [
        ("shape.npy", r"\[members, 2, 4\]"),
        ("axes.npy", r"\[members, 2, 4\]"),
        ("sum.npy", "6 of 6 members"),
        ("words.npy", "not a .npy file of numbers"),
        ("several.npz", "not a .npy file of numbers"),
        ("text.npy", "not a .npy file of numbers"),
        ("absent.npy", "not a .npy file of numbers"),
    ]:
        with pytest.raises(ConfigError, match=message):
            LowRank(**small, upsilon=str(tmp_path / name)).build()


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("combination-lock", "horizon", 0, r"horizon=0.*1 or more"),
        ("combination-lock", "actions", 1, r"actions=1.*2 or more"),
        ("low-rank", "horizon", 0, r"horizon=0.*1 or more"),
        ("low-rank", "states", 0, r"states=0.*1 or more"),
        ("low-rank", "actions", -1, r"actions=-1.*1 or more"),
        ("low-rank", "rank", 0, r"rank=0.*1 or more"),
        ("low-rank", "members", 0, r"members=0.*1 or more"),
    ],
)
def test_bad_settings_are_refused(name, key, value, message):
    with pytest.raises(ConfigError, match=message):
        TASKS[name](**{key: value})
    with pytest.raises(ConfigError, match=rf"task\.{message}"):
        resolve(name, settings=(f"task.{key}={value}",))
