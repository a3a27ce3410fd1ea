"""Bodies of a state: what a task declares about its coordinates, and the errors of predicted poses."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.features import RandomNetwork
from pcmlp.models import Neural, Probabilistic
from pcmlp.models.geometry import (
    Chart,
    conjugate,
    multiply,
    pose_error,
    quaternion,
    rotate,
    rotation_vector,
)
from pcmlp.planners import SAC, UniformPolicy
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Body, Box, Coordinates
from pcmlp.types import MDP, never
from pcmlp.world import JaxWorld

BODY = Body("egg", place=3, rotation=6, spin=0)


def turn(angle, axis):
    axis = np.asarray(axis, float) / np.linalg.norm(axis)
    return jnp.asarray(np.append(np.cos(angle / 2), np.sin(angle / 2) * axis), jnp.float32)


EGG = Body("egg", place=3, rotation=6, spin=0, axis=2)
BALL = dataclasses.replace(EGG, axis=None)
DECLARED = Coordinates(bodies=(EGG,), copies=((11, 3), (12, 6)), goals=((13, 3),))  # 10 is a coordinate like any other
CHART = Chart(14, DECLARED)


def states_of_an_egg(rng, n):
    """Return states with a rotation of length 1, and copies that are equal."""
    states = rng.standard_normal((n, 14)).astype(np.float32)
    states[:, 6:10] /= np.linalg.norm(states[:, 6:10], axis=1, keepdims=True)
    for copy, original in DECLARED.copies:
        states[:, copy] = states[:, original]
    return jnp.asarray(states)


@pytest.mark.parametrize("chart", [CHART, Chart(14, dataclasses.replace(DECLARED, bodies=(BALL,))), Chart.plain(14)])
def test_a_change_leads_from_one_state_to_the_other(chart):
    """The same rotation, that is: its quaternion has the sign that continues the first one."""
    rng = np.random.default_rng(0)
    state, after = states_of_an_egg(rng, 200), states_of_an_egg(rng, 200)
    same_sign = jnp.sum(state[:, 6:10] * after[:, 6:10], axis=1, keepdims=True)
    after = after.at[:, 6:10].multiply(jnp.where(same_sign < 0, -1.0, 1.0)).at[:, 13].set(state[:, 13])
    after = after.at[:, 12].set(after[:, 6])
    found = jax.jit(jax.vmap(lambda s, t: chart.apply(s, chart.change(s, t), lambda levels: levels)))(state, after)
    np.testing.assert_allclose(found, after, atol=2e-5)
    levels, encoded, changes = chart.sizes
    assert jax.vmap(chart.levels)(state).shape == (200, levels)
    assert jax.vmap(chart.encode)(state).shape == (200, encoded)
    assert jax.vmap(chart.change)(state, after).shape == (200, changes)


def test_what_is_predicted_is_a_state():
    """Whatever a network says, a rotation has length 1, copies are equal, and the goal stays."""
    rng = np.random.default_rng(1)
    state = states_of_an_egg(rng, 100)
    change = jnp.asarray(
        rng.standard_normal((100, CHART.sizes[2])) * 10.0 ** rng.integers(-6, 3, (100, 1)), jnp.float32
    )
    after = jax.vmap(lambda s, d: CHART.apply(s, d, lambda levels: levels))(state, change)
    np.testing.assert_allclose(np.linalg.norm(after[:, 6:10], axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(after[:, 13], state[:, 13])
    for copy, original in DECLARED.copies:
        np.testing.assert_array_equal(after[:, copy], after[:, original])


def test_a_turn_is_one_change_wherever_the_egg_points():
    """The target of a rotation is a vector in the world's frame, and so is that of the spin."""
    rng = np.random.default_rng(2)
    turned = turn(0.7, [1.0, 2.0, -1.0])
    axis = np.array([1.0, 2.0, -1.0]) / np.sqrt(6.0)
    for state in states_of_an_egg(rng, 10):
        q = multiply(turned, state[6:10])
        after = state.at[6:10].set(q).at[:3].set(rotate(conjugate(q), jnp.array([0.0, 0.0, 3.0])))
        before = state.at[:3].set(0.0)  # at rest, and after the turn it spins about the world's vertical
        change = CHART.change(before, after)
        np.testing.assert_allclose(change[-3:], 0.7 * axis, atol=1e-5)
        np.testing.assert_allclose(change[-6:-3], [0.0, 0.0, 3.0], atol=1e-5)


