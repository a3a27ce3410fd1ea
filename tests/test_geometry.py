"""Bodies of a state: what a task declares about its coordinates, and the errors of predicted poses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.errors import ConfigError
from pcmlp.models import Neural, Probabilistic
from pcmlp.models.geometry import angle_between, pose_error
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Body, Box, Coordinates

BODY = Body("egg", place=3, rotation=6, spin=0)


def turn(angle, axis):
    axis = np.asarray(axis, float) / np.linalg.norm(axis)
    return jnp.asarray(np.append(np.cos(angle / 2), np.sin(angle / 2) * axis), jnp.float32)


@pytest.mark.parametrize("angle", [0.0, 1e-3, 0.5, 3.0])
def test_the_angle_between_rotations(angle):
    axis = [1.0, -2.0, 0.5]
    for length in (1.0, -3.0):  # q and -q are the same rotation
        found = angle_between(turn(0.4, axis), length * turn(0.4 + angle, axis))
        np.testing.assert_allclose(found, angle, atol=2e-6)


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
