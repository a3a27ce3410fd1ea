"""Finite-horizon value iteration: the exact planning oracle of a finite MDP.

Q_h(s, a) = E_{s'}[ r(s, a, s') + (1 - end(s, a, s')) V_{h+1}(s') ],    V_h(s) = max_a Q_h(s, a),    V_H = 0
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.finite import initial_distribution, tables
from pcmlp.settings import setting
from pcmlp.types import MDP, Metrics, Planner, Policy


class FinitePolicy(Policy):
    """A policy with one action for each time step and state, or a uniform one with probability `epsilon`.

    paper: policies map states to actions / here: one map for each time step, which a finite horizon needs.
    """

    action: Int[Array, "H S"]
    epsilon: Float[Array, ""]
    num_actions: int = eqx.field(static=True)

    def init(self) -> Int[Array, ""]:
        """Return the clock at 0."""
        return jnp.array(0)

    def __call__(
        self, key: Key[Array, ""], carry: Int[Array, ""], state: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return the next time and the action."""
        flip_key, uniform_key = jr.split(key)
        uniform = jr.randint(uniform_key, (), 0, self.num_actions)
        return carry + 1, jnp.where(jr.bernoulli(flip_key, self.epsilon), uniform, self.action[carry, state])

    def deterministic(self) -> "FinitePolicy":
        """Return the policy without uniform actions; uniform play itself is unchanged."""
        return eqx.tree_at(lambda p: p.epsilon, self, jnp.where(self.epsilon < 1, 0.0, self.epsilon))

    def probabilities(self) -> Float[Array, "H S A"]:
        """Return the probability of each action."""
        greedy = jax.nn.one_hot(self.action, self.num_actions)
        return (1 - self.epsilon) * greedy + self.epsilon / self.num_actions


class ValueIteration(Planner):
    """Exact planning in a finite MDP."""

    tolerance: float = setting(
        1e-5, "actions this close to the best, relative to the largest value, count as ties", least=0, most=1
    )

    def init(self, key: Key[Array, ""], mdp: MDP) -> FinitePolicy:
        """Return uniform play."""
        reward, _ = tables(mdp)
        num_states, num_actions = reward.shape
        return FinitePolicy(jnp.zeros((mdp.horizon, num_states), int), jnp.ones(()), num_actions)

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[FinitePolicy, Metrics]:
        """Return an optimal policy.

        paper: any maximiser / here: ties, up to `tolerance`, are broken at random, because a planner that finds
        no difference must not prefer the first action.
        """
        reward, go_on = tables(mdp)
        num_states, num_actions = reward.shape

        def back(value, step_key):
            q = reward + jnp.matmul(go_on, value, precision="highest")
            best = jnp.max(q, axis=1)
            equal = q >= best[:, None] - self.tolerance * jnp.maximum(1.0, jnp.max(jnp.abs(q)))
            action = jnp.argmax(jnp.where(equal, jr.uniform(step_key, q.shape), -1.0), axis=1)
            return best, action

        keys = jr.split(key, mdp.horizon)
        value, action = jax.lax.scan(back, jnp.zeros(num_states), keys, reverse=True)
        promised = jnp.dot(initial_distribution(mdp, num_states), value)
        return FinitePolicy(action, jnp.zeros(()), num_actions), {"planned_value": promised}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        """Return the maximum, not the value of `policy`, which ties can lower by H times the tolerance."""
        return self.plan(key, mdp, policy)[1]["planned_value"]
