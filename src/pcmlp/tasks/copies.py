"""Copies of one Gymnasium environment, made as they are needed and stepped together."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jax.numpy as jnp
import numpy as np

from pcmlp.tasks.checks import Samples, check_environment, first_line, import_gymnasium
from pcmlp.types import ConfigError

_MOST = 128  # copies at a time: a simulator of a robot takes some megabytes
_TRIAL = 32  # steps of trying an environment out


class Environments:
    """A lane is a copy. Compared by identity, so that it can be a static part of a compiled program's input."""

    def __init__(self, first: Any, make: Callable[[], Any] | str):
        """`make` gives another one, or says why there is none."""
        self.first = first
        self.limit = 1 if isinstance(make, str) else _MOST
        self._make = make
        self._copies = [first]

    @staticmethod
    def of(make: Any, seeds: int) -> "Environments":
        """Of a function that makes one, or of one, where it has a spec that makes others like it; checked."""
        gymnasium = import_gymnasium()
        if isinstance(make, gymnasium.Env) or not callable(make):
            check_environment(make)
            environments = Environments(make, _copier(make))
        else:
            try:
                first = make()
            except gymnasium.error.Error as error:
                raise ConfigError(f"environment: cannot be made: {first_line(error)}") from error
            check_environment(first)
            environments = Environments(first, make)
        environments.ready(seeds)
        return environments

    def ready(self, count: int) -> None:
        """At least `count` copies."""
        if count > 1 and isinstance(self._make, str):
            raise ConfigError(
                f"environment {self.first}: {count} seeds need as many copies of it, and {self._make}; "
                "give a function that makes it, such as lambda: gymnasium.make(ID)"
            )
        while len(self._copies) < count:
            assert callable(self._make)
            copy = self._make()
            if any(copy is other for other in self._copies):
                raise ConfigError(f"environment {copy}: made twice by its function; let it make a new one at each call")
            self._copies.append(copy)

    def reset(self, lanes: np.ndarray, seeds: np.ndarray | None = None) -> np.ndarray:
        """The first observations of those `lanes`, [seeds, width, ...]; zero elsewhere. Without a seed, the
        environment's own random numbers go on."""
        self.ready(lanes.size)
        states = np.zeros((lanes.size, *self.first.observation_space.shape), np.float32)
        for lane in np.flatnonzero(lanes):
            seed = None if seeds is None else int(seeds.flat[lane])
            states[lane], _ = self._copies[lane].reset(seed=seed)
        return states.reshape(*lanes.shape, -1)

    def step(self, actions: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Next observations, terminated, truncated of those `lanes`; zero elsewhere."""
        space = self.first.action_space
        # In the space's own precision: a bound rounded to 32 bits may lie outside of it.
        actions = np.clip(actions.astype(space.dtype), space.low, space.high).reshape(lanes.size, -1)
        states = np.zeros((lanes.size, *self.first.observation_space.shape), np.float32)
        terminated, truncated = np.zeros((2, lanes.size), bool)
        for lane in np.flatnonzero(lanes):
            states[lane], _, terminated[lane], truncated[lane], _ = self._copies[lane].step(actions[lane])
        return states.reshape(*lanes.shape, -1), terminated.reshape(lanes.shape), truncated.reshape(lanes.shape)

    def sample(self) -> Samples:
        """Real transitions by random actions."""
        rows = [row[:3] for row in _trial(self.first)]
        state, action, next_state = (jnp.asarray(np.stack(x), jnp.float32) for x in zip(*rows, strict=True))
        return state, action, next_state

    def starts(self, count: int) -> np.ndarray:
        """Observations at resets, which are no steps."""
        return np.stack([self.first.reset(seed=seed)[0] for seed in range(count)]).astype(np.float32)


def _copier(env: Any) -> Callable[[], Any] | str:
    """What makes others like `env`, or why nothing does."""
    gymnasium = import_gymnasium()
    if env.spec is None:
        return "it is not registered with Gymnasium"
    spec = deepcopy(env.spec)
    spec.kwargs.pop("render_mode", None)  # one window is enough
    try:
        copy = gymnasium.make(spec)
    except Exception as error:  # of a wrapper or of the environment
        return f"its spec makes none ({first_line(error)})"
    if not spec.nondeterministic and not _alike(_trial(env), _trial(copy)):
        return "what its spec makes moves differently"  # it was changed after it was made
    return lambda: gymnasium.make(spec)


def _trial(env: Any) -> list[tuple[Any, ...]]:
    """A few steps by random actions, the same for every copy: state, action, next state, terminated, truncated."""
    rng, space = np.random.default_rng(0), env.action_space
    state, _ = env.reset(seed=0)
    rows = []
    for _ in range(_TRIAL):
        action = rng.uniform(space.low, space.high).astype(space.dtype)
        next_state, _, terminated, truncated, _ = env.step(action)
        rows.append((state, action, next_state, terminated, truncated))
        state = env.reset()[0] if terminated or truncated else next_state
    return rows


def _alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    return all(np.array_equal(x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True))
