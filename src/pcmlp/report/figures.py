"""Pictures and tables for papers: PDF, PNG, LaTeX and CSV, without titles, which a caption replaces."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from pcmlp.report import style
from pcmlp.report.coverage import plot_coverage
from pcmlp.report.curves import plot_bonuses, plot_comparison
from pcmlp.report.page.dense import dense_groups, dense_rows
from pcmlp.report.page.scores import Scores, profile_data, scores_of, scores_rows
from pcmlp.report.page.sections import Group, Section, arrange
from pcmlp.report.page.tables import Cell, Row
from pcmlp.report.reading import Run
from pcmlp.report.traces import plot_traces
from pcmlp.types import ConfigError

_FORMATS = ("pdf", "png")
_SPECIAL = str.maketrans(
    {letter: rf"\{letter}" for letter in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$", "–": "--"}
)


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """One name for each thing: EXPERIMENT-TASK-what."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # letters stay letters, which journals ask for
            return [path for section in arrange(runs) for path in _of_section(section, folder)]
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); give another place") from error


def _of_section(section: Section, folder: Path) -> list[Path]:
    made = [path for group in section.groups for path in _of_group(section, group, folder)]
    if groups := dense_groups(section):
        rows = dense_rows(section, groups)
        made += [_csv(_place(folder, section, "dense.csv"), rows), _latex(_place(folder, section, "dense.tex"), rows)]
    if len(section.groups) > 1 and (scores := scores_of(section)):
        made.append(_csv(_place(folder, section, "scores.csv"), scores_rows(scores)))
        made += _saved(_plot_profiles(scores), _place(folder, section, "profiles"))
    return made


def _of_group(section: Section, group: Group, folder: Path) -> list[Path]:
    runs = {group.shown(label): run for label, run in group.runs.items()}
    drawn: dict[str, Figure | None] = {"curves": plot_comparison(runs), "bonus": plot_bonuses(runs)}
    for label, run in group.runs.items():
        drawn |= {f"{label}-coverage": plot_coverage(run), f"{label}-traces": plot_traces(run)}
    return [
        path
        for name, picture in drawn.items()
        if picture is not None
        for path in _saved(picture, _place(folder, section, f"{group.task}-{name}"))
    ]


def _place(folder: Path, section: Section, name: str) -> Path:
    return folder / re.sub(r"[^\w.-]+", "-", f"{section.name}-{name}" if section.name else name)


def _saved(picture: Figure, place: Path) -> list[Path]:
    style.untitle(picture)
    paths = [place.with_name(f"{place.name}.{ending}") for ending in _FORMATS]
    for path in paths:
        picture.savefig(path, dpi=300, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
        picture.set_layout_engine("none")  # it is laid out by now, which takes longer than drawing it
    return paths


def _plot_profiles(scores: Scores) -> Figure:
    picture = style.figure(3.6)
    axes = picture.subplots()
    for i, run in enumerate(profile_data(scores, {label: i for i, label in enumerate(scores)})["runs"]):
        line = run["lines"]["profile"]
        colour, dash = style.line(i)
        axes.plot(line["x"], line["mean"], dash, color=colour, linewidth=2, label=run["label"])
    axes.set(xlabel="score", ylabel="share of seeds above it", ylim=(-0.05, 1.05))
    style.clean(axes)
    axes.legend(frameon=False, fontsize=8)
    return picture


def _csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(list(rows[0]))
        writer.writerows([_plain(cell) for cell in row.values()] for row in rows)
    return path


def _plain(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({cell.below})" if cell.below else cell.text


def _latex(path: Path, rows: Sequence[Row]) -> Path:
    """With booktabs; the best of a row is bold, and a rule parts ours from what is quoted."""
    ours = sum(name.startswith("ours") for name in rows[0])
    columns = "l" + "r" * ours + "|" + "r" * (len(rows[0]) - ours - 1)
    lines = [[_tex(name) for name in rows[0]], *([_tex(cell) for cell in row.values()] for row in rows)]
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    text = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    path.write_text("\n".join(text) + "\n")
    return path


def _tex(cell: Cell | str) -> str:
    text = _plain(cell).translate(_SPECIAL)
    return rf"\textbf{{{text}}}" if isinstance(cell, Cell) and "best" in cell.look else text
