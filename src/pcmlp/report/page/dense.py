"""The dense tasks beside what others have published, and the ranks that follow (paper: section 7.2, both tables).

What is published is quoted and marked so. A run that is unfinished is shown with the steps it has had, is never the
best, and takes no rank.
"""

from collections.abc import Sequence
from html import escape

from pcmlp.published import DIFFERING, MODEL_BASED, PAPER, PRINTED_RANKS, Quoted, dense_table
from pcmlp.report.page.sections import Group, Section
from pcmlp.report.page.tables import Cell, Row, table
from pcmlp.report.reading import Run
from pcmlp.report.statistics import Rank, ranks

_QUOTED = ("PETS-CEM", "SLBO", "TRPO")  # the columns of the paper's table
_BEST = "best model-based of the benchmark"
_QUOTING = (
    "The best of a row is bold. Columns on tinted ground are quoted: the paper and the benchmark it follows "
    "(Wang et al. 2019), four seeds each, 200,000 env steps; TRPO, which has no model, had a million there. "
    "Other simulators and settings than ours, so they are beside our numbers and in no statistic with them."
)
_BUDGET = 200_000  # env steps of what is published


def dense_groups(section: Section) -> list[Group]:
    """Those of its tasks that have published numbers, and a run of ours that was evaluated."""
    known = [group for group in section.groups if group.task in dense_table()]
    return [group for group in known if any(run.curve("eval_return_mean") for run in group.runs.values())]


def dense_tables(section: Section) -> str:
    groups = dense_groups(section)
    if not groups:
        return ""
    several = f"{_differing()}\n{_ranks(section, groups)}" if len(groups) > 1 else ""
    return f'{_returns(section, groups)}\n<p class="note">{_QUOTING}</p>\n{several}'


def final(run: Run) -> tuple[float, float] | None:
    """Mean and standard deviation over seeds at the end."""
    returns = run.curve("eval_return_mean")
    return (float(returns.mean[-1]), float(returns.values[-1].std())) if returns else None


def best_published(task: str) -> tuple[str, Quoted]:
    """Of the benchmark's algorithms that learn a model."""
    row = dense_table()[task]
    name = max((name for name in MODEL_BASED if name in row), key=lambda name: row[name].mean)
    return name, row[name]


def dense_rows(section: Section, groups: Sequence[Group]) -> list[Row]:
    """A task each: ours by label, then what is quoted."""
    rows: list[Row] = []
    for group in groups:
        published = dense_table()[group.task]
        means = [pair[0] for run in group.done.values() if (pair := final(run))]
        quoted = [published[name].mean for name in (*_QUOTED, *MODEL_BASED, PAPER) if name in published]
        most = max(quoted + means)
        row: Row = {"task": group.task}
        row |= {f"ours: {label}": _ours(group, label, most) for label in _labels(section, groups)}
        row["PC-MLP, the paper's"] = _quote(published[PAPER], most)
        name, best = best_published(group.task)
        row[_BEST] = _quote(best, most, name)
        row |= {name: _quote(published[name], most) for name in _QUOTED}
        rows.append(row)
    return rows


def _labels(section: Section, groups: Sequence[Group]) -> list[str]:
    return [label for label in section.labels if any(label in group.runs for group in groups)]


def _returns(section: Section, groups: Sequence[Group]) -> str:
    above = [("", 1), ("ours, measured here", len(_labels(section, groups))), ("published, quoted", 2 + len(_QUOTED))]
    caption = "Return after 200,000 env steps, mean ± standard deviation over seeds"
    return table(dense_rows(section, groups), caption, above)


