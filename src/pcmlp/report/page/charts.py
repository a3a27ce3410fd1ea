"""The numbers that the page's charts are drawn from, as JSON.

A line is the mean over seeds, a band their range, both over all seeds. Of many iterations some are shown and of many
seeds the first, so that a page stays small.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmlp.report import style
from pcmlp.report.page.sections import Group
from pcmlp.report.reading import Curve, Run

POINTS = 200  # of a line
_SEEDS = 10  # with a line of their own
_FAR_APART = 10  # of budgets: the shorter run would be a line at the left edge
_NARROW = 2  # runs, with which the seeds' own lines can be told apart

Json = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A column of `metrics.csv` as a chart."""

    column: str
    title: str
    y: str
    scale: str = "linear"  # or "share", from 0 to 1, or "log"
    against: str = "env_steps"  # or "iteration"
    exploring: str = ""  # the same of the policy that explores


CHARTS = (
    Chart("eval_return_mean", "Return", "task reward per episode", exploring="explore_return_mean"),
    Chart("eval_success", "Success", "share of episodes", "share", exploring="explore_success"),
    Chart("coverage", "Coverage", "share of the map's free cells", "share"),
    Chart("info_gain", "Information gain of the cover", "nats"),
    Chart("bonus_mean", "Bonus paid", "mean per real step", "log", against="iteration"),
    Chart("certificate", "Certificate", "promised less measured return"),
)


def charts_of(group: Group) -> list[Chart]:
    """Those with something to show; information stands for coverage where there is no map."""
    shown = [chart for chart in CHARTS if any(_has(run, chart) for run in group.runs.values())]
    if any(chart.column == "coverage" for chart in shown):
        shown = [chart for chart in shown if chart.column != "info_gain"]
    return shown or [CHARTS[0]]


def group_data(group: Group, looks: Mapping[str, int]) -> Json:
    """`looks` has the number of each label's colour and dash."""
    charts = charts_of(group)
    budgets = [run.env_steps for run in group.runs.values() if run.env_steps > 0]
    return {
        "stretched": bool(budgets) and max(budgets) > _FAR_APART * min(budgets),
        "least": min(budgets, default=0),
        "seeds": len(group.runs) <= _NARROW,
        "more": any(len(run.seeds) > _SEEDS for run in group.runs.values()),
        "charts": {
            chart.column: {"title": chart.title, "scale": chart.scale, "against": chart.against} for chart in charts
        },
        "runs": [
            {
                "label": group.shown(label),
                "look": style.look(looks[label]),
                "lines": {chart.column: _line(run, chart) for chart in charts if _has(run, chart)},
            }
            for label, run in group.runs.items()
        ],
    }


def _has(run: Run, chart: Chart) -> bool:
    return run.shows(chart.column) and (chart.scale != "log" or bool((run.curve(chart.column).values > 0).any()))


def _line(run: Run, chart: Chart) -> Json:
    curve = run.curve(chart.column)
    x, kept = _x(curve, chart), _some(len(curve.values))
    line = {
        "x": rounded(x[kept]),
        "mean": rounded(curve.mean[kept]),
        "low": rounded(curve.values.min(axis=1)[kept]),
        "high": rounded(curve.values.max(axis=1)[kept]),
    }
    if len(run.seeds) > 1:
        line |= {"names": run.seeds[:_SEEDS], "seeds": [rounded(seed) for seed in curve.values[kept, :_SEEDS].T]}
    exploring = run.curve(chart.exploring)
    if exploring:
        kept = _some(len(exploring.values))
        line |= {"explore_x": rounded(_x(exploring, chart)[kept]), "explore": rounded(exploring.mean[kept])}
    return line


def _x(curve: Curve, chart: Chart) -> np.ndarray:
    return curve.env_steps if chart.against == "env_steps" else curve.iteration


def _some(count: int) -> np.ndarray:
    """Evenly, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def rounded(values: np.ndarray) -> list[float]:
    """Five digits: a chart has fewer."""
    return [float(f"{value:.5g}") for value in values.tolist()]
