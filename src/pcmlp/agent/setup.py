"""What an agent is made of: the configuration and the problem for an environment or a task, and the device."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError
from pcmlp.imagine import unknown_functions
from pcmlp.parts import find_method
from pcmlp.replay import Transitions
from pcmlp.runs.config import RunConfig, build, configure, resolve, split_settings
from pcmlp.settings import flatten, show
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.registered import PREFIX, GymnasiumTask, registered_maker
from pcmlp.types import MDP, Policy, Problem, World

_ENDLESS = 10**9  # env steps in the configuration; the real number is given to `learn`
_DEVICES = ("cpu", "gpu", "cuda", "tpu")

Settings = Sequence[str] | Mapping[str, Any]  # ("bonus_scale=0.1", ...) as `--set` takes them, or a dict


class Host(NamedTuple):
    """How an environment is stepped (`GymnasiumWorld.of`)."""

    workers: int = 0
    timeout: float = 60.0
    max_faults: int = 100
    action_scale: float | None = None


class Wanted(NamedTuple):
    """The arguments of an agent that decide what it learns."""

    reward: Callable | None
    terminal: Callable | None
    algo: str
    horizon: int | None
    seed: int
    settings: Settings
    host: Host = Host()


class Made(NamedTuple):
    """The parts of an agent that has learned nothing."""

    config: RunConfig
    algorithm: Deep
    problem: Problem

    @property
    def world(self) -> World:
        """The world to explore."""
        return self.algorithm.explored_world(self.problem)

    def describe(self) -> str:
        """Return the method, the task and what is learned about it, in one line."""
        config, learned = self.config, unknown_functions(self.world.mdp)
        facts = [f"{config.algo} for {config.task_name}", f"horizon {config.task.horizon}", f"seed {config.seeds[0]}"]
        facts += [f"{' and '.join(learned)} learned"] if learned else []
        facts += ["no environment"] if isinstance(self.problem.world, Absent) else []
        return ", ".join(facts)

    @property
    def keys(self) -> Key[Array, " seeds"]:
        """The key of the one seed."""
        return jr.key(self.config.seeds[0])[None]


class Absent(World):
    """An environment that is not here, only its spaces: enough to predict, not to learn or to evaluate."""

    mdp: MDP
    name: str = eqx.field(static=True)

    def error(self) -> ConfigError:
        """Return the error of every use that needs the environment."""
        return ConfigError("the agent was loaded without its environment; give it to set_env, or to load")

    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Raise: there is nothing to step."""
        raise self.error()

    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Raise: there is nothing to step."""
        raise self.error()

    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Float[Array, "seeds n"]:
        """Raise: there is nothing to step."""
        raise self.error()


def set_up(env: Any, wanted: Wanted) -> Made:
    """Return the configuration, the algorithm and the problem for an environment, a function that makes one, "gym:ID",
    the name of a task, or an `Absent` environment. Raise one line for anything that does not fit together."""
    counts = {"horizon": wanted.horizon, "seed": wanted.seed, "workers": wanted.host.workers}
    for key, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise ConfigError(f"{key}={value!r}: give a whole number, such as {100 if key == 'horizon' else 0}")
    if isinstance(env, str) and env.startswith(PREFIX):
        env = registered_maker(env.removeprefix(PREFIX))
    _check_method(wanted.algo)
    if isinstance(env, str):
        config, problem = _of_task(env, wanted)
    elif isinstance(env, Absent):
        config, problem = _of_environment(env.name, env.mdp.horizon, wanted), Problem(env)
    else:
        workers, timeout, max_faults, action_scale = wanted.host
        world = GymnasiumWorld.of(
            env,
            reward=wanted.reward,
            terminal=wanted.terminal,
            horizon=wanted.horizon,
            workers=workers,
            timeout=timeout,
            max_faults=max_faults,
            action_scale=action_scale,
        )
        first = world.environments.first
        name = first.spec.id if first.spec is not None else type(first.unwrapped).__name__
        config, problem = _of_environment(name, world.mdp.horizon, wanted), Problem(world)
    algorithm = config.algorithm.bind(problem)
    assert isinstance(algorithm, Deep)
    return Made(config, algorithm, problem)


def _check_method(algo: str) -> None:
    """Raise unless an agent can use the method."""
    if not isinstance(find_method(algo).algorithm, Deep):
        agents = " or ".join(name for name, method in METHODS.items() if isinstance(method.algorithm, Deep))
        raise ConfigError(f"algo={algo}: an agent cannot use it; give {agents}, or run it with `pcmlp train`")


def _of_task(env: str, wanted: Wanted) -> tuple[RunConfig, Problem]:
    """Return the configuration and the problem of a task by name."""
    if wanted.reward is not None or wanted.terminal is not None:
        raise ConfigError(f"env={env}: this task has its own reward; leave reward and terminal out, or give an env")
    length = () if wanted.horizon is None else (f"task.horizon={wanted.horizon}",)
    config = resolve(env, wanted.algo, (wanted.seed,), _ENDLESS, (*_as_texts(wanted.settings), *length))
    problem = build(config)[0]
    if isinstance(problem.world, GymnasiumWorld) and wanted.host != Host():
        given = ", ".join(Host._fields)
        raise ConfigError(f"env={env}: give {given} as settings, such as task.workers=2")
    return config, problem


def _of_environment(name: str, horizon: int, wanted: Wanted) -> RunConfig:
    """Return the configuration for an environment that the user gave."""
    given = split_settings(_as_texts(wanted.settings))
    if task_keys := [key for key in given if key.startswith("task.")]:
        key = task_keys[0]
        raise ConfigError(f"{key}={given[key]}: not a setting of {name}; give it as an argument beside env")
    task = GymnasiumTask(id=name, horizon=horizon, action_scale=wanted.host.action_scale)
    return configure(task, f"{PREFIX}{name}", wanted.algo, (wanted.seed,), _ENDLESS, given)


def _as_texts(settings: Settings) -> list[str]:
    """Return settings as `--set` takes them."""
    if isinstance(settings, Mapping):
        return [f"{key}={show(value)}" for key, value in flatten(settings).items()]
    listed = isinstance(settings, Sequence) and not isinstance(settings, str)
    if not listed or not all(isinstance(item, str) for item in settings):
        example = "{'bonus_scale': 0.1, 'planner': {'updates': 20}} or ['bonus_scale=0.1']"
        raise ConfigError(f"settings={settings!r}: give a dict or a list of strings, such as {example}")
    return list(settings)


def find_device(name: str) -> Any:
    """Return JAX's device with this name; None for "auto", which is JAX's own choice."""
    kind, _, number = str(name).partition(":")
    if kind != "auto" and (kind not in _DEVICES or not (number or "0").isdigit()):
        raise ConfigError(f"device={name}: unknown; give auto, cpu, cuda or, for one of several, cuda:1")
    try:
        devices = jax.devices() if kind == "auto" else jax.devices(kind)
    except (RuntimeError, AssertionError) as error:  # JAX has no clear error for missing CUDA
        remedy = "give auto or cpu; a GPU needs pip install 'pcmlp[cuda]'"
        raise ConfigError(f"device={name}: JAX finds no such device here; {remedy}") from error
    if int(number or 0) >= len(devices):
        raise ConfigError(f"device={name}: there are {len(devices)} of this kind; give {kind}:{len(devices) - 1}")
    return None if kind == "auto" else devices[int(number or 0)]


def use_device(device: Any) -> contextlib.AbstractContextManager:
    """Return a context in which JAX computes on the device."""
    return contextlib.nullcontext() if device is None else jax.default_device(device)
