"""The tables of the page and of `--figures`: runs, an experiment's own tables, published returns, ranks, scores.

Published returns (paper: section 7.2, both tables) are quoted and marked as such. A run that has not ended or has
episodes of another length is shown with its env steps, is never the best, and has no rank.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pcmlp.published import DIFFERING, MODEL_BASED, PAPER, PRINTED_RANKS, Quoted, best_published, dense_table
from pcmlp.report import sections, statistics, words
from pcmlp.report.reading import Run
from pcmlp.report.sections import Group, Section, scores_of
from pcmlp.report.statistics import Estimate, Rank
from pcmlp.report.verdict import HOLDS, UNTESTED, Verdict, count_verdicts

_EMPTY = ("–", "no goal", "no reward")  # a column with nothing else is left out
_LONG = 12  # tables with more rows are folded
_LOOKS = {HOLDS: "best", UNTESTED: "quiet"}  # of a verdict
_QUOTED = ("PETS-CEM", "SLBO", "TRPO")  # the columns of the paper's table
_PAPER = "PC-MLP, the paper's"


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    look: str = ""  # classes of the style sheet: best, quoted, quiet
    below: str = ""  # small text under the main text
    interval: tuple[float, float, float] | None = None  # low, value and high between 0 and 1, drawn after the text
    link: str = ""  # the address of a file


Row = dict[str, Cell]  # by column; the first one names the row


class Table(NamedTuple):
    """A table of the page."""

    caption: str
    rows: Sequence[Row]
    column_groups: Sequence[tuple[str, int]] = ()  # names above the columns, and how many columns each has
    folded: bool = False  # whether it is shown only when the reader opens it


def runs_table(group: Group) -> Table:
    """Return a row for each run of a task."""
    rows: list[Row] = []
    different = words.differing_settings(list(group.runs.values()))
    for (label, run), settings in zip(group.runs.items(), different, strict=True):
        row = {
            "run": group.display_name(label),
            "algorithm": run.algo,
            "settings that differ": settings or "–",
            "env steps": f"{run.env_steps:,.0f}",
            "map entered": _mean_percent(run.final("coverage")),
            "explored": (run.reward_free and run.explored) or "–",
            "planned for and reached": _mean_percent(run.planned_success),
            "seeds solved": _seeds_solved(run),
            "median env steps to success": words.median_steps(run) if run.has_success else "–",
            "to sustained success": words.median_steps(run, sustained=True) if run.has_success else "–",
            "final return": words.final_return(run),
            "interquartile mean": interquartile_return(run),
            "certificate": _certificate(run),
            "wall s": "–" if run.wall_s is None else f"{run.wall_s:,.1f}",
        }
        rows.append({name: Cell(text, "" if run.has_ended else "quiet") for name, text in row.items()})
    used = [name for name in rows[0] if any(row[name].text not in _EMPTY for row in rows)]
    return Table(f"Runs of {group.task}", [{name: row[name] for name in used} for row in rows])


def interquartile_return(run: Run) -> str:
    """Return the interquartile mean over seeds of the last evaluation, and its interval."""
    final = run.final("eval_return_mean")
    if final is None:
        return "–"
    value, low, high = statistics.interquartile_mean([final])
    interval = f" [{words.format_number(low)}, {words.format_number(high)}]" if np.isfinite(low) else ""
    return words.format_number(value) + interval


def _seeds_solved(run: Run) -> str:
    if run.reward_free:
        return "no reward"
    return f"{run.num_solved} of {len(run.seeds)}" if run.has_success else "no goal"


def _mean_percent(shares: np.ndarray | float | None) -> str:
    return "–" if shares is None else words.format_percent(np.mean(shares))


def _certificate(run: Run) -> str:
    gap = run.curve("certificate")
    return f"{words.format_number(gap.mean[-1])}, {words.certificate_kind(run)}" if gap else "–"


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a row for each claim of the paper."""
    rows = [
        {
            "claim": Cell(verdict.claim, "prose", f"holds if: {verdict.rule}"),
            "in the paper": Cell(verdict.place, "prose"),
            "verdict": Cell(verdict.verdict, f"prose {_LOOKS.get(verdict.verdict, '')}".strip()),
            "what was found": Cell(verdict.figures, "prose", verdict.command),
            "file": Cell(verdict.file.split("/")[-1] or "–", link=verdict.file),
        }
        for verdict in verdicts
    ]
    return Table(f"Of {len(rows)} claims of the paper: {count_verdicts(verdicts)}", rows)


