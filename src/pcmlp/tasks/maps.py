"""A task with a map: two coordinates of its state are a place, and the ground is squares that are free or solid.

    coverage = |free squares that were entered| / |free squares|

It is what the mazes are judged by (paper: section 7.3, where nothing is paid for it): the share of the ground that the
policies have been to, whatever they were paid there.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from jaxtyping import Array, Bool, Float, Int

from pcmlp.types import ConfigError


class Map(eqx.Module):
    """Rows are along y and columns along x, both from `low` on."""

    coordinates: tuple[int, int] = eqx.field(static=True)  # which two of the state's are x and y
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
        """With squares that are free where their middle is."""
        counts = [round((top - bottom) / cell) for bottom, top in zip(low, high, strict=True)]
        x, y = (
            jnp.asarray(bottom + cell * (np.arange(count) + 0.5), jnp.float32)
            for bottom, count in zip(low, counts, strict=True)
        )
        return Map(coordinates, low, high, cell, is_free(*jnp.meshgrid(x, y)))

    def entered(self, points: Float[Array, "n 2"], valid: Bool[Array, " n"]) -> Bool[Array, "rows columns"]:
        """The free squares that a valid point lies in."""
        row, column, inside = self.squares(points)
        return jnp.zeros_like(self.free).at[row, column].max(valid & inside) & self.free

    def squares(self, points: Float[Array, "n 2"]) -> tuple[Int[Array, " n"], Int[Array, " n"], Bool[Array, " n"]]:
        """Row and column of each, and whether it lies on the map; one on the edge of two is in the upper one, and those
        on the upper edges of the map are in the last."""
        low, high, most = np.array(self.low), np.array(self.high), np.array(self.free.shape[::-1])
        # By their number, not by their side, which 32 bits round.
        per_unit = jnp.asarray(most / (high - low), jnp.float32)[None, :]
        low, high = (jnp.asarray(x, jnp.float32)[None, :] for x in (low, high))
        inside = jnp.all((points >= low) & (points <= high), axis=1)
        across = jnp.floor((points - low) * per_unit).astype(int)
        column, row = jnp.clip(across, 0, jnp.asarray(most - 1, across.dtype)[None, :]).T
        return row, column, inside

    def coverage(self, entered: Bool[Array, "rows columns"]) -> Float[Array, ""]:
        """The share of the free squares that were entered: 1 where the maze is explored."""
        return jnp.sum(entered & self.free) / jnp.sum(self.free)

    def finer(self, times: int) -> "Map":
        """The same ground, with so many squares along the side of each."""
        free = jnp.repeat(jnp.repeat(self.free, times, axis=0), times, axis=1)
        return Map(self.coordinates, self.low, self.high, self.cell / times, free)

    def ways(self, place: tuple[float, float]) -> np.ndarray:
        """How long the shortest way to the place's square is from each, from middle to middle of free ones, straight or
        diagonally; infinite where none leads. [rows, columns]"""
        free = np.asarray(self.free)
        number = np.arange(free.size).reshape(free.shape)
        edges = []
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            here = tuple(slice(max(0, -d), n - max(0, d)) for d, n in zip((down, right), free.shape, strict=True))
            there = tuple(slice(max(0, d), n + min(0, d)) for d, n in zip((down, right), free.shape, strict=True))
            passes = free[here] & free[there]
            if down and right:  # no corner is cut
                passes = passes & free[here[0], there[1]] & free[there[0], here[1]]
            length = self.cell * math.hypot(down, right)
            edges.append((number[here][passes], number[there][passes], np.full(passes.sum(), length)))
        begin, end, length = (np.concatenate(part) for part in zip(*edges, strict=True))
        graph = scipy.sparse.coo_array((length, (begin, end)), shape=(free.size, free.size)).tocsr()
        (row,), (column,), (inside,) = self.squares(jnp.array([place], jnp.float32))
        if not (inside and free[row, column]):
            raise ConfigError(f"place={place}: not on free ground; give one that is")
        found = scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=number[row, column])
        return np.where(free, found.reshape(free.shape), np.inf)


__all__ = ["Map"]
