"""Pictures of where policies have been: coverage, traces, and in finite MDPs the visited pairs of state and action."""

from collections.abc import Sequence

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from pcmlp.report import style
from pcmlp.report.reading import Run
from pcmlp.report.views import VIEWS, View, by_policy, entered_shares, finite_size, view_of, visits_by_policy
from pcmlp.report.words import describe_run
from pcmlp.runs.episodes import Record

_POINTS = 20_000  # more points would hide each other
_GOAL_PIXELS = 300  # pixels of the goal along each axis
_COLUMNS = 3  # columns of small maps
_MAPS = 13  # most maps: a large one and four rows of small ones
_SCENERY = {"goal": "#cfe8d5", "wall": "#bbbbbb"}
_FEW_POLICIES = 20  # more cannot be told apart by colour
_TRACED = 5  # number of policies with a map of their own, as in the paper's figure
_STAGES = ("early", "middle", "late")
_MANY_STATES = 60  # with more states, ticks are too dense to read
_ANGLES = {-np.pi: "−π", -np.pi / 2: "−π/2", 0: "0", np.pi / 2: "π/2", np.pi: "π"}


def plot_coverage(run: Run) -> Figure | None:
    """Draw a map of each seed, coloured by policy, and the share of cells entered.

    None in a finite MDP, where `plot_visits` shows more, and while nothing has been collected.
    """
    records = run.records()
    if not records or records[0].rows.state.ndim != 3:
        return None
    view = view_of(run.task, records)
    visits = visits_by_policy(records, view)
    together, alone = entered_shares(visits, view)
    maps = min(len(run.seeds), _MAPS)
    figure, panels, below = _coverage_panels(maps, view)
    policies = np.array([v.n for v in visits])
    colours = _policy_colours(policies)
    for seed, axes in enumerate(panels):
        places = np.concatenate([v.places[seed][v.valid[seed]] for v in visits])
        n = np.concatenate([np.full(v.valid[seed].sum(), v.n) for v in visits])
        mixed = np.random.default_rng(0).permutation(len(places))[:_POINTS]  # late points must not hide early ones
        _draw_map(axes, view, places[mixed], colours.to_rgba(n[mixed]), size=1.5 if seed else 7.0, alpha=0.8)
        if maps > 1:
            axes.set_title(f"seed {run.seeds[seed]}: {together[-1, seed]:.0%}", fontsize=8, loc="left", pad=3)
    _finish_large_map(panels[0], view)
    bar = figure.colorbar(colours, ax=panels[0], pad=0.02, ticks=style.integer_ticks())
    _label_bar(bar, "visited by policy n of the cover")
    bar.minorticks_off()
    _draw_shares(below, policies, together, alone)
    who = f"The first {len(visits)} policies" if len(visits) > 1 else "The first policy"
    style.set_title(figure, f"{who} entered {together[-1].mean():.0%} of {view.cells_name}", describe_run(run))
    return figure


def plot_traces(run: Run) -> Figure | None:
    """Draw the paths of some policies of the first seed, each on a map of its own, and of all on one.

    (paper: figure 1, bottom right.) The first steps are light, the last ones dark. None if the task has no plane of its
    own or no policy has acted.
    """
    records, view = run.records(), VIEWS.get(run.task)
    if view is None or not records:
        return None
    paths = {n: trace(record, view) for n, record in sorted(by_policy(records).items())}
    policies = list(paths)
    spread = np.unique(np.linspace(0, len(policies) - 1, _TRACED + 1).round().astype(int))
    chosen = [policies[i] for i in spread[1:]] or policies
    panels_of = {f"policy {n}": [paths[n]] for n in chosen} | {f"all {len(policies)} policies": list(paths.values())}
    rows = -(-len(panels_of) // _COLUMNS)
    figure = style.new_figure(1.8 * rows + 0.7)
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    last_step = max(int(age.max(initial=1)) for _, age in (paths[n] for n in chosen))
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1.0, 256)))  # paler colours do not show on white
    colours = ScalarMappable(Normalize(0, last_step), shades)
    for axes, (title, several) in zip(panels, panels_of.items(), strict=False):
        places, age = (np.concatenate(parts) for parts in zip(*several, strict=True))
        order = np.argsort(age, kind="stable")  # late steps are drawn last: they are fewer, and would be hidden
        _draw_map(axes, view, places[order], colours.to_rgba(age[order]), size=4.0)
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=9, loc="left", pad=3)
    for axes in panels[len(panels_of) :]:
        axes.remove()
    drawn = list(panels[: len(panels_of)])
    bar = figure.colorbar(colours, ax=drawn, shrink=0.8, aspect=30, pad=0.02, ticks=style.integer_ticks())
    _label_bar(bar, "step of the episode")
    together, alone = (shares[:, 0] for shares in entered_shares(visits_by_policy(records, view), view))
    seen = f"A policy enters up to {alone.max():.0%} of the cells, all {len(policies)} enter {together[-1]:.0%}"
    style.set_title(figure, seen, f"{run.task}, {run.algo}, seed {run.seeds[0]}")
    return figure


