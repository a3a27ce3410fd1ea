"""A world whose dynamics are JAX: collecting is a compiled scan, vmapped over episodes and seeds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp import rollout
from pcmlp.types import MDP, AbstractPolicy, AbstractWorld, Space, Transitions

_over_seeds = {"in_axes": (0, None, eqx.if_array(0), None)}


def _flatten(rows: Transitions) -> Transitions:
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


@eqx.filter_jit
@eqx.filter_vmap(**_over_seeds)
def _collect(key, mdp, policy, episodes):
    run = jax.vmap(lambda k: rollout.stream(k, mdp, policy, mdp.horizon))
    return _flatten(run(jr.split(key, episodes)))


@eqx.filter_jit
@eqx.filter_vmap(**_over_seeds)
def _draw(key, mdp, policy, n):
    rows, steps = jax.vmap(lambda k: rollout.draw(k, mdp, policy))(jr.split(key, n))
    return _flatten(rows), jnp.sum(steps)


@eqx.filter_jit
@eqx.filter_vmap(**_over_seeds)
def _evaluate(key, mdp, policy, episodes):
    return jax.vmap(lambda k: rollout.episode_return(k, mdp, policy.deterministic()))(jr.split(key, episodes))


class JaxWorld(AbstractWorld):
    mdp: MDP
    states: Space
    actions: Space

    def collect(
        self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int
    ) -> tuple[Transitions, Int[Array, " seeds"]]:
        episodes = -(-n // self.mdp.horizon)
        rows = _collect(keys, self.mdp, policies, episodes)
        return rows, jnp.full(keys.shape, episodes * self.mdp.horizon)

    def draw(
        self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int
    ) -> tuple[Transitions, Int[Array, " seeds"]]:
        return _draw(keys, self.mdp, policies, n)

    def evaluate(
        self, keys: Key[Array, " seeds"], policies: AbstractPolicy, episodes: int
    ) -> Float[Array, "seeds episodes"]:
        return _evaluate(keys, self.mdp, policies, episodes)
