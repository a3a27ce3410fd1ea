"""The planes in which visited states are drawn, with goals and walls.

A known task has a plane of its own (angles from their cosines and sines), whose goal and walls are the task's; any
other vector is drawn by its first two coordinates. In a finite MDP the plane is states by actions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp.maps import Map
from pcmlp.tasks.classic import acrobot_goal, mountain_car_goal
from pcmlp.tasks.mujoco.ant_umaze import ant_umaze_map
from pcmlp.tasks.point_umaze import at_goal, maze_map


def first_two(states: np.ndarray) -> np.ndarray:
    """Return the first two coordinates."""
    return states[..., :2]


@jax.jit
def _squares(ground: Map, places: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return ground.squares(places)


@dataclass(frozen=True)
class View:
    """A plane, and how to find the place of a state in it. States are [..., coordinates], places [..., 2]."""

    labels: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    project: Callable[[np.ndarray], np.ndarray] = first_two
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

    def entered(self, places: np.ndarray) -> np.ndarray:
        """Return which cells have a place in them, [rows, columns]."""
        if self.map is not None:
            size = 1 << max(0, len(places) - 1).bit_length()  # few sizes: each is compiled
            padded = np.full((size, 2), np.nan, np.float32)  # NaN is outside of the map
            padded[: len(places)] = places
            row, column, inside = map(np.asarray, _squares(self.map, padded))
            entered = np.zeros(self.map.free.shape, bool)
            entered[row[inside], column[inside]] = True
            return entered & np.asarray(self.map.free)
        low, high, cells = np.array(self.low), np.array(self.high), np.array(self.cells)
        column, row = np.clip(cells * (places - low) / (high - low), 0, cells - 1).astype(int).T
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


def make_view(state_shape: tuple[int, ...], low: np.ndarray, high: np.ndarray) -> View:
    """Return a plane for an unknown task, from the range of its places, both [2]."""
    if not state_shape:
        cells = (1 + int(high[0]), 1 + int(high[1]))
        return View(("state", "action"), (-0.5, -0.5), (cells[0] - 0.5, cells[1] - 0.5), cells=cells, finite=True)
    second = "policy n" if state_shape == (1,) else "state coordinate 1 (task units)"
    (left, bottom), (right, top) = low.tolist(), np.maximum(high, low + 1e-6).tolist()
    return View(("state coordinate 0 (task units)", second), (left, bottom), (right, top))
