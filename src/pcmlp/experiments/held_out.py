"""Exploring with no reward, and what it is good for: places that no policy was ever paid for, reached by planning.

(paper: section 7.3 and figure 1, where the ant's maze is covered with no reward for it / here: that one, and the
point's maze, and after it ten places, each planned for in the learned model with no new sample and then tried in the
real maze. Beside it a bonus that does not know the cover, none at all, and random play, which has no model. On
mountain-car and acrobot, whose one held-out reward is the task's own, episodes of exploring do not end at the goal, so
nothing tells it from other places.)

    python -m pcmlp.experiments.held_out                        # all of it; a GPU is wanted
    python -m pcmlp.experiments.held_out point-umaze/pcmlp      # one run
"""

import argparse
import csv
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.experiments.kept import PAPER_SEEDS, Asked, parser, run_asked, write_table
from pcmlp.runs.aim import Functions
from pcmlp.runs.coverage import COLUMN, read_coverage
from pcmlp.runs.evaluate import Held, measure
from pcmlp.runs.folder import read_metrics
from pcmlp.runs.plan import MODELLED, Learned, load_learned, plan
from pcmlp.runs.policy import SavedRun

NAME = "held_out"


class Places(NamedTuple):
    """Held out of a maze: where, and how close is there."""

    radius: float
    episodes: int  # that each is tried in
    middles: dict[str, tuple[float, float]]


PLACES = {
    # Spread over the free ground: four on the start's side, two in the passage, four behind the detour, of which one
    # lies beyond the place that the task itself would pay for.
    "point-umaze": Places(
        0.25,
        100,
        {
            "below": (1.3, 0.3),
            "first wall": (1.0, 0.85),
            "turn": (2.1, 0.7),
            "corner": (2.7, 0.3),
            "outer wall": (2.8, 1.2),
            "passage": (2.2, 1.5),
            "top corner": (2.7, 2.7),
            "behind": (1.5, 2.5),
            "before the end": (0.9, 2.2),
            "far end": (0.3, 2.7),
        },
    ),
    "ant-umaze": Places(2.0, 20, {"far end": (0.0, 16.0)}),
}
THE_TASK = "the task's own"


_FREE = ("reward_free=true",)
_ON_THE_MAP = "features.dims=0,1"  # a phi that sees where the ant is and nothing of its body
# What an ant earns there is for moving, which nobody asks for: few episodes will do.
_ANT = partial(Asked, 200_000, seeds=PAPER_SEEDS)
_FEW = (*_FREE, "eval_episodes=2")

RUNS: dict[str, Asked] = {
    "point-umaze/pcmlp": Asked(20_000, _FREE),
    "point-umaze/covariance-off": Asked(20_000, (*_FREE, "covariance=off")),
    "point-umaze/no-bonus": Asked(20_000, (*_FREE, "bonus_scale=0")),
    "point-umaze/random": Asked(20_000, _FREE, "random"),
    "mountain-car/pcmlp": Asked(3_000, _FREE),
    "acrobot/pcmlp": Asked(3_000, _FREE),
    "ant-umaze/pcmlp": _ANT(_FEW),
    "ant-umaze/on-the-map": _ANT((*_FEW, _ON_THE_MAP)),
    "ant-umaze/no-bonus": _ANT((*_FEW, "bonus_scale=0")),
    "ant-umaze/random": _ANT(_FEW, "random"),
}


class There(eqx.Module):
    """Whether a step leads to within `radius` of a place. The place is an array: planning for another one is the same
    program."""

    place: Float[Array, "2"]
    radius: Float[Array, ""]

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Bool[Array, ""]:
        return jnp.sum((next_state[:2] - self.place) ** 2) <= self.radius**2


def aims(task: str) -> dict[str, tuple[Functions, float | None]]:
    """What is planned for, and the return that is a success where no predicate is."""
    if task not in PLACES:
        return {THE_TASK: (Functions(), None)}
    radius, _, middles = PLACES[task]
    there = {name: There(jnp.array(middle), jnp.array(radius)) for name, middle in middles.items()}
    return {name: (Functions(Held(found), found, found), None) for name, found in there.items()}


def try_places(learned: Learned, task: str) -> list[dict[str, Any]]:
    """A row for each place and seed: what was imagined of it, and what came of that in the real world."""
    rows, episodes = [], PLACES[task].episodes if task in PLACES else 100
    for name, (functions, success_return) in aims(task).items():
        planned = plan(learned, functions, success_return)
        saved = SavedRun(learned.path, learned.config, planned.task, planned.policies, None, functions)
        for measured, imagined in zip(measure(saved, episodes), planned.values.max(axis=(1, 2)), strict=True):
            rows.append({"place": name, **measured, "imagined_return": round(float(imagined), 4)})
        print(f"  {name}: success {np.mean([row['success'] for row in rows if row['place'] == name]):.2f}", flush=True)
    return rows


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    asked = RUNS[name] if places.seeds is None else replace(RUNS[name], seeds=tuple(places.seeds))
    task, label = name.split("/")
    run, _ = asked.kept(places, NAME, name)
    rows: list[dict[str, Any]] = []
    if asked.algo in MODELLED:
        table = run / "places.csv"  # beside the run, so that another run has another one
        rows = _kept_rows(table, asked.seeds) or try_places(load_learned(run), task)
        write_table(table, rows)
        shutil.copyfile(table, places.results / NAME / task / label / table.name)
    return row_of(name, run, rows)


def _kept_rows(table: Path, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Those of the same seeds, which are not planned for again."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return rows if {int(row["seed"]) for row in rows} == set(seeds) else []


def row_of(name: str, run: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a run: its coverage where there is a map, and the share of places reached, the mean and the worst seed's."""
    task, label = name.split("/")
    covered = list(read_coverage(run).values()) if COLUMN in read_metrics(run) else []
    of_seeds: dict[int, list[float]] = {}
    for row in rows:
        of_seeds.setdefault(int(row["seed"]), []).append(float(row["success"]))
    reached = [float(np.mean(shares)) for shares in of_seeds.values()]
    return {
        "task": task,
        "run": label,
        "coverage": round(float(np.mean(covered)), 4) if covered else "",
        "least_coverage": round(min(covered), 4) if covered else "",
        "reached": round(float(np.mean(reached)), 4) if reached else "",
        "least_reached": round(min(reached), 4) if reached else "",
    }


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", nargs="+", type=int, help="tuning is for 100 and up")
    run_asked(options, NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
