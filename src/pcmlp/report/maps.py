"""Which actions a run has tried where, in a finite MDP: counts of state-action pairs from its episode log."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from pcmlp.report import style
from pcmlp.report.reading import Run
from pcmlp.runs.episodes import Record

_STAGES = ("early", "middle", "late")
_MANY_CELLS = 60  # beyond this, ticks at every state or action are a blur


def plot_visits(run: Run) -> Figure | None:
    """States by actions for each stage of the run; None where states are vectors or nothing has been collected."""
    records = run.records()
    if not records or records[0].arrays["state"].ndim != 2:
        return None
    picture = _strips(records)
    seen = f"Which actions were tried where, in {records[-1].iteration:,} iterations"
    style.title(picture, seen, f"{run.made_by} together")
    return picture


def count_pairs(records: Sequence[Record], num_states: int, num_actions: int) -> np.ndarray:
    """Visits [actions, states] in a finite MDP."""
    counts = np.zeros((num_actions, num_states), int)
    for record in records:
        valid = record.arrays["valid"]
        np.add.at(counts, (record.arrays["action"][valid], record.arrays["state"][valid]), 1)
    return counts


def _strips(records: Sequence[Record]) -> Figure:
    """A strip of states by actions for each stage, on one logarithmic scale."""
    num_states = 1 + int(max(max(r.arrays["state"].max(), r.arrays["next_state"].max()) for r in records))
    num_actions = 1 + int(max(r.arrays["action"].max() for r in records))
    stages = [stage for stage in np.array_split(np.arange(len(records)), len(_STAGES)) if len(stage)]
    maps = [count_pairs([records[i] for i in stage], num_states, num_actions) for stage in stages]
    picture = style.figure(1.3 + len(maps) * max(1.3, min(0.18 * num_actions + 0.7, 2.5)))
    panels = picture.subplots(len(maps), 1, sharex=True, squeeze=False)[:, 0]
    scale = LogNorm(1, max(2, max(int(counts.max()) for counts in maps)))
    image = None
    for axes, counts, stage, name in zip(panels, maps, stages, _STAGES, strict=False):
        image = axes.imshow(
            np.ma.masked_equal(counts, 0), norm=scale, cmap="viridis", aspect="auto", interpolation="nearest"
        )
        axes.set_facecolor("#f0f0f0")
        first, last = records[stage[0]].iteration, records[stage[-1]].iteration
        tried = np.count_nonzero(counts)
        axes.set_title(f"{name}: iterations {first} to {last}, {tried} of {counts.size} pairs", fontsize=9, loc="left")
        axes.set_ylabel("action")
        if num_actions <= 10:
            axes.set_yticks(range(num_actions))
        axes.tick_params(labelsize=8)
        axes.spines[:].set_visible(False)
        style.small_labels(axes)
    panels[-1].set_xlabel("state (grey: not visited in these iterations)")
    if num_states <= _MANY_CELLS:
        panels[-1].set_xticks(range(0, num_states, max(1, num_states // 12)))
    assert image is not None
    bar = picture.colorbar(image, ax=list(panels), shrink=0.9)
    bar.set_label("visits", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return picture
