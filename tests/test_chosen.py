"""Features of chosen coordinates: blind to the others, and otherwise those that are drawn for the chosen ones alone."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.bonus import elliptical_bonus, second_moment
from pcmlp.cli import main
from pcmlp.features import DrawChosen, DrawFourier, DrawRandomNetwork, chosen_box
from pcmlp.runs.folder import read_metrics
from pcmlp.types import Box, ConfigError, Transitions

# Two coordinates have bounds, in the place of the first and third; two have none.
STATES = Box(jnp.array([-1.0, -jnp.inf, 0.0, -jnp.inf]), jnp.array([1.0, jnp.inf, 4.0, jnp.inf]))
ACTIONS = Box.of(1.0, 1)
DRAWS = {
    "random-network": lambda states: DrawRandomNetwork.of(states, ACTIONS, sizes=(32, 32)),
    "fourier": lambda states: DrawFourier.of(states, ACTIONS, dim=20, bandwidth=1.0),
}


def samples(n=200):
    rng = np.random.default_rng(0)
    state = rng.uniform([-0.2, -9, 0.5, 7], [0.2, 9, 1.5, 8], (n, 4)).astype(np.float32)
    action, zero, no = rng.uniform(-1, 1, (n, 1)).astype(np.float32), np.zeros(n, np.float32), np.zeros(n, bool)
    return Transitions(*(jnp.asarray(x) for x in (state, action, zero, state, no, no, ~no)))


DATA = samples()


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dims", [(0, 2), (2, 0), (1,), (3, 0)])
def test_phi_is_that_of_the_chosen_coordinates(name, dims):
    phi = DrawChosen(DRAWS[name](chosen_box(STATES, dims)), dims)(jr.key(0), DATA)
    part = jnp.array(dims)
    alone = eqx.tree_at(lambda d: (d.state, d.next_state), DATA, (DATA.state[:, part], DATA.next_state[:, part]))
    psi = DRAWS[name](Box(STATES.low[part], STATES.high[part]))(jr.key(0), alone)
    for state, action in zip(DATA.state[:5], DATA.action[:5], strict=True):
        np.testing.assert_array_equal(phi(state, action), psi(state[part], action))
        elsewhere = jnp.where(jnp.isin(jnp.arange(4), part), state, state + 100.0)
        np.testing.assert_array_equal(phi(elsewhere, action), phi(state, action))
        moved = state.at[dims[0]].add(0.5)
        assert not np.allclose(phi(moved, action), phi(state, action))
        assert not np.allclose(phi(state, -action), phi(state, action))


@pytest.mark.parametrize("name", DRAWS)
def test_units_are_the_boxes_where_the_chosen_coordinates_have_some(name):
    """All four have not, so that without a choice the units are those of the samples."""
    assert DRAWS[name](chosen_box(STATES, (0, 2))).bounded
    assert not DRAWS[name](chosen_box(STATES, (0, 1))).bounded
    assert not DRAWS[name](STATES).bounded


def test_the_bonus_is_for_new_places_and_not_for_what_is_not_looked_at():
    phi = DrawChosen(DRAWS["random-network"](chosen_box(STATES, (0, 2))), (0, 2))(jr.key(0), DATA)
    covariance = second_moment(phi, DATA) + 1e-3 * jnp.eye(32)
    bonus = elliptical_bonus(phi, covariance, 1.0, 100)
    here, action = DATA.state[0], DATA.action[0]
    known = float(bonus(here, action))
    assert float(bonus(here.at[jnp.array([1, 3])].set(1e3), action)) == known
    assert float(bonus(here.at[0].set(1.0).at[2].set(4.0), action)) > 2 * known


@pytest.mark.parametrize(("dims", "why"), [((0, 4), "no coordinate 4"), ((-1,), "no coordinate -1"), ((), "of no")])
def test_coordinates_that_are_not_there(dims, why):
    with pytest.raises(ConfigError, match=rf"^features.dims=.*{why}.*; give some of 0 to 3, or none for all$"):
        chosen_box(STATES, dims)


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
