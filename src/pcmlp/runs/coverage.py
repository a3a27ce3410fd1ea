"""How much of a task's map the real steps of learning have entered: the column `coverage` of `metrics.csv`.

    coverage_n = |free squares entered by the policies 1 ... n| / |free squares|        (paper: section 7.3, figure 1)

It is what exploring with no reward is judged by. It depends on nothing but the steps, all of which are in the episode
log, so a run that is resumed counts them again and has the same numbers.
"""

from collections.abc import Iterable
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from pcmlp.runs.folder import read_metrics
from pcmlp.tasks.maps import Map
from pcmlp.types import ConfigError, Transitions

COLUMN = "coverage"


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _with(ground: Map, entered: Bool[Array, "rows columns"], steps: Transitions) -> Bool[Array, "rows columns"]:
    """No row begins in the state that an episode ends in, so what every step leads to counts as well."""
    states = jnp.concatenate([steps.state, steps.next_state])
    places = states[:, jnp.array(ground.coordinates)]
    return entered | ground.entered(places, jnp.concatenate([steps.valid, steps.valid]))


class Entered:
    """The squares that each seed has entered so far; of a task with no map, nothing."""

    def __init__(self, ground: Map | None, seeds: int):
        self._map = ground
        self._entered = None if ground is None else jnp.zeros((seeds, *ground.free.shape), bool)

    def add(self, walked: Iterable[Transitions]) -> None:
        """What was walked, each with a leading axis of seeds."""
        if self._map is None:
            return
        for steps in walked:
            self._entered = _with(self._map, self._entered, steps)

    def columns(self) -> dict[str, np.ndarray]:
        """Of each seed; by counting, so that it is the same number on every machine."""
        if self._map is None:
            return {}
        entered, free = np.asarray(self._entered), np.asarray(self._map.free)
        return {COLUMN: (entered & free).sum(axis=(1, 2)) / free.sum()}


def read_coverage(run: Path) -> dict[int, float]:
    """What each seed of a run has covered in the end."""
    metrics = read_metrics(run)
    if COLUMN not in metrics:
        raise ConfigError(f"{run}: has no coverage; its task has no map, as point-umaze has, or its pcmlp was older")
    return {int(seed): share for seed, share in zip(metrics["seed"], metrics[COLUMN], strict=True)}
