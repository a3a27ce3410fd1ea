"""The imagined MDP: the world with the learned model as its transition and reward + bonus as its reward.

(paper: Algorithm 1, line 9, the arguments of the planning oracle.)
"""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from pcmlp.types import MDP, Action, State


class OptimisticReward(eqx.Module):
    """r(s, a, s') + b(s, a)"""

    reward: Callable
    bonus: Callable

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        return self.reward(state, action, next_state) + self.bonus(state, action)


def imagine(world: MDP, model: Callable, bonus: Callable) -> MDP:
    return MDP(
        initial=world.initial,
        transition=model,
        reward=OptimisticReward(world.reward, bonus),
        terminal=world.terminal,
        horizon=world.horizon,
    )
