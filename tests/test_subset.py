"""Features of some coordinates of the state: they ignore the others, and are those drawn for the chosen ones alone."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from spaces_only import spaces_only

from pcmlp.algorithms.deep import Deep
from pcmlp.bonus import CappedBonus, Elliptical, second_moment
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.features import Fourier, RandomNetwork, check_draw
from pcmlp.parts import NAMES
from pcmlp.replay import Transitions
from pcmlp.runs.metrics import read_metrics
from pcmlp.settings import overlay
from pcmlp.spaces import Box, Coordinates

# Two coordinates have bounds, in the place of the first and third; two have none.
STATES = Box((-1.0, -jnp.inf, 0.0, -jnp.inf), (1.0, jnp.inf, 4.0, jnp.inf))
ACTIONS = Box.of(1.0, 1)
STATES_BOUNDED = Box((-1.0, -20.0, 0.0, 0.0), (1.0, 20.0, 4.0, 10.0))
MDP, BOUNDED = spaces_only(STATES, ACTIONS), spaces_only(STATES_BOUNDED, ACTIONS)
MAPS = {
    "random-network": lambda dims: RandomNetwork(sizes=(32, 32), action_weight=1.0, dims=dims),
    "fourier": lambda dims: Fourier(dim=20, bandwidth=1.0, dims=dims),
}


def samples(n=200):
    rng = np.random.default_rng(0)
    state = rng.uniform([-0.2, -9, 0.5, 7], [0.2, 9, 1.5, 8], (n, 4)).astype(np.float32)
    action, zero, no = rng.uniform(-1, 1, (n, 1)).astype(np.float32), np.zeros(n, np.float32), np.zeros(n, bool)
    return Transitions(*(jnp.asarray(x) for x in (state, action, zero, state, no, no, ~no)))


DATA = samples()


def chosen(data, dims):
    part = jnp.array(dims)
    return eqx.tree_at(lambda d: (d.state, d.next_state), data, (data.state[:, part], data.next_state[:, part]))


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dims", [(0, 2), (2, 0), (1,), (3, 0)])
@pytest.mark.parametrize("mdp", [MDP, BOUNDED], ids=["no bounds", "bounds"])
def test_phi_is_that_of_the_chosen_coordinates(name, dims, mdp):
    phi = MAPS[name](dims).draw(jr.key(0), mdp, DATA)
    part = jnp.array(dims)
    box = mdp.states.choose(dims) if mdp is BOUNDED else Box.of(np.inf, len(dims))
    psi = MAPS[name](None).draw(jr.key(0), spaces_only(box, ACTIONS), chosen(DATA, dims))
    for state, action in zip(DATA.state[:5], DATA.action[:5], strict=True):
        np.testing.assert_array_equal(phi(state, action), psi(state[part], action))
        elsewhere = jnp.where(jnp.isin(jnp.arange(4), part), state, state + 100.0)
        np.testing.assert_array_equal(phi(elsewhere, action), phi(state, action))
        moved = state.at[dims[0]].add(0.5)
        assert not np.allclose(phi(moved, action), phi(state, action))
        assert not np.allclose(phi(state, -action), phi(state, action))


@pytest.mark.parametrize("mdp", [MDP, BOUNDED], ids=["no bounds", "bounds"])
@pytest.mark.parametrize("dims", [(0, 2), (2, 0), (3, 0, 1)])
def test_a_chosen_coordinate_keeps_its_unit_and_phi_its_norm(mdp, dims):
    """Also where only the coordinates that are left out have no bounds."""
    whole, part = (MAPS["random-network"](one).draw(jr.key(0), mdp, DATA) for one in (None, dims))
    rows = jnp.array([*dims, 4])  # the action is the last input
    for of in (lambda n: n.mean, lambda n: n.std):
        np.testing.assert_allclose(of(part.features.normaliser), of(whole.normaliser)[rows], rtol=1e-6)
    largest = [float(jnp.max(jnp.linalg.norm(jax.vmap(phi)(*places(mdp)), axis=1))) for phi in (whole, part)]
    if mdp is MDP:
        np.testing.assert_allclose(largest, 0.5, rtol=1e-5)
    else:
        assert all(0.9 < norm <= 1 for norm in largest)
    one, other = (MAPS["fourier"](use).draw(jr.key(0), mdp, DATA) for use in (None, dims))
    np.testing.assert_allclose(other.features.units, one.units[rows], rtol=0.2)  # of 500 random points each


def places(mdp):
    """The pairs at which phi is scaled: the first data, or the corners of the boxes."""
    if mdp is MDP:
        return DATA.state, DATA.action
    low, high = (np.array([*of(STATES_BOUNDED), *of(ACTIONS)]) for of in (lambda b: b.lower, lambda b: b.upper))
    corners = np.array(list(itertools.product(*zip(low, high, strict=True))), np.float32)
    return jnp.asarray(corners[:, :4]), jnp.asarray(corners[:, 4:])


@pytest.mark.parametrize("name", MAPS)
def test_declared_copies_and_goals_can_be_left_out(name):
    """The others are then those that were chosen; a task that declares nothing is explored in all."""
    declared = spaces_only(Box(STATES.lower, STATES.upper, Coordinates(copies=((1, 0),), goals=((3, 2),))), ACTIONS)
    chosen, everything = (MAPS[name](dims).draw(jr.key(0), MDP, DATA) for dims in ((0, 2), None))
    leaves_out = dataclasses.replace(MAPS[name](None), distinct=True)
    found, same = leaves_out.draw(jr.key(0), declared, DATA), leaves_out.draw(jr.key(0), MDP, DATA)
    told = MAPS[name](None).draw(jr.key(0), declared, DATA)
    for state, action in zip(DATA.state[:5], DATA.action[:5], strict=True):
        np.testing.assert_array_equal(found(state, action), chosen(state, action))
        np.testing.assert_array_equal(same(state, action), everything(state, action))
        np.testing.assert_array_equal(told(state, action), everything(state, action))


@pytest.mark.parametrize("name", MAPS)
def test_units_are_those_of_the_boxes_only_if_the_whole_state_has_bounds(name):
    twice = eqx.tree_at(lambda d: d.state, DATA, 2.0 * DATA.state)
    for mdp, bounded in ((MDP, False), (BOUNDED, True)):
        for dims in ((0, 2), (0, 1), None):
            one, other = (MAPS[name](dims).draw(jr.key(0), mdp, data) for data in (DATA, twice))
            assert bool(eqx.tree_equal(one, other)) == bounded


def test_the_bonus_is_for_new_places_and_not_for_what_is_not_looked_at():
    phi = MAPS["random-network"]((0, 2)).draw(jr.key(0), MDP, DATA)
    covariance = second_moment(phi, DATA) + 1e-3 * jnp.eye(32)
    bonus = CappedBonus(Elliptical().init(jr.key(0), phi, covariance), 1.0, 100.0)
    here, action = DATA.state[0], DATA.action[0]
    known = float(bonus(here, action))
    assert float(bonus(here.at[jnp.array([1, 3])].set(1e3), action)) == known
    assert float(bonus(here.at[0].set(1.0).at[2].set(4.0), action)) > 2 * known


@pytest.mark.parametrize("text", ["0,4", "2,2"])
@pytest.mark.parametrize("name", MAPS)
def test_coordinates_that_are_not_there_or_there_twice(name, text):
    remedy = "give coordinates of the state, 0 to 3, each once, or none"
    with pytest.raises(ConfigError, match=rf"^features.dims={text}: {remedy}$"):
        check_draw(MAPS[name](tuple(map(int, text.split(",")))), MDP)


@pytest.mark.parametrize("text", ["-1", ""])
def test_coordinates_that_no_state_has(text):
    with pytest.raises(
        ConfigError, match=rf"^features.dims={text}: give at least one number, each 0 or more, or none \(coordinates"
    ):
        overlay(Deep(), {"features.dims": text}, NAMES)


@pytest.mark.slow
def test_a_run_with_chosen_coordinates_can_be_resumed(tiny_trpo, tmp_path):
    out = tmp_path / "run"
    settings = [*tiny_trpo, "features.dims=1", "task.horizon=20", "eval_episodes=2"]
    command = ["train", "mountain-car", "--seeds", "0", "--out", str(out), "--set", *settings]
    assert main([*command, "--steps", "20"]) == 0
    assert main([*command, "--steps", "40", "--resume"]) == 0
    rows = read_metrics(out)
    assert rows["iteration"] == [0, 1, 2]
    assert np.isfinite(rows["bonus_mean"][1:]).all()
    assert main(["eval", str(out), "--episodes", "2"]) == 0
