"""The structure of the page, and the scores of runs that can be compared.

An experiment has tasks, and a task has runs. Runs at EXPERIMENT/TASK/RUN are grouped by experiment, all others by task
alone. An experiment also shows the runs of other experiments that its `experiment.json` names.

    score = the share of successful episodes at the end, if the task has a goal
          = 0 for random play and 1 for the best published model-based algorithm, if the task has published returns

A run has no score if it has not ended, has no number at its end, or explored without a reward.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcmlp.published import BUDGET, best_published, dense_table
from pcmlp.report.experiment import Experiment, read_experiment, read_tables
from pcmlp.report.reading import Run
from pcmlp.report.statistics import normalise
from pcmlp.tasks import TASKS

_OURS = "pcmlp"  # comes first in every list

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
