"""`dmc:DOMAIN-TASK`: the tasks of the DeepMind Control Suite (Tassa et al. 2018), as environments of Gymnasium.

    observation: a dict of vectors,    reward in [0, 1],    H = time limit / time of a control step, mostly 1,000

A task ends an episode early by a discount of 0; most tasks never do. Nothing is rendered, so no display is needed:
MUJOCO_GL is `disabled` while the suite is imported, unless the user has set it.
"""

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from pcmlp.errors import ConfigError, nearest
from pcmlp.tasks.checks import import_gymnasium, import_mujoco, needs

PREFIX = "dmc:"
_GL = "MUJOCO_GL"
_MODEL_SEED = 0  # some tasks draw a part of their model, which must be the same in all copies


@cache
def import_suite() -> Any:
    """Return the suite, which needs the extra `dmc`."""
    import_mujoco()
    with needs("dm-control", "dmc"), _without_display(), warnings.catch_warnings(action="ignore"):
        from dm_control import suite

        return suite


def check_name(name: str, key: str = "task") -> tuple[str, str]:
    """Return the domain and the task of `dmc:DOMAIN-TASK`, or raise with the nearest name."""
    known = {f"{domain}-{task}": (domain, task) for domain, task in import_suite().ALL_TASKS}
    bare = name.removeprefix(PREFIX)
    if bare not in known:
        domain = bare.partition("-")[0]
        own = [each for each in known if each.startswith(f"{domain}-")]
        found = f"{domain} has {', '.join(own)}" if own else f"the nearest is {PREFIX}{nearest(bare, known)}"
        raise ConfigError(f"{key}={name}: not a task of the DeepMind Control Suite; {found}")
    return known[bare]


@cache
def ends_early(name: str) -> bool:
    """Return whether the task may end an episode before its time limit."""
    from dm_control.rl import control

    return type(_load(name).task).get_termination is not control.Task.get_termination


@cache
def time_limit(name: str) -> int | None:
    """Return the control steps of an episode; None for a task without a limit."""
    steps = _load(name)._step_limit
    return int(steps) if math.isfinite(steps) else None


def make(name: str) -> Any:
    """Return the task as an environment. This function can be sent to worker processes."""
    return _define_environment()(name)


def _load(name: str) -> Any:
    domain, task = check_name(name)
    with warnings.catch_warnings(action="ignore"):
        return import_suite().load(domain, task, task_kwargs={"random": _MODEL_SEED})


@contextlib.contextmanager
def _without_display() -> Iterator[None]:
    """Let the suite be imported without a display, and restore MUJOCO_GL afterwards."""
    chosen = os.environ.get(_GL)
    os.environ.setdefault(_GL, "disabled")
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[_GL]


@cache
def _define_environment() -> type:
    """Return the environment class; its definition needs Gymnasium."""
    gymnasium = import_gymnasium()
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.spaces import Box, Dict

    class ControlSuite(gymnasium.Env):
        """A task of the suite."""

        def __init__(self, name: str):
            self.name, self.suite = name, _load(name)
            id, steps = f"dmc/{name.removeprefix(PREFIX)}-v0", time_limit(name)
            self.spec = EnvSpec(id, f"{__name__}:make", max_episode_steps=steps, kwargs={"name": name})
            shapes = {part: spec.shape for part, spec in self.suite.observation_spec().items()}
            self.observation_space = Dict(
                {part: Box(-np.inf, np.inf, each, np.float64) for part, each in shapes.items()}
            )
            actions = self.suite.action_spec()
            low, high = (np.broadcast_to(bound, actions.shape) for bound in (actions.minimum, actions.maximum))
            self.action_space = Box(low.astype(np.float64), high.astype(np.float64), dtype=np.float64)

        def __str__(self) -> str:
            return self.name

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
            """Begin an episode."""
            super().reset(seed=seed)
            if seed is not None:
                self.suite.task.random.seed(seed)
            return self._read(self.suite.reset()), {}

        def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
            """Take one control step."""
            after = self.suite.step(action)
            ended = bool(after.last() and after.discount == 0.0)
            return self._read(after), float(after.reward or 0.0), ended, bool(after.last()) and not ended, {}

        def _read(self, step: Any) -> dict[str, np.ndarray]:
            return {part: np.array(values, np.float64) for part, values in step.observation.items()}

    return ControlSuite
