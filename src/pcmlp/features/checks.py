"""A check, before anything is compiled, of the assumption about phi: |phi(s, a)| <= 1 over the task's states.

paper: it holds everywhere / here: it holds on the task's box, which Gaussian noise can leave by a little.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from pcmlp.errors import ConfigError
from pcmlp.features.given import OneHotFeatures, TableFeatures
from pcmlp.replay import Transitions
from pcmlp.settings import SettingError
from pcmlp.spaces import Finite, Space
from pcmlp.types import MDP, FeatureMap, Features

_CORNERS = 12  # boxes of more dimensions have too many corners to list


def check_draw(feature_map: FeatureMap, mdp: MDP) -> None:
    """Raise unless the features can be drawn for the MDP; the check compiles nothing."""

    def draw() -> Features:
        return feature_map.draw(jr.key(0), mdp, Transitions.example(mdp.states, mdp.actions))

    try:
        eqx.filter_eval_shape(draw)
    except SettingError as error:
        raise error.under("features.") from None


def feature_dim(features: Features, mdp: MDP) -> int:
    """Return d, or raise if the features do not fit the MDP's states and actions."""
    key, states, actions = jr.key(0), mdp.states, mdp.actions
    sizes = f"states of size {states.size} and actions of size {actions.size}"
    # Check table sizes here, because JAX reads past the end of a table without an error.
    if isinstance(features, OneHotFeatures | TableFeatures) and features.sizes != (states.size, actions.size):
        raise ConfigError(
            f"features do not take {sizes}: they are a table of {features.sizes[0]} x {features.sizes[1]}"
        )
    try:
        shape = jax.eval_shape(lambda: features(states.sample(key), actions.sample(key))).shape
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(f"features do not take {sizes}: {str(error).splitlines()[0]}") from error
    if len(shape) != 1:
        raise ConfigError(f"features have shape {shape} at one state and action: give a vector")
    return shape[0]


def largest_norm(features: Features, states: Space, actions: Space) -> Float[Array, ""]:
    """Return the largest norm over every pair of a finite MDP, or over random points and corners of boxes."""
    if isinstance(states, Finite) and isinstance(actions, Finite):
        pairs = [jnp.array(x) for x in zip(*itertools.product(range(states.size), range(actions.size)), strict=True)]
    else:
        if isinstance(states, Finite) or isinstance(actions, Finite):
            raise ConfigError("states and actions must both be finite or both be vectors: phi is checked over pairs")
        low = np.concatenate([np.asarray(states.low), np.asarray(actions.low)])
        high = np.concatenate([np.asarray(states.high), np.asarray(actions.high)])
        if not np.isfinite([low, high]).all():
            raise ConfigError("a state or action has no bound: phi can be scaled only over bounded spaces; give bounds")
        inside = np.random.default_rng(0).uniform(low, high, (2000, low.size))
        ends = list(itertools.product(*zip(low, high, strict=True))) if low.size <= _CORNERS else [low, high]
        corners = np.array(ends)
        points = jnp.asarray(np.concatenate([inside, corners]), jnp.float32)
        pairs = [points[:, : states.size], points[:, states.size :]]
    return jnp.max(jnp.linalg.norm(jax.vmap(features)(*pairs), axis=1))


def check_norm(features: Features, mdp: MDP) -> None:
    """Raise if |phi| exceeds 1 at a state of the task."""
    feature_dim(features, mdp)
    norm = float(largest_norm(features, mdp.states, mdp.actions))
    if not norm <= 1 + 1e-4:
        raise ConfigError(
            f"features have norm {norm:.4g} at a state of the task, the bonus needs at most 1: "
            f"divide them by one constant (multiply features.scale by {1 / norm:.3g})"
        )