def _ours(group: Group, label: str, most: float) -> Cell:
    run = group.runs.get(label)
    measured = final(run) if run else None
    if run is None or measured is None:
        return Cell("–", "quiet")
    text = f"{measured[0]:,.1f} ± {measured[1]:,.1f}"
    if not run.done:
        return Cell(text, "quiet", f"{run.status}: {run.env_steps:,.0f} of {run.config.get('steps', 0):,} steps")
    other = "" if run.env_steps >= _BUDGET else f"{run.env_steps:,.0f} steps"
    return Cell(text, "best" if measured[0] >= most else "", other)


def _quote(quoted: Quoted, most: float, whose: str = "") -> Cell:
    look = "quoted best" if quoted.mean >= most else "quoted"
    return Cell(f"{quoted.mean:,.1f} ± {quoted.std:,.1f}", look, whose)


def _differing() -> str:
    """Where the paper does not quote the benchmark as it is."""
    cells = []
    for task, column, mean, std in DIFFERING:
        name, best = best_published(task) if column == "Best MBBL" else (column, dense_table()[task][column])
        there, here = f"{mean:g} ± {std:g}", f"{best.mean:g} ± {best.std:g} ({name})"
        cells.append(f"{task}, {column}: {there} there, {here} in the benchmark")
    said = (
        f"The paper's table differs from the benchmark's in three cells: {'; '.join(cells)}. Here are the benchmark's."
    )
    return f'<p class="note">{escape(said)}</p>'


def _ranks(section: Section, groups: Sequence[Group]) -> str:
    """Each of ours in the paper's place among the ten; the paper's own from all its tasks."""
    recomputed = _ranked(dense_table())
    rows = [row for label in section.labels if (row := _our_ranks(label, groups))]
    for name, rank in sorted(recomputed.items(), key=lambda item: item[1].mean):
        printed = PRINTED_RANKS.get(name)
        row = {
            "algorithm": "PC-MLP, the paper's" if name == PAPER else name,
            "mean rank": f"{rank.mean:.1f}",
            "median rank": f"{rank.median:.1f}",
            "over": f"all {len(dense_table())} tasks",
            "printed in the paper": f"{printed[0]:g}, median {printed[1]:g}" if printed else "–",
        }
        rows.append({column: Cell(text, "quoted") for column, text in row.items()})
    means = max(abs(recomputed[name].mean - printed[0]) for name, printed in PRINTED_RANKS.items())
    medians = max(abs(recomputed[name].median - printed[1]) for name, printed in PRINTED_RANKS.items())
    said = (
        "Ranks are by mean return, from 1 to 11 among the ten algorithms of the benchmark that learn a model; one that "
        "has no number on a task is last there. A row of ours takes the paper's place, on the tasks it has finished, "
        "if these are two or more. Recomputed from the published means, the paper's ranks are nearly those it prints: "
        f"the mean ranks differ by at most {means:.1f}, the medians by at most {medians:.1f}."
    )
    return f'{table(rows, "Ranks among model-based algorithms")}\n<p class="note">{escape(said)}</p>'


def _our_ranks(label: str, groups: Sequence[Group]) -> Row | None:
    finals = {group.task: final(group.done[label]) for group in groups if label in group.done}
    theirs = {task: dense_table()[task] for task, pair in finals.items() if pair}
    if len(theirs) < 2:
        return None
    ours = {
        task: {**row, PAPER: Quoted(pair[0], pair[1], "here")} for task, row in theirs.items() if (pair := finals[task])
    }
    found, paper = _ranked(ours)[PAPER], _ranked(theirs)[PAPER]
    return {
        "algorithm": f"ours: {label}",
        "mean rank": f"{found.mean:.1f}",
        "median rank": f"{found.median:.1f}",
        "over": f"{len(theirs)} tasks: {', '.join(theirs)}; the paper's on these: {paper.mean:.1f}",
        "printed in the paper": "–",
    }


def _ranked(tasks: dict[str, dict[str, Quoted]]) -> dict[str, Rank]:
    return ranks(
        {task: {name: row[name].mean for name in (*MODEL_BASED, PAPER) if name in row} for task, row in tasks.items()}
    )
