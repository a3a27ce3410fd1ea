"""Tasks with Gymnasium's interface: `gym:ID`, `dmc:DOMAIN-TASK`, FILE.py:NAME, and the classic tasks on Gymnasium.

`gym:ID` is any environment that is registered with Gymnasium, or that gymnasium-robotics or minigrid registers when it
is imported. FILE.py:NAME is a class of the user, or a function that makes an environment. Reward and termination may be
given as functions in a file, `task.reward=FILE.py:NAME`. Otherwise the environment's own functions of its goals are
used (`goals.py`), or both are learned from samples. The horizon is the time limit.
"""

import contextlib
import dataclasses
import difflib
import importlib.util
import inspect
import io
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx

from pcmlp.errors import ConfigError, first_line
from pcmlp.settings import setting
from pcmlp.spaces import NOTHING_DECLARED, Coordinates
from pcmlp.tasks import dmc
from pcmlp.tasks.checks import import_gymnasium, needs
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Problem, Task, never
from pcmlp.usercode import call_object, is_place, load_function, load_object

PREFIX = "gym:"
_REGISTERING = ("gymnasium_robotics", "minigrid")  # packages that register environments when imported
_BOX2D = "gymnasium.envs.box2d"  # environments such as LunarLander, which import Box2D and, for pictures, pygame


class SteppedTask(Task):
    """A task that a simulator on the host steps."""

    horizon: int = setting(1000, "steps of an episode", least=1, tiny=20)
    workers: int = setting(0, "processes that step the environment; 0: this one", least=0)
    timeout: float = setting(60.0, "seconds that a step may take in a worker process", above=0)
    max_faults: int = setting(100, "faults of the environment that a run survives", least=0)

    def host_world(
        self,
        make: Callable[[], Any],
        reward: Callable | None,
        terminal: Callable | None,
        transition: Callable | None = None,
        coordinates: Coordinates = NOTHING_DECLARED,
        action_scale: float | None = None,
    ) -> GymnasiumWorld:
        """Return the world made of the environments that `make` creates."""
        return GymnasiumWorld.of(
            make,
            reward=reward,
            terminal=terminal,
            transition=transition,
            horizon=self.horizon,
            workers=self.workers,
            timeout=self.timeout,
            max_faults=self.max_faults,
            action_scale=action_scale,
            coordinates=coordinates,
        )


class GymnasiumTask(SteppedTask):
    """Any environment with Gymnasium's interface, by name or from a file."""

    kind: ClassVar[str] = "gym"
    id: str = eqx.field(default="", static=True)  # Gymnasium's ID, dmc:DOMAIN-TASK or FILE.py:NAME
    reward: str | None = setting(None, "FILE.py:NAME of a function of (state, action, next_state); none: learned")
    terminal: str | None = setting(None, "FILE.py:NAME of a function of (state, action, next_state); none: learned")
    action_scale: float | None = setting(None, "largest size of an action that has no bound", above=0)

    @property
    def learns_outcome(self) -> bool:
        """Whether reward or end have to be learned, because no function was given."""
        return self.reward is None or self.terminal is None

    @property
    def name(self) -> str:
        """The name by which the user chooses the task."""
        return self.id if is_place(self.id) or self.id.startswith(dmc.PREFIX) else f"{PREFIX}{self.id}"

    @property
    def time_limit(self) -> int | None:
        """The steps after which the environment ends an episode, if it was registered with a time limit."""
        if self.id.startswith(dmc.PREFIX):
            return dmc.time_limit(self.id)
        return None if is_place(self.id) else find_registered(self.id)

    def build(self) -> Problem:
        """Return the environment's world, after trying it out."""
        reward, terminal = load_function("task.reward", self.reward), load_function("task.terminal", self.terminal)
        if self.id.startswith(dmc.PREFIX):
            make = partial(dmc.make, self.id)
            terminal = terminal or (None if dmc.ends_early(self.id) else never)
        elif is_place(self.id):
            make = partial(call_object, "task", self.id)
        else:
            make = registered_maker(self.id)
        return Problem(self.host_world(make, reward, terminal, action_scale=self.action_scale))


