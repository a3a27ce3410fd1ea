"""Linear MDPs (paper: section 3): P(s' | s, a) = <mu(s'), phi(s, a)> with mu in a finite class Upsilon.

The fit is exact maximum likelihood over Upsilon, which the theorem for linear MDPs assumes (paper: section 5).
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from pcmlp.errors import ConfigError
from pcmlp.features.one_hot import TableFeatures
from pcmlp.models.tabular import count, mean_loss
from pcmlp.replay import Replay
from pcmlp.types import MDP, FittedModel, Metrics, Model

# A finite value in place of ln 0. A member that gives an observed transition probability 0 loses to any that does not;
# if all members do, the one with the fewest such transitions wins.
_IMPOSSIBLE = -1e6


class LinearTransition(FittedModel):
    """One member of the class."""

    features: TableFeatures
    mu: Float[Array, "d S"]  # mu[z, s'] for latent z

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table P(s' | s, a)."""
        return jnp.matmul(self.features.phi, self.mu, precision="highest")

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the next state."""
        p = jnp.matmul(self.features(state, action), self.mu, precision="highest")
        return jr.categorical(key, jnp.log(jnp.maximum(p, 0.0)))  # rounding may turn 0 into -1e-9


class LinearMDP(Model):
    """A finite class of linear MDPs with known features, fitted by maximum likelihood."""

    features: TableFeatures
    upsilon: Float[Array, "..."]  # [members, d, S]
    prior: int = eqx.field(static=True, default=0)  # the member before anything is fitted

    def check(self) -> None:
        """Raise unless the class consists of distributions."""
        check_class(self.features, self.upsilon)

    def member(self, index: Int[Array, ""] | int) -> LinearTransition:
        """Return one member of the class."""
        return LinearTransition(self.features, self.upsilon[index])

    def init(self, key: Key[Array, ""], mdp: MDP) -> LinearTransition:
        """Return the prior member."""
        return self.member(self.prior)

    def train(
        self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay
    ) -> tuple[LinearTransition, Metrics]:
        """Return argmax over Upsilon of sum_i ln <mu(s'_i), phi(s_i, a_i)>; only the counts of transitions matter."""
        num_states, num_actions, _ = self.features.phi.shape
        counts = count(replay.data, num_states, num_actions)
        p = jnp.einsum("xaz,uzy->uxay", self.features.phi, self.upsilon, precision="highest")
        log_p = jnp.where(p > 0, jnp.log(jnp.maximum(p, jnp.finfo(jnp.float32).tiny)), _IMPOSSIBLE)
        likelihood = jnp.einsum("uxay,xay->u", log_p, counts, precision="highest")
        fitted = self.member(jnp.argmax(likelihood))
        return fitted, {"model_loss": mean_loss(counts, fitted.probabilities())}


def check_class(features: TableFeatures, upsilon: Float[Array, "..."]) -> None:
    """Raise unless every <mu(.), phi(s, a)> is a distribution, for every member and every pair."""
    dim, num_states = features.phi.shape[2], features.phi.shape[0]
    if upsilon.ndim != 3 or upsilon.shape[0] == 0:
        raise ConfigError(f"upsilon has shape {upsilon.shape}: give [members, {dim}, {num_states}]")
    if upsilon.shape[1:] != (dim, num_states):
        raise ConfigError(
            f"upsilon has members of shape {upsilon.shape[1:]}, phi has {dim} features and the task {num_states} "
            f"states: give [members, {dim}, {num_states}]"
        )
    p = np.einsum("xaz,uzy->uxay", np.asarray(features.phi, np.float64), np.asarray(upsilon, np.float64))
    bad = ~np.isfinite(p).all((1, 2, 3)) | (p.min((1, 2, 3)) < -1e-5) | (np.abs(p.sum(-1) - 1).max((1, 2)) > 1e-4)
    if bad.any():
        raise ConfigError(
            f"upsilon[{int(bad.argmax())}] is not a set of distributions ({int(bad.sum())} of {len(bad)} members are "
            "not): <mu(.), phi(s, a)> must be non-negative and sum to 1 for every (s, a)"
        )
