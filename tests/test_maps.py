"""A map: squares that are free or solid, and which of them were entered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.errors import ConfigError
from pcmlp.maps import Map

# Five columns by three rows of side 2, from (-1, 3) on; the middle row is solid but for its last square.
CORRIDOR = Map.of((-1.0, 3.0), (9.0, 9.0), 2.0, lambda x, y: (y < 5) | (y > 7) | (x > 7))


def test_squares_are_free_where_their_middle_is():
    assert CORRIDOR.free.shape == (3, 5)
    np.testing.assert_array_equal(CORRIDOR.free[1], [False] * 4 + [True])
    assert CORRIDOR.free[0].all()
    assert CORRIDOR.free[2].all()


@pytest.mark.parametrize(
    ("point", "square"),
    [
        ((-1.0, 3.0), (0, 0)),  # the lower corner belongs to the map, and so does the upper one
        ((9.0, 9.0), (2, 4)),
        ((1.0, 3.0), (0, 1)),
        ((0.99, 8.0), (2, 0)),
        ((7.5, 6.0), (1, 4)),
        ((2.0, 6.0), None),  # solid
        ((-1.01, 4.0), None),  # outside: no square has it
        ((4.0, 9.01), None),
        ((np.nan, 4.0), None),
    ],
)
def test_where_a_point_is(point, square):
    found = np.argwhere(CORRIDOR.entered(jnp.array([point]), jnp.array([True])))
    np.testing.assert_array_equal(found, np.zeros((0, 2)) if square is None else [square])
    assert not CORRIDOR.entered(jnp.array([point]), jnp.array([False])).any()


def test_only_free_squares_are_entered_and_each_counts_once():
    points, valid = jnp.array([[0.0, 4.0], [0.5, 4.5], [8.0, 6.0], [2.0, 6.0], [8.0, 8.0]]), jnp.ones(5, bool)
    np.testing.assert_array_equal(np.argwhere(CORRIDOR.entered(points, valid)), [[0, 0], [1, 4], [2, 4]])


def test_many_seeds_at_once():
    points = jnp.array([[[0.0, 4.0]], [[8.0, 8.0]]])
    entered = jax.jit(jax.vmap(CORRIDOR.entered))(points, jnp.ones((2, 1), bool))
    np.testing.assert_array_equal(np.argwhere(entered), [[0, 0, 0], [1, 2, 4]])


def test_ways_go_around_what_is_solid():
    ways = CORRIDOR.ways((0.0, 8.0))  # the first square of the last row
    np.testing.assert_allclose(ways[2], [0, 2, 4, 6, 8])
    assert np.isinf(ways[1, :4]).all()
    # No corner is cut: up to the passage, through it, and then along.
    np.testing.assert_allclose(ways[0], [20, 18, 16, 14, 12])
    assert ways[1, 4] == 10


def test_ways_may_be_diagonal_and_end_where_none_leads():
    ground = Map.of((0.0, 0.0), (4.0, 3.0), 1.0, lambda x, y: (x < 3) & ~((x > 1) & (x < 2) & (y < 2)))
    ways = ground.ways((0.5, 0.5))
    np.testing.assert_allclose(ways[:, 0], [0, 1, 2])
    np.testing.assert_allclose(ways[2, 2], 4)
    assert np.isinf(ways[:, 3]).all()
    open_ground = Map.of((0.0, 0.0), (3.0, 3.0), 1.0, lambda x, y: x > 0)
    np.testing.assert_allclose(open_ground.ways((0.5, 0.5))[2, 2], 2 * np.sqrt(2))
    with pytest.raises(ConfigError, match="not on free ground"):
        ground.ways((1.5, 0.5))
    with pytest.raises(ConfigError, match="not on free ground"):
        ground.ways((0.5, 9.0))


def test_finer_squares_are_of_the_same_ground():
    fine = CORRIDOR.finer(4)
    assert fine.free.shape == (12, 20)
    assert fine.cell == 0.5
    points = jnp.array(np.random.default_rng(0).uniform((-1, 3), (9, 9), (500, 2)), jnp.float32)
    both = [ground.free[ground.squares(points)[:2]] for ground in (CORRIDOR, fine)]
    np.testing.assert_array_equal(*both)
