"""Checks of a Gymnasium environment before it is used. Each failure is a `ConfigError` of one line, whose remedy works.

The environment is tried out by resets and some steps in this process, and by Gymnasium's own checks.
"""

import operator
import textwrap
import traceback
import warnings
from typing import Any

import numpy as np

from pcmlp.boundary import Layout, UnsupportedSpace, WrongStructure, bounds_of
from pcmlp.errors import ConfigError, describe, first_line
from pcmlp.observed import REMEDIES, Fault, ObservationCheck
from pcmlp.tasks.action_spaces import DISCRETE, choices_of, middle_action, random_action
from pcmlp.tasks.checks import import_gymnasium
from pcmlp.workers import Copies, Order

_TRIAL_STEPS = 32  # number of steps by which two environments are compared
_DETERMINISM = ("check_reset_seed_determinism", "check_step_determinism")
_INSTEAD = "instead give (on the command line, as a function FILE.py:NAME that returns it)"
_VECTOR = "gymnasium.spaces.Box(-numpy.inf, numpy.inf, (N,))"


def check_environment(env: Any) -> list[str]:
    """Check that `env` is a Gymnasium environment with supported spaces, that it keeps to them, and that it passes
    Gymnasium's own checks. Return notes for the user, one line each."""
    gymnasium = import_gymnasium()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"environment {env!r}: not a gymnasium.Env but a {type(env).__name__}; "
            "give an environment or a function that makes one, such as lambda: gymnasium.make(ID)"
        )
    found = [getattr(env, f"{kind}_space", None) for kind in ("observation", "action")]
    if all(isinstance(space, gymnasium.Space) for space in found):  # Gymnasium's checks find spaces that are missing
        layout = find_layout(env)
        _check_actions(env, found[1])
        _check_first_step(env, layout)
        _check_structure(env, layout)
    repeats = _repeats_itself(env)
    try:
        with warnings.catch_warnings():  # suppresses advice, for example about the scale of actions
            warnings.simplefilter("ignore")
            _check_by_gymnasium(env, repeats)
    except Exception as error:  # the checks and the environment may raise anything
        what = first_line(error) if isinstance(error, AssertionError | gymnasium.error.Error) else describe(error)
        raise ConfigError(f"environment {env}: fails Gymnasium's {_failed_check(error)}: {what}") from error
    if repeats:
        return []
    return [
        f"environment {env}: gives different observations after the same reset(seed), so runs are not reproducible; "
        "let it draw all its random numbers from self.np_random, after super().reset(seed=seed)"
    ]


def check_horizon(env: Any, horizon: Any) -> int:
    """Return the steps of an episode: `horizon`, or else the environment's time limit."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    chosen = limit if horizon is None else horizon
    if chosen is None:
        raise ConfigError(
            f"horizon=None: environment {env} has no time limit of its own (max_episode_steps); "
            "give the steps of an episode, such as horizon=200"
        )
    try:
        chosen = operator.index(chosen)
    except TypeError as error:
        raise ConfigError(f"horizon={horizon!r}: give a whole number, such as horizon=200") from error
    if chosen < 1:
        raise ConfigError(f"horizon={chosen}: an episode has at least 1 step; give 1 or more")
    if limit is not None and chosen > limit:
        raise ConfigError(
            f"horizon={chosen}: environment {env} stops after {limit} steps; give {limit} or less, "
            f"or make it with max_episode_steps={chosen}"
        )
    return chosen


def _is_vector(space: Any) -> bool:
    gymnasium = import_gymnasium()
    flat = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0
    return flat and np.issubdtype(space.dtype, np.floating)


def find_layout(env: Any) -> Layout:
    """Return the layout that makes the environment's observations into vectors; raise if there is none."""
    try:
        return Layout.of(env.observation_space)
    except UnsupportedSpace as error:
        remedy = f"gymnasium.wrappers.TransformObservation(env, FUNCTION, {_VECTOR})"
        raise ConfigError(
            f"environment {env}: its observation space is not supported: {error}; {_INSTEAD} {remedy} with a FUNCTION "
            "that extracts N floats, such as positions"
        ) from error


