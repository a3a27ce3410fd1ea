"""Environments that people bring: the default settings on eight tasks by name, beside stable-baselines3.

    at the goal   the mean over seeds of the return, or of the share of episodes that succeed, is at least the goal
    difference    our mean return minus that of the best method of stable-baselines3, after the same steps

The paper has none of these tasks, and nothing is set for them, so this shows what a newcomer gets. The rows of
stable-baselines3 come from `benchmarks/baselines.py`, because it is not a dependency: `RESULTS/sb3.csv`. A task is
compared after the steps of these rows, LunarLander at half of our run. PPO takes whole rollouts, so up to 2,047 steps
more. Of our run, the last evaluation at or before these steps counts.

MountainCar does not report success. Each of its steps costs 1 until the goal, so a failed episode returns -H. Of
episodes whose returns have the mean m and the standard deviation s, at most the share

    s^2 / (s^2 + (m + H)^2)

returns -H (Cantelli's inequality). Our success there is what this bound leaves, a lower bound.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pcmlp.experiments.experiment import Done, Experiment, Row, Rows, Tables, known, machine_columns
from pcmlp.experiments.job import Job
from pcmlp.report.reading import load
from pcmlp.report.statistics import deviation, mean_difference
from pcmlp.runs.metrics import read_table

BASELINES = "sb3.csv"  # in the folder of all results: a file in that of the experiment counts as one of its tables
SEEDS = (0, 1, 2, 3)
EPISODES = 20  # of an evaluation, as in the runs
MOST = 50_000  # steps of a method of stable-baselines3
MOUNTAIN_CAR = "gym:MountainCar-v0"
_DISCRETE, _CONTINUOUS = ("dqn", "ppo"), ("ppo", "sac")
_EVALUATIONS = 10  # of a run, so that they do not take longer than learning


class Target(NamedTuple):
    """The steps on a task, its goal, and the methods of stable-baselines3 that have actions of its kind."""

    steps: int
    methods: tuple[str, ...]
    goal: float | None = None
    of: Literal["return", "success"] = "return"

    @property
    def compared(self) -> int:
        """The steps after which the run is compared."""
        return min(self.steps, MOST)


# The budget is the steps by which the goal should be reached. The two tasks of the suite have no goal, so they take the
# most steps that are compared.
TASKS = {
    "gym:CartPole-v1": Target(10_000, _DISCRETE, 475.0),
    MOUNTAIN_CAR: Target(20_000, _DISCRETE, 0.95, "success"),
    "gym:Acrobot-v1": Target(20_000, _DISCRETE, -100.0),
    "gym:LunarLander-v3": Target(100_000, _DISCRETE, 200.0),
    "gym:PointMaze_UMaze-v3": Target(20_000, _CONTINUOUS, 0.95, "success"),
    "gym:FetchReach-v4": Target(5_000, _CONTINUOUS, 0.95, "success"),
    "dmc:cartpole-swingup_sparse": Target(MOST, _CONTINUOUS),
    "dmc:acrobot-swingup": Target(MOST, _CONTINUOUS),
}


def jobs() -> list[Job]:
    """Return the runs. Only the evaluations are set, which do not change what is learned."""
    return [
        Job("environments", task, "pcmlp", "pcmlp", of.steps, (f"eval_every={of.steps // _EVALUATIONS}",), SEEDS)
        for task, of in TASKS.items()
    ]


class Evaluations(NamedTuple):
    """The evaluations of a run, [evaluations, seeds]; no success if it is not known."""

    steps: np.ndarray
    returns: np.ndarray
    success: np.ndarray | None

    def measure(self, of: str) -> np.ndarray | None:
        """Return what a goal is about."""
        return self.success if of == "success" else self.returns

    def until(self, steps: int) -> np.ndarray:
        """Return the returns of the last evaluation at or before some steps, [seeds]."""
        return self.returns[(self.steps <= steps).all(axis=1)][-1]


def evaluations_of(done: Done, job: Job) -> Evaluations:
    """Return the evaluations of a run."""
    run, config = load(done.result(job)), job.config()
    names = ("env_steps", "eval_return_mean", "eval_return_std", "eval_success")
    steps, returns, std, success = (run.metrics[name][run.evaluated] for name in names)
    if job.task == MOUNTAIN_CAR:
        success = least_success(returns, std, -float(config.task.horizon), config.eval_episodes)
    return Evaluations(steps, returns, success if np.isfinite(success[-1]).all() else None)


def least_success(mean: np.ndarray, std: np.ndarray, failed: float, episodes: int) -> np.ndarray:
    """Return the least share of episodes whose return is above `failed`, given the mean and the standard deviation of
    their returns."""
    above = np.maximum(mean - failed, 0.0) ** 2
    share = np.where(above > 0, std**2 / np.where(above > 0, std**2 + above, 1.0), 1.0)
    return 1.0 - np.floor(episodes * share + 1e-3) / episodes  # whole episodes fail; the numbers are rounded


def tables(done: Done) -> Tables:
    """Yield `environments`, with a row for each run."""
    file = done.results / BASELINES
    baselines = read_table(file) if file.exists() else []
    rows: Rows = []
    for job in done.jobs:
        target, found = TASKS[job.task], evaluations_of(done, job)
        compared = compared_columns(found, target, [row for row in baselines if row["task"] == job.task])
        rows.append({**own_columns(job, found, target), **compared, **machine_columns(job, done.summary(job))})
    yield "environments", rows


def own_columns(job: Job, found: Evaluations, target: Target) -> Row:
    """Return the columns of our run: its final results, and whether they are at the goal."""
    success = "" if found.success is None else round(float(found.success[-1].mean()), 3)
    final = {
        "task": job.task,
        "env_steps": int(found.steps[-1].max()),
        "final_return": round(float(found.returns[-1].mean()), 2),
        "std": known(deviation(found.returns[-1]), 2),
        "final_success": success,
    }
    measured = found.measure(target.of)
    if target.goal is None or measured is None:  # without a goal, or at a scale without an episode that reports success
        empty = dict.fromkeys(("seeds_at_goal", "steps_to_goal", "reached"), "")
        return {**final, "goal": "" if target.goal is None else f"{target.of} {target.goal:g}", **empty}
    at_goal = measured.mean(axis=1) >= target.goal
    return {
        **final,
        "goal": f"{target.of} {target.goal:g}",
        "seeds_at_goal": f"{(measured[-1] >= target.goal).sum()} of {measured.shape[1]}",
        "steps_to_goal": int(found.steps[at_goal][0].max()) if at_goal.any() else "",
        "reached": "yes" if at_goal[-1] else "no",
    }


def compared_columns(found: Evaluations, target: Target, rows: Sequence[Mapping[str, str]]) -> Row:
    """Return the columns of the best method of stable-baselines3. A row with fewer steps was a trial, and is left out;
    `sb3_missing` names what has not been run."""
    methods: dict[str, list[Mapping[str, str]]] = {method: [] for method in target.methods}
    for row in rows:
        if int(row["steps"]) >= target.compared and int(row["seed"]) in SEEDS:
            methods[row["method"]].append(row)
    returns = {method: np.array([float(row["return"]) for row in made]) for method, made in methods.items() if made}
    names = ("sb3", "sb3_steps", "sb3_return", "sb3_success", "return_then", "difference", "low", "high", "sb3_missing")
    cells: Row = dict.fromkeys(names, "")
    if not returns:
        return cells
    best = max(returns, key=lambda method: returns[method].mean())
    ours, success = found.until(target.compared), [row["success"] for row in methods[best]]
    difference = mean_difference([ours], [returns[best]])
    missing = [f"{method} {seed}" for method in methods for seed in _seeds_left(methods[method])]
    return {
        **cells,
        "sb3": best,
        "sb3_steps": max(int(row["steps"]) for row in methods[best]),
        "sb3_return": round(float(returns[best].mean()), 2),
        "sb3_success": "" if "" in success else round(float(np.mean([float(share) for share in success])), 3),
        "return_then": round(float(ours.mean()), 2),
        "difference": round(difference.value, 2),
        "low": known(difference.low, 2),
        "high": known(difference.high, 2),
        "sb3_missing": ", ".join(missing),
    }


def _seeds_left(rows: Sequence[Mapping[str, str]]) -> list[int]:
    made = {int(row["seed"]) for row in rows}
    return [seed for seed in SEEDS if seed not in made]


ENVIRONMENTS = Experiment(
    "environments",
    "Environments that people bring",
    "beyond the paper",
    "the default settings on eight tasks by name, beside stable-baselines3",
    jobs,
    tables,
    needs_protocol=True,
)
