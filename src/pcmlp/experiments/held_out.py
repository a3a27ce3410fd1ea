"""Exploring with no reward, and what it is good for: places that no policy was ever paid for, reached by planning.

(paper: section 7.3 and figure 1, where the ant's maze is covered with no reward / here: the point's maze, and after it
five places, each planned for in the learned model with no new sample and then tried in the real maze. Beside it a bonus
that does not know the cover, none at all, and random play, which has no model. On mountain-car and acrobot, whose one
held-out reward is the task's own, episodes of exploring do not end at the goal, so nothing tells it from other places.)

    python -m pcmlp.experiments.held_out                        # all of it; a GPU is wanted
    python -m pcmlp.experiments.held_out point-umaze/pcmlp      # one run
"""

import argparse
import csv
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.experiments.kept import SEEDS, kept_run, parser, run_asked, write_table
from pcmlp.runs.aim import Functions
from pcmlp.runs.coverage import COLUMN, read_coverage
from pcmlp.runs.evaluate import Held, measure
from pcmlp.runs.folder import read_metrics
from pcmlp.runs.plan import MODELLED, Learned, load_learned, plan
from pcmlp.runs.policy import SavedRun

NAME = "held_out"
EPISODES = 100
RADIUS = 0.25
# Spread over the free ground: two on the start's side, one in the passage, two behind the detour, of which one lies
# beyond the place that the task itself would pay for.
PLACES = {
    "below": (1.3, 0.3),
    "corner": (2.7, 0.3),
    "passage": (2.2, 1.5),
    "behind": (1.5, 2.5),
    "far end": (0.3, 2.7),
}
THE_TASK = "the task's own"


_FREE = ("reward_free=true",)


@dataclass(frozen=True)
class Asked:
    algo: str
    steps: int
    settings: tuple[str, ...] = _FREE


RUNS: dict[str, Asked] = {
    "point-umaze/pcmlp": Asked("pcmlp", 20_000),
    "point-umaze/covariance-off": Asked("pcmlp", 20_000, (*_FREE, "covariance=off")),
    "point-umaze/no-bonus": Asked("pcmlp", 20_000, (*_FREE, "bonus_scale=0")),
    "point-umaze/random": Asked("random", 20_000, _FREE),
    "mountain-car/pcmlp": Asked("pcmlp", 3_000),
    "acrobot/pcmlp": Asked("pcmlp", 3_000),
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
    if task != "point-umaze":
        return {THE_TASK: (Functions(), None)}
    there = {name: There(jnp.array(place), jnp.array(RADIUS)) for name, place in PLACES.items()}
    return {name: (Functions(Held(found), found, found), None) for name, found in there.items()}


def try_places(learned: Learned, task: str) -> list[dict[str, Any]]:
    """A row for each place and seed: what was imagined of it, and what came of that in the real world."""
    rows = []
    for name, (functions, success_return) in aims(task).items():
        planned = plan(learned, functions, success_return)
        saved = SavedRun(learned.path, learned.config, planned.task, planned.policies, None, functions)
        for measured, imagined in zip(measure(saved, EPISODES), planned.values.max(axis=(1, 2)), strict=True):
            rows.append({"place": name, **measured, "imagined_return": round(float(imagined), 4)})
        print(f"  {name}: success {np.mean([row['success'] for row in rows if row['place'] == name]):.2f}", flush=True)
    return rows


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    asked = RUNS[name]
    task, label = name.split("/")
    seeds = tuple(places.seeds)
    run, _ = kept_run(
        places, NAME, task, label, algo=asked.algo, steps=asked.steps, settings=asked.settings, seeds=seeds
    )
    rows: list[dict[str, Any]] = []
    if asked.algo in MODELLED:
        table = run / "places.csv"  # beside the run, so that another run has another one
        rows = _kept_rows(table, seeds) or try_places(load_learned(run), task)
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
    options.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="tuning is for 100 and up")
    run_asked(options, NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
