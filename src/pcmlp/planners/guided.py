"""A search that another policy guides: of what that might do from here, the best, anew at every step.

    plans = the actions of `num_plans` imagined episodes of the guide, each with noise of its own, and what is left of
            the last plan;   the one with the highest return next

(paper: none.) CEM and MPPI may ask for any actions, and with a learned model they find those that it is wrong about: a
pose in which it has an ant drift along. Here the reward chooses, and never makes up, actions: all of them are such as
the guide takes in such a state. A guide that has collected what the model was learned from is where that is right.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from pcmlp.planners.shooting import AbstractShooter, Plan, plan_returns
from pcmlp.rollout import begin, first_episode, walk
from pcmlp.types import MDP, AbstractPolicy, Box, State


class Guided(AbstractShooter):
    actions: Box
    guide: AbstractPolicy
    num_plans: int = eqx.field(static=True, default=200)
    plan_length: int = eqx.field(static=True, default=15)
    particles: int = eqx.field(static=True, default=1)  # that what is left of the last plan is judged by

    def refine(self, key: Key[Array, ""], mdp: MDP, state: State, plan: Plan) -> Plan:
        guide_key, last_key = jr.split(key)
        start = begin(state, self.guide)
        episodes = jax.vmap(lambda k: first_episode(walk(k, mdp, self.guide, start, self.plan_length)[1]))(
            jr.split(guide_key, self.num_plans)
        )
        returns = jnp.sum(jnp.where(episodes.valid, episodes.reward, 0.0), axis=1)
        last = plan_returns(last_key, mdp, state, plan[None], self.actions, self.particles)
        plans = jnp.concatenate([plan[None], episodes.action])
        returns = jnp.concatenate([last, jnp.where(jnp.isfinite(returns), returns, -jnp.inf)])
        return plans[jnp.argmax(returns)]  # the last plan, where none of them is a number
