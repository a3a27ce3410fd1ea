"""A map of squares that are free or solid, for tasks in which two coordinates of the state are a position.

    coverage = |free squares that were entered| / |free squares|

Exploration of mazes is judged by it (paper: section 7.3): the share of the ground that the policies have visited,
whatever reward they got there.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from jaxtyping import Array, Bool, Float, Int

from pcmlp.errors import ConfigError


class Map(eqx.Module):
    """Squares in rows along y and columns along x, both from `low` on."""

    coordinates: tuple[int, int] = eqx.field(static=True)  # the two coordinates of the state that are x and y
    low: tuple[float, float] = eqx.field(static=True)
    high: tuple[float, float] = eqx.field(static=True)
    cell: float = eqx.field(static=True)  # the side of a square
    free: Bool[Array, "rows columns"]

    @staticmethod
    def of(
        low: tuple[float, float],
        high: tuple[float, float],
        cell: float,
        is_free: Callable[[Array, Array], Array],  # x, y, each [rows, columns] -> bool
        coordinates: tuple[int, int] = (0, 1),
    ) -> "Map":
        """Make a map whose squares are free where their middle is."""
        counts = [round((top - bottom) / cell) for bottom, top in zip(low, high, strict=True)]
        x, y = (
            jnp.asarray(bottom + cell * (np.arange(count) + 0.5), jnp.float32)
            for bottom, count in zip(low, counts, strict=True)
        )
        return Map(coordinates, low, high, cell, is_free(*jnp.meshgrid(x, y)))

    def entered(self, points: Float[Array, "n 2"], valid: Bool[Array, " n"]) -> Bool[Array, "rows columns"]:
        """Return the free squares that a valid point lies in."""
        row, column, inside = self.squares(points)
        return jnp.zeros_like(self.free).at[row, column].max(valid & inside) & self.free

    def squares(self, points: Float[Array, "n 2"]) -> tuple[Int[Array, " n"], Int[Array, " n"], Bool[Array, " n"]]:
        """Return row and column of each point, and whether it lies on the map. A point on an edge belongs to the upper
        square, on the upper edges of the map to the last one."""
        low, high, most = np.array(self.low), np.array(self.high), np.array(self.free.shape[::-1])
        # Use the number of squares, not their side, which is rounded in 32 bits.
        per_unit = jnp.asarray(most / (high - low), jnp.float32)[None, :]
        low, high = (jnp.asarray(x, jnp.float32)[None, :] for x in (low, high))
        inside = jnp.all((points >= low) & (points <= high), axis=1)
        across = jnp.floor((points - low) * per_unit).astype(int)
        column, row = jnp.clip(across, 0, jnp.asarray(most - 1, across.dtype)[None, :]).T
        return row, column, inside

    def finer(self, times: int) -> "Map":
        """Return the same ground with each square divided into `times` x `times`."""
        free = jnp.repeat(jnp.repeat(self.free, times, axis=0), times, axis=1)
        return Map(self.coordinates, self.low, self.high, self.cell / times, free)

    def ways(self, place: tuple[float, float]) -> np.ndarray:
        """Return the length of the shortest way from each square to the place, [rows, columns], over middles of free
        squares, straight or diagonally; infinite where there is none."""
        free = np.asarray(self.free)
        number = np.arange(free.size).reshape(free.shape)
        edges = []
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            here = tuple(slice(max(0, -d), n - max(0, d)) for d, n in zip((down, right), free.shape, strict=True))
            there = tuple(slice(max(0, d), n + min(0, d)) for d, n in zip((down, right), free.shape, strict=True))
            passes = free[here] & free[there]
            if down and right:  # a diagonal step must not cut a corner
                passes = passes & free[here[0], there[1]] & free[there[0], here[1]]
            length = self.cell * math.hypot(down, right)
            edges.append((number[here][passes], number[there][passes], np.full(passes.sum(), length)))
        begin, end, length = (np.concatenate(part) for part in zip(*edges, strict=True))
        graph = scipy.sparse.coo_array((length, (begin, end)), shape=(free.size, free.size)).tocsr()
        (row,), (column,), (inside,) = self.squares(jnp.array([place], jnp.float32))
        if not (inside and free[row, column]):
            raise ConfigError(f"place={place}: not on free ground; give a free place")
        found = scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=number[row, column])
        return np.where(free, found.reshape(free.shape), np.inf)
