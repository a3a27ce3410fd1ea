"""Exploring without a reward, then planning to reach places that were never rewarded (paper: section 7.3).

paper: figure 1, coverage of the ant's maze without a reward for it / here: the same, also for the point's maze, and
afterwards ten places. Each place is planned for in the learned model without a new sample, then tried in the real maze.
The far end of the ant's maze is also planned for with a reward for every metre of the way: ahead, and by a search at
every step; the policy that guides the search is also tried alone. Controls: a bonus of the same size that does not
depend on where the cover was, no bonus, and random play, which has no model; in the ant's maze also RND. On
mountain-car and acrobot the one held-out reward is the task's own; there, exploring episodes do not end at the goal, so
that nothing distinguishes it from other places.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.replan import Ahead, Search
from pcmlp.experiments.experiment import Done, Experiment, Row, Rows, Tables, write_table
from pcmlp.experiments.fixed import FIXED, FIXED_ROBOT, change
from pcmlp.experiments.job import NO_BONUS, NO_COVER, PAPER_SEEDS, SEEDS, Job, Scale
from pcmlp.maps import Map
from pcmlp.report.reading import load
from pcmlp.report.statistics import mean_interval
from pcmlp.runs.evaluate import COLUMN, Indicator, measure, read_coverage
from pcmlp.runs.metrics import read_metrics, read_table
from pcmlp.runs.plan import LearnedRun, load_learned, plan
from pcmlp.runs.policy import Functions, SavedRun
from pcmlp.types import Problem

State = Float[Array, " s"]
Action = Float[Array, " a"]


class Places(NamedTuple):
    """The places of a maze that are not rewarded while exploring."""

    radius: float  # distance at which a place counts as reached
    episodes: int  # number of episodes in which each place is tried
    middles: dict[str, tuple[float, float]]
    by_the_way: bool = False  # whether a far place is also planned for with a reward for every metre of the way


PLACES = {
    # Spread over the free ground: four on the start's side, two in the passage, four behind the detour. One of these
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
THERE, WAY = "there", "the way"  # the reward is for being there, or for every metre nearer
# The acting policy: one that was planned ahead, a search at every step, or the policy that guides the search, alone.
AHEAD, SEARCH, GUIDE = "ahead", "search", "guide"
_FINER = 4  # each square of the map is divided into 4 x 4 to compute the length of a way
THE_TASK = "the task's own"
_TENTHS = 10  # coverage is shown after each tenth of the steps: every 20,000 in the ant's maze
_STEPS = {"point-umaze": 20_000, "mountain-car": 3_000, "acrobot": 3_000, "ant-umaze": 200_000}


def jobs() -> list[Job]:
    """Return the runs."""

    def job(task: str, label: str, *settings: str, algo: str = "pcmlp") -> Job:
        # An ant's return is for moving, which is of no interest here: two episodes are enough.
        few, seeds = (("eval_episodes=2",), PAPER_SEEDS) if task == "ant-umaze" else ((), SEEDS)
        fixed = (FIXED_ROBOT if task == "ant-umaze" else FIXED) if algo == "pcmlp" else ()
        own = change((*fixed, "reward_free=true", *few), *settings)
        return Job("held_out", task, label, algo, _STEPS[task], own, seeds)

    return [
        job("point-umaze", "pcmlp"),
        job("point-umaze", "covariance-off", NO_COVER),
        job("point-umaze", "no-bonus", NO_BONUS),
        job("point-umaze", "random", algo="random"),
        job("mountain-car", "pcmlp"),
        job("acrobot", "pcmlp"),
        job("ant-umaze", "pcmlp"),
        job("ant-umaze", "on-the-map", "features.dims=0,1"),  # phi sees where the ant is and nothing of its body
        job("ant-umaze", "covariance-off", NO_COVER),
        job("ant-umaze", "no-bonus", NO_BONUS),
        job("ant-umaze", "rnd", algo="rnd"),
        job("ant-umaze", "random", algo="random"),
    ]


class There(eqx.Module):
    """A predicate: whether a step ends within `radius` of a place. The place is an array, so that planning for another
    one runs the same program."""

    place: Float[Array, "2"]
    radius: Float[Array, ""]

    def __call__(self, state: State, action: Action, next_state: State) -> Bool[Array, ""]:
        """Return whether it holds for one step."""
        return jnp.sum((next_state[:2] - self.place) ** 2) <= self.radius**2


class Nearer(eqx.Module):
    """A reward for how much shorter the way over free ground becomes. A step that is longer than any real step pays
    nothing, because an imagined step may go through a wall."""

    ground: Map
    ways: Float[Array, "rows columns"]
    longest: float  # the longest real step

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        """Return the reward of one step."""
        row, column, inside = self.ground.squares(jnp.stack([state[:2], next_state[:2]]))
        before, after = self.ways[row, column]
        far = jnp.linalg.norm(next_state[:2] - state[:2]) > self.longest
        walked = jnp.all(inside) & jnp.isfinite(before) & jnp.isfinite(after) & ~far
        return jnp.where(walked, before - after, 0.0)


class Stopped(eqx.Module):
    """A predicate: whether a step ends at the place, or in a wall, where no real step ends. It ends
    imagined episodes."""

    there: There
    ground: Map

    def __call__(self, state: State, action: Action, next_state: State) -> Bool[Array, ""]:
        """Return whether it holds for one step."""
        (row,), (column,), (inside,) = self.ground.squares(next_state[None, :2])
        return self.there(state, action, next_state) | ~(inside & self.ground.free[row, column])


class Trial(NamedTuple):
    """One way to plan for one place."""

    place: str
    paid: str = THERE
    planned: str = AHEAD


def trials(name: str) -> list[Trial]:
    """Return the trials of a task."""
    if name not in PLACES:
        return [Trial(THE_TASK)]
    places = PLACES[name]
    ways = [(WAY, planned) for planned in (AHEAD, SEARCH, GUIDE)] if places.by_the_way else []
    return [Trial(place, *way) for way in [(THERE, AHEAD), *ways] for place in places.middles]


def choose_objective(problem: Problem, name: str, trial: Trial) -> Functions:
    """Return the reward, end and success that a trial plans for."""
    if name not in PLACES:
        return Functions()
    places = PLACES[name]
    middle = places.middles[trial.place]
    there = There(jnp.array(middle), jnp.array(places.radius))
    if trial.paid == THERE:
        return Functions(Indicator(there), there, there)
    assert problem.map is not None
    ground = problem.map.finer(_FINER)
    nearer = Nearer(ground, jnp.asarray(ground.ways(middle), jnp.float32), problem.map.cell)
    return Functions(nearer, Stopped(there, ground), there)


def try_places(learned: LearnedRun, task: str, scale: Scale, done: Rows) -> Rows:
    """Return a row for each trial and seed: the imagined and the real return. Returns are in units of the reward: 1
    for being there, or metres."""
    episodes = scale.size("trials", PLACES[task].episodes if task in PLACES else 100)
    attempts = scale.size("plan_attempts", Ahead.attempts)
    ahead = Ahead(attempts, scale.size("plan_rounds", Ahead().rounds_for(learned.algorithm)))
    hows = {AHEAD: ahead, SEARCH: Search(), GUIDE: Search(num_plans=1, plan_length=1)}
    rows = [*done]
    for trial in trials(task)[: scale.size("places", 10)]:
        if trial in map(read_trial, done):
            continue
        functions = choose_objective(learned.problem, task, trial)
        planned = plan(learned, functions, how=hows[trial.planned])
        saved = SavedRun(learned.path, learned.config, planned.problem, planned.policies, None, functions)
        for measured, imagined in zip(measure(saved, episodes), planned.values.max(axis=(1, 2)), strict=True):
            columns = {name: measured[name] for name in ("seed", "return_mean", "return_std", "success")}
            rows.append({**trial._asdict(), **columns, "imagined_return": round(float(imagined), 4)})
        success = np.mean(shares(rows[-len(learned.config.seeds) :]))
        print(f"  {trial.place}, paid for {trial.paid}, planned by {trial.planned}: success {success:.2f}", flush=True)
    return rows


def read_trial(row: Row) -> Trial:
    """Return the trial that a row belongs to."""
    return Trial(*(str(row[name]) for name in Trial._fields))


def tables(done: Done) -> Tables:
    """Yield the table of final coverage and places, and that of coverage against env steps."""
    yield "held_out", [make_row(job, done.result(job), places_of(job, done)) for job in done.jobs]
    yield "coverage", [row for job in done.jobs for row in coverage_rows(job, done.result(job))]


def coverage_rows(job: Job, result: Path) -> Rows:
    """Return the mean coverage after each tenth of the steps, with the 95 % bootstrap interval over seeds; no row where
    there is no map."""
    curve = load(result).curve(COLUMN)
    marks = job.steps * np.arange(1, _TENTHS + 1) // _TENTHS
    points = np.unique(np.searchsorted(curve.env_steps, marks, side="right") - 1)
    points = points[points > 0] if curve else points[:0]  # the last iteration that ended by then, without the untrained
    if not points.size:
        return []
    values = curve.values[points]
    numbers = curve.env_steps[points], values.mean(axis=1), *mean_interval(values)
    return [
        {
            "task": job.task,
            "run": job.label,
            "seeds": values.shape[1],
            "env_steps": int(steps),
            "coverage": round(float(mean), 4),
            "low": round(float(low), 4) if np.isfinite(low) else "",
            "high": round(float(high), 4) if np.isfinite(high) else "",
        }
        for steps, mean, low, high in zip(*numbers, strict=True)
    ]


def places_of(job: Job, done: Done) -> Rows:
    """Return the trials of a run, which are kept beside it. Missing trials are made if the run still has its model."""
    table, run = done.result(job) / "places.csv", done.run(job)
    rows: Rows = [dict(row) for row in read_table(table)] if table.exists() else []
    complete = set(map(read_trial, rows)).issuperset(trials(job.task)[: done.scale.size("places", 10)])
    if not isinstance(job.config().algorithm, Deep) or run is None or complete:
        return rows
    rows = try_places(load_learned(run), job.task, done.scale, rows)
    write_table(table, rows)
    return rows


def make_row(job: Job, result: Path, places: Sequence[Row]) -> Row:
    """Return the row of a run: its coverage where there is a map, the share of places reached (the mean and the worst
    seed), and the same for places whose way was paid for: planned ahead, by a search, and by its guide alone."""
    covered = list(read_coverage(result).values()) if COLUMN in read_metrics(result) else []
    reached, by_the_way, by_search, by_guide = (
        shares([row for row in places if read_trial(row)[1:] == way])
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
    """Return the rounded mean; empty if there is nothing to average."""
    return round(float(np.mean(found)), 4) if found else ""


def shares(places: Sequence[Row]) -> list[float]:
    """Return the share of successful episodes of each seed."""
    of_seeds: dict[int, list[float]] = {}
    for row in places:
        of_seeds.setdefault(int(row["seed"]), []).append(float(row["success"]))
    return [float(np.mean(found)) for found in of_seeds.values()]


HELD_OUT = Experiment(
    name="held_out",
    title="No reward: exploring first, planning later",
    place="section 7.3, figures 1 and 3",
    shows="tasks explored without a reward, then goals that were never paid",
    jobs=jobs,
    tables=tables,
)
