"""The hand with an egg: what it is paid is what Gymnasium-Robotics says, and its goals are the paper's."""

import dataclasses
import pickle
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.errors import ConfigError
from pcmlp.planners import UniformPolicy
from pcmlp.runs.config import build, resolve
from pcmlp.runs.evaluate import group_numbers, scores
from pcmlp.runs.policy import SavedRun
from pcmlp.tasks.host import Lanes
from pcmlp.tasks.mujoco.hand_egg import HandEgg, at_goal, egg_in_hand, hand_egg_reward, height_group

EGG, GOAL = slice(61, 68), slice(68, 75)


@pytest.fixture(scope="module")
def egg():
    return egg_in_hand()


@pytest.fixture(scope="module")
def starts(egg):
    return np.stack([egg.reset(seed=seed)[0] for seed in range(100)])


def turned(quaternion, angle, axis):
    """By an angle about an axis: the product of quaternions."""
    by = np.append(np.cos(angle / 2), np.sin(angle / 2) * axis / np.linalg.norm(axis))
    w, v = by[0] * quaternion[0] - by[1:] @ quaternion[1:], np.cross(by[1:], quaternion[1:])
    return np.append(w, v + by[0] * quaternion[1:] + quaternion[0] * by[1:])


def walk(egg, steps):
    """Random steps; the goal is moved to where the egg is, more or less, or no step would be a success."""
    rng, rows = np.random.default_rng(0), []
    for t in range(steps):
        if t % 100 == 0:
            state = egg.reset(seed=t)[0]
        if t % 2:
            place = egg.egg._get_achieved_goal()
            offset = rng.standard_normal(3)
            offset *= rng.uniform(0, 0.015) / np.linalg.norm(offset)
            rotation = turned(place[3:], rng.uniform(0, 0.15), rng.standard_normal(3))
            egg.egg.goal = np.concatenate([place[:3] + offset, rotation])
        action = rng.uniform(-1.5, 1.5, 20).astype(np.float32)
        after, reward, *_ = egg.step(np.clip(action, -1, 1))
        rows.append((state, action, after, reward))
        state = after
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_rewards_are_those_of_the_simulator(egg):
    *rows, reward = walk(egg, 2_000)
    ours = np.asarray(jax.vmap(hand_egg_reward)(*(jnp.asarray(x, jnp.float32) for x in rows)))
    assert (np.abs(ours - reward) <= 1e-4 * (1 + np.abs(reward))).all()
    assert set(reward) == {10.0, -1.0}
    assert 100 < (reward > 0).sum() < 1_000
    again = egg.egg.compute_reward(rows[2][:, EGG], rows[2][:, GOAL], {})  # the original's: 0 or -1
    np.testing.assert_array_equal(again == 0, reward > 0)


def state_with(distance, angle):
    egg = np.array([1.0, 0.9, 0.2, 0.5, 0.5, -0.5, 0.5])
    place = egg[:3] + distance * np.array([0.6, 0, -0.8])
    goal = np.concatenate([place, turned(egg[3:], angle, np.array([1.0, 2.0, 3.0]))])
    return jnp.asarray(np.concatenate([np.zeros(61), egg, goal]), jnp.float32)


@pytest.mark.parametrize(
    ("distance", "angle", "reached"),
    [(0, 0, True), (0.0099, 0.099, True), (0.0101, 0, False), (0, 0.101, False), (0, np.pi, False)],
)
def test_what_is_at_the_goal(distance, angle, reached):
    assert bool(at_goal(state_with(distance, angle))) == reached


def test_an_imagined_quaternion_of_any_length_is_judged_by_its_direction():
    near, far = state_with(0, 0.05), state_with(0, 0.5)
    for length in (0.5, 3.0):
        assert at_goal(near.at[64:68].multiply(length))
        assert not at_goal(far.at[64:68].multiply(length))
    assert np.isfinite(hand_egg_reward(near, jnp.zeros(20), near.at[64:68].set(0.0)))


def test_goals_are_moved_and_not_turned(starts):
    np.testing.assert_allclose(starts[:, 71:], starts[:, 64:68], atol=1e-12)
    offset = starts[:, 68:71] - starts[:, 61:64]
    low, high = np.array([-0.04, -0.06, 0.0]), np.array([0.04, 0.02, 0.06])
    assert (offset >= low).all()
    assert (offset <= high).all()
    assert (np.ptp(offset, axis=0) > 0.9 * (high - low)).all()
    assert (starts[:, 64:68].std(axis=0) > 0.2).all()  # the egg itself lies in any way
    np.testing.assert_array_equal(starts[:, 54:61], starts[:, 61:68])  # what is observed has the egg's place as well


