"""`report.html`: what happened in one run or in several, in one file that needs no network and no script."""

import base64
import io
import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from pcmlp.report.curves import plot_bonuses, plot_comparison
from pcmlp.report.pictures import PICTURES
from pcmlp.report.reading import Run, counted, find_runs, load
from pcmlp.report.words import differing, final_return, headline, median_steps, middle_return
from pcmlp.types import ConfigError

_OPEN = 4  # with more runs, the pictures of each are folded away
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #59636e; --paper: #fff; --card: #f6f8fa; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9198a1; --paper: #0d1117; --card: #161b22; --line: #30363d; }
}
body { max-width: 76rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
       color: var(--ink); background: var(--paper); }
h1, p, pre, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
.headline { font-size: 1.1rem; max-width: 50rem; }
.quiet { color: var(--quiet); font-size: .9rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; }
.wide { overflow-x: auto; }
td { white-space: nowrap; }
td[data-label^=settings] { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
.pictures { columns: 2 30rem; column-gap: 1rem; margin: 1rem 0; }
img { display: block; width: 100%; height: auto; box-sizing: border-box; padding: .5rem; margin-bottom: 1rem;
      border-radius: .5rem; border: 1px solid var(--line); background: #fff; break-inside: avoid; }
@media (prefers-color-scheme: dark) { img { filter: brightness(.88); } }
details { margin: .75rem 0; padding: .5rem .75rem; border: 1px solid var(--line); border-radius: .5rem; }
summary { cursor: pointer; font-weight: 600; }
pre { padding: .6rem; border-radius: .5rem; background: var(--card); white-space: pre-wrap; font-size: .85rem; }
@media (max-width: 48rem) {
  table, tbody, tr, td { display: block; }
  thead { display: none; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; text-align: right;
       white-space: normal; }
  td::before { content: attr(data-label); color: var(--quiet); text-align: left; flex-shrink: 0; }
}
"""


def report(paths: list[Path], out: Path | None = None) -> Path:
    """Of run folders, or folders of them; written to `out`, a folder or an .html file, or beside what is reported."""
    if not paths:
        raise ConfigError("report: no folder was given; give a run folder or a folder of runs")
    folders = list(dict.fromkeys(path.resolve() for path in find_runs(paths)))
    page = _page([load(folder) for folder in folders])
    place = Path(os.path.commonpath(folders)) if out is None else out
    file = place if place.suffix == ".html" else place / "report.html"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); give another place") from error
    return file


def labelled(runs: Sequence[Run]) -> dict[str, Run]:
    """By the part of their paths in which they differ."""
    common = Path(os.path.commonpath([run.path for run in runs]))
    return {run.path.name if run.path == common else str(run.path.relative_to(common)): run for run in runs}


def _page(runs: Sequence[Run]) -> str:
    tasks = {task: labelled([run for run in runs if run.task == task]) for task in sorted({run.task for run in runs})}
    one = runs[0] if len(runs) == 1 else None
    title = f"{one.task}, {one.algo}" if one else f"{counted(len(runs), 'run')} of {', '.join(tasks)}"
    said = "".join(f'<p class="headline">{escape(headline(group))}</p>' for group in tasks.values())
    body = "".join(_task(task, group, fold=len(runs) > _OPEN) for task, group in tasks.items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{said}\n{_table(tasks)}\n{body}\n</body>\n</html>\n"
    )


def _table(tasks: dict[str, dict[str, Run]]) -> str:
    rows = []
    for task, group in tasks.items():
        for (label, run), settings in zip(group.items(), differing(list(group.values())), strict=True):
            cells = {
                "run": label + ("" if run.status == "finished" else f" ({run.status})"),
                "task": task,
                "algorithm": run.algo,
                "settings that differ": settings or "–",
                "env steps": f"{run.env_steps:,.0f}",
                "seeds solved": f"{run.num_solved} of {len(run.seeds)}" if run.has_success else "no goal",
                "median env steps to success": median_steps(run) if run.has_success else "–",
                "final return": final_return(run),
                "interquartile mean": middle_return(run),
                "wall s": "–" if run.wall_s is None else f"{run.wall_s:,.1f}",
            }
            rows.append(cells)
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = ("".join(f'<td data-label="{name}">{escape(text)}</td>' for name, text in cells.items()) for cells in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    note = (
        '<p class="quiet">Returns are those of the evaluated policy, mean ± standard deviation over seeds; beside it '
        "the mean of the middle half of the seeds, with its 95 % bootstrap interval. A seed is "
        "solved from its first evaluation with success in at least 95 % of the episodes.</p>"
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n{note}'
    )


def _task(task: str, group: dict[str, Run], fold: bool) -> str:
    if len(group) == 1:
        return f"<section>\n<h2>{escape(task)}</h2>\n{_one_run(next(iter(group.values())))}\n</section>"
    together = {"the runs' returns": plot_comparison(group), "the runs' bonuses": plot_bonuses(group)}
    each = "\n".join(
        f"<details{'' if fold else ' open'}><summary>{escape(label)}</summary>\n{_one_run(run)}\n</details>"
        for label, run in group.items()
    )
    return f"<section>\n<h2>{escape(task)}</h2>\n{_pictures(together)}\n{each}\n</section>"


def _one_run(run: Run) -> str:
    drawn = {name.removesuffix(".png").replace("_", " "): plot(run) for name, plot in PICTURES.items()}
    return f"{_pictures(drawn)}\n{_reproduce(run)}"


def _pictures(drawn: dict[str, Figure | None]) -> str:
    images = "\n".join(_image(picture, name) for name, picture in drawn.items() if picture is not None)
    return f'<div class="pictures">\n{images}\n</div>'


def _image(picture: Figure, name: str) -> str:
    data = io.BytesIO()
    picture.savefig(data, format="png")
    text = base64.b64encode(data.getvalue()).decode()
    return f'<img alt="{escape(name)}" src="data:image/png;base64,{text}">'


def _reproduce(run: Run) -> str:
    summary = run.summary
    versions = summary.get("versions") or {}
    known = {
        "seeds": " ".join(map(str, run.seeds)),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items())
        if versions
        else "not recorded",
        "device": str(summary.get("device", "not recorded")),
        "folder": run.path.name,
    }
    lines = " · ".join(f"{escape(name)}: {escape(text)}" for name, text in known.items())
    command = str(summary.get("command") or "the command was not recorded")
    settings = json.dumps(run.config, indent=2)
    return (
        f'<p class="quiet">To reproduce it:</p>\n<pre>{escape(command)}</pre>\n<p class="quiet">{lines}</p>\n'
        f"<details><summary>all settings</summary><pre>{escape(settings)}</pre></details>"
    )
