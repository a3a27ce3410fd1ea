"""Checks of a user's reward and terminal functions and Gymnasium environments, before learning starts.

Each failure raises a `ConfigError` with one line that says what is wrong and what to do.
"""

import contextlib
import inspect
import io
import textwrap
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcmlp.errors import ConfigError, first_line
from pcmlp.spaces import Box, Space

Samples = tuple[Array, Array, Array]  # states, actions, next states, each with a leading axis

_EXAMPLES = 16  # number of random rows to try a function with
_TOO_NEW = 3, 12  # the first version of MuJoCo with which gymnasium-robotics fails
_TRIAL_STEPS = 32  # number of steps to compare two environments by
_SUPPORTED = "supported is a 1-D Box of floats"
_DETERMINISM = ("check_reset_seed_determinism", "check_step_determinism")
_FLATTEN = "wrap the environment in gymnasium.wrappers.FlattenObservation"


def check_reward(reward: Any, states: Space, actions: Space, samples: Samples | None = None) -> None:
    """Check that reward(state, action, next_state) is one finite float, at `samples` or else at random points."""
    samples = _examples(states, actions) if samples is None else samples
    _check_output("reward", reward, samples, jnp.floating, "one float", "return a scalar, with jnp.sum over an axis")
    values = np.asarray(jax.jit(jax.vmap(reward))(*samples))
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        state, action, after = (np.asarray(x[bad[0]]).tolist() for x in samples)
        raise ConfigError(
            f"reward={_name(reward)}: is {values[bad[0]]} at state {state}, action {action}, next state {after}; "
            "make it finite everywhere"
        )


def check_terminal(
    terminal: Any, states: Space, actions: Space, samples: Samples | None = None, kind: str = "terminal"
) -> None:
    """Check that terminal(state, action, next_state) is one bool; `kind` names the function in errors."""
    samples = _examples(states, actions) if samples is None else samples
    _check_output(kind, terminal, samples, jnp.bool, "one bool", "return a comparison, with jnp.any over an axis")


