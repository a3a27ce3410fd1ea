"""A search that is guided by another policy: imagine episodes of the guide from the current state, play the
first action of the best.

    imagine `num_plans` episodes of the guide from s, each with its own noise, `plan_length` steps long
    a = the first action of the one with the highest return

(Not in the paper.) CEM and MPPI may try any actions. In a learned model they find actions for which the model is wrong,
such as a pose in which it lets an ant drift. Here the search only chooses among actions that the guide takes in such a
state. If the guide is an exploring policy, the model was learned from similar actions.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.trees import take
from pcmlp.types import MDP, Action, Carry, Policy, State


class GuidedPolicy(Policy):
    """A policy that plays, at every step, the first action of the guide's best imagined episode."""

    guide: Policy
    mdp: MDP  # the MDP to plan in
    num_plans: int = eqx.field(static=True)
    plan_length: int = eqx.field(static=True)
    searches: ClassVar[bool] = True

    def init(self) -> Carry:
        """Return the guide's memory."""
        return self.guide.init()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Search, and return the guide's memory after the chosen action, and that action."""
        guide_key, move_key = jr.split(key)
        # All plans use the same noise of the model, so that their returns differ only by the guide's actions.
        move_keys = jr.split(move_key, self.plan_length)
        guide_keys = jr.split(guide_key, self.num_plans)
        memory, action, returns = jax.vmap(lambda k: self.imagine_one(k, move_keys, carry, state))(guide_keys)
        best = jnp.argmax(jnp.where(jnp.isfinite(returns), returns, -jnp.inf))
        return take((memory, action), best)

    def imagine_one(
        self, key: Key[Array, ""], move_keys: Key[Array, " length"], carry: Carry, state: State
    ) -> tuple[Carry, Action, Float[Array, ""]]:
        """Imagine one episode; return the guide's memory after its first action, that action, and the return."""

        def step(place, keys):
            (memory, state), (act_key, move_key) = place, keys
            memory, action = self.guide(act_key, memory, state)
            next_state = self.mdp.transition(move_key, state, action)
            return (memory, next_state), (memory, state, action, next_state)

        act_keys = jr.split(key, self.plan_length)
        _, (memory, *steps) = jax.lax.scan(step, (carry, state), (act_keys, move_keys))
        reward, ended = (jax.vmap(f)(*steps) for f in (self.mdp.reward, self.mdp.terminal))
        ended = ended.astype(int)
        ended_before = jnp.cumsum(ended) - ended
        total = jnp.sum(jnp.where(ended_before == 0, reward, 0.0))
        return *take((memory, steps[1]), 0), total
