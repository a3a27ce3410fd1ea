"""`report.html`: one file with its style, script and data inside, which works without a network and without scripts.

Jinja2 escapes all text, and the JSON block contains no `<`, so a name in a run's files cannot add markup.
"""

import base64
import io
import json
import os
import re
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from pcmlp.errors import ConfigError
from pcmlp.report import tables
from pcmlp.report.charts import POINTS, Json, group_data, map_data, profile_data, shares_data
from pcmlp.report.curves import plot_comparison, plot_returns
from pcmlp.report.maps import plot_coverage, plot_visits
from pcmlp.report.reading import Run, read_runs
from pcmlp.report.sections import Group, Section, arrange, scores_of
from pcmlp.report.words import count_of, headline

_FEW = 4  # if a task has more runs, their maps are folded and have no static picture


def report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of run folders, or folders of them, and return its path.

    `out` is a folder or an .html file; without it, the page goes into the folder that the paths have in common.
    """
    page = compose(read_runs(paths))
    place = Path(os.path.commonpath([path.resolve() for path in paths])) if out is None else out
    file = place if place.suffix == ".html" else place / "report.html"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); give another place") from error
    return file


def compose(runs: Sequence[Run], *, static: bool = True, version: str | None = None, notes: Sequence[str] = ()) -> str:
    """Return the page; `static` adds pictures for readers without scripts.

    With a `version`, which `pcmlp watch` gives, the page asks its server for newer versions.
    """
    sections = arrange(runs)
    templates = files("pcmlp.report") / "templates"
    scripts = ("page.js", "watch.js") if version else ("page.js",)
    page = _environment().get_template("page.html")
    return page.render(
        title=_title(runs),
        version=version,
        notes=notes,
        sections=sections,
        style=(templates / "page.css").read_text(),
        script="".join((templates / name).read_text() for name in scripts),
        data=_script_data(sections),
        static=static,
        few_runs=_FEW,
        points=POINTS,
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
        "summarise": _summarise,
        "chart_options": _chart_options,
        "static_pictures": _static_pictures,
    }
    environment.filters["anchor"] = lambda key: re.sub("[^A-Za-z0-9]+", "-", key)
    environment.filters["pretty"] = partial(json.dumps, indent=2)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


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


def _title(runs: Sequence[Run]) -> str:
    if not runs:
        return "No run yet"
    if len(runs) == 1:
        return f"{runs[0].task}, {runs[0].algo}" + ("" if runs[0].has_ended else f" ({runs[0].status})")
    tasks = sorted({run.task for run in runs})
    return f"{count_of(len(runs), 'run')} of {', '.join(tasks) if len(tasks) <= _FEW else count_of(len(tasks), 'task')}"


def _summarise(group: Group) -> str:
    """Summarise the runs that have ended, if there are any, and name the others."""
    if not group.ended_runs:
        return f"Under way or cut off: {headline(group.runs)}"
    rest = [label for label in group.runs if label not in group.ended_runs]
    return headline(group.ended_runs) + (f" Not finished: {', '.join(rest)}." if rest else "")


def _chart_options(data: Json) -> list[tuple[str, str, bool]]:
    """Return the checkboxes for what the charts of a task show: name, text, and whether they begin checked."""
    lines = [line for run in data["runs"] for line in run["lines"].values()]
    options = []
    if any("seeds" in line for line in lines):
        each = "each seed" + (" (the first 10)" if data["more"] else "")
        options += [("band", "range of seeds", True), ("seeds", each, data["seeds"])]
    if any("explore" in line for line in lines):
        options.append(("explore", "exploring policy (dotted)", False))
    return [*options, ("stretched", "logarithmic steps", data["stretched"])]


def _static_pictures(group: Group) -> dict[str, str]:
    """Return the pictures for readers without scripts: PNG files in base64, by name."""
    one = next(iter(group.runs.values())) if len(group.runs) == 1 else None
    figures = {"learning curves": plot_returns(one) if one and not one.reward_free else plot_comparison(group.runs)}
    for label, run in group.runs.items() if len(group.runs) <= _FEW else ():
        figures |= {f"where {label} has been": plot_coverage(run), f"what {label} has tried": plot_visits(run)}
    return {name: _encode(figure) for name, figure in figures.items() if figure is not None}


def _encode(figure: Figure) -> str:
    """Return a PNG file in base64, with few colours to keep the page small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
