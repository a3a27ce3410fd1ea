"""The planes in which visited states are drawn, with goals and walls; and the data of the page's maps.

A known task has a plane of its own (angles from their cosines and sines), whose goal and walls are the task's; any
other vector is drawn by its first two coordinates. In a finite MDP the plane is states by actions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp.maps import Map
from pcmlp.report.reading import Run
from pcmlp.runs.episodes import Record
from pcmlp.tasks.classic import acrobot_goal, mountain_car_goal
from pcmlp.tasks.mujoco.ant_umaze import ant_umaze_map
from pcmlp.tasks.point_umaze import at_goal, maze_map

_MAP_SEEDS = 4  # most seeds of a map of the page
_MAP_POLICIES = 200
_MAP_POINTS = 30_000  # most points of a map, over all policies and seeds
_MAP_SIDE = 1_000  # places are whole numbers from 0 to this along both axes
_GOAL_CELLS = 60  # cells of the goal along each axis


def _first_two(states: np.ndarray) -> np.ndarray:
    return states[..., :2]


@dataclass(frozen=True)
class View:
    """A plane, and how to find the place of a state in it. States are [..., coordinates], places [..., 2]."""

    labels: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    project: Callable[[np.ndarray], np.ndarray] = _first_two
    goal: Callable[[jax.Array], jax.Array] | None = None  # whether a place is in the goal
    ground: Callable[[], Map] | None = None  # makes the map, which has walls and its own cells
    equal: bool = False  # whether both axes have the same scale
    cells: tuple[int, int] = (20, 20)  # along x and y, if there is no map
    finite: bool = False  # whether places are pairs of state and action

    @property
    def map(self) -> Map | None:
        """The map, made when it is needed: it takes JAX half a second."""
        return None if self.ground is None else self.ground()

    @property
    def num_cells(self) -> int:
        """The number of cells that can be entered."""
        return self.cells[0] * self.cells[1] if self.map is None else int(self.map.free.sum())

    @property
    def cells_name(self) -> str:
        """The name of all cells."""
        if self.map is not None:
            return f"the maze's {self.num_cells} cells"
        return "{} states × {} actions".format(*self.cells) if self.finite else "{} × {} cells".format(*self.cells)

    def entered(self, places: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Return which cells have a valid place in them, [rows, columns]."""
        if self.map is not None:
            return np.asarray(self.map.entered(jnp.asarray(places, jnp.float32), jnp.asarray(valid)))
        low, high, cells = np.array(self.low), np.array(self.high), np.array(self.cells)
        column, row = np.clip(cells * (places[valid] - low) / (high - low), 0, cells - 1).astype(int).T
        entered = np.zeros(self.cells[::-1], bool)
        entered[row, column] = True
        return entered

    def scenery(self, goal_cells: int) -> dict[str, np.ndarray]:
        """Return masks with rows from below: `wall`, in the map's cells, and `goal`, in `goal_cells` cells per side."""
        masks = {}
        if self.map is not None:
            masks["wall"] = ~np.asarray(self.map.free)
        if self.goal is not None:
            middle = (np.arange(goal_cells) + 0.5) / goal_cells
            x, y = (low + (high - low) * middle for low, high in zip(self.low, self.high, strict=True))
            grid = jnp.stack(jnp.meshgrid(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)), axis=-1)
            masks["goal"] = np.asarray(jax.vmap(jax.vmap(self.goal))(grid))
        return masks


def _angle(states: np.ndarray, cosine: int) -> np.ndarray:
    return np.arctan2(states[..., cosine + 1], states[..., cosine])


def _tip_goal(place: jax.Array) -> jax.Array:
    cos, sin = jnp.cos(place), jnp.sin(place)
    state = jnp.stack([cos[0], sin[0], cos[1], sin[1], jnp.zeros(()), jnp.zeros(())])
    return acrobot_goal(state, jnp.zeros(1), state)


VIEWS = {
    "mountain-car": View(
        ("position x", "velocity v (per step)"),
        (-1.2, -0.07),
        (0.6, 0.07),
        goal=lambda place: mountain_car_goal(place, jnp.zeros(1), place),
    ),
    "acrobot": View(
        ("angle of the first link (rad, 0 hangs)", "angle of the second to the first (rad)"),
        (-np.pi, -np.pi),
        (np.pi, np.pi),
        lambda states: np.stack([_angle(states, 0), _angle(states, 2)], axis=-1),
        goal=_tip_goal,
        equal=True,
    ),
    "pendulum": View(
        ("angle (rad, 0 is upright)", "angular velocity (rad/s)"),
        (-np.pi, -8.0),
        (np.pi, 8.0),
        lambda states: np.stack([_angle(states, 0), states[..., 2]], axis=-1),
    ),
    "point-umaze": View(
        ("x", "y"),
        (0.0, 0.0),
        (3.0, 3.0),
        goal=lambda place: at_goal(place, jnp.zeros(2), place),
        ground=cache(maze_map),
        equal=True,
    ),
    "ant-umaze": View(("x (m)", "y (m)"), (-4.0, -4.0), (20.0, 20.0), ground=cache(ant_umaze_map), equal=True),
    "hand-egg": View(
        ("x of the egg (m)", "y of the egg (m)"),
        (0.8, 0.75),
        (1.2, 1.05),
        lambda states: states[..., 61:63],
        equal=True,
    ),
}


