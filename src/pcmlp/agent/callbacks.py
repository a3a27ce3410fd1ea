"""Callbacks that a user gives to an agent (functions, objects with `on_step`, lists of these), and the agent's log."""

import contextlib
import inspect
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pcmlp.errors import ConfigError
from pcmlp.runs.callbacks import Callback


class StepCallback(contextlib.AbstractContextManager):
    """An object with `on_step`, such as a `BaseCallback` of stable-baselines3, as a callback of an agent.

    `init_callback(agent)` and `on_training_start(locals, globals)` are called before the first iteration, and
    `on_training_end()` after the last one. After every iteration, `on_rollout_start()`, `update_locals(locals)`,
    `on_step()` and `on_rollout_end()` are called; learning ends if `on_step` returns False. Only `on_step` is required.
    `locals` has `self` (the agent), `total_timesteps`, and the `metrics`, `rewards` and `dones` of the last iteration,
    the last two with an entry for each step. `globals` is empty.
    """

    def __init__(self, given: Any, agent: Any, total_timesteps: int):
        self._given = given
        self._locals = {"self": agent, "total_timesteps": total_timesteps, "metrics": {}, "rewards": [], "dones": []}

    def _tell(self, method: str, *arguments: Any) -> Any:
        return getattr(self._given, method)(*arguments) if hasattr(self._given, method) else None

    def __enter__(self) -> "StepCallback":
        self._tell("init_callback", self._locals["self"])
        self._tell("on_training_start", self._locals, {})
        return self

    def __call__(self, source: Any, metrics: dict[str, float]) -> bool:
        """Tell the object about an iteration; return whether to go on."""
        self._locals.update(metrics=metrics, rewards=source.last_steps.reward, dones=source.last_steps.last)
        self._tell("on_rollout_start")
        self._tell("update_locals", self._locals)
        goes_on = self._given.on_step() is not False
        self._tell("on_rollout_end")
        return goes_on

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._tell("on_training_end")


def as_callbacks(given: Any, agent: Any, total_timesteps: int) -> list[Callback]:
    """Return the callbacks that the user of an agent gave: a function, an object with `on_step`, or a list of these.
    Raise one line if one of them cannot be called."""
    if given is None:
        return []
    if isinstance(given, list | tuple):
        return [callback for each in given for callback in as_callbacks(each, agent, total_timesteps)]
    name = getattr(given, "__name__", None) or f"{type(given).__name__} object"
    if isinstance(given, type):
        raise ConfigError(f"callback={name}: is a class; give an object of it, such as {name}()")
    if hasattr(given, "on_step"):
        _check_call(f"callback={name}: on_step", given.on_step, "()")
        return [StepCallback(given, agent, total_timesteps)]
    _check_call(f"callback={name}", given, "(agent, metrics)", "an object with on_step(), or a list of these")
    return [given]


def _check_call(what: str, function: Any, arguments: str, others: str = "") -> None:
    """Raise unless a function can be called with these arguments."""
    remedy = f"; give a function of {arguments}" + (f", {others}" if others else "")
    if not callable(function):
        raise ConfigError(f"{what} is not a function{remedy}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*(part for part in arguments.strip("()").split(", ") if part))
    except TypeError as error:
        raise ConfigError(f"{what} cannot be called with {arguments}: {error}{remedy}") from error


class Logger:
    """The numbers of an agent for TensorBoard; callbacks of stable-baselines3 use it as `self.logger`."""

    def __init__(self, folder: Path | None):
        """Open a folder for TensorBoard; without one, numbers are dropped."""
        self.name_to_value: dict[str, Any] = {}
        self._writer: Any = None
        if folder is None:
            return
        try:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(folder))
        except ImportError as error:
            remedy = "pip install 'pcmlp[tensorboard]', or leave it out"
            raise ConfigError(f"tensorboard_log={folder.parent}: needs tensorboardX; {remedy}") from error
        except OSError as error:
            raise ConfigError(f"tensorboard_log={folder.parent}: {error.strerror}; give another folder") from error

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Note a number until `dump`."""
        self.name_to_value[key] = value

    def dump(self, step: int = 0) -> None:
        """Write the numbers that were noted. A full disk ends writing, not learning."""
        noted, self.name_to_value = self.name_to_value, {}
        try:
            for name, value in noted.items() if self._writer else ():
                if isinstance(value, int | float | np.number):
                    self._writer.add_scalar(name, value, step)
            if self._writer:
                self._writer.flush()
        except OSError as error:
            self._writer = None
            print(f"tensorboard_log: {error.strerror}, continuing without TensorBoard")

    def close(self) -> None:
        """Close the folder."""
        if self._writer:
            self._writer.close()
            self._writer = None
