"""The data that the page's script draws, as JSON: lines of charts, and points of maps.

A line is the mean over all seeds; its band is their range. To keep a page small, only some iterations, seeds and points
are included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmlp.report import style
from pcmlp.report.curves import FAR_APART
from pcmlp.report.reading import Curve, Run
from pcmlp.report.sections import Group, Scores
from pcmlp.report.statistics import profile
from pcmlp.report.views import entered_shares, view_of, visits_by_policy

POINTS = 200  # most points of a line
_SEEDS = 10  # most seeds with a line of their own
_FEW_RUNS = 2  # with more runs, the lines of seeds cannot be told apart
_THRESHOLDS = 101  # number of thresholds of a performance profile
_MAP_SEEDS = 4
_MAP_POINTS = 30_000  # most points of a map, over all policies and seeds
_MAP_SIDE = 1_000  # places are whole numbers from 0 to this along both axes
_GOAL_CELLS = 60  # cells of the goal along each axis

Json = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart of the page; usually `column` is a column of `metrics.csv`."""

    column: str
    title: str
    y: str
    scale: str = "linear"  # or "share", from 0 to 1, or "log"
    against: str = "env_steps"  # or "iteration", "score", "policy"
    exploring: str = ""  # the column of the exploring policy


_CHARTS = (
    Chart("eval_return_mean", "Return", "task reward per episode", exploring="explore_return_mean"),
    Chart("eval_success", "Success", "share of episodes", "share", exploring="explore_success"),
    Chart("coverage", "Coverage", "share of the map's free cells", "share"),
    Chart("info_gain", "Information gain of the cover", "nats"),
    Chart("bonus_mean", "Bonus paid", "mean per real step", "log", against="iteration"),
    Chart("certificate", "Certificate", "promised minus measured return"),
)
_PROFILE = Chart("profile", "Performance profile", "share of seeds above a score", "share", against="score")


def charts_of(group: Group) -> list[Chart]:
    """Return the charts with something to show; information gain is shown only where there is no coverage."""
    shown = [chart for chart in _CHARTS if any(_has_line(run, chart) for run in group.runs.values())]
    if any(chart.column == "coverage" for chart in shown):
        shown = [chart for chart in shown if chart.column != "info_gain"]
    return shown or [_CHARTS[0]]


def group_data(group: Group, looks: Mapping[str, int]) -> Json:
    """Return the charts of a task; `looks` has the number of each label's colour and dash."""
    charts = charts_of(group)
    lines = {
        label: {chart.column: _line(run, chart) for chart in charts if _has_line(run, chart)}
        for label, run in group.runs.items()
    }
    budgets = [run.env_steps for run in group.runs.values() if run.env_steps > 0]
    return {
        **_chart_data(charts, {group.display_name(label): (looks[label], lines[label]) for label in lines}),
        "stretched": bool(budgets) and max(budgets) > FAR_APART * min(budgets),
        "least": min(budgets, default=0),
        "seeds": len(group.runs) <= _FEW_RUNS,
        "more": any(len(run.seeds) > _SEEDS for run in group.runs.values()),
    }


def profile_data(scores: Scores, looks: Mapping[str, int]) -> Json:
    """Return the performance profile: for each run, the share of seeds above a score."""
    every = np.concatenate([seeds for tasks in scores.values() for seeds in tasks.values()])
    thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), _THRESHOLDS)
    shares = {label: _round(profile(list(tasks.values()), thresholds)) for label, tasks in scores.items()}
    lines = {label: {"profile": {"x": _round(thresholds), "mean": shares[label]}} for label in scores}
    return _chart_data([_PROFILE], {label: (looks[label], lines[label]) for label in scores})


def shares_data(map_data: Json) -> Json:
    """Return the share of cells that policies 1 to n entered together and policy n alone, for the seeds of the map."""

    def line(name: str) -> Json:
        shares = np.array(map_data[name])
        bands = {"mean": shares.mean(axis=0), "low": shares.min(axis=0), "high": shares.max(axis=0)}
        return {"x": map_data["policies"], **{band: _round(values) for band, values in bands.items()}}

    chart = Chart("shares", "Entered", f"share of {map_data['of']}", "share", against="policy")
    together, alone = {"shares": line("together")}, {"shares": line("alone")}
    return _chart_data([chart], {"policies 1 to n together": (0, together), "policy n alone": (1, alone)})


