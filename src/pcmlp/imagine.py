"""The imagined MDP: the world with the learned model as its transition and reward + bonus as its reward.

(paper: Algorithm 1, line 9, the arguments of the planning oracle.)

`imagine` is as in the paper. A neural model is wrong where it has no data, and a planner with a bonus for such places
finds every error there. `restrict` limits imagined states and starts:

    s' = clip(P(s, clip(a)), bounds),    bounds = the observation space, and the range of real states with a margin
    s_0 = a state of the replay with probability `replay_starts`, else one of the world's own

paper: no restriction / here: as above; docs/deviations.md says what it changes.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.spaces import Box, Range, Vectors
from pcmlp.types import MDP, Action, State


class OptimisticReward(eqx.Module):
    """r(s, a, s') / unit + b(s, a), with 0 in place of a reward that is not finite.

    A model may lead to states where the reward was never checked, and planners average: one NaN among thousands of
    imagined rewards would make a whole update NaN.
    """

    reward: Callable
    bonus: Callable
    unit: float | Float[Array, ""] = 1.0

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        reward = self.reward(state, action, next_state) / self.unit
        return jnp.where(jnp.isfinite(reward), reward, 0.0) + self.bonus(state, action)


def imagine(mdp: MDP, model: Callable, bonus: Callable, unit: float | Float[Array, ""] = 1.0) -> MDP:
    """Return the MDP with the model's transition and the optimistic reward."""
    return dataclasses.replace(mdp, transition=model, reward=OptimisticReward(mdp.reward, bonus, unit))


class SwitchedBonus(eqx.Module):
    """The bonus while exploring, 0 otherwise. It uses the clipped action: there is no bonus for actions out of bounds.

    The switch is an input of the program, so that exploring and deploying policies are planned by the same one; a
    branch that is not taken costs nothing.
    """

    bonus: Callable
    explores: Bool[Array, ""]
    actions: Vectors

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        executed = self.actions.clip(action)
        return jax.lax.cond(self.explores, lambda: self.bonus(state, executed), lambda: jnp.zeros(()))


class RewardFree(eqx.Module):
    """A reward that is the task's when planning the policy to deploy, and 0 while exploring."""

    reward: Callable
    explores: Bool[Array, ""]

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        return jnp.where(self.explores, 0.0, self.reward(state, action, next_state))


def pay_nothing(state: State, action: Action) -> Float[Array, ""]:
    """Return a bonus of 0."""
    return jnp.zeros(())


def drop_bonus(mdp: MDP) -> MDP:
    """Return an imagined MDP with its bonus removed, for a policy that is deployed and searches in it."""
    reward = mdp.reward
    assert isinstance(reward, OptimisticReward)
    return dataclasses.replace(mdp, reward=OptimisticReward(reward.reward, pay_nothing, reward.unit))


class BoundedModel(eqx.Module):
    """The model with actions clipped to the action space and states clipped to bounds."""

    model: Callable
    states: Range
    actions: Vectors

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.states.clip(self.model(key, state, self.actions.clip(action)))


class Starts(eqx.Module):
    """An initial distribution that is uniform over given states."""

    states: Float[Array, "n s"]

    def __call__(self, key: Key[Array, ""]) -> State:
        count = self.states.shape[0]
        row = jnp.floor(jr.uniform(key) * count).astype(int)  # compiles faster than `randint`
        return self.states[jnp.minimum(row, count - 1)]


def restrict(imagined: MDP, bounds: Range, starts: Float[Array, "n s"]) -> MDP:
    """Keep an imagined MDP within `bounds`, with episodes that begin at `starts`."""
    _, actions = imagined.boxes
    model = BoundedModel(imagined.transition, bounds, actions)
    return dataclasses.replace(imagined, initial=Starts(starts), transition=model)


def bounds_around(states: Box, seen: Range, margin: float | Float[Array, ""], bounded: bool | Bool[Array, ""]) -> Range:
    """Return the bounds of imagined states: the observation space and, if there are real states, their range extended
    by `margin` times its width; no bounds if not `bounded`. A goal may be wherever what should reach it has been."""
    if goals := states.coordinates.goals:
        goal, reaching = jnp.array(goals).T
        low = seen.low.at[goal].min(seen.low[reaching])
        seen = Range(low, seen.high.at[goal].max(seen.high[reaching]))
    known = seen.low <= seen.high
    low, high = jnp.where(known, seen.low, states.low), jnp.where(known, seen.high, states.high)
    width = high - low
    room = jnp.where(jnp.isfinite(width), margin * width, jnp.inf)  # 0 times an infinite width would be NaN
    anywhere = jnp.where(bounded, 0.0, jnp.inf)
    low = jnp.maximum(states.low, low - room) - anywhere
    return Range(low, jnp.minimum(states.high, high + room) + anywhere)


def nothing_seen(states: Box) -> Range:
    """Return the range that `expand_range` starts from."""
    infinite = jnp.full(states.size, jnp.inf, jnp.float32)
    return Range(infinite, -infinite)


def expand_range(seen: Range, samples: Transitions) -> Range:
    """Return the smallest range around `seen` and all valid states of the samples."""
    both = jnp.concatenate([samples.state, samples.next_state])
    valid = jnp.concatenate([samples.valid, samples.valid])[:, None]
    low = jnp.min(jnp.where(valid, both, jnp.inf), axis=0)
    high = jnp.max(jnp.where(valid, both, -jnp.inf), axis=0)
    return Range(jnp.minimum(seen.low, low), jnp.maximum(seen.high, high))


class Unknown(eqx.Module):
    """The reward or terminal function of a world in which it is known from samples only."""

    def __call__(self, state: State, action: Action, next_state: State) -> Array:
        """Raise: only a model that has learned the function can be planned in."""
        raise ConfigError("reward or terminal: unknown in this world; give a function, or a model that learns it")


def unknown_functions(mdp: MDP) -> list[str]:
    """Return which of reward and termination have to be learned."""
    functions = {"reward": mdp.reward, "termination": mdp.terminal}
    return [name for name, function in functions.items() if isinstance(function, Unknown)]
