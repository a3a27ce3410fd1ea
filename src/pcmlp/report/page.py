"""`report.html`: one file with its style, script and data inside, which works without a network and without scripts.

Jinja2 escapes all text, and the JSON block contains no `<`, so a name in a run's files cannot add markup. The script
draws lines: a line is the mean over all seeds, and its band is their range. To keep the page small, only some
iterations, seeds and points are included.
"""

import base64
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from pcmlp.errors import ConfigError
from pcmlp.report import tables
from pcmlp.report.curves import FAR_APART, look_of, plot_curves
from pcmlp.report.figures import plot_coverage, plot_visits
from pcmlp.report.inline import content_policy, read_inline
from pcmlp.report.maps import map_data
from pcmlp.report.reading import Curve, Run, read_readable_runs
from pcmlp.report.sections import Group, Scores, Section, arrange, scores_of
from pcmlp.report.statistics import mean_interval, profile
from pcmlp.report.verdict import Verdict, link_verdicts, read_verdicts
from pcmlp.report.visits import spread
from pcmlp.report.words import count_of, headline
from pcmlp.runs.durable import write_text

_FEW = 4  # if a task has more runs, their maps are folded and have no static picture
_POINTS = 200  # most points of a line
_SEEDS = 10  # most seeds with a line of their own
_FEW_RUNS = 2  # with more runs, the lines of seeds cannot be told apart
_THRESHOLDS = 101  # number of thresholds of a performance profile

Json = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart of the page; usually `column` is a column of `metrics.csv`."""

    column: str
    title: str
    y: str
    scale: str = "linear"  # or "share", from 0 to 1, or "log"
    against: str = "env_steps"  # or "iteration", "score", "policy"


_CHARTS = (
    Chart("eval_return_mean", "Return", "task reward per episode"),
    Chart("eval_success", "Success", "share of episodes", "share"),
    Chart("coverage", "Coverage", "share of the map's free cells", "share"),
    Chart("info_gain", "Information gain of the cover", "nats"),
    Chart("bonus_mean", "Bonus paid", "mean per real step", "log", against="iteration"),
    Chart("certificate", "Certificate", "promised minus measured return"),
)
_PROFILE = Chart("profile", "Performance profile", "share of seeds above a score", "share", against="score")


def report(paths: Sequence[Path], out: Path | None = None, say: Callable[[str], object] = lambda line: None) -> Path:
    """Write the page of run folders, or folders of them, and return its path.

    `out` is a folder or an .html file; without it, the page goes into the folder that the paths have in common. The
    page has a line about each run that cannot be read; `say` is called with each of these lines.
    """
    if not paths:
        raise ConfigError("report: no folder was given; give a run folder or a folder of runs")
    found = read_readable_runs(paths)
    left_out = [*found.empty, *found.left_out]
    if not found.runs:
        raise ConfigError(left_out[0])
    place = Path(os.path.commonpath([path.resolve() for path in paths])) if out is None else out
    file = place if place.suffix == ".html" else place / "report.html"
    verdicts: list[Verdict] = []
    for path in paths:
        try:
            verdicts += link_verdicts(read_verdicts(path), path, file.parent)
        except ConfigError as error:
            left_out.append(str(error))
    notes = [*(f"Left out: {line}" for line in left_out), *found.damaged]
    page = compose(found.runs, notes=notes, verdicts=verdicts)
    for line in (*(f"left out: {line}" for line in left_out), *found.damaged):
        say(line)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, page)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); give another place") from error
    return file


def compose(
    runs: Sequence[Run],
    *,
    static: bool = True,
    version: str | None = None,
    notes: Sequence[str] = (),
    verdicts: Sequence[Verdict] = (),
) -> str:
    """Return the page; `static` adds pictures for readers without scripts. It begins with the `verdicts`, if there are
    any.

    With a `version`, which `pcmlp watch` gives, the page asks its server for newer versions.
    """
    sections, watched = arrange(runs), version is not None
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=_title(runs),
            version=version,
            notes=notes,
            verdicts=verdicts,
            sections=sections,
            policy=content_policy(watched=watched),
            inline=read_inline(watched=watched),
            data=_script_data(sections),
            static=static,
            few_runs=_FEW,
            points=_POINTS,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pcmlp.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {
        "tables": tables,
        "headline": headline,
        "chart_options": _chart_options,
        "static_pictures": _static_pictures,
    }
    environment.filters["anchor"] = lambda key: re.sub("[^A-Za-z0-9]+", "-", key)
    environment.filters["pretty"] = partial(json.dumps, indent=2)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def _title(runs: Sequence[Run]) -> str:
    if not runs:
        return "No run yet"
    if len(runs) == 1:
        return f"{runs[0].task}, {runs[0].algo}" + ("" if runs[0].has_ended else f" ({runs[0].status})")
    tasks = sorted({run.task for run in runs})
    return f"{count_of(len(runs), 'run')} of {', '.join(tasks) if len(tasks) <= _FEW else count_of(len(tasks), 'task')}"


def _chart_options(data: Json) -> list[tuple[str, str, bool]]:
    """Return the checkboxes for what the charts of a task show: name, text, and whether they begin checked."""
    lines = [line for run in data["runs"] for line in run["lines"].values()]
    options = []
    if any("seeds" in line for line in lines):
        each = "each seed" + (f" (the first {_SEEDS})" if data["more"] else "")
        options += [("band", "range of seeds", True), ("seeds", each, data["seeds"])]
    if any("explore" in line for line in lines):
        options.append(("explore", "exploring policy (dotted)", False))
    return [*options, ("stretched", "logarithmic steps", data["stretched"])]


def _static_pictures(group: Group) -> dict[str, str]:
    """Return the pictures for readers without scripts: PNG files in base64, by name."""
    figures: dict[str, Figure | None] = {"learning curves": plot_curves(group.runs)}
    for label, run in group.runs.items() if len(group.runs) <= _FEW else ():
        figures |= {f"where {label} has been": plot_coverage(run), f"what {label} has tried": plot_visits(run)}
    encoded = {}
    for name, figure in figures.items():
        if figure is not None:
            drawn, small = io.BytesIO(), io.BytesIO()
            figure.savefig(drawn, format="png", dpi=100)
            Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)  # few colours: small
            encoded[name] = base64.b64encode(small.getvalue()).decode()
    return encoded


def _script_data(sections: Sequence[Section]) -> Json:
    """Return the data of the script: charts by key of a task, a run or the scores, and maps by key of a run."""
    groups, maps = {}, {}
    for section in sections:
        looks = {label: i for i, label in enumerate(section.labels)}
        for group in section.groups:
            key = section.key(group.task)
            groups[key] = group_data(group, looks)
            for label, run in group.runs.items():
                if (found := map_data(run)) is not None:
                    maps[f"{key}/{label}"], groups[f"{key}/{label}"] = found, shares_data(found)
        if scores := scores_of(section):
            groups[section.key("shared tasks")] = profile_data(scores, looks)
    return {"groups": groups, "maps": maps}


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
        return {"shares": {"x": map_data["policies"], **_band(np.array(map_data[name]).T)}}

    chart = Chart("shares", "Entered", f"share of {map_data['of']}", "share", against="policy")
    lines = {"policies 1 to n together": (0, line("together")), "policy n alone": (1, line("alone"))}
    return _chart_data([chart], lines)


def _chart_data(charts: Sequence[Chart], runs: Mapping[str, tuple[int, Json]]) -> Json:
    """Return the data for the script; `runs` has each label's number of colour and dash, and its lines by column."""
    drawn = [{"label": label, "look": css_classes(look), "lines": lines} for label, (look, lines) in runs.items()]
    described = {chart.column: asdict(chart) for chart in charts}
    return {"stretched": False, "least": 0, "seeds": False, "charts": described, "runs": drawn}


