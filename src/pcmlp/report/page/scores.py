"""What the runs of an experiment say together: interquartile means with intervals, and performance profiles.

    score = the share of successful episodes at the end, where a task has a goal
          = 0 for random play and 1 for the best published model-based algorithm, where a task has published returns

A task with neither is in no score, and a run that is unfinished in none either. Runs are compared over the same tasks:
those of some run that most scores are of, and the runs that have all of them. What is of one task alone is with that
task.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmlp.published import dense_table
from pcmlp.report.page.charts import rounded
from pcmlp.report.page.dense import best_published
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
    success, returns = run.curve("eval_success"), run.curve("eval_return_mean")
    if success:
        return success.values[-1]
    if returns and group.task in dense_table():
        random = dense_table()[group.task]["Random"].mean
        return normalised(returns.values[-1], random, best_published(group.task)[1].mean)
    return None


def scores_table(scores: Scores) -> str:
    return table(scores_rows(scores), f"Interquartile mean of the scores on {', '.join(tasks_of(scores))}")


def tasks_of(scores: Scores) -> list[str]:
    return list(next(iter(scores.values())))


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
            {"label": label, "look": looks[label], "lines": {"profile": {"x": rounded(thresholds), "mean": shares}}}
            for label, shares in lines.items()
        ],
    }
