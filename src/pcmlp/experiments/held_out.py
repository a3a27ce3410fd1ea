"""Exploring with no reward, and what it is good for: places that no policy was ever paid for, reached by planning.

(paper: section 7.3 and figure 1, where the ant's maze is covered with no reward for it / here: that one, and the
point's maze, and after it ten places, each planned for in the learned model with no new sample and then tried in the
real maze; the ant's far end also with a reward for every metre of the way there, planned ahead and by a search at every
step, and without any planning by who guides that. In other runs a bonus that does not know the cover, none at all, and
random play, which has no model. On mountain-car and acrobot, whose one held-out reward is the task's own, episodes of
exploring do not end at the goal, so nothing tells it from other places.)

    pcmlp paper held_out                                    # all of it; a GPU is wanted
    pcmlp paper held_out --only point-umaze/pcmlp           # one run
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.scales import Scale
from pcmlp.experiments.tables import Row, Rows, write_table
from pcmlp.replan import Ahead, Search
from pcmlp.runs.aim import Functions
from pcmlp.runs.coverage import COLUMN, read_coverage
from pcmlp.runs.evaluate import Held, measure
from pcmlp.runs.folder import read_metrics, read_table
from pcmlp.runs.plan import MODELLED, Learned, load_learned, plan, usual_rounds
from pcmlp.runs.policy import SavedRun
from pcmlp.tasks.maps import Map
from pcmlp.types import Task

NAME = "held_out"


class Places(NamedTuple):
    """Held out of a maze: where, and how close is there."""

    radius: float
    episodes: int  # that each is tried in
    middles: dict[str, tuple[float, float]]
    by_the_way: bool = False  # planned for as well with a reward for every metre of the way, where the place is far off


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
    "ant-umaze": Places(2.0, 20, {"far end": (0.0, 16.0)}, by_the_way=True),
}
THERE, WAY = "there", "the way"  # what is paid: being there, or every metre nearer
# what is planned: a policy, every step of its own, or nothing: who guides that search, as it is
AHEAD, SEARCH, GUIDE = "ahead", "search", "guide"
_FINER = 4  # squares of a way along the side of one of the map
THE_TASK = "the task's own"


_FREE = ("reward_free=true",)
_ON_THE_MAP = "features.dims=0,1"  # a phi that sees where the ant is and nothing of its body
# What an ant earns there is for moving, which nobody asks for: few episodes will do.
_FEW = (*_FREE, "eval_episodes=2")


def job(name: str, steps: int, settings: tuple[str, ...], algo: str = "pcmlp") -> Job:
    task, label = name.split("/")
    return Job(NAME, task, label, algo, steps, settings)


def ant(label: str, settings: tuple[str, ...], algo: str = "pcmlp") -> Job:
    return Job(NAME, "ant-umaze", label, algo, 200_000, settings, PAPER_SEEDS)


def jobs() -> list[Job]:
    return [
        job("point-umaze/pcmlp", 20_000, _FREE),
        job("point-umaze/covariance-off", 20_000, (*_FREE, "covariance=off")),
        job("point-umaze/no-bonus", 20_000, (*_FREE, "bonus_scale=0")),
        job("point-umaze/random", 20_000, _FREE, "random"),
        job("mountain-car/pcmlp", 3_000, _FREE),
        job("acrobot/pcmlp", 3_000, _FREE),
        ant("pcmlp", _FEW),
        ant("on-the-map", (*_FEW, _ON_THE_MAP)),
        ant("no-bonus", (*_FEW, "bonus_scale=0")),
        ant("random", _FEW, "random"),
    ]


class There(eqx.Module):
    """Whether a step leads to within `radius` of a place. The place is an array: planning for another one is the same
    program."""

    place: Float[Array, "2"]
    radius: Float[Array, ""]

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Bool[Array, ""]:
        return jnp.sum((next_state[:2] - self.place) ** 2) <= self.radius**2


class Nearer(eqx.Module):
    """What a step gains of the shortest way over free ground. One that is longer than any real one pays nothing: it may
    have been imagined through a wall."""

    ground: Map
    ways: Float[Array, "rows columns"]
    longest: float  # of real steps

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Float[Array, ""]:
        row, column, inside = self.ground.squares(jnp.stack([state[:2], next_state[:2]]))
        before, after = self.ways[row, column]
        far = jnp.linalg.norm(next_state[:2] - state[:2]) > self.longest
        walked = jnp.all(inside) & jnp.isfinite(before) & jnp.isfinite(after) & ~far
        return jnp.where(walked, before - after, 0.0)


class Stopped(eqx.Module):
    """Whether a step leads there, or into a wall, where no real one does: nothing that is imagined behind it counts."""

    there: There
    ground: Map

    def __call__(
        self, state: Float[Array, " s"], action: Float[Array, " a"], next_state: Float[Array, " s"]
    ) -> Bool[Array, ""]:
        (row,), (column,), (inside,) = self.ground.squares(next_state[None, :2])
        return self.there(state, action, next_state) | ~(inside & self.ground.free[row, column])


class Trial(NamedTuple):
    """A column that an older table does not have is as by default."""

    place: str
    paid: str = THERE
    planned: str = AHEAD


def asked(name: str) -> list[Trial]:
    """What is tried in a task."""
    if name not in PLACES:
        return [Trial(THE_TASK)]
    places = PLACES[name]
    ways = [(WAY, planned) for planned in (AHEAD, SEARCH, GUIDE)] if places.by_the_way else []
    return [Trial(place, *way) for way in [(THERE, AHEAD), *ways] for place in places.middles]


def aim(task: Task, name: str, trial: Trial) -> Functions:
    """What is planned for."""
    if name not in PLACES:
        return Functions()
    places = PLACES[name]
    middle = places.middles[trial.place]
    there = There(jnp.array(middle), jnp.array(places.radius))
    if trial.paid == THERE:
        return Functions(Held(there), there, there)
    assert task.map is not None
    ground = task.map.finer(_FINER)
    nearer = Nearer(ground, jnp.asarray(ground.ways(middle), jnp.float32), task.map.cell)
    return Functions(nearer, Stopped(there, ground), there)


def try_places(learned: Learned, task: str, scale: Scale, done: Rows) -> Rows:
    """A row for each trial and seed: what was imagined of it, and what came of that in the real world. Returns are of
    what is paid: 1 for being there, or metres."""
    episodes = scale.size("trials", PLACES[task].episodes if task in PLACES else 100)
    attempts = scale.size("plan_attempts", Ahead.attempts)
    ahead = Ahead(attempts, scale.size("plan_rounds", usual_rounds(learned.config)))
    hows = {AHEAD: ahead, SEARCH: Search(), GUIDE: Search(num_plans=1, plan_length=1)}
    rows = [*done]
    for trial in asked(task)[: scale.size("places", 10)]:
        if trial in map(trial_of, done):
            continue
        functions = aim(learned.task, task, trial)
        planned = plan(learned, functions, how=hows[trial.planned])
        saved = SavedRun(learned.path, learned.config, planned.task, planned.policies, None, functions)
        for measured, imagined in zip(measure(saved, episodes), planned.values.max(axis=(1, 2)), strict=True):
            rows.append({**trial._asdict(), **measured, "imagined_return": round(float(imagined), 4)})
        success = np.mean(shares(rows[-len(learned.config.seeds) :]))
        print(f"  {trial.place}, {trial.paid} is paid, planned {trial.planned}: success {success:.2f}", flush=True)
    return rows


def trial_of(row: Row) -> Trial:
    return Trial(*(str(row[name]) for name in Trial._fields))


def tables(done: Done) -> Tables:
    yield NAME, [row_of(job, done.result(job), places_of(job, done)) for job in done.jobs]


def places_of(job: Job, done: Done) -> Rows:
    """Kept beside the run. Trying them takes the model: none where only the files that are kept are left of a run."""
    table, run = done.result(job) / "places.csv", done.run(job)
    rows: Rows = (
        [{"place": row["place"], **Trial._field_defaults, **row} for row in read_table(table)] if table.exists() else []
    )
    all_of_it = set(map(trial_of, rows)).issuperset(asked(job.task)[: done.scale.size("places", 10)])
    if job.algo not in MODELLED or run is None or all_of_it:
        return rows
    rows = try_places(load_learned(run), job.task, done.scale, rows)
    write_table(table, rows)
    return rows


def row_of(job: Job, result: Path, places: Sequence[Row]) -> Row:
    """Of a run: its coverage where there is a map, and the share of places reached, the mean and the worst seed's; and
    of those that the way to was paid for: planned ahead, by a search, and by its guide."""
    covered = list(read_coverage(result).values()) if COLUMN in read_metrics(result) else []
    reached, by_the_way, by_search, by_guide = (
        shares([row for row in places if trial_of(row)[1:] == way])
        for way in ((THERE, AHEAD), (WAY, AHEAD), (WAY, SEARCH), (WAY, GUIDE))
    )
    return {
        "task": job.task,
        "run": job.label,
        "coverage": mean_of(covered),
        "least_coverage": round(min(covered), 4) if covered else "",
        "reached": mean_of(reached),
        "least_reached": round(min(reached), 4) if reached else "",
        "reached_by_the_way": mean_of(by_the_way),
        "reached_by_search": mean_of(by_search),
        "reached_by_guide": mean_of(by_guide),
    }


def mean_of(found: Sequence[float]) -> float | str:
    return round(float(np.mean(found)), 4) if found else ""


def shares(places: Sequence[Row]) -> list[float]:
    """Of episodes that got there, for each seed."""
    of_seeds: dict[int, list[float]] = {}
    for row in places:
        of_seeds.setdefault(int(row["seed"]), []).append(float(row["success"]))
    return [float(np.mean(found)) for found in of_seeds.values()]


EXPERIMENT = Experiment(
    name=NAME,
    title="No reward: exploring first, planning later",
    place="section 7.3, figures 1 and 3",
    shows="mazes and classic tasks explored with no reward, then places reached that nobody was paid for",
    jobs=jobs,
    tables=tables,
)

if __name__ == "__main__":
    main(EXPERIMENT)
