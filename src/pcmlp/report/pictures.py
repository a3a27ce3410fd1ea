"""The pictures of a run folder, by file name."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from pcmlp.report.coverage import plot_coverage
from pcmlp.report.curves import plot_bonus, plot_certificate, plot_returns
from pcmlp.report.maps import plot_visits
from pcmlp.report.reading import Run, load
from pcmlp.report.traces import plot_traces

PICTURES: dict[str, Callable[[Run], Figure | None]] = {
    "learning_curve.png": plot_returns,
    "bonus.png": plot_bonus,
    "certificate.png": plot_certificate,
    "coverage.png": plot_coverage,
    "traces.png": plot_traces,
    "visit_map.png": plot_visits,
}


def draw(path: Path) -> list[Path]:
    """Those that the run at `path` has something to show in, written into its folder."""
    if not (path / "metrics.csv").exists():  # it was stopped before anything was measured
        return []
    run, drawn = load(path), []
    for name, plot in PICTURES.items():
        picture = plot(run)
        if picture is not None:
            picture.savefig(path / name)
            drawn.append(path / name)
    return drawn