def _check_output(kind: str, function: Any, samples: Samples, dtype: Any, wanted: str, remedy: str) -> None:
    _check_signature(kind, function)
    try:
        out = jax.eval_shape(function, *(x[0] for x in samples))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ConfigError(
            f"{kind}={_name(function)}: JAX cannot trace it ({first_line(error)}); "
            "write it with jax.numpy, and jnp.where in place of if"
        ) from error
    except Exception as error:  # anything the user's code may raise
        raise ConfigError(
            f"{kind}={_name(function)}: fails with {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise ConfigError(f"{kind}={_name(function)}: returns a {type(out).__name__}, not {wanted}; {remedy}")
    if out.shape != () or not jnp.issubdtype(out.dtype, dtype):
        found = f"{out.dtype} of shape {out.shape}"
        raise ConfigError(f"{kind}={_name(function)}: returns {found}, not {wanted}; {remedy}")
    _check_coordinates(kind, function, samples)


class _Strict(np.ndarray):
    """A vector that raises for an index out of bounds, where JAX would return the last coordinate."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and self.ndim == 1:
            asked = [abs(end) for end in (index.start, index.stop) if end is not None]
            if max(asked, default=0) > self.shape[0]:
                raise IndexError(f"index {max(asked)} is out of bounds for axis 0 with size {self.shape[0]}")
        return super().__getitem__(index)


def _check_coordinates(kind: str, function: Any, samples: Samples) -> None:
    """Check that the function reads no coordinate out of bounds, by running it on NumPy arrays."""
    state, action, after = (np.array(x[0]).view(_Strict) for x in samples)
    try:
        function(state, action, after)
    except IndexError as error:
        has = f"a state has {state.size} coordinates and an action {action.size}, counted from 0"
        raise ConfigError(f"{kind}={_name(function)}: {first_line(error)}; {has}") from error
    except Exception:  # the function passed in JAX, and need not work with NumPy arrays
        return


def _check_signature(kind: str, function: Any) -> None:
    if not callable(function):
        raise ConfigError(f"{kind}={function!r}: give a function of (state, action, next_state)")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return
    try:
        signature.bind(None, None, None)
    except TypeError as error:
        raise ConfigError(
            f"{kind}={_name(function)}{signature}: is called with three arguments; "
            "let it take (state, action, next_state)"
        ) from error


def _examples(states: Space, actions: Space) -> Samples:
    rng = np.random.default_rng(0)
    return _sample(rng, states), _sample(rng, actions), _sample(rng, states)


def _sample(rng: np.random.Generator, space: Space) -> Array:
    if not isinstance(space, Box):
        return jnp.asarray(rng.integers(space.size, size=_EXAMPLES))
    low, high = np.asarray(space.low), np.asarray(space.high)
    low = np.where(np.isfinite(low), low, np.minimum(high, 1.0) - 2.0)  # without bounds: [-1, 1]
    high = np.where(np.isfinite(high), high, low + 2.0)
    return jnp.asarray(rng.uniform(low, high, (_EXAMPLES, space.size)), jnp.float32)


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _short(space: Any) -> str:
    """Describe a space on one line, cutting off the bounds of a large Box."""
    return textwrap.shorten(str(space), 100, placeholder=" ...")


def import_gymnasium() -> Any:
    """Import Gymnasium, an extra."""
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigError("gymnasium is not installed; run pip install 'pcmlp[gymnasium]'") from error
    return gymnasium


def import_mujoco() -> Any:
    """Import MuJoCo, an extra that includes Gymnasium for its models of robots."""
    try:
        import gymnasium  # noqa: F401
        import mujoco
    except ImportError as error:
        raise ConfigError("mujoco is not installed; run pip install 'pcmlp[mujoco]'") from error
    if tuple(int(part) for part in mujoco.__version__.split(".")[:2]) >= _TOO_NEW:
        raise ConfigError(
            f"mujoco {mujoco.__version__} is too new; run pip install 'mujoco<{_TOO_NEW[0]}.{_TOO_NEW[1]}'"
        )
    return mujoco


def import_robotics() -> Any:
    """Import Gymnasium-Robotics, an extra for hand-egg."""
    import_mujoco()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # suppresses announcements about its other environments
            import gymnasium_robotics
    except ImportError as error:
        raise ConfigError("gymnasium-robotics is not installed; run pip install 'pcmlp[robotics]'") from error
    return gymnasium_robotics


def check_environment(env: Any) -> list[str]:
    """Check that `env` is a Gymnasium environment that passes Gymnasium's own checks and has supported spaces. Return
    notes for the user, one line each."""
    gymnasium = import_gymnasium()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"environment {env!r}: not a gymnasium.Env but a {type(env).__name__}; "
            "give an environment or a function that makes one, such as lambda: gymnasium.make(ID)"
        )
    for kind in ("observation", "action"):  # Gymnasium's checks find spaces that are missing
        if isinstance(space := getattr(env, f"{kind}_space", None), gymnasium.Space):
            _check_space(env, space, kind)
    repeats = _repeats_itself(env)
    try:
        with warnings.catch_warnings():  # suppresses advice, for example about the scale of actions
            warnings.simplefilter("ignore")
            _check_by_gymnasium(env, repeats)
    except Exception as error:  # the checks and the environment may raise anything
        raise ConfigError(
            f"environment {env}: fails Gymnasium's {_failed_check(error)}: {first_line(error)}"
        ) from error
    low, high = env.action_space.low, env.action_space.high
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ConfigError(
            f"environment {env}: its actions range over {_short(env.action_space)}; give it finite bounds, "
            "the lower below the upper, by gymnasium.wrappers.RescaleAction or in its action_space"
        )
    if repeats:
        return []
    return [
        f"environment {env}: gives different observations after the same reset(seed), so runs are not reproducible; "
        "let it draw all its random numbers from self.np_random, after super().reset(seed=seed)"
    ]


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
        return same_steps(trial_steps(env), trial_steps(env))
    except Exception:  # Gymnasium's checks will find the error and explain it better
        return True


def trial_steps(env: Any) -> list[tuple[Any, ...]]:
    """Take some random actions, the same for every copy; return state, action, next state, terminated, truncated of
    each."""
    rng, space = np.random.default_rng(0), env.action_space
    state, _ = env.reset(seed=0)
    rows = []
    for _ in range(_TRIAL_STEPS):
        action = rng.uniform(space.low, space.high).astype(space.dtype)
        next_state, _, terminated, truncated, _ = env.step(action)
        rows.append((state, action, next_state, terminated, truncated))
        state = env.reset()[0] if terminated or truncated else next_state
    return rows


def same_steps(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Return whether two trials are equal."""
    pairs = ((x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True))
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def _failed_check(error: BaseException) -> str:
    """Return the name of the innermost of Gymnasium's check functions that the error came through."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next(
        (name for name in reversed(names) if name.startswith("check_") or name.endswith("_checker")), "check_env"
    )


def _check_space(env: Any, space: Any, kind: str) -> None:
    from gymnasium import spaces

    flat = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0
    if flat and np.issubdtype(space.dtype, np.floating):
        return
    shaped = isinstance(space, (spaces.Dict, spaces.Tuple)) or (isinstance(space, spaces.Box) and not flat)
    remedy = f"; {_FLATTEN}" if kind == "observation" and shaped else ""
    raise ConfigError(f"environment {env}: its {kind} space is {_short(space)}; {_SUPPORTED}{remedy}")


__all__ = [
    "Samples",
    "check_environment",
    "check_reward",
    "check_terminal",
    "import_gymnasium",
    "import_mujoco",
    "import_robotics",
    "same_steps",
    "trial_steps",
]
