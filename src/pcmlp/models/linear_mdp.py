"""Linear MDPs (paper: section 3): P(s' | s, a) = <mu(s'), phi(s, a)> with mu in a finite class Upsilon.

Fitted by exact maximum likelihood over Upsilon, which the theorem for linear MDPs assumes (paper: section 5).
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from pcmlp.features.one_hot import Table
from pcmlp.models.tabular import count, mean_loss
from pcmlp.types import AbstractModel, ConfigError, Metrics, Transitions

# ln 0, finite: a member that excludes what was seen loses to any that does not, and if all do the one with fewest wins.
_IMPOSSIBLE = -1e6


class LinearMDP(AbstractModel):
    features: Table
    upsilon: Float[Array, "U d S"]  # the class: each of its members has mu[z, s'] for latent z
    chosen: Int[Array, ""]

    @staticmethod
    def of(features: Table, upsilon: Float[Array, "..."], chosen: int = 0) -> "LinearMDP":
        check_class(features, upsilon)
        return LinearMDP(features, upsilon, jnp.array(chosen, int))

    def probabilities(self) -> Float[Array, "S A S"]:
        return jnp.matmul(self.features.phi, self.upsilon[self.chosen], precision="highest")

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        p = jnp.matmul(self.features(state, action), self.upsilon[self.chosen], precision="highest")
        return jr.categorical(key, jnp.log(jnp.maximum(p, 0.0)))  # a 0 may come out as -1e-9

    def fit(self, key: Key[Array, ""], data: Transitions) -> tuple["LinearMDP", Metrics]:
        """argmax over Upsilon of sum_i ln <mu(s'_i), phi(s_i, a_i)>; the data enter only through their counts."""
        num_states, num_actions, _ = self.features.phi.shape
        counts = count(data, num_states, num_actions)
        p = jnp.einsum("xaz,uzy->uxay", self.features.phi, self.upsilon, precision="highest")
        log_p = jnp.where(p > 0, jnp.log(jnp.maximum(p, jnp.finfo(jnp.float32).tiny)), _IMPOSSIBLE)
        likelihood = jnp.einsum("uxay,xay->u", log_p, counts, precision="highest")
        model = LinearMDP(self.features, self.upsilon, jnp.argmax(likelihood))
        return model, {"model_loss": mean_loss(counts, model.probabilities())}


def check_class(features: Table, upsilon: Float[Array, "..."]) -> None:
    """Upsilon must be a set of distributions: every <mu(.), phi(s, a)> is one, for every member and every pair."""
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