def test_the_network_is_told_neither_copies_nor_goals_nor_turns_about_the_axis():
    state = states_of_an_egg(np.random.default_rng(3), 1)[0]
    seen = CHART.encode(state)
    other = state.at[11:14].add(1.0).at[6:10].set(multiply(state[6:10], turn(1.0, [0.0, 0.0, 1.0])))
    other = other.at[:3].set(rotate(turn(-1.0, [0.0, 0.0, 1.0]), state[:3]))  # the same spin in the world's frame
    np.testing.assert_allclose(CHART.encode(other), seen, atol=1e-5)
    assert not np.allclose(CHART.encode(state.at[6:10].set(multiply(turn(1.0, [1.0, 0.0, 0.0]), state[6:10]))), seen)


@pytest.mark.parametrize("angle", [0.0, 1e-5, 1e-3, 0.5, 3.0])
def test_vectors_and_quaternions_of_a_turn(angle):
    """And the gradient of a turn is finite, also at none."""
    vector = jnp.asarray(angle * np.array([2.0, -1.0, 2.0]) / 3.0, jnp.float32)
    np.testing.assert_allclose(quaternion(vector), turn(angle, [2.0, -1.0, 2.0]), atol=1e-6)
    for sign in (1.0, -1.0):  # q and -q are the same rotation
        np.testing.assert_allclose(rotation_vector(sign * quaternion(vector)), vector, atol=1e-6)
    gradient = jax.jacobian(quaternion)(vector)
    near = jax.jacobian(quaternion)(vector + 1e-4)
    np.testing.assert_allclose(gradient, near, atol=1e-3)


def test_the_error_of_a_pose():
    actual = jnp.concatenate([jnp.zeros(6), turn(0.0, [0, 0, 1])])
    predicted = jnp.concatenate([jnp.ones(3), jnp.array([0.003, 0.0, -0.004]), turn(0.2, [1, 0, 0])])
    apart, angle = pose_error(BODY, predicted, actual)
    np.testing.assert_allclose([apart, angle], [0.005, 0.2], rtol=1e-5)


def test_a_model_measures_the_bodies_that_are_declared():
    """A model that predicts no change is wrong by what happened, which is known here."""
    states = Box([-np.inf] * 10, [np.inf] * 10, Coordinates(bodies=(BODY,)))
    mdp = spaces_only(states, Box.of(1.0, 1))
    before = jnp.tile(jnp.concatenate([jnp.zeros(6), turn(0.0, [0, 0, 1])]), (50, 1))
    after = before.at[:, 3].add(0.02).at[:, 6:].set(turn(0.3, [0, 1, 0]))
    no, yes = jnp.zeros(50, bool), jnp.ones(50, bool)
    rows = Transitions(before, jnp.zeros((50, 1)), jnp.zeros(50), after, no, yes, yes)
    for dynamics in (Neural(sizes=(4,), steps=1, members=2), Probabilistic(sizes=(4,), steps=1, members=2)):
        model = jax.jit(lambda dynamics=dynamics: dynamics.init(jr.key(0), mdp))()
        fitted, _ = jax.jit(lambda m, d=dynamics: d.train(jr.key(0), mdp, m, Replay(rows, jnp.zeros((), int))))(model)
        kept = fitted.members.inputs, fitted.members.change.std, fitted.members.optimiser
        still = jax.tree.map(jnp.zeros_like, fitted.members)
        still = eqx.tree_at(lambda m: (m.inputs, m.change.std, m.optimiser), still, kept)
        measured = jax.jit(lambda m: m.measure(mdp, rows))(eqx.tree_at(lambda m: m.members, fitted, still))
        np.testing.assert_allclose(measured["held_out_egg_mm"], 20.0, rtol=1e-4)
        np.testing.assert_allclose(measured["held_out_egg_rad"], 0.3, rtol=1e-4)


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        (Coordinates(bodies=(BODY,)), "9 is not one of a state with 9 numbers; give 0 to 8"),
        (Coordinates(copies=((1, 0), (1, 2))), "1 is declared twice; let it be of one body, a copy or a goal"),
        (
            Coordinates(goals=((1, 0),), copies=((2, 1),)),
            "1 is a copy or a goal; name the coordinate that it belongs to",
        ),
    ],
)
def test_declarations_that_cannot_be(declared, line):
    with pytest.raises(ConfigError, match=f"^coordinates: {line}$"):
        Box([0.0] * 9, [1.0] * 9, declared)