def find_environment(name: str, key: str = "task") -> GymnasiumTask | None:
    """Return the task of gym:ID, of dmc:DOMAIN-TASK, or of FILE.py:NAME if that makes an environment; None for other
    names. `key` is the argument that errors name."""
    if name.startswith(dmc.PREFIX):
        dmc.check_name(name, key)
        return GymnasiumTask(id=name, horizon=dmc.time_limit(name) or GymnasiumTask().horizon)
    if name.startswith(PREFIX):
        made = name.removeprefix(PREFIX)
        return GymnasiumTask(id=made, horizon=find_registered(made) or GymnasiumTask().horizon)
    found = load_object(key, name) if is_place(name) else None
    if inspect.isclass(found) and not issubclass(found, Task):
        gymnasium = sys.modules.get("gymnasium")  # a file with an environment has imported it
        made = gymnasium is not None and issubclass(found, gymnasium.Env)
    else:
        made = inspect.isfunction(found)
    return GymnasiumTask(id=name.removeprefix("py:")) if made else None


def find_registered(name: str) -> int | None:
    """Return the time limit of a registered environment, or raise if it is not registered."""
    gymnasium = import_gymnasium()
    _register_others(name)
    if ":" in name:  # Gymnasium would import the part before the colon
        raise ConfigError(
            f"task={PREFIX}{name}: names a module to import; give the environment's class as FILE.py:CLASS, "
            "or let your package register it with Gymnasium as a plugin"
        )
    try:
        return gymnasium.spec(name).max_episode_steps
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.5)
        found = f"the nearest are {', '.join(near)}" if near else "gymnasium.pprint_registry() lists all"
        why = first_line(error)
        raise ConfigError(f"task={PREFIX}{name}: not registered with Gymnasium ({why}); {found}") from error


def registered_maker(name: str) -> Callable[[], Any]:
    """Return a function that makes a registered environment; it also works in a worker process."""
    gymnasium = import_gymnasium()
    find_registered(name)
    point = gymnasium.spec(name).entry_point
    package = point.partition(".")[0] if isinstance(point, str) else ""
    if isinstance(point, str) and point.startswith(_BOX2D):
        # The import of Box2D warns, and crashes Python if warnings are errors.
        with needs("Box2D or pygame", "box2d"), warnings.catch_warnings(action="ignore"):
            import Box2D  # noqa: F401
            import pygame  # noqa: F401
    return partial(gymnasium.make, f"{package}:{name}" if package in _REGISTERING else name)


def _register_others(name: str) -> None:
    """Import the packages that register environments when they are imported, if Gymnasium does not know the name."""
    gymnasium = import_gymnasium()
    for package in _REGISTERING:
        if name not in gymnasium.registry and package not in sys.modules and importlib.util.find_spec(package):
            # Suppress announcements about other environments.
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
                importlib.import_module(package)


def on_gymnasium(task: str, problem: Problem) -> Problem:
    """Return the problem with Gymnasium's simulator in place of the JAX world."""
    known = problem.world.mdp
    world = GymnasiumWorld.of(_simulator(task), reward=known.reward, terminal=known.terminal, horizon=known.horizon)
    # All three tasks have Gymnasium's starts, so starts need not be sampled.
    world = eqx.tree_at(lambda w: w.mdp.initial, world, known.initial)
    return dataclasses.replace(problem, world=world)


def _simulator(task: str) -> Callable[[], Any]:
    """Return the bare class, without a time limit: the task sets the horizon."""
    import_gymnasium()
    from gymnasium import spaces
    from gymnasium.envs import classic_control

    class MountainCarWithoutEnd(classic_control.Continuous_MountainCarEnv):
        """Gymnasium's mountain car without its own end: the task decides when an episode ends."""

        def step(self, action):
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, False, truncated, info

    class ContinuousAcrobot(classic_control.AcrobotEnv):
        """Gymnasium's acrobot with any torque between its two extremes."""

        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-1.0, 1.0, (1,))

        def step(self, action):
            self.AVAIL_TORQUE = [float(action[0])]
            observation, reward, _, truncated, info = super().step(0)
            # The task decides the end from the observation: Gymnasium's own test, in 64 bits, may round differently.
            return observation, reward, False, truncated, info

    return {
        "MountainCar": MountainCarWithoutEnd,
        "Acrobot": ContinuousAcrobot,
        "Pendulum": classic_control.PendulumEnv,
    }[task]
