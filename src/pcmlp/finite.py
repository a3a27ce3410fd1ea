"""Exact computations in finite MDPs: tables, occupancies, values. The tests of the lemmas use them too."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pcmlp.types import MDP


@runtime_checkable
class FiniteTransition(Protocol):
    """A transition between finitely many states."""

    def probabilities(self) -> Float[Array, "S A S"]:
        """Return the table P(s' | s, a)."""
        ...


def tables(mdp: MDP) -> tuple[Float[Array, "S A"], Float[Array, "S A S"]]:
    """Return the expected reward E[r(s,a,s')], and P(s'|s,a) with 0 where the MDP ends."""
    if not isinstance(mdp.transition, FiniteTransition):
        raise TypeError(
            f"{type(mdp.transition).__name__} has no probabilities(): exact planning needs a finite MDP; "
            "use CEM or MPPI for this one"
        )
    p = mdp.transition.probabilities()
    over_pairs = _over_all(p.shape[0], p.shape[1])
    reward = jnp.sum(p * over_pairs(mdp.reward), axis=-1)
    return reward, jnp.where(over_pairs(mdp.terminal), 0.0, p)


def rewards(mdp: MDP) -> Float[Array, "S A S"]:
    """Return the table r(s, a, s')."""
    return _over_all(mdp.states.size, mdp.actions.size)(mdp.reward)


def _over_all(num_states: int, num_actions: int) -> Callable[[Callable], Array]:
    s, a = jnp.arange(num_states), jnp.arange(num_actions)

    def table(f: Callable) -> Array:
        return jax.vmap(lambda x: jax.vmap(lambda u: jax.vmap(lambda y: f(x, u, y))(s))(a))(s)

    return table


def initial_distribution(mdp: MDP, num_states: int) -> Float[Array, " S"]:
    """Return the initial distribution: one state, as in section 3 of the paper."""
    return jax.nn.one_hot(mdp.initial(jax.random.key(0)), num_states)


def occupancy(mdp: MDP, policy: Float[Array, "H S A"]) -> Float[Array, "H S A"]:
    """Return d_h(s, a) for every time step, without episodes that have ended."""
    _, go_on = tables(mdp)

    def step(state, act):
        pairs = state[:, None] * act
        return jnp.einsum("xa,xay->y", pairs, go_on, precision="highest"), pairs

    _, pairs = jax.lax.scan(step, initial_distribution(mdp, go_on.shape[0]), policy)
    return pairs


def values(mdp: MDP, policy: Float[Array, "H S A"]) -> Float[Array, "H_plus_1 S"]:
    """Return V_h(s) of a policy given by its action probabilities; the last row is V_H = 0."""
    reward, go_on = tables(mdp)

    def back(value, act):
        value = jnp.sum(act * (reward + jnp.matmul(go_on, value, precision="highest")), axis=1)
        return value, value

    last = jnp.zeros(go_on.shape[0])
    _, before = jax.lax.scan(back, last, policy, reverse=True)
    return jnp.concatenate([before, last[None]])


def value(mdp: MDP, policy: Float[Array, "H S A"]) -> Float[Array, ""]:
    """Return J(pi; r, P), exactly."""
    v = values(mdp, policy)[0]
    return jnp.dot(initial_distribution(mdp, v.shape[0]), v)


def uniform_value(mdp: MDP) -> Float[Array, ""]:
    """Return J of uniform play."""
    reward, _ = tables(mdp)
    return value(mdp, jnp.full((mdp.horizon, *reward.shape), 1 / reward.shape[1]))
