"""A search that another policy guides: of what that might do from here, what pays best, anew at every step.

    imagine `num_plans` episodes of the guide from s, each with noise of its own, `plan_length` steps long
    a = the first action of the one with the highest return

(paper: none.) CEM and MPPI may ask for any actions, and with a learned model they find those that it is wrong about: a
pose in which it has an ant drift along. Here the reward chooses, and never makes up, actions: all of them are such as
the guide takes in such a state. With a guide that explores, the model has been learned from others like it.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.types import MDP, AbstractPolicy, Action, Carry, State


class GuidedPolicy(AbstractPolicy):
    guide: AbstractPolicy
    mdp: MDP  # what it plans in
    num_plans: int = eqx.field(static=True)
    plan_length: int = eqx.field(static=True)
    searches: ClassVar[bool] = True

    def init(self) -> Carry:
        return self.guide.init()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        guide_key, move_key = jr.split(key)
        # The same noise of the model for all plans: what differs between their returns is the guide's doing.
        move_keys = jr.split(move_key, self.plan_length)
        guide_keys = jr.split(guide_key, self.num_plans)
        memory, action, returns = jax.vmap(lambda k: self.imagined(k, move_keys, carry, state))(guide_keys)
        best = jnp.argmax(jnp.where(jnp.isfinite(returns), returns, -jnp.inf))
        return jax.tree.map(lambda x: x[best], (memory, action))

    def imagined(
        self, key: Key[Array, ""], move_keys: Key[Array, " length"], carry: Carry, state: State
    ) -> tuple[Carry, Action, Float[Array, ""]]:
        """A plan: what the guide remembers after its first action, that action, and the return."""

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
        return *jax.tree.map(lambda x: x[0], (memory, steps[1])), total

    def deterministic(self) -> "GuidedPolicy":
        return self  # its randomness is the search's own, not exploration