SPINNING = Box([-np.inf] * 10, [np.inf] * 10, Coordinates(bodies=(dataclasses.replace(BODY, axis=2),)))


def spin_on(key, state, action):
    """A body that spins on about a fixed direction, 0.1 s a step, and is pushed along x."""
    rotation, spin = state[6:], rotate(state[6:], state[:3])
    turned = multiply(quaternion(0.1 * spin), rotation)
    return jnp.concatenate([rotate(conjugate(turned), spin), state[3:6].at[0].add(0.01 * action[0]), turned])


def begin_anywhere(key):
    numbers = jr.normal(key, (10,))
    return jnp.concatenate([numbers[:3], 0.1 * numbers[3:6], numbers[6:] / jnp.linalg.norm(numbers[6:])])


WORLD = JaxWorld(MDP(begin_anywhere, spin_on, lambda s, a, n: -n[3], never, SPINNING, Box.of(1.0, 1), 10))


def test_a_turn_is_learned_better_from_the_geometry():
    """With the same net and data: it is a linear function of the spin in the world's frame."""
    keys = jr.split(jr.key(0), 2)
    seen, unseen = (WORLD.collect(k[None], stacked(UniformPolicy(Box.of(1.0, 1))), 1_000)[0] for k in keys)
    seen, unseen = (jax.tree.map(lambda x: x[0], rows) for rows in (seen, unseen))
    errors = []
    for geometry in (False, True):
        dynamics = Neural(sizes=(32, 32), steps=400, batch=64, geometry=geometry)
        model = eqx.filter_jit(lambda d=dynamics: d.init(jr.key(1), WORLD.mdp))()
        replay = Replay(seen, jnp.zeros((), int))
        fitted, _ = eqx.filter_jit(lambda m, r, d=dynamics: d.train(jr.key(2), WORLD.mdp, m, r))(model, replay)
        errors.append(eqx.filter_jit(lambda m, rows: m.measure(WORLD.mdp, rows))(fitted, unseen))
    plain, geometric = errors
    assert float(geometric["held_out_egg_rad"]) < 0.5 * float(plain["held_out_egg_rad"]) < 0.1
    assert float(geometric["held_out_egg_mm"]) < 2.0 * float(plain["held_out_egg_mm"])


def kinds(learner):
    leaves, structure = jax.tree.flatten(learner)
    return structure, [(x.shape, x.dtype, x.weak_type) for x in leaves if eqx.is_array(x)]


def stacked(policy):
    return jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, policy)


def test_algorithm_2_plans_in_such_a_model():
    """An ensemble, with predicted rotations of length 1; and a learner keeps its kinds, or would be compiled again."""
    algo = Deep(
        features=RandomNetwork(sizes=(8,), distinct=True),
        model=Neural(sizes=(8,), steps=2, batch=8, members=2, geometry=True),
        planner=SAC(updates=2, streams=4, batch=8),
        samples_per_policy=20,
        num_starts=8,
        bounded=False,
    )
    keys = jr.split(jr.key(0), 1)
    learner, metrics = algo.start(keys, WORLD.mdp, 2), []
    first = kinds(learner)
    for n in (1, 2):
        learner, measured, *_ = algo.iterate(keys, WORLD, learner, n)
        metrics.append(measured)
        assert kinds(learner) == first
    assert np.isnan(metrics[0]["held_out_egg_rad"]).all()
    assert all(np.isfinite(x).all() for x in metrics[1].values())
    alone = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, learner.model)
    state = learner.replay.data.state[0, 0]
    for key in jr.split(jr.key(3), 5):
        state = alone(key, state, jnp.ones(1))
    assert float(jnp.linalg.norm(state[6:])) == pytest.approx(1.0, abs=1e-5)