def _chart_data(charts: Sequence[Chart], runs: Mapping[str, tuple[int, Json]]) -> Json:
    """Return the data for the script; `runs` has each label's number of colour and dash, and its lines by column."""
    return {
        "stretched": False,
        "least": 0,
        "seeds": False,
        "charts": {
            chart.column: {"title": chart.title, "y": chart.y, "scale": chart.scale, "against": chart.against}
            for chart in charts
        },
        "runs": [
            {"label": label, "look": style.css_classes(look), "lines": lines} for label, (look, lines) in runs.items()
        ],
    }


def _has_line(run: Run, chart: Chart) -> bool:
    return run.shows(chart.column) and (chart.scale != "log" or bool((run.curve(chart.column).values > 0).any()))


def _line(run: Run, chart: Chart) -> Json:
    def x(curve: Curve) -> np.ndarray:
        return curve.env_steps if chart.against == "env_steps" else curve.iteration

    curve, exploring = run.curve(chart.column), run.curve(chart.exploring)
    kept = _spread(len(curve.values))
    line: Json = {
        "x": _round(x(curve)[kept]),
        "mean": _round(curve.mean[kept]),
        "low": _round(curve.values.min(axis=1)[kept]),
        "high": _round(curve.values.max(axis=1)[kept]),
    }
    if len(run.seeds) > 1:
        line |= {"names": run.seeds[:_SEEDS], "seeds": [_round(seed) for seed in curve.values[kept, :_SEEDS].T]}
    if exploring:
        kept = _spread(len(exploring.values))
        line |= {"explore_x": _round(x(exploring)[kept]), "explore": _round(exploring.mean[kept])}
    return line


def _spread(count: int) -> list[int]:
    """Return up to `POINTS` indices, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int)).tolist()


def _round(values: np.ndarray) -> list[float]:
    """Return the values with five digits: more do not show in a chart."""
    return [float(f"{value:.5g}") for value in values.tolist()]


def map_data(run: Run) -> Json | None:
    """Return a map of where each policy has been; None if no episodes were kept, as in committed results.

    Points are a random sample of each policy and seed; the shares are of all points.
    """
    records = run.records()
    if not records:
        return None
    view = view_of(run.task, records)
    visits = visits_by_policy(records, view)
    kept, seeds = _spread(len(visits)), run.seeds[:_MAP_SEEDS]
    low, high = np.array(view.low), np.array(view.high)
    each = max(20, _MAP_POINTS // (len(kept) * len(seeds)))
    rng = np.random.default_rng(0)

    def sample(i: int, seed: int) -> list[int]:
        places = _MAP_SIDE * (visits[i].places[seed][visits[i].valid[seed]] - low) / (high - low)
        inside = ((places >= 0) & (places <= _MAP_SIDE)).all(axis=-1)
        points = np.unique(places[inside].round().astype(int), axis=0)
        return rng.permutation(points)[:each].ravel().tolist()

    together, alone = (shares[kept, : len(seeds)].T.round(4).tolist() for shares in entered_shares(visits, view))
    wide, tall = (high - low).tolist() if view.equal else (1.5, 1.0)
    columns, rows = view.cells
    finite = {"shape": float(np.clip(columns / rows, 1, 4)), "dot": max(7, min(40, 700 // max(columns, rows)))}
    return {
        "policies": [visits[i].n for i in kept],
        "seeds": seeds,
        "points": [[sample(i, seed) for i in kept] for seed in range(len(seeds))],
        "together": together,
        "alone": alone,
        "of": view.cells_name,
        "labels": view.labels,
        "low": view.low,
        "high": view.high,
        "shape": wide / tall,
        "dot": 7,
        **(finite | {"whole": True} if view.finite else {}),
        **{name: _row_runs(mask) for name, mask in view.scenery(_GOAL_CELLS).items()},
    }


def _row_runs(mask: np.ndarray) -> Json:
    """Return the cells of a mask as runs within rows: row from below, first column, length."""
    runs = []
    for row, cells in enumerate(mask.astype(int)):
        edges = np.diff(np.concatenate([[0], cells, [0]]))
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        runs += [[row, int(start), int(end - start)] for start, end in zip(starts, ends, strict=True)]
    return {"rows": mask.shape[0], "columns": mask.shape[1], "runs": runs}
