"""Classes of transitions between finitely many states, fitted by exact maximum likelihood.

    tabular      P(s' | s, a) = n(s, a, s') / n(s, a),   and P(s | s, a) = 1 where n(s, a) = 0
    linear MDPs  P(s' | s, a) = <mu(s'), phi(s, a)> with mu in a finite class Upsilon (paper: sections 3 and 5)

paper: any maximiser of the likelihood / here: for an unvisited pair, about which the likelihood says nothing, the
tabular model predicts that the state stays the same, so that only the bonus is optimistic about untried actions.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from pcmlp.errors import ConfigError
from pcmlp.features.given import TableFeatures
from pcmlp.replay import Replay, Transitions
from pcmlp.types import MDP, FittedModel, Metrics, Model

# A finite value in place of ln 0. A member that gives an observed transition probability 0 loses to any that does not;
# if all members do, the one with the fewest such transitions wins.
_IMPOSSIBLE = -1e6


class CountedTransition(FittedModel):
    """The transition estimated from visit counts."""

    counts: Float[Array, "S A S"]

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table P(s' | s, a)."""
        visits = jnp.sum(self.counts, axis=-1, keepdims=True)
        stay = jnp.broadcast_to(jnp.eye(self.counts.shape[0])[:, None, :], self.counts.shape)
        return jnp.where(visits > 0, self.counts / jnp.maximum(visits, 1.0), stay)

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        counts = self.counts[state, action]
        stay = jax.nn.one_hot(state, counts.shape[0])
        return jr.categorical(key, jnp.log(jnp.where(jnp.sum(counts) > 0, counts, stay)))


class Tabular(Model):
    """All transitions of a finite MDP, fitted by counting."""

    remembers: ClassVar[bool] = True

    def init(self, key: Key[Array, ""], mdp: MDP) -> CountedTransition:
        """Return a model without counts."""
        return CountedTransition(jnp.zeros((mdp.states.size, mdp.actions.size, mdp.states.size)))

    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Count the transitions of the replay, in addition to those that the model has counted."""
        assert isinstance(model, CountedTransition)
        fitted = CountedTransition(model.counts + count(replay.data, mdp.states.size, mdp.actions.size))
        return fitted, {"model_loss": mean_loss(fitted.counts, fitted.probabilities())}


def count(data: Transitions, num_states: int, num_actions: int) -> Float[Array, "S A S"]:
    """Count the valid transitions."""
    empty = jnp.zeros((num_states, num_actions, num_states))
    return empty.at[data.state, data.action, data.next_state].add(data.valid.astype(jnp.float32))


def mean_loss(counts: Float[Array, "S A S"], probabilities: Float[Array, "S A S"]) -> Float[Array, ""]:
    """Return the mean negative log-likelihood of counted transitions."""
    tiny = jnp.finfo(jnp.float32).tiny
    total = jnp.sum(counts * jnp.log(jnp.maximum(probabilities, tiny)))
    return -total / jnp.maximum(jnp.sum(counts), 1.0)


class LinearTransition(FittedModel):
    """One member of the class."""

    features: TableFeatures
    mu: Float[Array, "d S"]  # mu[z, s'] for latent z

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table P(s' | s, a)."""
        return jnp.matmul(self.features.phi, self.mu, precision="highest")

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
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
