"""Compare values of numeric settings, several seeds each, side by side in one compiled program.

A GPU runs thirty lanes of Deep PC-MLP in little more time than one, whether they differ in the seed or in a number.
So the values of a setting are vmapped, as seeds are. Use this to tune settings, on seeds 100 and up; only a table of
returns is saved.

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

from pcmlp.algorithms.deep import Deep, DeepLearner, improve, start
from pcmlp.algorithms.stages import COLLECT, stage_keys
from pcmlp.errors import ConfigError
from pcmlp.experiments.tables import write_table
from pcmlp.replay import Transitions
from pcmlp.runs.cache import prepare
from pcmlp.runs.config import build, resolve
from pcmlp.runs.coverage import Entered
from pcmlp.runs.evaluate import evaluation_keys
from pcmlp.trees import as_inputs
from pcmlp.types import MDP

_SEEDS = (100, 101, 102, 103)
_PROGRAM = "--vary: only numbers can vary in one program; give other settings by --set, in a run of their own"
_SHOWN = ("model_error", "value_loss", "bonus_mean")  # columns to show in addition to the return


def parse_lanes(varied: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the settings of each lane: every combination of the values in `key=a,b`."""
    choices = []
    for text in varied:
        key, _, values = text.partition("=")
        if not values:
            raise ConfigError(f"--vary {text}: give KEY=VALUE,VALUE")
        choices.append([f"{key}={value}" for value in values.split(",")])
    return list(itertools.product(*choices))


def stack_algorithms(algorithms: Sequence[Deep]) -> tuple[PyTree, PyTree]:
    """Return the numbers of all algorithms as arrays with a leading axis, and everything else, which must be equal."""
    parts = [eqx.partition(as_inputs(algorithm), eqx.is_array) for algorithm in algorithms]
    arrays, rests = zip(*parts, strict=True)
    if not all(eqx.tree_equal(rest, rests[0]) is True for rest in rests):
        raise ConfigError(_PROGRAM)
    return jax.tree.map(lambda *x: jnp.stack(x), *arrays), rests[0]


@eqx.filter_jit
def _start(keys: Array, arrays: PyTree, rest: PyTree, mdp: MDP) -> DeepLearner:
    return eqx.filter_vmap(lambda key, arrays: start(key, eqx.combine(arrays, rest), mdp))(keys, arrays)


@eqx.filter_jit
def _improve(
    keys: Array, arrays: PyTree, rest: PyTree, mdp: MDP, learner: DeepLearner, samples: Transitions, n: Array
) -> tuple[DeepLearner, dict[str, Array]]:
    def one_lane(key, arrays, learner, samples):
        return improve(key, eqx.combine(arrays, rest), mdp, learner, samples, n)

    return eqx.filter_vmap(one_lane)(keys, arrays, learner, samples)


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
    """Return a row for each lane, seed and evaluation: the return of the deployed policy, and the coverage of a map."""
    lanes = parse_lanes(varied)
    configs = [resolve(task, "pcmlp", seeds, steps, (*settings, *lane)) for lane in lanes]
    problem, _ = build(configs[0])
    algorithms = [algorithm for config in configs if isinstance(algorithm := build(config)[1], Deep)]
    world, num_iterations = problem.world, configs[0].num_iterations
    keys = jnp.stack([jr.key(seed) for _ in lanes for seed in seeds])
    varying = stack_algorithms([algorithm for algorithm in algorithms for _ in seeds])
    learner, rows, entered = _start(keys, *varying, world.mdp), [], Entered(problem.map, len(keys))
    for n in range(1, num_iterations + 1):
        collect_keys = stage_keys(keys, n, COLLECT)
        samples, walked = world.collect(collect_keys, learner.policy, algorithms[0].samples_per_policy)
        entered.add([walked])
        learner, metrics = _improve(keys, *varying, world.mdp, learner, samples, jnp.array(n))
        if n % every and n < num_iterations:
            continue
        returns = np.asarray(world.evaluate(evaluation_keys(keys), learner.deployed(), episodes)).mean(axis=1)
        shown = {"return": returns, **entered.columns()}
        columns = shown | {name: np.asarray(metrics[name]) for name in _SHOWN if name in metrics}
        for i, (lane, seed) in enumerate(itertools.product(lanes, seeds)):
            row = {"env_steps": int(learner.env_steps[i]), "lane": " ".join(lane), "seed": seed}
            rows.append(row | {name: round(float(values[i]), 4) for name, values in columns.items()})
        for i, lane in enumerate(lanes):
            own = slice(i * len(seeds), (i + 1) * len(seeds))
            line = "  ".join(f"{name} {values[own].round(2).tolist()}" for name, values in shown.items())
            print(f"{int(learner.env_steps[0]):,}  {' '.join(lane)}  {line}", flush=True)
    return rows


def main() -> None:
    """Run the comparison that the command line asks for."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("task")
    options.add_argument("--vary", nargs="+", required=True, metavar="KEY=VALUE,VALUE")
    options.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options.add_argument("--seeds", nargs="+", type=int, default=_SEEDS)
    options.add_argument("--steps", type=int)
    options.add_argument("--every", type=int, default=5, help="iterations between evaluations")
    options.add_argument("--episodes", type=int, default=3, help="episodes of an evaluation")
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
