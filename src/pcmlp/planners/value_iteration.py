"""Finite-horizon value iteration: the exact planning oracle of a finite MDP.

Q_h(s, a) = E_{s'}[ r(s, a, s') + (1 - end(s, a, s')) V_{h+1}(s') ],    V_h(s) = max_a Q_h(s, a),    V_H = 0
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.finite import initial_distribution, tables
from pcmlp.types import MDP, AbstractPlanner, AbstractPolicy, Metrics


class FinitePolicy(AbstractPolicy):
    """An action for each time step and state, and a uniform one with probability `epsilon`.

    paper: policies map states to actions / here: of each time step, as the best of a finite horizon does.
    """

    action: Int[Array, "H S"]
    epsilon: Float[Array, ""]
    num_actions: int = eqx.field(static=True)

    def init(self) -> Int[Array, ""]:
        return jnp.array(0)

    def __call__(
        self, key: Key[Array, ""], carry: Int[Array, ""], state: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        flip_key, uniform_key = jr.split(key)
        uniform = jr.randint(uniform_key, (), 0, self.num_actions)
        return carry + 1, jnp.where(jr.bernoulli(flip_key, self.epsilon), uniform, self.action[carry, state])

    def deterministic(self) -> "FinitePolicy":
        """Uniform play stays what it is: it prefers no action."""
        return eqx.tree_at(lambda p: p.epsilon, self, jnp.where(self.epsilon < 1, 0.0, self.epsilon))

    def probabilities(self) -> Float[Array, "H S A"]:
        greedy = jax.nn.one_hot(self.action, self.num_actions)
        return (1 - self.epsilon) * greedy + self.epsilon / self.num_actions


class ValueIteration(AbstractPlanner):
    tolerance: float = 1e-5  # actions this close to the best, relative to the largest value, are as good

    def init(self, key: Key[Array, ""], mdp: MDP) -> FinitePolicy:
        """Uniform actions."""
        reward, _ = tables(mdp)
        num_states, num_actions = reward.shape
        return FinitePolicy(jnp.zeros((mdp.horizon, num_states), int), jnp.ones(()), num_actions)

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[FinitePolicy, Metrics]:
        """paper: any maximiser / here: ties, up to `tolerance`, are broken at random, because a planner that sees no
        difference must not prefer the first action."""
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

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""]:
        """The maximum itself, not what `policy` gets: ties are broken within `tolerance`, which may cost H of that."""
        return self.plan(key, mdp, policy)[1]["planned_value"]
