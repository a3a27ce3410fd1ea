"""Coverage: the share of a task's map that the real steps of learning have entered; a column of `metrics.csv`.

    coverage_n = |free squares entered by the policies 1 ... n| / |free squares|        (paper: section 7.3, figure 1)

Reward-free exploration is judged by it. It depends only on the real steps, all of which are in the episode log, so a
resumed run counts them again and gets the same numbers.
"""

from collections.abc import Iterable
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from pcmlp.errors import ConfigError
from pcmlp.maps import Map
from pcmlp.replay import Transitions
from pcmlp.runs.folder import read_metrics

COLUMN = "coverage"


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _enter(ground: Map, entered: Bool[Array, "rows columns"], steps: Transitions) -> Bool[Array, "rows columns"]:
    """Return the squares entered so far; next states count too, because no row begins at the end of an episode."""
    states = jnp.concatenate([steps.state, steps.next_state])
    places = states[:, jnp.array(ground.coordinates)]
    return entered | ground.entered(places, jnp.concatenate([steps.valid, steps.valid]))


class Entered:
    """The squares that each seed has entered so far; empty for a task without a map."""

    def __init__(self, ground: Map | None, seeds: int):
        self._map = ground
        self._entered = None if ground is None else jnp.zeros((seeds, *ground.free.shape), bool)

    def add(self, walked: Iterable[Transitions]) -> None:
        """Add real steps; every array has a leading axis of seeds."""
        if self._map is None:
            return
        for steps in walked:
            self._entered = _enter(self._map, self._entered, steps)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the coverage of each seed, by counting, so that it is the same on every machine."""
        if self._map is None:
            return {}
        entered, free = np.asarray(self._entered), np.asarray(self._map.free)
        return {COLUMN: (entered & free).sum(axis=(1, 2)) / free.sum()}


def read_coverage(run: Path) -> dict[int, float]:
    """Return the final coverage of each seed of a run."""
    metrics = read_metrics(run)
    if COLUMN not in metrics:
        raise ConfigError(
            f"{run}: has no coverage, because its task has no map; choose a run of point-umaze or ant-umaze"
        )
    return {int(seed): share for seed, share in zip(metrics["seed"], metrics[COLUMN], strict=True)}
