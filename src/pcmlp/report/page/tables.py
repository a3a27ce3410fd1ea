"""Tables of the page as HTML: what runs came to, and what an experiment has written itself."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from pcmlp.report.page.sections import Group
from pcmlp.report.reading import Run, number, percent
from pcmlp.report.words import differing, final_return, median_steps, middle_return

_CERTIFICATES = {"bound": "a bound", "estimate": "an estimate", "heuristic": "a heuristic"}
_NOTHING = ("–", "no goal", "no reward")  # a column of nothing else is left out
_LONG = 12  # rows; more are folded away


class Cell(NamedTuple):
    text: str
    look: str = ""  # classes of the style: best, quoted, quiet
    below: str = ""  # smaller, under the text
    drawn: str = ""  # HTML of our own after the text


Row = dict[str, Cell | str]  # by column; the first one is what the row is about


def table(rows: Sequence[Row], caption: str, above: Sequence[tuple[str, int]] = ()) -> str:
    """`above` names groups of columns and how many each has. On a phone every row is a card."""
    names = list(rows[0])
    groups = "".join(f'<th colspan="{count}" scope="colgroup">{escape(name)}</th>' for name, count in above)
    head = (f"<tr>{groups}</tr>\n" if above else "") + _tr(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "\n".join(_tr(_cell(name, row[name], name == names[0]) for name in names) for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>\n'
        f"<caption>{escape(caption)}</caption>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _tr(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(name: str, content: Cell | str, first: bool) -> str:
    cell = Cell(content) if isinstance(content, str) else content
    look = f' class="{cell.look}"' if cell.look else ""
    tag = 'th scope="row"' if first else "td"
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    shown = f"<span>{escape(cell.text)}{cell.drawn}{below}</span>"
    return f'<{tag}{look} data-label="{escape(name)}">{shown}</{tag.split()[0]}>'


def runs_table(group: Group) -> str:
    rows: list[Row] = []
    for (label, run), settings in zip(group.runs.items(), differing(list(group.runs.values())), strict=True):
        quiet = "" if run.done else "quiet"
        row = {
            "run": group.shown(label),
            "algorithm": run.algo,
            "settings that differ": settings or "–",
            "env steps": f"{run.env_steps:,.0f}",
            "map entered": _share(run.final("coverage")),
            "planned for and reached": _share(run.reached),
            "seeds solved": _solved(run),
            "median env steps to success": median_steps(run) if run.has_success else "–",
            "final return": final_return(run),
            "interquartile mean": middle_return(run),
            "certificate": _certificate(group, label),
            "wall s": "–" if run.wall_s is None else f"{run.wall_s:,.1f}",
        }
        rows.append({name: Cell(text, quiet) for name, text in row.items()})
    said = [name for name in rows[0] if any(row[name][0] not in _NOTHING for row in rows)]
    return table([{name: row[name] for name in said} for row in rows], f"Runs of {group.task}")


def _solved(run: Run) -> str:
    if run.reward_free:
        return "no reward"
    return f"{run.num_solved} of {len(run.seeds)}" if run.has_success else "no goal"


def _share(shares: np.ndarray | float | None) -> str:
    """The mean over seeds."""
    return "–" if shares is None else percent(np.mean(shares))


def _certificate(group: Group, label: str) -> str:
    """What is left to gain by it, and what it is worth."""
    run = group.runs[label]
    gap = run.curve("certificate")
    if not gap:
        return "–"
    kind = _CERTIFICATES.get(str((run.summary.get("certificate") or {}).get("kind")), "of a run under way")
    return f"{number(gap.mean[-1])}, {kind}"


def written_table(name: str, rows: Sequence[dict[str, str]]) -> str:
    """With its file's name as caption."""
    shown: list[Row] = [{column.replace("_", " "): _readable(text) for column, text in row.items()} for row in rows]
    name = name.removesuffix(".csv").replace("_", " ").capitalize()
    made = table(shown, name)
    return (
        f"<details><summary>{escape(name)}, {len(rows)} rows</summary>\n{made}\n</details>"
        if len(rows) > _LONG
        else made
    )


def _readable(text: str) -> str:
    """Numbers with four digits, and commas in large ones; everything else as it is."""
    try:
        value = float(text)
    except ValueError:
        return text or "–"
    return f"{value:,.0f}" if abs(value) < 1e9 and (value.is_integer() or abs(value) >= 1_000) else f"{value:.4g}"
