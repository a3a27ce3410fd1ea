"""What each policy of the cover has visited, on one map, where states are vectors.

A task that is known is drawn in its own plane (angles from their cosines and sines), with its goal and its walls, which
are asked of the task itself; any other in the first two coordinates of its state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from pcmlp.report import style
from pcmlp.report.reading import Run
from pcmlp.runs.episodes import Record
from pcmlp.tasks.classic import acrobot_goal, mountain_car_goal
from pcmlp.tasks.maps import Map
from pcmlp.tasks.mujoco.ant_umaze import ant_umaze_map
from pcmlp.tasks.point_umaze import at_goal, maze_map

_POINTS = 20_000  # more would hide each other
_CELLS = 20  # along each axis of a plane that has no cells of its own
_PIXELS = 300  # along each axis of a drawn goal
_COLUMNS = 3  # of small maps
_MAPS = 13  # at most: a large one and four rows of small ones
_GOAL, _WALL = "#cfe8d5", "#bbbbbb"
_FEW_POLICIES = 20  # more have no colour that could be told from its neighbours'
_ANGLES = {-np.pi: "−π", -np.pi / 2: "−π/2", 0: "0", np.pi / 2: "π/2", np.pi: "π"}


@dataclass(frozen=True)
class View:
    """A plane that states are drawn in. Arrays of states are [..., coordinates], of places [..., 2]."""

    labels: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    project: Callable[[np.ndarray], np.ndarray]
    angles: tuple[bool, bool] = (False, False)
    goal: Callable[[jax.Array], jax.Array] | None = None  # of one place
    map: Map | None = None  # with walls, and cells of its own
    equal: bool = False  # one unit is as long along both axes


def _first_two(states: np.ndarray) -> np.ndarray:
    return states[..., :2]


def _angle(states: np.ndarray, cosine: int) -> np.ndarray:
    return np.arctan2(states[..., cosine + 1], states[..., cosine])


def _car_goal(place: jax.Array) -> jax.Array:
    return mountain_car_goal(place, jnp.zeros(1), place)


def _tip_goal(place: jax.Array) -> jax.Array:
    cos, sin = jnp.cos(place), jnp.sin(place)
    state = jnp.stack([cos[0], sin[0], cos[1], sin[1], jnp.zeros(()), jnp.zeros(())])
    return acrobot_goal(state, jnp.zeros(1), state)


def _maze_goal(place: jax.Array) -> jax.Array:
    return at_goal(place, jnp.zeros(2), place)


VIEWS = {
    "mountain-car": View(
        ("position x", "velocity v (per step)"), (-1.2, -0.07), (0.6, 0.07), _first_two, goal=_car_goal
    ),
    "acrobot": View(
        ("angle of the first link (rad, 0 hangs)", "angle of the second to the first (rad)"),
        (-np.pi, -np.pi),
        (np.pi, np.pi),
        lambda states: np.stack([_angle(states, 0), _angle(states, 2)], axis=-1),
        angles=(True, True),
        goal=_tip_goal,
        equal=True,
    ),
    "pendulum": View(
        ("angle (rad, 0 is upright)", "angular velocity (rad/s)"),
        (-np.pi, -8.0),
        (np.pi, 8.0),
        lambda states: np.stack([_angle(states, 0), states[..., 2]], axis=-1),
        angles=(True, False),
    ),
    "point-umaze": View(("x", "y"), (0.0, 0.0), (3.0, 3.0), _first_two, goal=_maze_goal, map=maze_map(), equal=True),
    "ant-umaze": View(("x (m)", "y (m)"), (-4.0, -4.0), (20.0, 20.0), _first_two, map=ant_umaze_map(), equal=True),
    "hand-egg": View(
        ("x of the egg (m)", "y of the egg (m)"),
        (0.8, 0.75),
        (1.2, 1.05),
        lambda states: states[..., 61:63],
        equal=True,
    ),
}


@dataclass(frozen=True)
class Visits:
    """The places that one policy has been at, in every seed."""

    n: int
    places: np.ndarray  # [seeds, rows, 2]
    valid: np.ndarray  # [seeds, rows]


def plot_coverage(run: Run) -> Figure | None:
    """None in finite MDPs, where `plot_visits` shows more, and while nothing has been collected."""
    records = run.records()
    if not records or records[0].arrays["state"].ndim != 3:
        return None
    view = VIEWS.get(run.task) or plain_view(records)
    visits = visits_by_policy(records, view)
    together, alone = covered(visits, view)
    maps = min(len(run.seeds), _MAPS)
    picture, panels, below = _layout(maps, view)
    colours = _colours([v.n for v in visits])
    for seed, axes in enumerate(panels):
        _draw_map(axes, visits, view, seed, colours)
        if maps > 1:
            axes.set_title(f"seed {run.seeds[seed]}: {together[-1, seed]:.0%}", fontsize=8, loc="left", pad=3)
    _finish_large(panels[0], view)
    bar = picture.colorbar(colours, ax=panels[0], pad=0.02, ticks=style.whole_numbers())
    bar.set_label("visited by policy n of the cover", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.minorticks_off()
    _draw_shares(below, np.array([v.n for v in visits]), together, alone)
    seen = f"The first {len(visits)} policies entered" if len(visits) > 1 else "The first policy entered"
    style.title(picture, f"{seen} {together[-1].mean():.0%} of {cells(view)[1]}", run.made_by)
    return picture


def visits_by_policy(records: Sequence[Record], view: View) -> list[Visits]:
    """Of an iteration's records the first is what the new policy walked; a second one is of the whole cover."""
    first: dict[int, Record] = {}
    for record in records:
        first.setdefault(record.iteration, record)
    visits = []
    for n, record in first.items():
        rows = record.arrays
        ended = rows["valid"] & (rows["terminal"] | rows["last"])  # no row begins in the state an episode ends in
        states = np.concatenate([rows["state"], rows["next_state"]], axis=1)
        if states.shape[-1] == 1:  # a line: one above the other
            states = np.concatenate([states, np.full_like(states, n)], axis=-1)
        visits.append(Visits(n, view.project(states), np.concatenate([rows["valid"], ended], axis=1)))
    return visits


