"""Feature maps without random draws: one coordinate for each (s, a), a table, the task's own phi, and no features.

With one-hot phi the covariance is diagonal and its entries are visit frequencies, so the elliptical bonus is the
count-based one (paper: section 4, after Eq. 2).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.spaces import Finite
from pcmlp.types import MDP, Action, FeatureMap, Features, State


class OneHotFeatures(eqx.Module):
    """phi(s, a) with a 1 at the pair's own coordinate."""

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of states and actions."""
        return self.num_states, self.num_actions

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, " d"]:
        return jax.nn.one_hot(state * self.num_actions + action, self.num_states * self.num_actions)


class TableFeatures(eqx.Module):
    """phi(s, a) read from a table: the features of a linear MDP."""

    phi: Float[Array, "S A d"]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of states and actions."""
        return self.phi.shape[0], self.phi.shape[1]

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, " d"]:
        return self.phi[state, action]


class OneHot(FeatureMap):
    """One coordinate for each pair of a finite MDP."""

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> OneHotFeatures:
        """Return the features of the MDP's states and actions."""
        if not (isinstance(mdp.states, Finite) and isinstance(mdp.actions, Finite)):
            raise ConfigError("features.name=one-hot: needs finitely many states and actions; give fourier")
        return OneHotFeatures(mdp.states.size, mdp.actions.size)


class TaskFeatures(FeatureMap):
    """The task's own phi, for which its theorem holds."""

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> Features:
        """Raise: Algorithm 1 takes phi from the problem (`PCMLP.bind`), and Algorithm 2 draws its own."""
        raise ConfigError("features.name=task: only Algorithm 1 uses a task's own phi; give random-network or fourier")


class ZeroFeatures(eqx.Module):
    """phi(s, a) = 0."""

    def __call__(self, state: State, action: Action) -> Float[Array, " 1"]:
        return jnp.zeros(1)


class NoFeatures(FeatureMap):
    """No features, for algorithms without a bonus."""

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> ZeroFeatures:
        """Return the features that are 0 everywhere."""
        return ZeroFeatures()