def written_table(name: str, rows: Sequence[dict[str, str]]) -> Table:
    """Return the table of a CSV file that an experiment wrote, with the file's name as caption."""
    shown = [{column.replace("_", " "): Cell(_readable(text)) for column, text in row.items()} for row in rows]
    return Table(name.removesuffix(".csv").replace("_", " ").capitalize(), shown, folded=len(rows) > _LONG)


def _readable(text: str) -> str:
    """Return a number with four digits, or with commas if it is large, and any other text unchanged."""
    try:
        value = float(text)
    except ValueError:
        return text or "–"
    return f"{value:,.0f}" if abs(value) < 1e9 and (value.is_integer() or abs(value) >= 1_000) else f"{value:.4g}"


def dense_groups(section: Section) -> list[Group]:
    """Return the tasks with published returns on which a run of ours was evaluated."""
    known = [group for group in section.groups if group.task in dense_table()]
    return [group for group in known if any(run.shows("eval_return_mean") for run in group.runs.values())]


def returns_table(section: Section) -> Table:
    """Return the final returns on the dense tasks beside published ones."""
    groups = dense_groups(section)
    labels = [label for label in section.labels if any(label in group.runs for group in groups)]
    return Table(
        "Return at the end, after 200,000 env steps unless others are named: mean ± standard deviation over seeds",
        [_dense_row(group, labels) for group in groups],
        [("", 1), ("ours, measured here", len(labels)), ("published, quoted", 2 + len(_QUOTED))],
    )


def _dense_row(group: Group, labels: Sequence[str]) -> Row:
    published = dense_table()[group.task]
    name, best = best_published(group.task)
    means = [float(returns.mean()) for returns in sections.comparable_returns(group).values()]
    means += [published[name].mean for name in (*_QUOTED, *MODEL_BASED, PAPER) if name in published]

    def quote(quoted: Quoted, whose: str = "") -> Cell:
        look = "quoted best" if quoted.mean >= max(means) else "quoted"
        return Cell(f"{quoted.mean:,.1f} ± {quoted.std:,.1f}", look, whose)

    return {
        "task": Cell(group.task),
        **{f"ours: {label}": _our_return(group.runs.get(label), max(means)) for label in labels},
        _PAPER: quote(published[PAPER]),
        "best model-based of the benchmark": quote(best, name),
        **{name: quote(published[name]) for name in _QUOTED},
    }


def _our_return(run: Run | None, best: float) -> Cell:
    if run is None:
        return Cell("–", "quiet")
    returns = run.final("eval_return_mean")
    if returns is None:
        return Cell(words.final_return(run), "quiet")
    text = f"{returns.mean():,.1f}" + (f" ± {statistics.deviation(returns):,.1f}" if len(returns) > 1 else "")
    if not run.has_ended:
        return Cell(text, "quiet", f"{run.status}: {run.env_steps:,.0f} of {run.config.get('steps', 0):,} steps")
    if not sections.is_comparable(run):
        length = f"episodes of {run.config['task'].get('horizon')} steps, "
        return Cell(text, "quiet", f"not compared: {length}{run.env_steps:,.0f} env steps")
    return Cell(text, "best" if returns.mean() >= best else "", sections.name_fewer_steps(run))


def differing_cells() -> list[str]:
    """Name the cells of the paper's table that differ from the benchmark."""
    cells = []
    for task, column, mean, std in DIFFERING:
        name, best = best_published(task) if column == "Best MBBL" else (column, dense_table()[task][column])
        here = f"{best.mean:g} ± {best.std:g} ({name}) in the benchmark"
        cells.append(f"{task}, {column}: {mean:g} ± {std:g} in the paper, {here}")
    return cells


