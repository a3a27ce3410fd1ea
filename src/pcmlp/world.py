"""Worlds without a simulator: one whose dynamics are JAX, in which collecting is a compiled scan, vmapped over episodes
and seeds; and one whose steps were taken before."""

from typing import NoReturn

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp import rollout
from pcmlp.programs import program
from pcmlp.replay import Transitions
from pcmlp.types import MDP, Policy, World

_OVER_SEEDS = (0, None, eqx.if_array(0), None)  # a key and a policy for each seed, in one MDP


def flatten(rows: Transitions) -> Transitions:
    """Return the rows of all episodes, [episodes, steps, ...], with one axis."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


@program
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _collect(key, mdp, policy, episodes):
    run = jax.vmap(lambda k: rollout.stream(k, mdp, policy, mdp.horizon))
    return flatten(run(jr.split(key, episodes)))


@program
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _draw(key, mdp, policy, n):
    rows, walked = jax.vmap(lambda k: rollout.draw(k, mdp, policy))(jr.split(key, n))
    return flatten(rows), flatten(walked)


@program
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _evaluate(key, mdp, policy, episodes):
    return jax.vmap(lambda k: rollout.episode_return(k, mdp, policy.deterministic()))(jr.split(key, episodes))


class JaxWorld(World):
    """An MDP with a known transition, stepped by compiled programs."""

    mdp: MDP

    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Collect streams of H steps, at least `n` steps in all; both results are the same rows."""
        rows = _collect(keys, self.mdp, policies, -(-n // self.mdp.horizon))
        return rows, rows

    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Draw `n` independent samples from d_pi; return them and all steps that were taken to reach them."""
        return _draw(keys, self.mdp, policies, n)

    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Float[Array, "seeds episodes"]:
        """Return the returns of the deterministic policies."""
        return _evaluate(keys, self.mdp, policies, episodes)


class RecordedWorld(World):
    """A world whose steps were taken before: an iteration in it learns from these, whatever its policies are."""

    mdp: MDP
    samples: Transitions
    walked: Transitions

    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Return the recorded steps."""
        return self.samples, self.walked

    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> NoReturn:
        """Raise: recorded steps are not draws from a policy."""
        raise RuntimeError("a recorded world cannot draw samples of a policy")

    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> NoReturn:
        """Raise: recorded steps say nothing about another policy."""
        raise RuntimeError("a recorded world cannot evaluate a policy")
