"""The page as text: one file with its style, its script and its data inside, that fetches nothing.

Whatever comes from files is escaped: as text in HTML, and in the JSON block, where no `<` is left.
"""

import base64
import io
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from pcmlp.report.coverage import plot_coverage
from pcmlp.report.curves import plot_comparison, plot_returns
from pcmlp.report.maps import plot_visits
from pcmlp.report.page import controls
from pcmlp.report.page.charts import POINTS, Chart, charts_of, group_data
from pcmlp.report.page.dense import dense_tables
from pcmlp.report.page.maps import map_of, shares_data
from pcmlp.report.page.scores import Scores, left_out, profile_data, scores_of, scores_table, shorter
from pcmlp.report.page.sections import Group, Section, arrange
from pcmlp.report.page.tables import runs_table, written_table
from pcmlp.report.reading import Run, counted
from pcmlp.report.words import headline

_OPEN = 4  # runs of a task; with more, the maps of each are folded away
_NOTE = (
    "A line is the mean over seeds and its band their range. Returns in tables are those of the evaluated policy at "
    "the end, mean ± standard deviation over seeds; beside it the mean of the middle half of the seeds with its 95 % "
    "bootstrap interval. A seed is solved from its first evaluation with success in at least 95 % of the episodes. "
    f"Of more than {POINTS} iterations a line has {POINTS} points, the first and the last among them. "
    "What is unfinished is labelled so: its numbers are of what it has written, and it takes no rank, no score and no "
    "bold face."
)
_SCORE_NOTE = (
    "A score is the share of successful episodes at the end where a task has a goal, and elsewhere the return with 0 "
    "for random play and 1 for the best published model-based algorithm. The interval, 95 %, is of a stratified "
    "bootstrap: seeds are drawn anew within each task."
)

_SMALL = (
    '\n<p class="banner">At scale {scale}: fewer seeds, steps or runs than the experiment has, and smaller settings. '
    "These numbers are no results.</p>"
)


class Page:
    """Collects what the script draws while the parts of the page are written."""

    def __init__(self, runs: Sequence[Run], *, static: bool):
        self.static = static  # whether there are pictures for readers without scripts
        self.sections = arrange(runs)
        self.groups: dict[str, Any] = {}
        self.maps: dict[str, Any] = {}

    def section(self, section: Section) -> str:
        looks = {label: i for i, label in enumerate(section.labels)}
        parts = [self.group(section, group, looks) for group in section.groups]
        scores = scores_of(section)
        together = self.scores(section, scores, looks) if len(section.groups) > 1 and scores else ""
        tables = "\n".join(written_table(name, rows) for name, rows in section.tables.items())
        return "\n".join([_section_head(section), dense_tables(section), together, tables, *parts])

    def group(self, section: Section, group: Group, looks: dict[str, int]) -> str:
        key, level = _key(section, group.task), "h3" if section.name else "h2"
        data = self.groups[key] = group_data(group, looks)
        drawn = "\n".join(controls.chart(chart) for chart in charts_of(group))
        runs = "\n".join(self.run(key, group, label) for label in group.runs)
        return (
            f'<section data-group="{escape(key)}">\n<{level} id="{_anchor(key)}">{escape(group.task)}</{level}>\n'
            f'<p class="headline">{escape(_said(group))}</p>\n'
            f"{controls.switches(key, data)}\n{controls.options(key, data)}\n"
            f'<div class="charts">\n{drawn}\n</div>\n{self.pictures(group)}\n{runs_table(group)}\n{runs}\n</section>'
        )

    def scores(self, section: Section, scores: Scores, looks: dict[str, int]) -> str:
        key = _key(section, "shared tasks")
        note = f"{_SCORE_NOTE} {left_out(section, scores)} {shorter(section, scores)}"
        data = self.groups[key] = profile_data(scores, looks)
        chart = controls.chart(Chart("profile", "Performance profile", "share of seeds above a score", against="score"))
        return (
            f'<section data-group="{escape(key)}">\n<h3 id="{_anchor(key)}">Tasks that these runs share</h3>\n'
            f'{scores_table(scores)}\n<p class="note">{escape(note)}</p>\n{controls.switches(key, data)}\n'
            f'<div class="charts">{chart}</div>\n</section>'
        )

    def run(self, key: str, group: Group, label: str) -> str:
        run = group.runs[label]
        own, few = f"{key}/{label}", len(group.runs) <= _OPEN
        drawn = self.cover(own, run, group.shown(label))
        outside, inside = (drawn, "") if few else ("", drawn)
        return (
            f'{outside}\n<details data-key="{escape(own)}/details"><summary>{escape(group.shown(label))}: command, '
            f"versions, settings</summary>\n{inside}\n{_reproduce(run)}\n</details>"
        )

    def cover(self, own: str, run: Run, label: str) -> str:
        """The map of a run whose episodes are kept, and how much of it was entered."""
        found = map_of(run)
        if found is None:
            return ""
        self.maps[own] = found
        data = self.groups[own] = shares_data(found)
        chart = controls.chart(Chart("shares", "Entered", f"share of {escape(found['of'])}", against="policy"))
        beside = f'<section data-group="{escape(own)}">\n{chart}\n{controls.switches(own, data, "Lines")}\n</section>'
        return f'<div class="cover">\n{controls.cover_map(own, found, label)}\n{beside}\n</div>'

    def pictures(self, group: Group) -> str:
        if not self.static:
            return ""
        one = next(iter(group.runs.values())) if len(group.runs) == 1 else None
        drawn = {"learning curves": plot_returns(one) if one and not one.reward_free else plot_comparison(group.runs)}
        for label, run in group.runs.items() if len(group.runs) <= _OPEN else ():
            drawn |= {f"where {label} has been": plot_coverage(run), f"what {label} has tried": plot_visits(run)}
        images = "\n".join(_image(picture, name) for name, picture in drawn.items() if picture is not None)
        return f"<noscript>\n{images}\n</noscript>"


