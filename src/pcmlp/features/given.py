"""Feature maps without random draws: the task's own phi, and no features."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.types import MDP, Action, FeatureMap, Features, State


class TaskFeatures(FeatureMap):
    """The task's own phi, for which its theorem holds."""

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> Features:
        """Raise: Algorithm 1 takes phi from the problem (`PCMLP.bind`), and Algorithm 2 draws its own."""
        raise ConfigError("features.name=task: only Algorithm 1 uses a task's own phi; give random-network or fourier")


class ZeroFeatures(eqx.Module):
    """phi(s, a) = 0."""

    def __call__(self, state: State, action: Action) -> Float[Array, " 1"]:
        """Return phi of one pair."""
        return jnp.zeros(1)


class NoFeatures(FeatureMap):
    """No features, for algorithms without a bonus."""

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> ZeroFeatures:
        """Return the features that are 0 everywhere."""
        return ZeroFeatures()