def trace(record: Record, view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the first seed's steps, [n, 2], and the number of each step within its episode, [n]."""
    rows = jax.tree.map(lambda x: x[0], record.rows)
    ended = rows.valid & (rows.terminal | rows.last)
    row = np.arange(len(ended))
    start = np.maximum.accumulate(np.where(np.concatenate([[True], ended[:-1]]), row, 0))
    return view.project(rows.state)[rows.valid], (row - start)[rows.valid]


def plot_visits(run: Run) -> Figure | None:
    """Draw which actions were tried in which states of a finite MDP, in three stages on one logarithmic scale.

    None if states are vectors or nothing has been collected.
    """
    records = run.records()
    if not records or records[0].rows.state.ndim != 2:
        return None
    states, actions = finite_size(records)
    stages = [[records[i] for i in stage] for stage in np.array_split(np.arange(len(records)), len(_STAGES))]
    counts = [count_pairs(stage, states, actions) for stage in stages if stage]
    figure = style.new_figure(1.3 + len(counts) * max(1.3, min(0.18 * actions + 0.7, 2.5)))
    panels = figure.subplots(len(counts), 1, sharex=True, squeeze=False)[:, 0]
    scale = ScalarMappable(LogNorm(1, max(2, max(int(pairs.max()) for pairs in counts))), "viridis")
    for axes, pairs, stage, name in zip(panels, counts, stages, _STAGES, strict=False):
        tried = np.ma.masked_equal(pairs, 0)
        axes.imshow(tried, norm=scale.norm, cmap=scale.cmap, aspect="auto", interpolation="nearest")
        axes.set_facecolor("#f0f0f0")
        when = f"{name}: iterations {stage[0].iteration} to {stage[-1].iteration}"
        axes.set_title(f"{when}, {np.count_nonzero(pairs)} of {pairs.size} pairs", fontsize=9, loc="left")
        axes.set_ylabel("action")
        if actions <= 10:
            axes.set_yticks(range(actions))
        axes.tick_params(labelsize=8)
        axes.spines[:].set_visible(False)
        style.shrink_labels(axes)
    panels[-1].set_xlabel("state (grey: not visited in these iterations)")
    if states <= _MANY_STATES:
        panels[-1].set_xticks(range(0, states, max(1, states // 12)))
    _label_bar(figure.colorbar(scale, ax=list(panels), shrink=0.9), "visits")
    title = f"Which actions were tried where, in {records[-1].iteration:,} iterations"
    style.set_title(figure, title, f"{describe_run(run)} together")
    return figure


def count_pairs(records: Sequence[Record], num_states: int, num_actions: int) -> np.ndarray:
    """Count the visits of a finite MDP's pairs, [actions, states]."""
    counts = np.zeros((num_actions, num_states), int)
    for record in records:
        rows = record.rows
        np.add.at(counts, (rows.action[rows.valid], rows.state[rows.valid]), 1)
    return counts


def _draw_map(
    axes: Axes, view: View, places: np.ndarray, colours: np.ndarray, *, size: float, alpha: float = 1.0
) -> None:
    """Draw goal, walls and places, and set the range of the axes to the plane."""
    extent = (view.low[0], view.high[0], view.low[1], view.high[1])
    for name, mask in view.scenery(_GOAL_PIXELS).items():
        image = np.where(mask[..., None], np.array(to_rgba(_SCENERY[name])), 0.0)
        axes.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
    axes.scatter(*places.T, c=colours, s=size, linewidths=0, alpha=alpha)
    margin = 0.02 * (np.array(view.high) - np.array(view.low))
    (left, bottom), (right, top) = view.low - margin, view.high + margin
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.spines[:].set_color("#cccccc")
    if view.equal:
        axes.set_aspect("equal")


def _coverage_panels(maps: int, view: View) -> tuple[Figure, list[Axes], Axes]:
    """Lay out a large map, rows of small ones, and a panel for the shares."""
    rows = -(-(maps - 1) // _COLUMNS)
    heights = [4.4 if view.equal else 3.4, *[1.7 if view.equal else 1.2] * rows, 1.7]
    figure = style.new_figure(0.7 + sum(heights))
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    panels = [figure.add_subplot(grid[0, :])]
    for i in range(maps - 1):
        panels.append(figure.add_subplot(grid[1 + i // _COLUMNS, i % _COLUMNS]))
        panels[-1].set(xticks=[], yticks=[])
    return figure, panels, figure.add_subplot(grid[-1, :])


def _policy_colours(policies: np.ndarray) -> ScalarMappable:
    """Return colours from dark to light with n, in steps if these can be told apart, without the palest colours."""
    shades = colormaps["viridis"](np.linspace(0.0, 0.93, min(len(policies), 256)))
    first, last = policies.min(), policies.max()
    edges = np.arange(first, last + 2) - 0.5
    few = len(policies) <= _FEW_POLICIES and len(edges) == len(policies) + 1
    norm = BoundaryNorm(edges, len(policies)) if few else Normalize(first, last)
    return ScalarMappable(norm, ListedColormap(shades))


def _finish_large_map(axes: Axes, view: View) -> None:
    axes.set(xlabel=view.labels[0], ylabel=view.labels[1])
    axes.tick_params(labelsize=8)
    style.shrink_labels(axes)
    for axis, angle in zip((axes.xaxis, axes.yaxis), view.angles, strict=True):
        if angle:
            axis.set_ticks(list(_ANGLES), list(_ANGLES.values()))
    present = {"goal": view.goal, "wall": view.map}
    patches = [Patch(color=colour, label=name) for name, colour in _SCENERY.items() if present[name] is not None]
    if patches:
        axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)


def _draw_shares(axes: Axes, n: np.ndarray, together: np.ndarray, alone: np.ndarray) -> None:
    for shares, colour, dash, label in (
        (together, style.COLOURS[0], "-", "policies 1 to n together"),
        (alone, style.COLOURS[1], "--", "policy n alone"),
    ):
        axes.fill_between(n, shares.min(axis=1), shares.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        axes.plot(n, shares.mean(axis=1), dash, color=colour, linewidth=2, label=label)
    style.clean(axes)
    axes.set(xlabel="n (the iteration); mean and range over seeds", ylabel="cells entered", ylim=(0, None))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(style.integer_ticks())
    axes.legend(frameon=False, fontsize=8)


def _label_bar(bar: Colorbar, label: str) -> None:
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