def compose(runs: Sequence[Run], *, static: bool = True, version: str | None = None, notes: Sequence[str] = ()) -> str:
    """The whole page; `version` is given by `pcmlp watch`, and the page then asks it for newer ones."""
    page = Page(runs, static=static)
    body = [page.section(section) for section in page.sections]
    data = json.dumps({"groups": page.groups, "maps": page.maps}, separators=(",", ":"), allow_nan=False)
    here = files("pcmlp.report.page")
    said = "".join(f'<p class="note">{escape(note)}</p>\n' for note in (*notes, _NOTE))
    title = _title(runs)
    return Template((here / "page.html").read_text()).substitute(
        watch=f' data-watch="{version}"' if version else "",
        fetches="; connect-src 'self'" if version else "",
        title=escape(title),
        style=(here / "page.css").read_text(),
        script="".join((here / name).read_text() for name in ("page.js", *(["watch.js"] if version else []))),
        body="\n".join([f"<h1>{escape(title)}</h1>", said, _contents(page.sections), *body]),
        data=data.replace("<", "\\u003c"),
    )


def _title(runs: Sequence[Run]) -> str:
    if not runs:
        return "No run yet"
    if len(runs) == 1:
        return f"{runs[0].task}, {runs[0].algo}" + ("" if runs[0].done else f" ({runs[0].status})")
    tasks = sorted({run.task for run in runs})
    return f"{counted(len(runs), 'run')} of {', '.join(tasks) if len(tasks) <= _OPEN else counted(len(tasks), 'task')}"


def _said(group: Group) -> str:
    """Of the runs that came to their end, where there are any."""
    if not group.done:
        return f"Under way or cut off: {headline(group.runs)}"
    rest = [label for label in group.runs if label not in group.done]
    return headline(group.done) + (f" Not finished: {', '.join(rest)}." if rest else "")


def _key(section: Section, name: str) -> str:
    return f"{section.name}/{name}" if section.name else name


def _anchor(key: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", key)


def _contents(sections: Sequence[Section]) -> str:
    if sum(len(section.groups) for section in sections) < 2:
        return ""

    def link(key: str, text: str) -> str:
        return f'<a href="#{_anchor(key)}">{escape(text)}</a>'

    lists = []
    for section in sections:
        tasks = "".join(f"<li>{link(_key(section, group.task), group.task)}</li>" for group in section.groups)
        head = link(section.name, section.title) if section.name else ""
        lists.append(f"<li>{head}<ul>{tasks}</ul></li>")
    return f'<nav aria-label="contents"><ul>{"".join(lists)}</ul></nav>'


def _section_head(section: Section) -> str:
    if not section.name:
        return ""
    head = f'<h2 id="{_anchor(section.name)}">{escape(section.title)}</h2>'
    if section.about is None:
        return head
    shows = section.about.shows
    said = f"{shows[:1].upper()}{shows[1:]} ({section.about.place})."
    small = _SMALL.format(scale=escape(section.about.scale)) if section.about.scale != "full" else ""
    return f'{head}\n<p class="note">{escape(said)} <code>{escape(section.about.command)}</code></p>{small}'


def _image(picture: Figure, name: str) -> str:
    data, small = io.BytesIO(), io.BytesIO()
    picture.savefig(data, format="png", dpi=100)
    Image.open(data).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    text = base64.b64encode(small.getvalue()).decode()
    return f'<img alt="{escape(name)}" src="data:image/png;base64,{text}">'


def _reproduce(run: Run) -> str:
    summary = run.summary
    versions = ", ".join(f"{name} {version}" for name, version in (summary.get("versions") or {}).items())
    known = {
        "status": run.status,
        "seeds": " ".join(map(str, run.seeds)),
        "versions": versions or "not recorded",
        "device": str(summary.get("device", "not recorded")),
        "certificate": str((summary.get("certificate") or {}).get("why", "")),
        "folder": run.path.name,
    }
    lines = " · ".join(f"{escape(name)}: {escape(text)}" for name, text in known.items() if text)
    command = str(summary.get("command") or "the command was not recorded")
    return (
        f'<pre>{escape(command)}</pre>\n<p class="quiet">{lines}</p>\n'
        f"<details><summary>all settings</summary><pre>{escape(json.dumps(run.config, indent=2))}</pre></details>"
    )