def rank_table(section: Section) -> Table:
    """Rank each of our labels in the paper's place, and the published algorithms over all tasks."""
    groups = dense_groups(section)
    rows = [row for label in section.labels if (row := _our_ranks(label, groups))]
    for name, rank in sorted(_rank(dense_table()).items(), key=lambda item: item[1].mean):
        printed = PRINTED_RANKS.get(name)
        row = _rank_row(_PAPER if name == PAPER else name, rank, f"all {len(dense_table())} tasks", "quoted")
        text = f"{printed[0]:g}, median {printed[1]:g}" if printed else "–"
        rows.append(row | {"printed in the paper": Cell(text, "quoted")})
    return Table("Ranks among model-based algorithms", rows)


def _our_ranks(label: str, groups: Sequence[Group]) -> Row | None:
    finals = {
        group.task: returns
        for group in groups
        if (returns := sections.comparable_returns(group).get(label)) is not None
    }
    if len(finals) < 2:
        return None
    published = {task: dense_table()[task] for task in finals}
    ours = {
        task: {**row, PAPER: Quoted(float(finals[task].mean()), statistics.deviation(finals[task]), "here")}
        for task, row in published.items()
    }
    fewer = {group.task: sections.name_fewer_steps(group.runs[label]) for group in groups if group.task in finals}
    tasks = ", ".join(task + (f" ({steps})" if steps else "") for task, steps in fewer.items())
    over = f"{len(finals)} tasks: {tasks}; the paper's on these: {_rank(published)[PAPER].mean:.1f}"
    return _rank_row(f"ours: {label}", _rank(ours)[PAPER], over)


def _rank_row(algorithm: str, rank: Rank, over: str, look: str = "") -> Row:
    texts = {"algorithm": algorithm, "mean rank": f"{rank.mean:.1f}", "median rank": f"{rank.median:.1f}", "over": over}
    return {column: Cell(text, look) for column, text in (texts | {"printed in the paper": "–"}).items()}


def _rank(tasks: dict[str, dict[str, Quoted]]) -> dict[str, Rank]:
    return statistics.ranks(
        {task: {name: row[name].mean for name in (*MODEL_BASED, PAPER) if name in row} for task, row in tasks.items()}
    )


def scores_table(section: Section) -> Table:
    """Return the interquartile mean of each run's scores over the tasks that these runs share."""
    scores = scores_of(section)
    shared = ", ".join(next(iter(scores.values())))
    best = max(1.0, *(float(seeds.max()) for tasks in scores.values() for seeds in tasks.values()))
    rows: list[Row] = []
    for label, tasks in scores.items():
        found = statistics.interquartile_mean(list(tasks.values()))
        interval = f"{found.low:.3f} to {found.high:.3f}" if np.isfinite(found.low) else "–"
        rows.append(
            {
                "run": Cell(label),
                "interquartile mean": Cell(f"{found.value:.3f}", interval=_interval(found, best)),
                "95 % interval": Cell(interval),
                "seeds of each task": Cell(" ".join(str(len(seeds)) for seeds in tasks.values())),
            }
        )
    return Table(f"Interquartile mean of the scores on {shared}", rows)


def _interval(found: Estimate, best: float) -> tuple[float, float, float]:
    """Scale an estimate so that `best` is 1."""
    value, low, high = (float(np.clip(x / best, 0, 1)) for x in np.nan_to_num(found, nan=found.value))
    return low, value, high


def describe_scores(section: Section) -> list[str]:
    """Say which tasks and runs the scores leave out, and which runs had fewer env steps than published ones."""
    scores = scores_of(section)
    tasks = list(next(iter(scores.values())))
    omitted = {
        "task": [group.task for group in section.groups if group.task not in tasks],
        "run": [label for label in section.labels if label not in scores],
    }
    named = [f"the {what}{'s' if names[1:] else ''} {', '.join(names)}" for what, names in omitted.items() if names]
    fewer = {
        f"{label} on {group.task}": sections.name_fewer_steps(group.runs[label])
        for group in section.groups
        for label in scores
        if group.task in dense_table() and group.task in tasks
    }
    short = [f"{which} ({count})" for which, count in fewer.items() if count]
    lines = [f"Left out: {'; '.join(named)}."] if named else []
    return lines + ([f"Fewer env steps than published: {', '.join(short)}."] if short else [])
