"""The first environment, made from an environment, a function or a vector environment of the user.

pcmlp itself steps copies of an environment, in this process or in `workers`, because it repeats an episode with a fault
and gives each lane its own random numbers. So it takes from a vector environment only the function that makes one copy.
`action_scale` gives bounds to actions without bounds.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pcmlp.errors import ConfigError, describe, first_line
from pcmlp.tasks.checks import import_gymnasium

_ADDED = ("num_envs", "vectorization_mode", "vector_kwargs")  # arguments that make_vec adds to those of one environment


def make_first(given: Any) -> tuple[Any, Callable[[], Any] | None]:
    """Return the first environment and the function that makes such environments; None in place of the function if the
    user gave the environment itself."""
    gymnasium = import_gymnasium()
    make = _single(given) if isinstance(given, gymnasium.vector.VectorEnv) else given
    if isinstance(make, gymnasium.Env) or not callable(make):
        return make, None
    first = _make(make)
    if isinstance(first, gymnasium.vector.VectorEnv):
        make = _single(first)
        first.close()
        first = _make(make)
    return first, make


def _make(make: Callable[[], Any]) -> Any:
    gymnasium = import_gymnasium()
    try:
        with warnings.catch_warnings(action="ignore"):  # for example, that there is a newer version
            return make()
    except Exception as error:  # anything the environment may raise
        known = isinstance(error, gymnasium.error.Error | ConfigError)
        raise ConfigError(f"environment: cannot be made: {first_line(error) if known else describe(error)}") from error


def _single(env: Any) -> Callable[[], Any]:
    """Return the function that makes one copy of a vector environment."""
    gymnasium = import_gymnasium()
    plain = not isinstance(env, gymnasium.vector.VectorWrapper)
    if plain and (functions := getattr(env, "env_fns", None)):
        return next(iter(functions))
    if plain and env.spec is not None:
        kwargs = {name: value for name, value in env.spec.kwargs.items() if name not in _ADDED}
        return partial(gymnasium.make, env.spec.id, **kwargs)
    raise ConfigError(
        f"environment {env}: a vector environment that does not say how one of its copies is made; give the function "
        "that makes one, such as lambda: gymnasium.make(ID), with all wrappers inside, and workers=4 to be fast"
    )


def check_scale(env: Any, scale: Any) -> None:
    """Raise unless `action_scale` is a positive number for an environment whose actions lack a bound."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < np.inf:
        raise ConfigError(f"action_scale={scale!r}: give a number above 0, such as 1.0")
    space: Any = getattr(env, "action_space", None)
    if not isinstance(space, import_gymnasium().spaces.Box):
        return  # discrete actions have no bounds; others are refused later
    if np.isfinite(space.low).all() and np.isfinite(space.high).all():
        raise ConfigError(f"environment {env}: its actions have bounds; leave out action_scale={scale}")
    if beyond := [end for end in (*space.low.ravel(), *-space.high.ravel()) if np.isfinite(end) and end >= scale]:
        raise ConfigError(
            f"environment {env}: an action has a bound at {max(beyond):g}; give more than action_scale={scale}"
        )