def css_classes(i: int) -> str:
    """Return the classes of line i in the page's style sheet."""
    return "c{} d{}".format(*look_of(i))


def _has_line(run: Run, chart: Chart) -> bool:
    return run.shows(chart.column) and (chart.scale != "log" or bool((run.curve(chart.column).values > 0).any()))


def _line(run: Run, chart: Chart) -> Json:
    def x(curve: Curve) -> np.ndarray:
        return curve.env_steps if chart.against == "env_steps" else curve.iteration

    curve, exploring = run.curve(chart.column), run.curve(f"explore_{chart.column.removeprefix('eval_')}")
    kept = spread(len(curve.values), _POINTS)
    line: Json = {"x": _round(x(curve)[kept]), **_band(curve.values[kept])}
    if chart.column == "coverage" and len(run.seeds) > 1:
        low, high = mean_interval(curve.values[kept])
        line |= {"surely_low": _round(low), "surely_high": _round(high)}
    if len(run.seeds) > 1:
        line |= {"names": run.seeds[:_SEEDS], "seeds": [_round(seed) for seed in curve.values[kept, :_SEEDS].T]}
    if exploring:
        kept = spread(len(exploring.values), _POINTS)
        line |= {"explore_x": _round(x(exploring)[kept]), "explore": _round(exploring.mean[kept])}
    return line


def _band(values: np.ndarray) -> Json:
    """Return mean and range over seeds, given [points, seeds]."""
    bands = {"mean": values.mean(axis=1), "low": values.min(axis=1), "high": values.max(axis=1)}
    return {name: _round(band) for name, band in bands.items()}


def _round(values: np.ndarray) -> list[float]:
    """Return the values with five digits: more do not show in a chart."""
    return [float(f"{value:.5g}") for value in values.tolist()]