def test_a_seed_gives_one_episode_whatever_was_walked_before(egg):
    other = egg_in_hand()
    other.reset(seed=5)
    for _ in range(5):
        other.step(other.action_space.high)
    np.testing.assert_array_equal(egg.reset(seed=3)[0], other.reset(seed=3)[0])
    for _ in range(20):
        once, twice = (hand.step(0.5 * egg.action_space.high)[0] for hand in (egg, other))
        np.testing.assert_array_equal(once, twice)
    np.testing.assert_array_equal(once[GOAL], egg.reset(seed=3)[0][GOAL])  # a goal stays


def test_the_task():
    task = HandEgg().build()
    world = task.world
    assert (world.mdp.states.size, world.mdp.actions.size, world.mdp.horizon) == (75, 20, 100)
    assert world.notes == []
    assert not world.mdp.terminal(*(jnp.zeros(n) for n in (75, 20, 75)))
    assert world.environments.first.egg.dt == pytest.approx(0.04)
    assert task.map is None


def test_the_coordinates_are_those_that_the_task_declares(egg):
    """Copies are equal and goals stay during an episode, and the spin is what turns the egg."""
    states = HandEgg().build().world.mdp.states.coordinates
    (body,) = states.bodies
    rng, before = np.random.default_rng(0), egg.reset(seed=0)[0]
    for _ in range(20):
        after = egg.step(rng.uniform(-1, 1, 20))[0]
        for copy, original in states.copies:
            assert after[copy] == after[original]
        for goal, _ in states.goals:
            assert after[goal] == before[goal]
        place, rotation = egg.data.body("object").xpos, egg.data.body("object").xquat
        np.testing.assert_allclose(after[body.place : body.place + 3], place, atol=2e-3)  # xpos lags by a substep
        np.testing.assert_allclose(after[body.rotation : body.rotation + 4], rotation, atol=2e-2)
        np.testing.assert_array_equal(after[body.spin : body.spin + 3], egg.data.joint("object:joint").qvel[3:])
    assert [goal for goal, _ in states.goals] == list(range(GOAL.start, GOAL.stop))
    sizes = egg.model.geom("object").size
    assert np.delete(sizes, body.axis)[0] == np.delete(sizes, body.axis)[1] != sizes[body.axis]


def test_success_is_told_apart_by_the_height_of_the_goal(starts):
    """The thirds of the offset, which every goal is in; and `eval` finds those of its episodes."""
    offset = starts[:, 70] - starts[:, 63]
    numbers = np.array([int(height_group(jnp.asarray(start, jnp.float32))) for start in starts])
    for i, (low, high) in enumerate([(0.0, 0.02), (0.02, 0.04), (0.04, 0.06)]):
        assert ((offset[numbers == i] >= low - 1e-6) & (offset[numbers == i] <= high + 1e-6)).all()
        assert (numbers == i).sum() > 15
    problem, keys = HandEgg(horizon=3).build(), jr.split(jr.key(0), 1)
    policies = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, UniformPolicy(problem.world.mdp.actions))
    saved = SavedRun(Path(), dataclasses.replace(resolve("hand-egg", "random"), seeds=(0,)), problem, policies)
    found = group_numbers(saved, keys, 6)
    lanes = Lanes.of(keys, 6, 3)
    first = [egg_in_hand().reset(seed=int(seed))[0] for seed in lanes.seed[0]]
    assert found.tolist() == [[int(height_group(jnp.asarray(x, jnp.float32))) for x in first]]
    assert problem.groups.episodes == 300


@pytest.mark.parametrize("horizon", [1, 100])
def test_one_step_at_the_goal_is_a_success(horizon):
    least = HandEgg(horizon=horizon).build().success_return
    never, once, always = -horizon, 10 - (horizon - 1), 10 * horizon
    assert scores(np.array([never, once, always], np.float32), least)["success"] == pytest.approx(2 / 3)


def test_a_simulation_that_diverges_is_no_transition(egg, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes a log
    egg.reset(seed=0)
    egg.data.qvel[:] = 1e12
    with pytest.raises(RuntimeError, match="the simulation diverged"):
        egg.step(np.zeros(20))
    egg.reset(seed=0)
    assert np.isfinite(egg.step(np.zeros(20))[0]).all()  # nor is what comes after it spoilt


def test_what_makes_it_can_be_sent_to_a_process(egg):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(egg_in_hand))().reset(seed=1)[0], egg.reset(seed=1)[0])


def test_without_gymnasium_robotics(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    line = r"^task.name=hand-egg: gymnasium-robotics is not installed; run pip install 'pcmlp\[robotics\]'$"
    with pytest.raises(ConfigError, match=line):
        build(resolve("hand-egg"))
