"""Controlled runs: several values of some settings, several seeds each, side by side in one compiled program.

What a GPU does for one seed of Deep PC-MLP it does for thirty in little more time, whether they differ by their seed or
by a number. So a setting that is a number is compared here as seeds are: by `vmap`. It is for finding settings, on
seeds 100 and up; nothing is saved but a table of returns.

    python -m pcmlp.experiments.controlled half-cheetah --steps 60000 --vary bonus_scale=0,0.01 planner.entropy=-0.5,-1
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

from pcmlp.deep import Deep, DeepLearner, improve, start
from pcmlp.experiments.tables import write_table
from pcmlp.runs.build import build
from pcmlp.runs.cache import prepare
from pcmlp.runs.config import resolve
from pcmlp.runs.coverage import Entered
from pcmlp.runs.evaluate import evaluation_keys
from pcmlp.types import ConfigError, Transitions

_SEEDS = (100, 101, 102, 103)
_PROGRAM = "--vary: of numbers only; what makes another program is for --set, in a run of its own"
_WATCHED = ("model_error", "value_loss", "bonus_mean")  # beside the return


def lanes_of(varied: Sequence[str]) -> list[tuple[str, ...]]:
    """`key=a,b` for each key into the settings of each lane: every combination."""
    choices = []
    for text in varied:
        key, _, values = text.partition("=")
        if not values:
            raise ConfigError(f"--vary {text}: give KEY=VALUE,VALUE")
        choices.append([f"{key}={value}" for value in values.split(",")])
    return list(itertools.product(*choices))


def side_by_side(stages: Sequence[Deep]) -> tuple[PyTree, PyTree]:
    """What differs between stages and what does not: arrays with a leading axis, and the rest of the first one."""

    def numbers(x: Any, *others: Any) -> Any:
        """A number that differs is an array; one that does not is part of the program."""
        return jnp.float32(x) if isinstance(x, float) and any(x != y for y in others) else x

    structures = {jax.tree.structure(stage) for stage in stages}
    if len(structures) > 1:
        raise ConfigError(_PROGRAM)
    marked = [jax.tree.map(numbers, stage, *stages) for stage in stages]
    parts = [eqx.partition(stage, eqx.is_array) for stage in marked]
    arrays, rests = zip(*parts, strict=True)
    shapes = [jax.tree.map(jnp.shape, x) for x in arrays]
    same = all(eqx.tree_equal(rest, rests[0]) for rest in rests) and all(shape == shapes[0] for shape in shapes)
    if not same:
        raise ConfigError(_PROGRAM)
    return jax.tree.map(lambda *x: jnp.stack(x), *arrays), rests[0]


@eqx.filter_jit
def _start(keys: Array, arrays: PyTree, rest: PyTree) -> DeepLearner:
    return eqx.filter_vmap(lambda key, arrays: start(key, eqx.combine(arrays, rest)))(keys, arrays)


@eqx.filter_jit
def _improve(
    keys: Array, arrays: PyTree, rest: PyTree, learner: DeepLearner, samples: Transitions, n: Array
) -> tuple[DeepLearner, dict[str, Array]]:
    def one(key, arrays, learner, samples):
        return improve(key, eqx.combine(arrays, rest), learner, samples, n)

    return eqx.filter_vmap(one)(keys, arrays, learner, samples)


def compare(
    task: str,
    seeds: Sequence[int],
    steps: int | None,
    settings: Sequence[str],
    varied: Sequence[str],
    *,
    every: int,
    episodes: int,
) -> list[dict[str, Any]]:
    """A row for each lane, seed and evaluation: the return of the policy to deploy, and what was covered of a map."""
    lanes = lanes_of(varied)
    built = [build(resolve(task, "pcmlp", seeds, steps, (*settings, *lane))) for lane in lanes]
    algos = [algo for _, algo in built if isinstance(algo, Deep)]
    if len(algos) < len(lanes):
        raise ConfigError(f"task={task}: not a task of Deep PC-MLP; give another")
    world, stages = algos[0].world, [algo.stage() for algo in algos for _ in seeds]
    keys = jnp.stack([jr.key(seed) for _ in lanes for seed in seeds])
    varying = side_by_side(stages)
    learner, rows, entered = _start(keys, *varying), [], Entered(built[0][0].map, len(stages))
    for n in range(1, algos[0].num_iterations + 1):
        draw_keys = jax.vmap(lambda key, n=n: jr.fold_in(jr.fold_in(key, n), 0))(keys)
        samples, walked = world.collect(draw_keys, learner.policy, algos[0].samples_per_policy)
        entered.add([walked])
        learner, metrics = _improve(keys, *varying, learner, samples, jnp.array(n))
        if n % every and n < algos[0].num_iterations:
            continue
        returns = np.asarray(world.evaluate(evaluation_keys(keys), learner.deployed(), episodes)).mean(axis=1)
        shown = {"return": returns, **entered.columns()}
        watched = shown | {name: np.asarray(metrics[name]) for name in _WATCHED if name in metrics}
        for i, (lane, seed) in enumerate(itertools.product(lanes, seeds)):
            row = {"env_steps": int(learner.env_steps[i]), "lane": " ".join(lane), "seed": seed}
            rows.append(row | {name: round(float(values[i]), 4) for name, values in watched.items()})
        for i, lane in enumerate(lanes):
            mine = slice(i * len(seeds), (i + 1) * len(seeds))
            told = "  ".join(f"{name} {values[mine].round(2).tolist()}" for name, values in shown.items())
            print(f"{int(learner.env_steps[0]):,}  {' '.join(lane)}  {told}", flush=True)
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("task")
    options.add_argument("--vary", nargs="+", required=True, metavar="KEY=VALUE,VALUE")
    options.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options.add_argument("--seeds", nargs="+", type=int, default=_SEEDS)
    options.add_argument("--steps", type=int)
    options.add_argument("--every", type=int, default=5, help="iterations between evaluations")
    options.add_argument("--episodes", type=int, default=3, help="of an evaluation")
    options.add_argument("--out", type=Path, help="a CSV file for the table")
    given = options.parse_args()
    prepare()
    if min(given.every, given.episodes) < 1:
        options.error("--every and --episodes: give 1 or more")
    try:
        rows = compare(
            given.task, given.seeds, given.steps, given.set, given.vary, every=given.every, episodes=given.episodes
        )
    except ConfigError as error:
        options.error(str(error))
    if given.out is not None:
        write_table(given.out, rows)


if __name__ == "__main__":
    main()
