"""The structure of the page, and the statistics of runs that can be compared.

An experiment has tasks, and a task has runs. Runs at EXPERIMENT/TASK/RUN are grouped by experiment, all others by task
alone. An experiment also shows the runs of other experiments that its `experiment.json` names.

    score    = the share of successful episodes at the end, if the task has a goal
             = 0 for random play and 1 for the best published model-based algorithm, if the task has published returns
    IQM      = the mean of the middle half of all scores (Agarwal et al. 2021)
    interval = its 95 % percentile interval over bootstrap samples that resample seeds within each task
    profile  = the share of seeds with a score above tau, for every tau

A run has no score if it has not ended, has no number at its end, or explored without a reward. (paper: mean and
standard deviation over four seeds, and ranks by the mean.)
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcmlp.published import BUDGET, best_published, dense_table
from pcmlp.report.experiment import Experiment, read_experiment, read_tables
from pcmlp.report.reading import Run
from pcmlp.tasks import TASKS

_OURS = "pcmlp"  # comes first in every list
_RESAMPLES = 2_000
_INTERVAL = (2.5, 97.5)  # percentiles

Scores = dict[str, dict[str, np.ndarray]]  # label -> task -> [seeds]


@dataclass(frozen=True)
class Group:
    """The runs of one task, by label."""

    task: str
    runs: dict[str, Run]

    @property
    def ended_runs(self) -> dict[str, Run]:
        """The runs that have ended."""
        return {label: run for label, run in self.runs.items() if run.has_ended}

    def display_name(self, label: str) -> str:
        """Return the label, with the status of a run that has not ended."""
        run = self.runs[label]
        return label if run.has_ended else f"{label} ({run.status})"


@dataclass(frozen=True)
class Section:
    """An experiment; or, with an empty name, all runs that belong to no experiment."""

    name: str
    groups: tuple[Group, ...]
    tables: dict[str, list[dict[str, str]]]  # written by the experiment, by file name
    experiment: Experiment | None = None

    @property
    def title(self) -> str:
        """The heading."""
        return self.experiment.title if self.experiment else re.sub("[-_]", " ", self.name).capitalize()

    @property
    def labels(self) -> list[str]:
        """The labels of all tasks; a label has one colour and dash in the whole section."""
        return _ours_first(dict.fromkeys(label for group in self.groups for label in group.runs))

    def key(self, name: str) -> str:
        """Return the name of a task within the page."""
        return f"{self.name}/{name}" if self.name else name


def arrange(runs: Sequence[Run]) -> list[Section]:
    """Divide the runs into sections, in the order of the page."""
    here = {run.path for run in runs}
    folders = {run.path.parents[1] for run in runs if _is_in_experiment(run)}
    neighbours = {file.parent for folder in folders for file in folder.parent.glob("*/experiment.json")}
    known = {}
    for folder in folders | neighbours:  # a neighbour may show only runs of others
        experiment = read_experiment(folder)
        if experiment and (folder in folders or (experiment.runs and here.issuperset(experiment.runs))):
            known[folder] = experiment
    if not (known or len(folders) > 1) or not all(_is_in_experiment(run) for run in runs):
        return [Section("", _group(runs), {})] if runs else []
    order = {folder: experiment.order for folder, experiment in known.items()}
    sections = []
    for folder in sorted(folders | set(known), key=lambda folder: (order.get(folder, len(order) + 1), folder.name)):
        experiment = known.get(folder)
        named = experiment.runs if experiment else ()
        own = [run for run in runs if folder in run.path.parents or run.path in named]
        sections.append(Section(folder.name, _group(own), read_tables(folder, experiment), experiment))
    return sections


def _is_in_experiment(run: Run) -> bool:
    """Return whether the run is at EXPERIMENT/TASK/RUN."""
    return run.path.parent.name == run.task.replace(":", "-")


def _ours_first(labels: Mapping[str, object]) -> list[str]:
    return sorted(labels, key=lambda label: not label.startswith(_OURS))


def _group(runs: Sequence[Run]) -> tuple[Group, ...]:
    groups = []
    for task in sorted({run.task for run in runs}):
        labelled = label_runs([run for run in runs if run.task == task])
        groups.append(Group(task, {label: labelled[label] for label in _ours_first(labelled)}))
    return tuple(groups)


def label_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """Label runs by their folders' names if these differ, else by the part of their paths that differs."""
    if len({run.path.name for run in runs}) == len(runs):
        return {run.path.name: run for run in runs}
    common = Path(os.path.commonpath([run.path for run in runs]))
    return {run.path.name if run.path == common else str(run.path.relative_to(common)): run for run in runs}


