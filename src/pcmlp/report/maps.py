"""Where a run has been, from its episode log: counts of state-action pairs, or places coloured by when."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from pcmlp.report import style
from pcmlp.runs.episodes import Record, read
from pcmlp.runs.folder import read_config

_STAGES = ("early", "middle", "late")
_POINTS = 20_000  # more would hide each other
_MANY_CELLS = 60  # beyond this, ticks at every state or action are a blur


def visit_map(run: Path) -> Path | None:
    """`visit_map.png` in the run folder; None while nothing has been collected."""
    records = list(read(run / "episodes"))
    if not records:
        return None
    config = read_config(run)
    picture = _pairs(records) if records[0].arrays["state"].ndim == 2 else _places(records)
    made_by = f"{config['task']['name']}, {config['algo']}, all {len(records[0].seeds)} seeds together"
    seen = "Which actions were tried where" if records[0].arrays["state"].ndim == 2 else "Where the policies have been"
    style.title(picture, f"{seen}, in {records[-1].iteration:,} iterations", made_by)
    return style.save(picture, run / "visit_map.png")


def count_pairs(records: Sequence[Record], num_states: int, num_actions: int) -> np.ndarray:
    """Visits [actions, states] in a finite MDP."""
    counts = np.zeros((num_actions, num_states), int)
    for record in records:
        valid = record.arrays["valid"]
        np.add.at(counts, (record.arrays["action"][valid], record.arrays["state"][valid]), 1)
    return counts


def _pairs(records: Sequence[Record]) -> Figure:
    """A strip of states by actions for each stage of the run, on one logarithmic scale."""
    num_states = 1 + int(max(max(r.arrays["state"].max(), r.arrays["next_state"].max()) for r in records))
    num_actions = 1 + int(max(r.arrays["action"].max() for r in records))
    stages = [stage for stage in np.array_split(np.arange(len(records)), len(_STAGES)) if len(stage)]
    maps = [count_pairs([records[i] for i in stage], num_states, num_actions) for stage in stages]
    picture = style.figure(7.5, 1.3 + len(maps) * max(1.3, min(0.18 * num_actions + 0.7, 2.5)))
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
    panels[-1].set_xlabel("state (grey: not visited in these iterations)")
    if num_states <= _MANY_CELLS:
        panels[-1].set_xticks(range(0, num_states, max(1, num_states // 12)))
    assert image is not None
    picture.colorbar(image, ax=list(panels), label="visits", shrink=0.9)
    return picture


def _places(records: Sequence[Record]) -> Figure:
    """The first two coordinates of every visited state; one coordinate is drawn against the iteration."""
    points, when = [], []
    for record in records:
        visited = record.arrays["state"][record.arrays["valid"]]
        points.append(visited)
        when.append(np.full(len(visited), record.iteration))
    place, iteration = np.concatenate(points), np.concatenate(when)
    shown = np.random.default_rng(0).permutation(len(place))[:_POINTS]  # mixed, so that late ones do not cover early
    place, iteration = place[shown], iteration[shown]
    picture = style.figure(7.0, 5.6)
    axes = picture.subplots()
    flat = place.shape[1] < 2
    x, y = (iteration, place[:, 0]) if flat else (place[:, 0], place[:, 1])
    dots = axes.scatter(x, y, c=iteration, s=7, cmap="viridis", linewidths=0, alpha=0.7)
    axes.set_xlabel("iteration" if flat else "state coordinate 0 (task units)")
    axes.set_ylabel(f"state coordinate {0 if flat else 1} (task units)")
    style.clean(axes)
    picture.colorbar(dots, ax=axes, label="iteration")
    return picture
