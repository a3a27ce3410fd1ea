"""A map: squares that are free or solid, and which of them were entered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.tasks.maps import Map

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


def test_coverage_is_the_share_of_free_squares():
    points, valid = jnp.array([[0.0, 4.0], [0.5, 4.5], [8.0, 6.0], [2.0, 6.0], [8.0, 8.0]]), jnp.ones(5, bool)
    entered = CORRIDOR.entered(points, valid)
    assert float(CORRIDOR.coverage(entered)) == pytest.approx(3 / 11)
    assert float(CORRIDOR.coverage(jnp.ones((3, 5), bool))) == 1.0  # what is solid does not count


def test_many_seeds_at_once():
    points = jnp.array([[[0.0, 4.0]], [[8.0, 8.0]]])
    entered = jax.jit(jax.vmap(CORRIDOR.entered))(points, jnp.ones((2, 1), bool))
    np.testing.assert_array_equal(np.argwhere(entered), [[0, 0, 0], [1, 2, 4]])