def is_comparable(run: Run) -> bool:
    """Return whether a run may be compared with published returns: same episodes, ended, no more env steps."""
    return (
        run.task in dense_table()
        and run.config["task"].get("horizon") == TASKS[run.task].horizon
        and run.env_steps <= 1.01 * BUDGET  # the last episode may exceed the budget a little
        and run.has_ended
        and run.final("eval_return_mean") is not None
    )


def comparable_returns(group: Group) -> dict[str, np.ndarray]:
    """Return the final returns, [seeds], of the runs that may be compared with published ones, by label."""
    finals = {label: run.final("eval_return_mean") for label, run in group.runs.items() if is_comparable(run)}
    return {label: returns for label, returns in finals.items() if returns is not None}


def name_fewer_steps(run: Run) -> str:
    """Return the env steps of a run that had fewer than the published ones, else an empty string."""
    return "" if run.env_steps >= BUDGET else f"{run.env_steps:,.0f} env steps"


def scores_of(section: Section) -> Scores:
    """Return the scores of the runs that share two or more tasks: those tasks that give the most scores."""
    scores: Scores = {}
    for label in section.labels:
        for group in section.groups:
            run = group.ended_runs.get(label)
            if run is not None and (of_seeds := _score(run)) is not None:
                scores.setdefault(label, {})[group.task] = of_seeds

    def over(tasks: Sequence[str]) -> Scores:
        complete = {label: of for label, of in scores.items() if all(task in of for task in tasks)}
        return {label: {task: of[task] for task in tasks} for label, of in complete.items()}

    candidates = [over(list(of)) for of in scores.values() if len(of) > 1]
    return max(candidates, key=lambda candidate: sum(map(len, candidate.values())), default={})


def _score(run: Run) -> np.ndarray | None:
    returns = run.final("eval_return_mean")
    if returns is not None and run.has_success:
        return run.final("eval_success")
    if returns is None or not is_comparable(run):
        return None
    return normalise(returns, dense_table()[run.task]["Random"].mean, best_published(run.task)[1].mean)


def normalise(returns: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale returns so that `low` becomes 0 and `high` becomes 1."""
    if not high > low:
        raise ValueError(f"low={low}, high={high}: nothing between them; give a high return above the low one")
    return (returns - low) / (high - low)


class Estimate(NamedTuple):
    """A number with its confidence interval, NaN where there is none."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Sequence[np.ndarray]) -> Estimate:
    """Return the IQM over tasks, each [seeds]; it has no interval if a task has a single seed."""

    def middle_mean(pooled: np.ndarray) -> np.ndarray | np.floating:
        cut = pooled.shape[-1] // 4
        return np.sort(pooled, axis=-1)[..., cut : pooled.shape[-1] - cut].mean(axis=-1)

    value = float(middle_mean(np.concatenate(scores)))
    if min(len(seeds) for seeds in scores) < 2:
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(0)
    resampled = [seeds[rng.integers(len(seeds), size=(_RESAMPLES, len(seeds)))] for seeds in scores]
    low, high = np.percentile(middle_mean(np.concatenate(resampled, axis=1)), _INTERVAL)
    return Estimate(value, float(low), float(high))


def mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the mean's interval at each point of [points, seeds]; NaN for a single seed. All points have
    the same resamples."""
    points, seeds = values.shape
    if seeds < 2:
        return np.full(points, np.nan), np.full(points, np.nan)
    drawn = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, seeds))
    weights = (drawn[:, :, None] == np.arange(seeds)).mean(axis=1)  # [resamples, seeds]
    low, high = np.percentile(values @ weights.T, _INTERVAL, axis=1)
    return low, high


def profile(scores: Sequence[np.ndarray], thresholds: np.ndarray) -> np.ndarray:
    """Return the share of seeds above each threshold; every task has the same weight, however many seeds it has."""
    return np.mean([(seeds[:, None] > thresholds[None, :]).mean(axis=0) for seeds in scores], axis=0)


class Rank(NamedTuple):
    """The rank of an algorithm over tasks; 1 is the best."""

    mean: float
    median: float


def ranks(means: Mapping[str, Mapping[str, float]]) -> dict[str, Rank]:
    """Rank the algorithms of task -> algorithm -> mean return; equal returns share the mean of their ranks.

    An algorithm without a number on a task is last there, because it could not be run.
    """
    names = list(dict.fromkeys(name for of_task in means.values() for name in of_task))
    table = np.array([[of_task.get(name, -np.inf) for name in names] for of_task in means.values()])
    better = (table[:, None, :] > table[:, :, None]).sum(axis=2)
    equal = (table[:, None, :] == table[:, :, None]).sum(axis=2)
    rank = dict(zip(names, (better + (equal + 1) / 2).T, strict=True))
    return {name: Rank(float(of_tasks.mean()), float(np.median(of_tasks))) for name, of_tasks in rank.items()}