def view_of(task: str, records: Sequence[Record]) -> View:
    """Return the task's own plane; for an unknown task, one that holds every state in the records."""
    if task in VIEWS:
        return VIEWS[task]
    if records[0].rows.state.ndim == 2:
        last_state = max(max(r.rows.state.max(), r.rows.next_state.max()) for r in records)
        cells = (1 + int(last_state), 1 + int(max(r.rows.action.max() for r in records)))
        return View(("state", "action"), (-0.5, -0.5), (cells[0] - 0.5, cells[1] - 0.5), cells=cells, finite=True)
    states = np.concatenate([r.rows.state[r.rows.valid] for r in records])
    low, high = states.min(axis=0)[:2].tolist(), states.max(axis=0)[:2].tolist()
    second = "state coordinate 1 (task units)"
    if len(low) == 1:
        second, low, high = "policy n", [*low, float(records[0].iteration)], [*high, float(records[-1].iteration)]
    wide = [max(top, bottom + 1e-6) for bottom, top in zip(low, high, strict=True)]
    return View(("state coordinate 0 (task units)", second), (low[0], low[1]), (wide[0], wide[1]))


@dataclass(frozen=True)
class Visits:
    """The places that one policy visited in every seed."""

    n: int  # the policy's iteration
    places: np.ndarray  # [seeds, rows, 2]
    valid: np.ndarray  # [seeds, rows]


def by_policy(records: Sequence[Record]) -> dict[int, Record]:
    """Return each policy's own record: the first of its iteration; a second record belongs to the whole cover."""
    return {record.iteration: record for record in reversed(records)}


def visits_by_policy(records: Sequence[Record], view: View) -> list[Visits]:
    """Return where each policy has been."""
    visits = []
    for n, record in sorted(by_policy(records).items()):
        rows = record.rows
        if view.finite:
            visits.append(Visits(n, np.stack([rows.state, rows.action], axis=-1), np.asarray(rows.valid)))
            continue
        ended = rows.valid & (rows.terminal | rows.last)  # no row begins in the state that an episode ends in
        states = np.concatenate([rows.state, rows.next_state], axis=1)
        if states.shape[-1] == 1:  # one coordinate: draw policies above each other
            states = np.concatenate([states, np.full_like(states, n)], axis=-1)
        visits.append(Visits(n, view.project(states), np.concatenate([rows.valid, ended], axis=1)))
    return visits


def entered_shares(visits: Sequence[Visits], view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of cells that policies 1 to n entered together, and policy n alone: both [policies, seeds]."""
    entered = np.stack([[view.entered(*seed) for seed in zip(v.places, v.valid, strict=True)] for v in visits])
    together = np.logical_or.accumulate(entered, axis=0)
    return together.sum(axis=(2, 3)) / view.num_cells, entered.sum(axis=(2, 3)) / view.num_cells


def map_data(run: Run) -> dict[str, Any] | None:
    """Return a map of where each policy has been, as JSON; None if no episodes were kept, as in committed results.

    Points are a random sample of each policy and seed; the shares are of all points.
    """
    records = run.records()
    if not records:
        return None
    view = view_of(run.task, records)
    visits = visits_by_policy(records, view)
    kept, seeds = spread(len(visits), _MAP_POLICIES), run.seeds[:_MAP_SEEDS]
    low, high = np.array(view.low), np.array(view.high)
    each = max(20, _MAP_POINTS // (len(kept) * len(seeds)))
    rng = np.random.default_rng(0)

    def sample(i: int, seed: int) -> list[int]:
        places = _MAP_SIDE * (visits[i].places[seed][visits[i].valid[seed]] - low) / (high - low)
        inside = ((places >= 0) & (places <= _MAP_SIDE)).all(axis=-1)
        points = np.unique(places[inside].round().astype(int), axis=0)
        return rng.permutation(points)[:each].ravel().tolist()

    together, alone = (shares[kept, : len(seeds)].T.round(4).tolist() for shares in entered_shares(visits, view))
    wide, tall = (high - low).tolist() if view.equal else (1.5, 1.0)
    columns, rows = view.cells
    finite = {"shape": float(np.clip(columns / rows, 1, 4)), "dot": max(7, min(40, 700 // max(columns, rows)))}
    return {
        "policies": [visits[i].n for i in kept],
        "seeds": seeds,
        "points": [[sample(i, seed) for i in kept] for seed in range(len(seeds))],
        "together": together,
        "alone": alone,
        "of": view.cells_name,
        "labels": view.labels,
        "low": view.low,
        "high": view.high,
        "shape": wide / tall,
        "dot": 7,
        **(finite | {"whole": True} if view.finite else {}),
        **{name: _row_runs(mask) for name, mask in view.scenery(_GOAL_CELLS).items()},
    }


def spread(count: int, most: int) -> list[int]:
    """Return up to `most` indices below `count`, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _row_runs(mask: np.ndarray) -> dict[str, Any]:
    """Return the cells of a mask as runs within rows: row from below, first column, length."""
    runs = []
    for row, cells in enumerate(mask.astype(int)):
        edges = np.diff(np.concatenate([[0], cells, [0]]))
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        runs += [[row, int(start), int(end - start)] for start, end in zip(starts, ends, strict=True)]
    return {"rows": mask.shape[0], "columns": mask.shape[1], "runs": runs}
