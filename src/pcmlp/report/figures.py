"""Picture files of a run folder; and PDF and PNG files without titles for papers, with tables as CSV."""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure

from pcmlp.errors import ConfigError
from pcmlp.report import style
from pcmlp.report.curves import plot_bonus, plot_bonuses, plot_certificate, plot_comparison, plot_returns
from pcmlp.report.maps import plot_coverage, plot_traces, plot_visits
from pcmlp.report.reading import Run, load

if TYPE_CHECKING:
    from pcmlp.report.tables import Table

PICTURES: dict[str, Callable[[Run], Figure | None]] = {
    "learning_curve.png": plot_returns,
    "bonus.png": plot_bonus,
    "certificate.png": plot_certificate,
    "coverage.png": plot_coverage,
    "traces.png": plot_traces,
    "visit_map.png": plot_visits,
}


def draw(folder: Path) -> list[Path]:
    """Write the pictures of a run into its folder, without those that would be empty."""
    if not (folder / "metrics.csv").exists():  # the run was stopped before its first row
        return []
    run, paths = load(folder), []
    for name, plot in PICTURES.items():
        figure = plot(run)
        if figure is not None:
            figure.savefig(folder / name)
            paths.append(folder / name)
    return paths


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write pictures and tables for papers, named [EXPERIMENT-]TASK-WHAT, and return their paths."""
    # Imported here because `draw` ends every training run and needs neither tables nor SciPy's slow import.
    from pcmlp.report.sections import arrange, scores_of
    from pcmlp.report.tables import dense_groups, returns_table, scores_table

    paths: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for section in arrange(runs):
            start = f"{section.name}-" if section.name else ""
            for group in section.groups:
                named = {group.display_name(label): run for label, run in group.runs.items()}
                figures = {"curves": plot_comparison(named), "bonus": plot_bonuses(named)}
                for label, run in group.runs.items():
                    figures |= {f"{label}-coverage": plot_coverage(run), f"{label}-traces": plot_traces(run)}
                for name, figure in figures.items():
                    paths += _save(figure, folder, f"{start}{group.task}-{name}") if figure is not None else []
            if dense_groups(section):
                paths.append(_write_csv(returns_table(section), _place(folder, f"{start}dense", "csv")))
            if scores_of(section):
                paths.append(_write_csv(scores_table(section), _place(folder, f"{start}scores", "csv")))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); give another place") from error
    return paths


def _place(folder: Path, name: str, ending: str) -> Path:
    return folder / re.sub(r"[^\w.-]+", "-", f"{name}.{ending}")


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save a figure without its title, which a caption replaces."""
    style.remove_title(figure)
    pdf, png = _place(folder, name, "pdf"), _place(folder, name, "png")
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # embeds fonts as TrueType, which journals ask for
        figure.savefig(pdf, dpi=300, metadata={"CreationDate": None})
    figure.set_layout_engine("none")  # the layout is done, and computing it again takes longer than drawing
    figure.savefig(png, dpi=300)
    return [pdf, png]


def _write_csv(table: "Table", path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(list(table.rows[0]))
        for row in table.rows:
            writer.writerow([f"{cell.text} ({cell.below})" if cell.below else cell.text for cell in row.values()])
    return path
