"""Goal-conditioned environments, such as those of Gymnasium-Robotics: their goals, rewards and ends.

Such an environment observes `achieved_goal`, `desired_goal` and more, and has functions of the two goals:

    r = compute_reward(achieved_goal', desired_goal', info),    end = compute_terminated(achieved_goal', ...)

Each is used in the model if JAX can trace it (`traced.py`) and its values agree with NumPy and with real steps;
otherwise it is learned. A sparse reward is seldom seen, so a known function saves many real steps. Because the goals
are coordinates of the state, hindsight is possible (`relabel`, in `algorithms/starts.py`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcmlp.boundary import Layout, Part
from pcmlp.errors import first_line
from pcmlp.tasks.checks import Samples
from pcmlp.tasks.traced import Traced, call_traced
from pcmlp.types import Action, State, never

_TRIED = 256  # number of random pairs of goals
_NEAREST, _FARTHEST = 1e-3, 10.0  # distances of these pairs, so that some lie on each side of a threshold


class GoalFunction(eqx.Module):
    """A function of the environment that takes the two goals of the next state."""

    compute: Callable = eqx.field(static=True)
    achieved: Part = eqx.field(static=True)
    desired: Part = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __call__(self, state: State, action: Action, next_state: State) -> Array:
        """Return the reward of a step, or whether it ends the episode."""
        goals = (next_state[part.start : part.stop].reshape(part.shape) for part in (self.achieved, self.desired))
        return jnp.asarray(call_traced(self.compute, *goals, after=({},)), self.dtype).reshape(())


class Brought(NamedTuple):
    """The environment's own functions that a planner can use; None for one that has to be learned."""

    reward: Callable | None = None
    terminal: Callable | None = None
    notes: tuple[str, ...] = ()


def declared_goals(layout: Layout, samples: Samples) -> tuple[tuple[int, int], ...]:
    """Return pairs of coordinates: one of the desired goal, and the achieved one that should reach it
    (`Coordinates.goals`). Return no pairs without goals, or if the desired goal changes during an episode."""
    if (parts := _goals(layout)) is None:
        return ()
    achieved, desired = parts
    before, _, after = (np.asarray(rows) for rows in samples)
    if not np.array_equal(before[:, desired.start : desired.stop], after[:, desired.start : desired.stop]):
        return ()
    return tuple(zip(range(desired.start, desired.stop), range(achieved.start, achieved.stop), strict=True))


def brought_functions(env: Any, layout: Layout, samples: Samples, rewards: np.ndarray, ends: np.ndarray) -> Brought:
    """Return the environment's own functions of its goals that can be used, and a line for the user about each."""
    if (parts := _goals(layout)) is None or not callable(getattr(env.unwrapped, "compute_reward", None)):
        return Brought()
    found: dict[str, Callable | None] = {}
    notes = []
    for kind, name, dtype, seen in (
        ("reward", "compute_reward", jnp.float32, rewards),
        ("terminal", "compute_terminated", jnp.bool_, ends),
    ):
        compute = getattr(env.unwrapped, name, None)
        if compute is None:
            continue
        function = GoalFunction(compute, *parts, dtype)
        why = _objection(function, samples, seen)
        notes.append(f"{kind}: the environment's own {name}" + (f" is not used, because {why}" if why else ""))
        found[kind] = None if why else _simplest(function, samples)
    return Brought(**found, notes=tuple(notes))


def _goals(layout: Layout) -> tuple[Part, Part] | None:
    achieved, desired = layout.part("achieved_goal"), layout.part("desired_goal")
    if achieved is None or desired is None or achieved.shape != desired.shape or achieved.categories:
        return None
    return achieved, desired


def _objection(function: GoalFunction, samples: Samples, seen: np.ndarray) -> str | None:
    """Return why the function cannot be used in a model; None if it can."""
    try:
        ours = np.asarray(jax.jit(jax.vmap(function))(*samples))
        tried = _pairs(function, np.asarray(samples[2]))
        state, action = samples[0][0], samples[1][0]  # which the function ignores
        found = np.asarray(jax.jit(jax.vmap(function, (None, None, 0)))(state, action, jnp.asarray(tried)))
    except Exception as error:  # the environment's code may raise anything
        return f"JAX cannot trace it ({first_line(error)})"
    expected = np.array([_in_numpy(function, row) for row in tried])
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        return "JAX and NumPy compute different values with it"
    if not np.allclose(ours, seen, rtol=1e-3, atol=1e-4):
        return "real steps give other values"
    return None


def _pairs(function: GoalFunction, states: np.ndarray) -> np.ndarray:
    """Return states whose desired goals lie at different distances from the achieved ones."""
    rng = np.random.default_rng(0)
    rows = states[rng.integers(len(states), size=_TRIED)].copy()
    achieved, desired = function.achieved, function.desired
    direction = rng.normal(size=(_TRIED, achieved.stop - achieved.start))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    distance = np.geomspace(_NEAREST, _FARTHEST, _TRIED)[:, None]
    rows[:, desired.start : desired.stop] = rows[:, achieved.start : achieved.stop] + distance * direction
    return rows.astype(np.float32)


def _in_numpy(function: GoalFunction, state: np.ndarray) -> float:
    """Return the environment's value for the goals of a state, computed by NumPy."""
    parts = function.achieved, function.desired
    goals = [state[part.start : part.stop].reshape(part.shape).astype(np.float64) for part in parts]
    return float(function.compute(*goals, {}))


def _simplest(function: GoalFunction, samples: Samples) -> Callable:
    """Return `never` in place of a function that is False for all goals, because programs leave `never` out."""
    state = samples[2][0]
    goals = (Traced(state[part.start : part.stop]) for part in (function.achieved, function.desired))
    return never if function.compute(*goals, {}) is False else function