def _check_actions(env: Any, space: Any) -> None:
    if choices_of(space) is not None:
        return
    if not _is_vector(space):
        supported = f"a 1-D Box of floats, {DISCRETE}"
        wrap = "gymnasium.wrappers.TransformAction(env, FUNCTION, gymnasium.spaces.Box(-1, 1, (N,)))"
        raise ConfigError(
            f"environment {env}: its action space is {_short(space)}; supported are {supported}; {_INSTEAD} {wrap} "
            "with a FUNCTION from N floats to such an action"
        )
    if np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all():
        return
    ends = [end for end in (*space.low, *space.high) if np.isfinite(end)]
    if len(ends) < 2 * space.low.size and (space.low < space.high).all():
        scale = f"{max(1.0, *(2.0 * abs(end) for end in ends)):g}" if ends else "1"
        raise ConfigError(
            f"environment {env}: its actions range over {_short(space)}, which lacks bounds; give "
            f"action_scale, such as action_scale={scale} (task.action_scale={scale} on the command line), "
            "so that actions without a bound lie between -action_scale and action_scale"
        )
    low, high = np.where(np.isfinite(space.low), space.low, -1), np.where(np.isfinite(space.high), space.high, 1)
    high = np.where(low < high, high, low + 2)
    alike = (low == low[0]).all() and (high == high[0]).all() and low[0] < high[0]
    bounds = f"{low[0]:g}, {high[0]:g}, ({low.size},)" if alike else "LOW, HIGH"
    raise ConfigError(
        f"environment {env}: its actions range over {_short(space)}; give it finite bounds, the lower below the "
        f"upper: in its action_space, or {_INSTEAD} "
        f"gymnasium.wrappers.TransformAction(env, lambda a: a, gymnasium.spaces.Box({bounds}))"
    )


def _check_first_step(env: Any, layout: Layout) -> None:
    """Check what reset and a first step return; Gymnasium's checks explain an error that they raise."""
    space, copies = env.observation_space, Copies(lambda: env, layout, env, keep=True)
    check = ObservationCheck(*bounds_of(space), layout.names)
    orders: tuple[tuple[Order, Any], ...] = (("reset", 0), ("step", middle_action(env.action_space)))
    for order, argument in orders:
        observed = check(order, copies.ask(order, [0], [argument]))
        fault = Fault(observed.fault[0])
        if fault == Fault.RAISED:
            return
        if fault != Fault.NONE:
            when = " in the first step of an episode" if order == "step" else ""
            raise ConfigError(f"environment {env}: {observed.messages[0]}{when}; {REMEDIES[fault]}")
        if not np.isfinite(observed.reward[0]):
            raise ConfigError(f"environment {env}: step gave the reward {observed.reward[0]}; return a finite number")
    first = env.reset(seed=0)[0]
    if isinstance(first, np.ndarray) and not np.can_cast(first.dtype, space.dtype):
        raise ConfigError(
            f"environment {env}: reset gave an observation of {first.dtype}, but its observation_space is of "
            f"{space.dtype}; return observation.astype(numpy.{space.dtype}), or make the Box with "
            f"dtype=numpy.{first.dtype}"
        )


def _check_structure(env: Any, layout: Layout) -> None:
    """Check that all observations of some steps have the structure, the shapes and the types of the space."""
    try:
        rows = trial_steps(env)
    except Exception:  # Gymnasium's checks will find the error and explain it better
        return
    for number, (_, _, observation, *_) in enumerate(rows, 1):
        try:
            layout.read(observation)
        except (WrongStructure, TypeError) as error:
            what = f"step {number} of a trial gave {error}"
            raise ConfigError(f"environment {env}: {what}; {REMEDIES[Fault.SHAPE]}") from error


def _short(space: Any) -> str:
    """Describe a space on one line, cutting off the bounds of a large Box."""
    return textwrap.shorten(str(space), 100, placeholder=" ...")


def _check_by_gymnasium(env: Any, repeats: bool) -> None:
    """Run Gymnasium's checks; leave out those of determinism if the environment is not reproducible."""
    from gymnasium.utils import env_checker, passive_env_checker

    try:
        env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:
        if repeats or _failed_check(error) not in _DETERMINISM:
            raise
        env_checker.check_reset_options(env)
        passive_env_checker.env_reset_passive_checker(env)
        passive_env_checker.env_step_passive_checker(env, env.action_space.sample())


def _repeats_itself(env: Any) -> bool:
    """Return whether the same seed and actions lead to the same observations."""
    try:
        return same_steps(env, env)
    except Exception:  # Gymnasium's checks will find the error and explain it better
        return True


def trial_steps(env: Any) -> list[tuple[Any, ...]]:
    """Take some random actions, the same for every copy; return state, action, next state, terminated, truncated of
    each."""
    rng, space = np.random.default_rng(0), env.action_space
    state, _ = env.reset(seed=0)
    rows = []
    for _ in range(_TRIAL_STEPS):
        action = random_action(rng, space)
        next_state, _, terminated, truncated, _ = env.step(action)
        rows.append((state, action, next_state, terminated, truncated))
        state = env.reset()[0] if terminated or truncated else next_state
    return rows


def same_steps(ours: Any, theirs: Any) -> bool:
    """Return whether the same actions lead to the same steps in two environments, or in two trials of one."""
    layout = find_layout(ours)
    trials = [
        [(layout.read(state), action, layout.read(after), *ends) for state, action, after, *ends in trial_steps(env)]
        for env in (ours, theirs)
    ]
    pairs = ((x, y) for a, b in zip(*trials, strict=True) for x, y in zip(a, b, strict=True))
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def _failed_check(error: BaseException) -> str:
    """Return the name of the innermost of Gymnasium's check functions that the error came through."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next(
        (name for name in reversed(names) if name.startswith("check_") or name.endswith("_checker")), "check_env"
    )
