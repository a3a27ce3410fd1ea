"""What the runs of an experiment say together: interquartile means with intervals, and performance profiles.

    score = the share of successful episodes at the end, where a task has a goal
          = 0 for random play and 1 for the best published model-based algorithm, where a task has published returns

A task with neither is in no score, and neither is a run that is unfinished, has no number at its end, or explored with
no reward. Runs are compared over the same tasks: those of some run that most scores are of, and the runs that have all
of them. What is of one task alone is with that task.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmlp.published import best_published, dense_table
from pcmlp.report import style
from pcmlp.report.page.charts import rounded
from pcmlp.report.page.dense import comparable, other_steps
from pcmlp.report.page.sections import Group, Section
from pcmlp.report.page.tables import Cell, Row, table
from pcmlp.report.reading import Run
from pcmlp.report.statistics import Estimate, interquartile_mean, normalised, profile

_THRESHOLDS = 101
_WIDTH = 120  # pixels of an interval's picture

Scores = dict[str, dict[str, np.ndarray]]  # label -> task -> [seeds]


def scores_of(section: Section) -> Scores:
    found: Scores = {}
    for label in section.labels:
        for group in section.groups:
            scores = _scores(group, group.done[label]) if label in group.done else None
            if scores is not None:
                found.setdefault(label, {})[group.task] = scores
    return max((_over(list(tasks), found) for tasks in found.values() if len(tasks) > 1), key=_count, default={})


def _over(tasks: list[str], scores: Scores) -> Scores:
    """Of the runs that have all of those tasks."""
    return {
        label: {task: of_run[task] for task in tasks}
        for label, of_run in scores.items()
        if all(task in of_run for task in tasks)
    }


def _count(scores: Scores) -> int:
    return sum(map(len, scores.values()))


def _scores(group: Group, run: Run) -> np.ndarray | None:
    returns = run.final("eval_return_mean")
    if returns is None:
        return None
    if run.has_success:
        return run.final("eval_success")
    if not comparable(run):
        return None
    return normalised(returns, dense_table()[group.task]["Random"].mean, best_published(group.task)[1].mean)


def scores_table(scores: Scores) -> str:
    return table(scores_rows(scores), f"Interquartile mean of the scores on {', '.join(tasks_of(scores))}")


def tasks_of(scores: Scores) -> list[str]:
    return list(next(iter(scores.values())))


def left_out(section: Section, scores: Scores) -> str:
    """The tasks and runs of a section that its scores are not over."""
    kept = tasks_of(scores)
    without = {
        "task": [group.task for group in section.groups if group.task not in kept],
        "run": [label for label in section.labels if label not in scores],
    }
    named = [f"the {what}{'s' if names[1:] else ''} {', '.join(names)}" for what, names in without.items() if names]
    return f"Left out: {'; '.join(named)}." if named else ""


def shorter(section: Section, scores: Scores) -> str:
    """Who has fewer steps than what is published on a task that is scored by it."""
    steps = {
        f"{label} on {group.task}": other_steps(group.runs[label])
        for group in section.groups
        for label in scores
        if group.task in dense_table() and group.task in scores[label]
    }
    named = [f"{which} ({count})" for which, count in steps.items() if count]
    return f"Shorter than what is published: {', '.join(named)}." if named else ""


def scores_rows(scores: Scores) -> list[Row]:
    estimates = {label: interquartile_mean(list(tasks.values())) for label, tasks in scores.items()}
    most = max(1.0, *(float(seeds.max()) for tasks in scores.values() for seeds in tasks.values()))
    rows: list[Row] = []
    for label, tasks in scores.items():
        found = estimates[label]
        known = np.isfinite(found.low)
        rows.append(
            {
                "run": label,
                "interquartile mean": Cell(f"{found.value:.3f}", drawn=_interval(found, most)),
                "95 % interval": f"{found.low:.3f} to {found.high:.3f}" if known else "–",
                "seeds of each task": " ".join(str(len(seeds)) for seeds in tasks.values()),
            }
        )
    return rows


def _interval(found: Estimate, most: float) -> str:
    """A dot and its interval from 0 to the best score, for whoever reads pictures faster."""
    value, low, high = (_WIDTH * float(np.clip(x / most, 0, 1)) for x in np.nan_to_num(found, nan=found.value))
    return (
        f'<svg class="interval" viewBox="-5 0 {_WIDTH + 10} 14" width="{_WIDTH + 10}" height="14" aria-hidden="true">'
        f'<path class="axis" d="M0 7H{_WIDTH}"/><path d="M{low:.1f} 7H{high:.1f}"/>'
        f'<circle cx="{value:.1f}" cy="7" r="4"/></svg>'
    )


def profile_data(scores: Scores, looks: Mapping[str, int]) -> dict[str, Any]:
    """For a chart like any other: against the threshold."""
    every = np.concatenate([seeds for tasks in scores.values() for seeds in tasks.values()])
    thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), _THRESHOLDS)
    chart = {"title": "Performance profile", "scale": "share", "against": "score"}
    lines = {label: rounded(profile(list(tasks.values()), thresholds)) for label, tasks in scores.items()}
    return {
        "stretched": False,
        "least": 0,
        "seeds": False,
        "charts": {"profile": chart},
        "runs": [
            {
                "label": label,
                "look": style.look(looks[label]),
                "lines": {"profile": {"x": rounded(thresholds), "mean": shares}},
            }
            for label, shares in lines.items()
        ],
    }
