"""Checks of a user's reward and terminal functions before learning starts, and imports of optional packages.

Each failure raises a `ConfigError` with one line that says what is wrong and what to do.
"""

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcmlp.choices import Choices
from pcmlp.errors import ConfigError, describe, first_line
from pcmlp.spaces import Box, Space

Samples = tuple[Array, Array, Array]  # states, actions, next states, each with a leading axis

_EXAMPLES = 16  # number of random rows to try a function with
_EVERYWHERE = 4096  # number of random states at which a reward is tried, if states have bounds
_WIDEST = 1e15  # a larger bound counts as no bound: samples with larger numbers are dropped
_TOO_NEW = 3, 12  # the first version of MuJoCo with which gymnasium-robotics fails


def check_reward(reward: Any, states: Space, actions: Space, samples: Samples | None = None) -> None:
    """Check that reward(state, action, next_state) is one finite float: at `samples` or else at random points, and
    everywhere in a space of states that has bounds. The unit of rewards is taken there (`algorithms.weight`)."""
    samples = _examples(states, actions) if samples is None else samples
    _check_output("reward", reward, samples, jnp.floating, "one float", "return a scalar, with jnp.sum over an axis")
    _check_finite(reward, samples, "everywhere")
    if isinstance(states, Box) and max(map(abs, (*states.lower, *states.upper))) <= _WIDEST:
        rng = np.random.default_rng(0)
        drawn, taken = _sample(rng, states, _EVERYWHERE), _sample(rng, actions, _EVERYWHERE)
        _check_finite(reward, (drawn, taken, drawn), "everywhere in the observation space, such as with jnp.where")


def _check_finite(reward: Any, samples: Samples, where: str) -> None:
    values = np.asarray(jax.jit(jax.vmap(reward))(*samples))
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        state, action, after = (np.asarray(x[bad[0]]).tolist() for x in samples)
        raise ConfigError(
            f"reward={_name(reward)}: is {values[bad[0]]} at state {state}, action {action}, next state {after}; "
            f"make it finite {where}"
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
        raise ConfigError(f"{kind}={_name(function)}: fails with {describe(error)}") from error
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


def _sample(rng: np.random.Generator, space: Space, count: int = _EXAMPLES) -> Array:
    if isinstance(space, Choices):
        return jnp.asarray(space.to_vectors(space.to_integers(rng.uniform(size=(count, space.size)))))
    if not isinstance(space, Box):
        return jnp.asarray(rng.integers(space.size, size=count))
    low, high = np.asarray(space.low), np.asarray(space.high)
    low = np.where(np.isfinite(low), low, np.minimum(high, 1.0) - 2.0)  # without bounds: [-1, 1]
    high = np.where(np.isfinite(high), high, low + 2.0)
    return jnp.asarray(rng.uniform(low, high, (count, space.size)), jnp.float32)


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)


@contextlib.contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Say how to install an optional package if it cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{package} is not installed; run pip install 'pcmlp[{extra}]'") from error


def import_gymnasium() -> Any:
    """Import Gymnasium, an extra."""
    with needs("gymnasium", "gymnasium"):
        import gymnasium

        return gymnasium


def import_mujoco() -> Any:
    """Import MuJoCo, an extra that includes Gymnasium for its models of robots."""
    with needs("mujoco", "mujoco"):
        import gymnasium  # noqa: F401
        import mujoco
    if tuple(int(part) for part in mujoco.__version__.split(".")[:2]) >= _TOO_NEW:
        raise ConfigError(
            f"mujoco {mujoco.__version__} is too new; run pip install 'mujoco<{_TOO_NEW[0]}.{_TOO_NEW[1]}'"
        )
    return mujoco


def import_robotics() -> Any:
    """Import Gymnasium-Robotics, an extra for hand-egg."""
    import_mujoco()
    # Suppress announcements about its other environments.
    with needs("gymnasium-robotics", "robotics"), contextlib.redirect_stderr(io.StringIO()):
        import gymnasium_robotics

        return gymnasium_robotics
