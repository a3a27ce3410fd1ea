"""Finite tasks in pure JAX: the combination lock and a random linear MDP."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from pcmlp.features.one_hot import OneHot, Table
from pcmlp.models.linear_mdp import LinearMDP
from pcmlp.models.tabular import Tabular
from pcmlp.types import MDP, ConfigError, Finite, Task, never
from pcmlp.world import JaxWorld


class TabularTransition(eqx.Module):
    """P* of a finite MDP as a table."""

    table: Float[Array, "S A S"]

    def probabilities(self) -> Float[Array, "S A S"]:
        return self.table

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        return jr.categorical(key, jnp.log(self.table[state, action]))


def start_at_zero(key: Key[Array, ""]) -> Int[Array, ""]:
    return jnp.array(0)


class RewardOfState(eqx.Module):
    """r(s, a, s') = table[s']."""

    table: Float[Array, " S"]

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""], next_state: Int[Array, ""]) -> Float[Array, ""]:
        return self.table[next_state]


@dataclass(frozen=True)
class CombinationLock:
    """A code of `horizon` digits: the right action moves on, any other breaks the lock for the rest of the episode.

    States 0 ... H-1 are the digits entered so far, H is open, H+1 is broken. Opening pays 1, nothing else pays, so
    the optimum is 1 and uniform random play reaches it with probability actions^-horizon.
    """

    horizon: int = 20
    actions: int = 5
    seed: int = 0  # of the code

    def build(self) -> Task:
        if self.horizon < 1:
            raise ConfigError(f"task.horizon={self.horizon}: an episode has at least 1 step; give 1 or more")
        if self.actions < 2:
            raise ConfigError(f"task.actions={self.actions}: a lock has a right and a wrong action; give 2 or more")
        H, A = self.horizon, self.actions
        opened, broken = H, H + 1
        code = np.random.default_rng(self.seed).integers(A, size=H)
        table = np.zeros((H + 2, A, H + 2), np.float32)
        table[:H, :, broken] = 1
        table[np.arange(H), code, broken] = 0
        table[np.arange(H), code, np.arange(H) + 1] = 1
        table[opened, :, broken] = 1  # never reached before the last step
        table[broken, :, broken] = 1
        mdp = MDP(
            initial=start_at_zero,
            transition=TabularTransition(jnp.asarray(table)),
            reward=RewardOfState(jnp.zeros(H + 2).at[opened].set(1.0)),
            terminal=never,
            horizon=H,
        )
        world = JaxWorld(mdp, Finite(H + 2), Finite(A))
        return Task(world, OneHot(H + 2, A), Tabular.of(H + 2, A), success_return=0.5)


@dataclass(frozen=True)
class LowRank:
    """A random linear MDP: (s, a) chooses a mixture phi(s, a) of `rank` latent factors, each a distribution mu_z of s'.

    The class Upsilon has `members`: the truth, near neighbours of it at all scales, and unrelated ones. One state pays
    1 per visit; it is the start of nothing and hard to stay in.
    """

    horizon: int = 10
    states: int = 12
    actions: int = 4
    rank: int = 5
    members: int = 1024
    seed: int = 0
    upsilon: str = ""  # a .npy file [members, rank, states] to use instead; the truth is its first member

    def build(self) -> Task:
        for name in ("horizon", "states", "actions", "rank", "members"):
            if getattr(self, name) < 1:
                raise ConfigError(f"task.{name}={getattr(self, name)}: give 1 or more")
        rng = np.random.default_rng(self.seed)
        S, A, d = self.states, self.actions, self.rank
        phi = rng.dirichlet(np.full(d, 0.2), size=(S, A))
        truth = rng.dirichlet(np.full(S, 0.3), size=d)
        upsilon = load_class(self.upsilon) if self.upsilon else neighbours(rng, truth, self.members)
        features = Table(jnp.asarray(phi, jnp.float32))
        model = LinearMDP.of(features, jnp.asarray(upsilon, jnp.float32))
        # The paying state is the one that uniform play visits least.
        p = np.asarray(model.probabilities(), np.float64)
        visits = np.linalg.matrix_power(p.mean(1), 50)[0]
        goal = 1 + int(np.argmin(visits[1:])) if S > 1 else 0
        mdp = MDP(
            initial=start_at_zero,
            transition=model,
            reward=RewardOfState(jnp.zeros(S).at[goal].set(1.0)),
            terminal=never,
            horizon=self.horizon,
        )
        # The learner starts from the member that is furthest from the truth: nothing is known before the first data.
        far = int(np.abs(upsilon - upsilon[0]).sum((1, 2)).argmax())
        prior = eqx.tree_at(lambda m: m.chosen, model, jnp.array(far, int))
        return Task(JaxWorld(mdp, Finite(S), Finite(A)), features, prior)


def neighbours(rng: np.random.Generator, truth: np.ndarray, members: int) -> np.ndarray:
    """The truth first; then mixtures of it with other distributions, from a hundredth of their weight to all of it."""
    d, S = truth.shape
    weight = np.concatenate([[0.0], np.geomspace(0.01, 1.0, max(members - 1, 1))])[:members, None, None]
    other = rng.dirichlet(np.full(S, 0.3), size=(members, d))
    return (1 - weight) * truth + weight * other


def load_class(path: str) -> np.ndarray:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise ValueError("an archive of several arrays")
        if not np.isrealobj(loaded):
            raise ValueError("complex numbers")
        return loaded.astype(np.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"task.upsilon={path}: not a .npy file of numbers ({error}); write it with numpy.save"
        ) from error


__all__ = ["CombinationLock", "LowRank"]
