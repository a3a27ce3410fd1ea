"""Picture files of a run and of papers, and the pictures of where policies have been."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from pcmlp.errors import ConfigError
from pcmlp.report import curves
from pcmlp.report.curves import COLOURS, clean, integer_ticks, new_figure, set_title, shrink_labels
from pcmlp.report.reading import Run, load
from pcmlp.report.sections import arrange, scores_of
from pcmlp.report.tables import Table, dense_groups, returns_table, scores_table
from pcmlp.report.views import VIEWS, View
from pcmlp.report.words import describe_run

_GOAL_PIXELS = 300  # pixels of the goal along each axis
_COLUMNS = 3  # columns of small maps
_MAPS = 13  # most maps: a large one and four rows of small ones
_SCENERY = {"goal": "#cfe8d5", "wall": "#bbbbbb"}
_STAGES = ("early", "middle", "late")


def draw(folder: Path) -> list[Path]:
    """Write the pictures of a run into its folder, without those that would be empty."""
    if not (folder / "metrics.csv").exists():  # the run was stopped before its first row
        return []
    run = load(folder)
    pictures = {
        "learning_curve.png": curves.plot_curves({run.path.name: run}),
        "bonus.png": curves.plot_bonus({run.path.name: run}),
        "certificate.png": curves.plot_certificate(run),
        "coverage.png": plot_coverage(run),
        "traces.png": plot_traces(run),
        "visit_map.png": plot_visits(run),
    }
    drawn = {folder / name: figure for name, figure in pictures.items() if figure is not None}
    for path, figure in drawn.items():
        figure.savefig(path)
    return list(drawn)


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write pictures without titles and tables for papers, named [EXPERIMENT-]TASK-WHAT, and return their paths."""
    paths: list[Path] = []

    def place(name: str, ending: str) -> Path:
        paths.append(folder / re.sub(r"[^\w.-]+", "-", f"{name}.{ending}"))
        return paths[-1]

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for section in arrange(runs):
            start = f"{section.name}-" if section.name else ""
            for group in section.groups:
                named = {group.display_name(label): run for label, run in group.runs.items()}
                figures = {"curves": curves.plot_curves(named), "bonus": curves.plot_bonus(named)}
                for label, run in group.runs.items():
                    figures |= {f"{label}-coverage": plot_coverage(run), f"{label}-traces": plot_traces(run)}
                for name, figure in figures.items():
                    if figure is not None:
                        _save(figure, *(place(f"{start}{group.task}-{name}", ending) for ending in ("pdf", "png")))
            if dense_groups(section):
                _write_csv(returns_table(section), place(f"{start}dense", "csv"))
            if scores_of(section):
                _write_csv(scores_table(section), place(f"{start}scores", "csv"))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); give another place") from error
    return paths


def _save(figure: Figure, pdf: Path, png: Path) -> None:
    for text in figure.texts:  # a caption replaces the title
        text.set_text("")
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # embeds fonts as TrueType, which journals ask for
        figure.savefig(pdf, dpi=300, metadata={"CreationDate": None})
    figure.set_layout_engine("none")  # the layout is done, and computing it again takes longer than drawing
    figure.savefig(png, dpi=300)


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(list(table.rows[0]))
        for row in table.rows:
            writer.writerow([f"{cell.text} ({cell.below})" if cell.below else cell.text for cell in row.values()])