def covered(visits: Sequence[Visits], view: View) -> tuple[np.ndarray, np.ndarray]:
    """The share of cells that the first n policies entered together, and that each did alone: [policies, seeds]."""
    entered = np.stack([[_entered(view, *seed) for seed in zip(v.places, v.valid, strict=True)] for v in visits])
    total = cells(view)[0]
    together = np.logical_or.accumulate(entered, axis=0)
    return together.sum(axis=(2, 3)) / total, entered.sum(axis=(2, 3)) / total


def cells(view: View) -> tuple[int, str]:
    """How many there are, and what they are called."""
    if view.map is not None:
        count = int(view.map.free.sum())
        return count, f"the maze's {count} cells"
    return _CELLS**2, f"{_CELLS} × {_CELLS} cells"


def _entered(view: View, places: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Which cells, [rows, columns]."""
    if view.map is not None:
        return np.asarray(view.map.entered(jnp.asarray(places, jnp.float32), jnp.asarray(valid)))
    low, high = np.array(view.low), np.array(view.high)
    column, row = np.clip(_CELLS * (places[valid] - low) / (high - low), 0, _CELLS - 1).astype(int).T
    entered = np.zeros((_CELLS, _CELLS), bool)
    entered[row, column] = True
    return entered


def plain_view(records: Sequence[Record]) -> View:
    """Nothing is known of the task: the box around all it has shown."""
    states = np.concatenate([r.arrays["state"][r.arrays["valid"]] for r in records])
    low, high = states.min(axis=0)[:2].tolist(), states.max(axis=0)[:2].tolist()
    second = "state coordinate 1 (task units)"
    if len(low) == 1:
        second, low, high = "policy n", [*low, float(records[0].iteration)], [*high, float(records[-1].iteration)]
    wide = [max(top, bottom + 1e-6) for bottom, top in zip(low, high, strict=True)]
    return View(("state coordinate 0 (task units)", second), (low[0], low[1]), (wide[0], wide[1]), _first_two)


def _layout(maps: int, view: View) -> tuple[Figure, list[Axes], Axes]:
    """A large map, the others in rows of small ones, and a panel for the shares."""
    rows = -(-(maps - 1) // _COLUMNS)
    heights = [4.4 if view.equal else 3.4, *[1.7 if view.equal else 1.2] * rows, 1.7]
    picture = style.figure(0.7 + sum(heights))
    grid = picture.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    panels = [picture.add_subplot(grid[0, :])]
    for i in range(maps - 1):
        panels.append(picture.add_subplot(grid[1 + i // _COLUMNS, i % _COLUMNS]))
        panels[-1].set(xticks=[], yticks=[])
    return picture, panels, picture.add_subplot(grid[-1, :])


def _colours(policies: Sequence[int]) -> ScalarMappable:
    """From dark to light with n, and in steps while they can be told apart; the palest do not show on white."""
    shades = colormaps["viridis"](np.linspace(0.0, 0.93, min(len(policies), 256)))
    first, last = min(policies), max(policies)
    edges = np.arange(first, last + 2) - 0.5
    few = len(policies) <= _FEW_POLICIES and len(edges) == len(policies) + 1
    norm = BoundaryNorm(edges, len(policies)) if few else Normalize(first, last)
    return ScalarMappable(norm, ListedColormap(shades))


def _draw_map(axes: Axes, visits: Sequence[Visits], view: View, seed: int, colours: ScalarMappable) -> None:
    draw_scenery(axes, view)
    places = np.concatenate([v.places[seed][v.valid[seed]] for v in visits])
    n = np.concatenate([np.full(v.valid[seed].sum(), v.n) for v in visits])
    shown = np.random.default_rng(0).permutation(len(places))[:_POINTS]  # mixed, so that late ones do not cover early
    size = 7 if seed == 0 else 1.5
    axes.scatter(*places[shown].T, c=colours.to_rgba(n[shown]), s=size, linewidths=0, alpha=0.8)
    set_range(axes, view)


def set_range(axes: Axes, view: View) -> None:
    margin = 0.02 * (np.array(view.high) - np.array(view.low))
    (left, bottom), (right, top) = view.low - margin, view.high + margin
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.spines[:].set_color("#cccccc")
    if view.equal:
        axes.set_aspect("equal")


def draw_scenery(axes: Axes, view: View) -> None:
    """Goal and walls, as the task has them."""
    extent = (view.low[0], view.high[0], view.low[1], view.high[1])
    x, y = np.linspace(view.low, view.high, _PIXELS, dtype=np.float32).T
    grid = jnp.stack(jnp.meshgrid(jnp.asarray(x), jnp.asarray(y)), axis=-1)
    if view.map is not None:
        wall = ~np.asarray(view.map.free)
        axes.imshow(_painted(wall, _WALL), extent=extent, origin="lower", aspect="auto", interpolation="nearest")
    if view.goal is not None:
        goal = np.asarray(jax.vmap(jax.vmap(view.goal))(grid))
        axes.imshow(_painted(goal, _GOAL), extent=extent, origin="lower", aspect="auto", interpolation="nearest")


def _painted(mask: np.ndarray, colour: str) -> np.ndarray:
    """An image of the mask in one colour, clear elsewhere."""
    return np.where(mask[..., None], np.array(to_rgba(colour)), 0.0)


def _finish_large(axes: Axes, view: View) -> None:
    axes.set(xlabel=view.labels[0], ylabel=view.labels[1])
    axes.tick_params(labelsize=8)
    style.small_labels(axes)
    for axis, angle in zip((axes.xaxis, axes.yaxis), view.angles, strict=True):
        if angle:
            axis.set_ticks(list(_ANGLES), list(_ANGLES.values()))
    scenery = {"goal": _GOAL} if view.goal else {}
    scenery |= {"wall": _WALL} if view.map else {}
    patches = [Patch(color=colour, label=label) for label, colour in scenery.items()]
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
    axes.xaxis.set_major_locator(style.whole_numbers())
    axes.legend(frameon=False, fontsize=8)
