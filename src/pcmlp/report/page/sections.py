"""What belongs together on a page: an experiment has tasks, a task has runs.

Folders that are EXPERIMENT/TASK/RUN are told apart by their experiment; all others by their task alone. What an
experiment says of itself in `experiment.json` is shown with it, and the runs that it has from other experiments.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pcmlp.report.reading import About, Run, about
from pcmlp.runs.folder import read_table

_OURS = "pcmlp"  # comes first, in every list


@dataclass(frozen=True)
class Group:
    """The runs of one task, by label."""

    task: str
    runs: dict[str, Run]

    @property
    def done(self) -> dict[str, Run]:
        return {label: run for label, run in self.runs.items() if run.done}

    def shown(self, label: str) -> str:
        """A run that has not come to its end is never named without saying so."""
        run = self.runs[label]
        return label if run.done else f"{label} ({run.status})"


@dataclass(frozen=True)
class Section:
    """An experiment, or everything where there is none (its name is empty)."""

    name: str
    groups: tuple[Group, ...]
    tables: dict[str, list[dict[str, str]]]  # what the experiment itself has written, by file name
    about: About | None = None

    @property
    def title(self) -> str:
        return self.about.title if self.about else re.sub("[-_]", " ", self.name).capitalize()

    @property
    def labels(self) -> list[str]:
        """Of all its tasks; a label has one look in the whole section."""
        every = dict.fromkeys(label for group in self.groups for label in group.runs)
        return sorted(every, key=lambda label: not label.startswith(_OURS))


def arrange(runs: Sequence[Run]) -> list[Section]:
    inside = {run.path.parents[1] for run in runs if _is_kept(run)}
    known = {folder: found for folder in inside | _of_others(runs) if (found := about(folder)) is not None}
    if not (known or len(inside) > 1) or not all(_is_kept(run) for run in runs):
        return [Section("", _groups(runs), {})] if runs else []
    order = {folder: found.order for folder, found in known.items()}
    return [
        Section(folder.name, _groups(_runs_of(folder, known.get(folder), runs)), _tables(folder), known.get(folder))
        for folder in sorted(inside | set(known), key=lambda folder: (order.get(folder, len(order) + 1), folder.name))
    ]


def _of_others(runs: Sequence[Run]) -> set[Path]:
    """Experiments with no run of their own, beside those of the runs: theirs are all here."""
    here = {run.path for run in runs}
    beside = {path.parent for run in runs if _is_kept(run) for path in run.path.parents[2].glob("*/experiment.json")}
    asked = {folder: set(found.runs) for folder in beside if (found := about(folder)) is not None}
    return {folder for folder, theirs in asked.items() if theirs and theirs <= here and not _own(folder, theirs)}


def _own(folder: Path, runs: set[Path]) -> bool:
    return any(folder in run.parents for run in runs)


def _runs_of(folder: Path, found: About | None, runs: Sequence[Run]) -> list[Run]:
    asked = found.runs if found else ()
    return [run for run in runs if folder in run.path.parents or run.path in asked]


def labelled(runs: Sequence[Run]) -> dict[str, Run]:
    """By their own names where those differ, else by the part of their paths that does."""
    if len({run.path.name for run in runs}) == len(runs):
        return {run.path.name: run for run in runs}
    common = Path(os.path.commonpath([run.path for run in runs]))
    return {run.path.name if run.path == common else str(run.path.relative_to(common)): run for run in runs}


def _is_kept(run: Run) -> bool:
    """Whether it lies at EXPERIMENT/TASK/RUN."""
    return run.path.parent.name == run.task.replace(":", "-")


def _groups(runs: Sequence[Run]) -> tuple[Group, ...]:
    tasks = sorted({run.task for run in runs})
    return tuple(Group(task, _ours_first(labelled([run for run in runs if run.task == task]))) for task in tasks)


def _ours_first(runs: dict[str, Run]) -> dict[str, Run]:
    return dict(sorted(runs.items(), key=lambda item: not item[0].startswith(_OURS)))


def _tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """A file with a header and nothing else has nothing to show."""
    read = {path.name: read_table(path) for path in sorted(folder.glob("*.csv"))}
    return {name: rows for name, rows in read.items() if rows}
