"""The imagined MDP: the world with the learned model as its transition and reward + bonus as its reward.

(paper: Algorithm 1, line 9, the arguments of the planning oracle.)

`imagine` is the paper's. A neural model knows nothing where it has no data, and a planner that is paid for places
without data finds all that is wrong there; `grounded` keeps such an imagination to what can be:

    s' = clip(P(s, clip(a)), bounds),    bounds = the observation space, and what was seen with a margin
    s_0 = a state of the replay with probability `replay_starts`, else one of the world's own

paper: none of this / here: see docs/deviations.md for what it changes.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.types import MDP, Action, Box, State, Transitions, unknown


class OptimisticReward(eqx.Module):
    """r(s, a, s') + b(s, a), where r is a number, else b(s, a).

    A model leads to states that no reward was tried at, and planners average: one NaN of thousands of imagined rewards
    would undo a whole update. 0 is what a state without a known reward pays.
    """

    reward: Callable
    bonus: Callable

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        reward = self.reward(state, action, next_state)
        return jnp.where(jnp.isfinite(reward), reward, 0.0) + self.bonus(state, action)


def imagine(world: MDP, model: Callable, bonus: Callable) -> MDP:
    return MDP(
        initial=world.initial,
        transition=model,
        reward=OptimisticReward(world.reward, bonus),
        terminal=world.terminal,
        horizon=world.horizon,
    )


def unknowns(world: MDP) -> list[str]:
    """What has to be learned of the world besides its dynamics."""
    functions = {"reward": world.reward, "termination": world.terminal}
    return [name for name, function in functions.items() if function is unknown]


def as_learned(world: MDP, model: Callable) -> MDP:
    """The world with what is unknown of it as the model has learned it, if it has an `outcome`."""
    outcome = getattr(model, "outcome", None)
    if outcome is None:
        return world
    reward = outcome.reward if world.reward is unknown else world.reward
    terminal = outcome.terminal if world.terminal is unknown else world.terminal
    return MDP(world.initial, world.transition, reward, terminal, world.horizon)


def expected(model: Callable) -> Callable:
    """What a model holds most likely, if it is a draw from several that are likely."""
    most_likely = getattr(model, "expected", None)
    return model if most_likely is None else most_likely()


class BoundedModel(eqx.Module):
    """The model between bounds: what an actuator cannot do and where nothing can be is not imagined."""

    model: Callable
    states: Box
    actions: Box

    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        return self.states.clip(self.model(key, state, self.actions.clip(action)))


class BoundedBonus(eqx.Module):
    """The bonus of what an action does, not of what was asked for: no bonus for asking for more than full throttle."""

    bonus: Callable
    actions: Box

    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        return self.bonus(state, self.actions.clip(action))


class Starts(eqx.Module):
    """Where imagined episodes begin: at one of many states that were drawn beforehand."""

    states: Float[Array, "n s"]

    def __call__(self, key: Key[Array, ""]) -> State:
        count = self.states.shape[0]
        row = jnp.floor(jr.uniform(key) * count).astype(int)  # compiles faster than `randint`
        return self.states[jnp.minimum(row, count - 1)]


def grounded(imagined: MDP, bounds: Box, actions: Box, starts: Float[Array, "n s"]) -> MDP:
    """An imagination that stays within `bounds` and begins where something has been."""
    return MDP(
        initial=Starts(starts),
        transition=BoundedModel(imagined.transition, bounds, actions),
        reward=imagined.reward,
        terminal=imagined.terminal,
        horizon=imagined.horizon,
    )


def bounds(states: Box, seen: Box, margin: float | Float[Array, ""]) -> Box:
    """Where imagined states may be: in the observation space, and not further than `margin` ranges from what was
    seen, if anything was."""
    known = seen.low <= seen.high
    seen = Box(jnp.where(known, seen.low, states.low), jnp.where(known, seen.high, states.high))
    width = seen.high - seen.low
    room = jnp.where(jnp.isfinite(width), margin * width, jnp.inf)  # 0 times no bound would be no number
    return Box(jnp.maximum(states.low, seen.low - room), jnp.minimum(states.high, seen.high + room))


def widened(seen: Box, samples: Transitions) -> Box:
    both = jnp.concatenate([samples.state, samples.next_state])
    valid = jnp.concatenate([samples.valid, samples.valid])[:, None]
    low = jnp.min(jnp.where(valid, both, jnp.inf), axis=0)
    high = jnp.max(jnp.where(valid, both, -jnp.inf), axis=0)
    return Box(jnp.minimum(seen.low, low), jnp.maximum(seen.high, high))


def no_bonus(state: State, action: Action) -> Float[Array, ""]:
    return jnp.zeros(())


def no_reward(state: State, action: Action, next_state: State) -> Float[Array, ""]:
    return jnp.zeros(())


def reward_free(world: MDP) -> MDP:
    return MDP(world.initial, world.transition, no_reward, world.terminal, world.horizon)
