"""Finite tasks in pure JAX: the combination lock and two random linear MDPs."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from pcmlp.errors import ConfigError
from pcmlp.features import OneHotFeatures, TableFeatures
from pcmlp.models import LinearCore, LinearMDP, Tabular
from pcmlp.models.finite import LinearTransition
from pcmlp.settings import SettingError, setting
from pcmlp.spaces import Finite
from pcmlp.types import MDP, Model, Problem, Task, never
from pcmlp.world import JaxWorld


class TabularTransition(eqx.Module):
    """P* of a finite MDP, as a table."""

    table: Float[Array, "S A S"]

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table."""
        return self.table

    def __call__(self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the next state."""
        return jr.categorical(key, jnp.log(self.table[state, action]))


def start_at_zero(key: Key[Array, ""]) -> Int[Array, ""]:
    """Return state 0."""
    return jnp.array(0)


class RewardOfState(eqx.Module):
    """A reward for entering a state: r(s, a, s') = table[s']."""

    table: Float[Array, " S"]

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""], next_state: Int[Array, ""]) -> Float[Array, ""]:
        """Return the reward of one step."""
        return self.table[next_state]


class CombinationLock(Task):
    """A code of `horizon` digits: the right action enters the next one, any other breaks the lock.

    States 0 ... H-1 are the digits entered so far, H is open, H+1 is broken. Opening pays 1, nothing else pays, so
    the optimum is 1 and uniform random play reaches it with probability actions^-horizon.
    """

    kind: ClassVar[str] = "finite"
    horizon: int = setting(20, "steps of an episode, and digits of the code", least=1)
    actions: int = setting(5, "choices for each digit", least=2)
    seed: int = setting(0, "seed of the code", least=0)

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        H, A = self.horizon, self.actions
        opened, broken = H, H + 1
        code = np.random.default_rng(self.seed).integers(A, size=H)
        table = np.zeros((H + 2, A, H + 2), np.float32)
        table[:H, :, broken] = 1
        table[np.arange(H), code, broken] = 0
        table[np.arange(H), code, np.arange(H) + 1] = 1
        table[opened, :, broken] = 1  # never reached before the last step
        table[broken, :, broken] = 1
        reward = RewardOfState(jnp.zeros(H + 2).at[opened].set(1.0))
        transition = TabularTransition(jnp.asarray(table))
        mdp = MDP(start_at_zero, transition, reward, never, Finite(H + 2), Finite(A), H)
        return Problem(JaxWorld(mdp), OneHotFeatures(H + 2, A), Tabular(), success_return=0.5)


class LowRank(Task):
    """A random linear MDP: s' comes from a mixture phi(s, a) of `rank` distributions mu_z, the factors.

    The class Upsilon contains the truth, neighbours of it at many distances, and unrelated members. One state pays 1
    per visit; no episode starts there, and it is hard to stay in.
    """

    kind: ClassVar[str] = "finite"
    horizon: int = setting(10, "steps of an episode", least=1)
    states: int = setting(12, "number of states", least=1)
    actions: int = setting(4, "number of actions", least=1)
    rank: int = setting(5, "d: number of latent factors", least=1)
    members: int = setting(1024, "|Upsilon|: members of the class", least=1)
    seed: int = setting(0, "seed of the MDP", least=0)
    upsilon: str = setting("", "a .npy file [members, rank, states] with the class; its first member is the truth")

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        rng = np.random.default_rng(self.seed)
        S, A, d = self.states, self.actions, self.rank
        phi = rng.dirichlet(np.full(d, 0.2), size=(S, A))
        truth = rng.dirichlet(np.full(S, 0.3), size=d)
        upsilon = load_table("upsilon", self.upsilon) if self.upsilon else neighbours(rng, truth, self.members)
        features = TableFeatures(jnp.asarray(phi, jnp.float32))
        # The learner starts from the member that is furthest from the truth: before the first data it knows nothing.
        far = int(np.abs(upsilon - upsilon[0]).sum((1, 2)).argmax()) if upsilon.ndim == 3 else 0
        model = LinearMDP(features, jnp.asarray(upsilon, jnp.float32), far)
        return rare_goal(model.member(0), features, model, self.horizon)


def neighbours(rng: np.random.Generator, truth: np.ndarray, members: int) -> np.ndarray:
    """Return the truth, then mixtures of it with other distributions, whose weights range from a hundredth to 1."""
    d, S = truth.shape
    weight = np.concatenate([[0.0], np.geomspace(0.01, 1.0, max(members - 1, 1))])[:members, None, None]
    other = rng.dirichlet(np.full(S, 0.3), size=(members, d))
    return (1 - weight) * truth + weight * other


class CoreMDP(Task):
    """A random linear MDP with known phi and psi: P(s' | s, a) = phi(s, a)^T M psi(s').

    The states are divided into `rank` levels. Latent z leads to level z nine times in ten, and otherwise back to level
    0. In every state one action leads mostly to the next level, and the others lead mostly to level 0. The state that
    uniform play visits least pays 1 per visit. The one that it visits most pays a tenth, which is enough to keep a
    learner that only exploits.
    """

    kind: ClassVar[str] = "finite"
    horizon: int = setting(20, "steps of an episode", least=1)
    states: int = setting(15, "number of states", least=1)
    actions: int = setting(4, "number of actions", least=1)
    rank: int = setting(5, "d: size of phi, rows of M", least=1)
    core: int = setting(8, "d': size of psi, columns of M; from rank to the number of states", least=1)
    seed: int = setting(0, "seed of the MDP", least=0)
    phi: str = setting("", "a .npy file [states, actions, rank] with the features phi of every pair")
    psi: str = setting("", "a .npy file [core, states] with the distributions psi of the next state")

    def check(self) -> None:
        """Raise unless every level has a distribution and every distribution a state."""
        if self.rank > self.states:
            raise SettingError("rank", self.rank, f"give 1 to {self.states} (states)")
        if not self.rank <= self.core <= self.states:
            raise SettingError("core", self.core, f"give {self.rank} (rank) to {self.states} (states)")

    def build(self) -> Problem:
        """Return the task's world, phi and class of models."""
        phi, psi, M = random_core(np.random.default_rng(self.seed), self.states, self.actions, self.rank, self.core)
        phi = load_table("phi", self.phi, phi.shape) if self.phi else phi
        psi = load_table("psi", self.psi, psi.shape) if self.psi else psi
        features = TableFeatures(jnp.asarray(phi, jnp.float32))
        model = LinearCore(features=features, psi=jnp.asarray(psi, jnp.float32))
        return rare_goal(model.member(jnp.asarray(M, jnp.float32)), features, model, self.horizon, decoy=0.1)


def random_core(rng: np.random.Generator, S: int, A: int, d: int, w: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return phi, psi and M of `CoreMDP`."""
    level, kind = np.arange(S) * d // S, np.arange(w) % d  # the level of each state, and of each psi_w
    psi = rng.dirichlet(np.ones(S), size=w) * (level == kind[:, None])
    M = rng.dirichlet(np.ones(w), size=d) * (kind == np.arange(d)[:, None])
    psi, M = (x / x.sum(1, keepdims=True) for x in (psi, M))
    M = 0.9 * M + 0.1 * M[0]
    right = rng.integers(A, size=S)[:, None] == np.arange(A)
    latent = np.where(right, np.minimum(level + 1, d - 1)[:, None], level[:, None])
    weight = np.abs(~right - rng.uniform(0.8, 1.0, size=(S, A)))[..., None]  # at most 0.2 for any other action
    phi = weight * np.eye(d)[latent] + (1 - weight) * np.eye(d)[0]
    return phi, psi, M


def rare_goal(
    truth: LinearTransition, features: TableFeatures, model: Model, horizon: int, decoy: float = 0.0
) -> Problem:
    """Return the problem in which the state that uniform play visits least pays 1, and the one that it visits most
    pays `decoy`."""
    p = np.asarray(truth.probabilities(), np.float64)
    S, A, _ = p.shape
    visits = np.linalg.matrix_power(p.mean(1), 50)[0]
    goal = 1 + int(np.argmin(visits[1:])) if S > 1 else 0
    reward = RewardOfState(jnp.zeros(S).at[int(np.argmax(visits))].set(decoy).at[goal].set(1.0))
    mdp = MDP(start_at_zero, truth, reward, never, Finite(S), Finite(A), horizon)
    return Problem(JaxWorld(mdp), features, model)


def load_table(name: str, path: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Read the numbers of a setting from a .npy file."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise ValueError("an archive of several arrays")
        if not np.isrealobj(loaded):
            raise ValueError("complex numbers")
        loaded = loaded.astype(np.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"task.{name}={path}: not a .npy file of numbers ({error}); write it with numpy.save"
        ) from error
    if shape is not None and loaded.shape != shape:
        raise ConfigError(f"task.{name}={path}: has shape {loaded.shape}; give {list(shape)}, or change the sizes")
    return loaded
