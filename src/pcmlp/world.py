"""A world whose dynamics are JAX: collecting is a compiled scan, vmapped over episodes and seeds."""

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp import rollout
from pcmlp.types import MDP, AbstractPolicy, AbstractWorld, Space, Transitions

_OVER_SEEDS = (0, None, eqx.if_array(0), None)  # a key and a policy for each seed, in one MDP


def _flatten(rows: Transitions) -> Transitions:
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _collect(key, mdp, policy, episodes):
    run = jax.vmap(lambda k: rollout.stream(k, mdp, policy, mdp.horizon))
    return _flatten(run(jr.split(key, episodes)))


@eqx.filter_jit
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _draw(key, mdp, policy, n):
    rows, walked = jax.vmap(lambda k: rollout.draw(k, mdp, policy))(jr.split(key, n))
    return _flatten(rows), _flatten(walked)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=_OVER_SEEDS)
def _evaluate(key, mdp, policy, episodes):
    return jax.vmap(lambda k: rollout.episode_return(k, mdp, policy.deterministic()))(jr.split(key, episodes))


class JaxWorld(AbstractWorld):
    mdp: MDP
    states: Space
    actions: Space

    def collect(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        rows = _collect(keys, self.mdp, policies, -(-n // self.mdp.horizon))
        return rows, rows

    def draw(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        return _draw(keys, self.mdp, policies, n)

    def evaluate(
        self, keys: Key[Array, " seeds"], policies: AbstractPolicy, episodes: int
    ) -> Float[Array, "seeds episodes"]:
        return _evaluate(keys, self.mdp, policies, episodes)
