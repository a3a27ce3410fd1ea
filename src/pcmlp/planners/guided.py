"""A search that another policy guides: of what that might do from here, what pays best, anew at every step.

    imagine `num_plans` episodes of the guide from s, each with noise of its own, `plan_length` steps long
    a = the first action of the one with the highest return

(paper: none.) CEM and MPPI may ask for any actions, and with a learned model they find those that it is wrong about: a
pose in which it has an ant drift along. Here the reward chooses, and never makes up, actions: all of them are such as
the guide takes in such a state. A guide that has collected what the model was learned from is where that is right.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from pcmlp.rollout import begin, first_episode, walk
from pcmlp.types import MDP, AbstractPolicy, Action, Carry, State


class GuidedPolicy(AbstractPolicy):
    guide: AbstractPolicy  # one that remembers nothing: every plan begins with it anew
    mdp: MDP  # what it plans in
    num_plans: int = eqx.field(static=True, default=200)
    plan_length: int = eqx.field(static=True, default=15)
    searches: ClassVar[bool] = True

    def init(self) -> Carry:
        return ()

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        start = begin(state, self.guide)
        plans = jax.vmap(lambda k: first_episode(walk(k, self.mdp, self.guide, start, self.plan_length)[1]))(
            jr.split(key, self.num_plans)
        )
        returns = jnp.sum(jnp.where(plans.valid, plans.reward, 0.0), axis=1)
        best = jnp.argmax(jnp.where(jnp.isfinite(returns), returns, -jnp.inf))
        return carry, plans.action[best, 0]

    def deterministic(self) -> "GuidedPolicy":
        return self  # its randomness is the search's own, not exploration
