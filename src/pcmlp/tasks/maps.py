"""A task with a map: two coordinates of its state are a place, and the ground is squares that are free or solid.

    coverage = |free squares that were entered| / |free squares|

It is what the mazes are judged by (paper: section 7.3, where nothing is paid for it): the share of the ground that the
policies have been to, whatever they were paid there.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


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
        """The free squares that a valid point lies in; one on the edge of two is in the upper one, and those on the
        upper edges of the map are in the last."""
        low, high, most = np.array(self.low), np.array(self.high), np.array(self.free.shape[::-1])
        # By their number, not by their side, which 32 bits round.
        per_unit = jnp.asarray(most / (high - low), jnp.float32)[None, :]
        low, high = (jnp.asarray(x, jnp.float32)[None, :] for x in (low, high))
        inside = jnp.all((points >= low) & (points <= high), axis=1)
        across = jnp.floor((points - low) * per_unit).astype(int)
        column, row = jnp.clip(across, 0, jnp.asarray(most - 1, across.dtype)[None, :]).T
        return jnp.zeros_like(self.free).at[row, column].max(valid & inside) & self.free

    def coverage(self, entered: Bool[Array, "rows columns"]) -> Float[Array, ""]:
        """The share of the free squares that were entered: 1 where the maze is explored."""
        return jnp.sum(entered & self.free) / jnp.sum(self.free)


__all__ = ["Map"]
