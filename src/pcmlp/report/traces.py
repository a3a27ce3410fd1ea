"""Trace maps: the ways that some policies of the cover went, each on a map of its own, and all of these on one.

(paper: figure 1, bottom right, the traces of policies 10, 20, 30, 40 and 50.) A policy goes one way, its first steps
light and its last ones dark; it is their union that covers.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from pcmlp.report import style
from pcmlp.report.coverage import VIEWS, View, covered, draw_scenery, set_range, visits_by_policy
from pcmlp.report.reading import Run
from pcmlp.runs.episodes import Record

_POLICIES = 5  # that have a map of their own, as in the paper's figure
_COLUMNS = 3


def plot_traces(run: Run) -> Figure | None:
    """Of the first seed; None where the task has no plane of its own or no policy has acted."""
    records, view = run.records(), VIEWS.get(run.task)
    if view is None or not records:
        return None
    first = {record.iteration: record for record in reversed(records)}  # of an iteration the first is the new policy's
    every = sorted(first)
    chosen = [every[i] for i in np.unique(np.linspace(0, len(every) - 1, _POLICIES + 1).round().astype(int))[1:]]
    chosen = chosen or every
    rows = -(-(len(chosen) + 1) // _COLUMNS)
    picture = style.figure(1.8 * rows + 0.7)
    panels = picture.subplots(rows, _COLUMNS, squeeze=False).ravel()
    traces = [trace(first[n], view) for n in chosen]
    shades = _shades(max(int(age.max(initial=1)) for _, age in traces))
    for axes, n, one in zip(panels, chosen, traces, strict=False):
        _draw(axes, view, [one], shades, f"policy {n}")
    _draw(panels[len(chosen)], view, [trace(first[n], view) for n in every], shades, f"all {len(every)} of them")
    for axes in panels[len(chosen) + 1 :]:
        axes.remove()
    bar = picture.colorbar(
        shades, ax=list(panels[: len(chosen) + 1]), shrink=0.8, aspect=30, pad=0.02, ticks=style.whole_numbers()
    )
    bar.set_label("step of the episode", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    together, alone = covered(visits_by_policy(records, view), view)
    seen = f"A policy enters up to {alone[:, 0].max():.0%} of the cells, all {len(every)} enter {together[-1, 0]:.0%}"
    style.title(picture, seen, f"{run.task}, {run.algo}, seed {run.seeds[0]}")
    return picture


def trace(record: Record, view: View) -> tuple[np.ndarray, np.ndarray]:
    """The places of the first seed's steps, [n, 2], and how old its episode was at each."""
    rows = {name: record.arrays[name][0] for name in ("state", "terminal", "last", "valid")}
    ended = rows["valid"] & (rows["terminal"] | rows["last"])
    row = np.arange(len(ended))
    begun = np.maximum.accumulate(np.where(np.concatenate([[True], ended[:-1]]), row, 0))
    return view.project(rows["state"])[rows["valid"]], (row - begun)[rows["valid"]]


def _shades(steps: int) -> ScalarMappable:
    """The palest would not show on white."""
    return ScalarMappable(Normalize(0, steps), ListedColormap(colormaps["Blues"](np.linspace(0.25, 1.0, 256))))


def _draw(
    axes: Axes, view: View, traces: Sequence[tuple[np.ndarray, np.ndarray]], shades: ScalarMappable, title: str
) -> None:
    draw_scenery(axes, view)
    places, age = (np.concatenate(parts) for parts in zip(*traces, strict=True))
    order = np.argsort(age, kind="stable")  # late steps are fewer where episodes end early, and would be hidden
    axes.scatter(*places[order].T, c=shades.to_rgba(age[order]), s=4, linewidths=0)
    set_range(axes, view)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9, loc="left", pad=3)
