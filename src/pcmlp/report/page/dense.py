"""The dense tasks beside what others have published, and the ranks that follow (paper: section 7.2, both tables).

What is published is quoted and marked so. A run that is unfinished, or has episodes of another length, is shown with
the steps it has had, is never the best, and takes no rank. One that had fewer steps than what is published says so.
"""

from collections.abc import Sequence
from html import escape

import numpy as np

from pcmlp.published import BUDGET, DIFFERING, MODEL_BASED, PAPER, PRINTED_RANKS, Quoted, best_published, dense_table
from pcmlp.report.page.sections import Group, Section
from pcmlp.report.page.tables import Cell, Row, table
from pcmlp.report.reading import Run
from pcmlp.report.statistics import Rank, ranks
from pcmlp.report.words import final_return
from pcmlp.tasks import TASKS

_QUOTED = ("PETS-CEM", "SLBO", "TRPO")  # the columns of the paper's table
_BEST = "best model-based of the benchmark"
_QUOTING = (
    "The best of a row is bold. Columns on tinted ground are quoted: the paper and the benchmark it follows "
    "(Wang et al. 2019), four seeds each, 200,000 env steps; TRPO, which has no model, had a million there. "
    "They are of other simulators and settings than ours: bold face, ranks and the 1 of a score compare with them all "
    "the same; means and intervals are of our seeds alone. What is unfinished, has episodes of another length or no "
    "number at the end is never bold and takes no rank and no score."
)


def dense_groups(section: Section) -> list[Group]:
    """Those of its tasks that have published numbers, and a run of ours that was evaluated."""
    known = [group for group in section.groups if group.task in dense_table()]
    return [group for group in known if any(run.shows("eval_return_mean") for run in group.runs.values())]


def dense_tables(section: Section) -> str:
    groups = dense_groups(section)
    if not groups:
        return ""
    several = f"{_differing()}\n{_ranks(section, groups)}" if len(groups) > 1 else ""
    return f'{_returns(section, groups)}\n<p class="note">{_QUOTING}</p>\n{several}'


def comparable(run: Run) -> bool:
    """With what is published: of such a task with episodes as long, at its end, in no more steps."""
    return (
        run.task in dense_table()
        and run.config["task"].get("horizon") == TASKS[run.task].horizon
        and run.env_steps <= 1.01 * BUDGET  # the last episode may go on a little
        and run.done
        and run.final("eval_return_mean") is not None
    )


def compared(group: Group) -> dict[str, np.ndarray]:
    """The final returns of its runs that can be, [seeds], by label."""
    finals = {label: run.final("eval_return_mean") for label, run in group.runs.items() if comparable(run)}
    return {label: returns for label, returns in finals.items() if returns is not None}


def dense_rows(section: Section, groups: Sequence[Group]) -> list[Row]:
    """A task each: ours by label, then what is quoted."""
    rows: list[Row] = []
    for group in groups:
        published = dense_table()[group.task]
        means = [float(returns.mean()) for returns in compared(group).values()]
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
    caption = (
        "Return at the end, after 200,000 env steps where no others are named: mean ± standard deviation over seeds"
    )
    return table(dense_rows(section, groups), caption, above)


def _ours(group: Group, label: str, most: float) -> Cell:
    run = group.runs.get(label)
    if run is None:
        return Cell("–", "quiet")
    returns = run.final("eval_return_mean")
    if returns is None:
        return Cell(final_return(run), "quiet")
    text = f"{returns.mean():,.1f} ± {returns.std():,.1f}"
    if not run.done:
        return Cell(text, "quiet", f"{run.status}: {run.env_steps:,.0f} of {run.config.get('steps', 0):,} steps")
    if not comparable(run):
        length = f"episodes of {run.config['task'].get('horizon')} steps, "
        return Cell(text, "quiet", f"not compared: {length}{run.env_steps:,.0f} env steps")
    return Cell(text, "best" if returns.mean() >= most else "", other_steps(run))


def other_steps(run: Run) -> str:
    return "" if run.env_steps >= BUDGET else f"{run.env_steps:,.0f} env steps"


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
        "has no number on a task is last there. A row of ours takes the paper's place, on the tasks it can be compared "
        "on, if these are two or more; where it had fewer than 200,000 env steps they are named. Recomputed from the "
        "published means, the paper's ranks are nearly those it prints: "
        f"the mean ranks differ by at most {means:.1f}, the medians by at most {medians:.1f}."
    )
    return f'{table(rows, "Ranks among model-based algorithms")}\n<p class="note">{escape(said)}</p>'


def _our_ranks(label: str, groups: Sequence[Group]) -> Row | None:
    finals = {group.task: returns for group in groups if (returns := compared(group).get(label)) is not None}
    if len(finals) < 2:
        return None
    theirs = {task: dense_table()[task] for task in finals}
    ours = {
        task: {**row, PAPER: Quoted(float(finals[task].mean()), float(finals[task].std()), "here")}
        for task, row in theirs.items()
    }
    found, paper = _ranked(ours)[PAPER], _ranked(theirs)[PAPER]
    short = {group.task: other_steps(group.runs[label]) for group in groups if group.task in finals}
    named = [task + (f" ({steps})" if steps else "") for task, steps in short.items()]
    return {
        "algorithm": f"ours: {label}",
        "mean rank": f"{found.mean:.1f}",
        "median rank": f"{found.median:.1f}",
        "over": f"{len(theirs)} tasks: {', '.join(named)}; the paper's on these: {paper.mean:.1f}",
        "printed in the paper": "–",
    }


def _ranked(tasks: dict[str, dict[str, Quoted]]) -> dict[str, Rank]:
    return ranks(
        {task: {name: row[name].mean for name in (*MODEL_BASED, PAPER) if name in row} for task, row in tasks.items()}
    )