def plot_coverage(run: Run) -> Figure | None:
    """Draw a map of each seed, coloured by policy, and the share of cells entered.

    None in a finite MDP, where `plot_visits` shows more, and while nothing has been collected.
    """
    visits = run.visits
    if visits is None or visits.view.finite:
        return None
    view, policies, together, alone = visits.view, visits.policies, visits.together, visits.alone
    maps = min(len(run.seeds), _MAPS)
    rows = -(-(maps - 1) // _COLUMNS)
    heights = [4.4 if view.equal else 3.4, *[1.7 if view.equal else 1.2] * rows, 1.7]
    figure = new_figure(0.7 + sum(heights))
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    colours = ScalarMappable(Normalize(policies[0], policies[-1]), _without_palest("viridis", 0.0, 0.93))
    for seed in range(maps):
        axes = figure.add_subplot(grid[1 + (seed - 1) // _COLUMNS, (seed - 1) % _COLUMNS] if seed else grid[0, :])
        places, n = visits.points[seed]
        mixed = np.random.default_rng(0).permutation(len(places))  # late points must not hide early ones
        _draw_map(axes, view, places[mixed], colours.to_rgba(n[mixed]), size=1.5 if seed else 7.0)
        if seed:
            axes.set(xticks=[], yticks=[])
        if maps > 1:
            axes.set_title(f"seed {run.seeds[seed]}: {together[-1, seed]:.0%}", fontsize=8, loc="left", pad=3)
    _label_map(figure.axes[0], view)
    _add_bar(figure, figure.axes[0], colours, "visited by policy n of the cover")
    below = figure.add_subplot(grid[-1, :])
    labels = ("policies 1 to n together", "policy n alone")
    for shares, colour, dash, label in zip((together, alone), COLOURS, ("-", "--"), labels, strict=False):
        below.fill_between(policies, shares.min(axis=1), shares.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        below.plot(policies, shares.mean(axis=1), dash, color=colour, linewidth=2, label=label)
    below.set(xlabel="n (the iteration); mean and range over seeds", ylabel="cells entered", ylim=(0, None))
    below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    below.xaxis.set_major_locator(integer_ticks())
    below.legend(frameon=False, fontsize=8)
    clean(below)
    who = f"The first {len(policies)} policies" if len(policies) > 1 else "The first policy"
    set_title(figure, f"{who} entered {together[-1].mean():.0%} of {view.cells_name}", describe_run(run))
    return figure


def plot_traces(run: Run) -> Figure | None:
    """Draw the paths of some policies of the first seed, each on a map of its own, and of all on one.

    (paper: figure 1, bottom right.) The first steps are light, the last ones dark. None if the task has no plane of its
    own or no policy has acted.
    """
    visits = run.visits if run.task in VIEWS else None
    if visits is None:
        return None
    count = len(visits.policies)
    titled = {f"policy {n}": path for n, path in visits.paths.items()} | {f"all {count} policies": visits.all_paths}
    rows = -(-len(titled) // _COLUMNS)
    figure = new_figure(1.8 * rows + 0.7)
    last_step = max(int(steps.max(initial=1)) for _, steps in visits.paths.values())
    colours = ScalarMappable(Normalize(0, last_step), _without_palest("Blues", 0.25, 1.0))
    for i, (title, (places, steps)) in enumerate(titled.items()):
        axes = figure.add_subplot(rows, _COLUMNS, i + 1)
        order = np.argsort(steps, kind="stable")  # late steps are drawn last: they are fewer, and would be hidden
        _draw_map(axes, visits.view, places[order], colours.to_rgba(steps[order]), size=4.0)
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=9, loc="left", pad=3)
    _add_bar(figure, figure.axes, colours, "step of the episode")
    most, together = visits.alone[:, 0].max(), visits.together[-1, 0]
    seen = f"A policy enters up to {most:.0%} of the cells, all {count} enter {together:.0%}"
    set_title(figure, seen, f"{run.task}, {run.algo}, seed {run.seeds[0]}")
    return figure


def plot_visits(run: Run) -> Figure | None:
    """Draw which actions were tried in which states of a finite MDP, in three stages on one logarithmic scale.

    None if states are vectors or nothing has been collected.
    """
    if run.visits is None or not run.visits.view.finite:
        return None
    stages, (_, actions) = run.visits.stages, run.visits.view.cells
    figure = new_figure(1.3 + len(stages) * max(1.3, min(0.18 * actions + 0.7, 2.5)))
    panels = figure.subplots(len(stages), 1, sharex=True, squeeze=False)[:, 0]
    colours = ScalarMappable(LogNorm(1, max(2, max(int(stage.counts.max()) for stage in stages))), "viridis")
    for axes, (first, last, pairs), name in zip(panels, stages, _STAGES, strict=False):
        tried = np.ma.masked_equal(pairs, 0)
        axes.imshow(tried, norm=colours.norm, cmap=colours.cmap, aspect="auto", interpolation="nearest")
        when = f"{name}: iterations {first} to {last}"
        axes.set_title(f"{when}, {np.count_nonzero(pairs)} of {pairs.size} pairs", fontsize=9, loc="left")
        axes.set(facecolor="#f0f0f0", ylabel="action")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(integer_ticks())
        axes.spines[:].set_visible(False)
        shrink_labels(axes)
    panels[-1].set_xlabel("state (grey: not visited in these iterations)")
    _add_bar(figure, list(panels), colours, "visits")
    title = f"Which actions were tried where, in {stages[-1].last:,} iterations"
    set_title(figure, title, f"{describe_run(run)} together")
    return figure


def _draw_map(axes: Axes, view: View, places: np.ndarray, colours: np.ndarray, *, size: float) -> None:
    """Draw goal, walls and places, and set the range of the axes to the plane."""
    extent = (view.low[0], view.high[0], view.low[1], view.high[1])
    for name, mask in view.scenery(_GOAL_PIXELS).items():
        image = np.where(mask[..., None], np.array(to_rgba(_SCENERY[name])), 0.0)
        axes.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
    axes.scatter(*places.T, c=colours, s=size, linewidths=0, alpha=0.8)
    margin = 0.02 * np.subtract(view.high, view.low)
    (left, bottom), (right, top) = view.low - margin, view.high + margin
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal" if view.equal else "auto")
    axes.spines[:].set_color("#cccccc")


def _label_map(axes: Axes, view: View) -> None:
    axes.set(xlabel=view.labels[0], ylabel=view.labels[1])
    shrink_labels(axes)
    present = {"goal": view.goal, "wall": view.map}
    patches = [Patch(color=colour, label=name) for name, colour in _SCENERY.items() if present[name] is not None]
    if patches:
        axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)


def _without_palest(name: str, first: float, last: float) -> ListedColormap:
    """Return part of a colour map, because its palest colours do not show on white."""
    return ListedColormap(colormaps[name](np.linspace(first, last, 256)))


def _add_bar(figure: Figure, axes: Axes | list[Axes], colours: ScalarMappable, label: str) -> None:
    ticks = None if isinstance(colours.norm, LogNorm) else integer_ticks()
    bar = figure.colorbar(colours, ax=axes, pad=0.02, aspect=30, ticks=ticks)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
