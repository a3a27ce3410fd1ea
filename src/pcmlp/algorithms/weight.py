"""How much the bonus weighs, and in what unit rewards are planned for.

    planned reward = r / unit + (c / unit) b

With `rescales`, the unit makes the largest reward of one step as large as the planner's constants expect
(`Planner.reward_size`). So planners and critics see numbers of the same size, whatever the task pays. c b is still what
a new place is worth in the task's own reward.

With `bonus_scale=auto`, c follows from the largest reward of one step and a level:

    c = LEAST 4^level largest

The level rises by 1 after an exploring walk that was less than NOVEL times as novel as the replay, by the bonus itself,
and falls by 1 after a walk that returned clearly more than any before. So the bonus weighs next to nothing where
policies that follow the reward find new places or get better, and grows where the reward holds them back, whatever the
scale of either. A policy that continues from iteration to iteration (`fresh=false`) stays at level 0: it would have to
unlearn the bonus again.

paper: rewards in [0, 1], and c is given / here: as above; a number is used as it is.
"""

import math
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.bonus import CappedBonus, Number
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Range
from pcmlp.types import MDP, Features, FittedBonus, Metrics, Unknown

LEAST, FACTOR, HIGHEST = 5e-4, 4.0, 6  # the least weight, the factor of a level, and the highest level
NOVEL = 2.0
_DRAWN = 4096  # states at which a reward function is asked for its largest reward
_COMPARED = 256  # rows of the replay that a walk is compared with


class Weight(eqx.Module):
    """The weight of a seed's bonus, and the unit of its rewards."""

    unit: Float[Array, "*seeds"]  # of what is planned
    scale: Float[Array, "*seeds"]  # c, in units of what is planned
    level: Int[Array, "*seeds"]
    largest: Float[Array, "*seeds"]  # |r| of a single step, so far; 0 before anything was paid

    def apply(self, bonus: FittedBonus, horizon: int) -> CappedBonus:
        """Return the bonus as it is planned for: min{c b, H}, in the unit of the rewards."""
        return CappedBonus(bonus, self.scale, float(horizon))

    def mean_bonus(self, last: FittedBonus, phi: Features, samples: Transitions, horizon: int) -> Float[Array, ""]:
        """Return the mean of b_{n-1}, for which line 11 planned pi_n, over the states that pi_n visited."""
        promised = eqx.tree_at(lambda b: b.features, last, phi)  # the first phi was drawn before there were samples
        paid = jax.vmap(self.apply(promised, horizon))(samples.state, samples.action)
        return self.unit * jnp.mean(paid, where=samples.valid)


def weigh(
    bonus_scale: Number | Literal["auto"],
    rescales: bool | Bool[Array, ""],
    reward_size: float,
    level: Int[Array, ""],
    largest: Float[Array, ""],
) -> Weight:
    """Return the weight at a level. A `bonus_scale` that is to be found is NaN in a compiled program."""
    known = jnp.where(largest > 0, largest, 1.0)
    found = LEAST * FACTOR ** level.astype(jnp.float32) * known
    given = jnp.asarray(math.nan if isinstance(bonus_scale, str) else bonus_scale)
    c = jnp.where(jnp.isnan(given), found, given)
    unit = jnp.where(rescales, known / reward_size, 1.0)
    return Weight(unit, c / unit, level, largest)


def update_weight(
    weigh: Callable[[Int[Array, ""], Float[Array, ""]], Weight],
    old: Weight,
    largest: Float[Array, ""],
    novelty: Float[Array, ""],
    explored: Bool[Array, ""],
    improved: Bool[Array, ""],
) -> tuple[Weight, Metrics]:
    """Return the weight for the next plans, given the largest reward now, and what the last walk has shown."""
    change = jnp.where(explored & (novelty < NOVEL), 1, 0) - jnp.where(improved, 1, 0)
    weight = weigh(jnp.clip(old.level + change, 0, HIGHEST), jnp.maximum(old.largest, largest))
    return weight, {"novelty": novelty, "reward_unit": weight.largest, "bonus_weight": weight.scale * weight.unit}


def measure_novelty(key: Key[Array, ""], bonus: FittedBonus, samples: Transitions, replay: Replay) -> Float[Array, ""]:
    """Return the mean bonus of samples that were not counted yet, relative to that of the replay's rows; NaN before
    there are any."""
    rows = jax.tree.map(lambda x: x[:, 0], replay.windows(key, _COMPARED, 1))
    new, old = (jnp.mean(jax.vmap(bonus)(x.state, x.action), where=x.valid) for x in (samples, rows))
    return new / old


def largest_reward(key: Key[Array, ""], mdp: MDP, seen: Range, replay: Replay) -> Float[Array, ""]:
    """Return the largest |r| of one step: in the replay and, where the reward is given as a function, at random states.

    They are drawn from the observation space or, in coordinates where it has no bounds, from the range of what was
    seen. A reward that is not finite does not count. 0 if nothing was paid.
    """
    paid = jnp.where(replay.data.valid, jnp.abs(replay.data.reward), 0.0)
    if not isinstance(mdp.reward, Unknown):
        states, actions = mdp.boxes
        bounded = jnp.isfinite(states.low) & jnp.isfinite(states.high)
        low, high = jnp.where(bounded, states.low, seen.low), jnp.where(bounded, states.high, seen.high)
        state_key, action_key = jr.split(key)
        drawn = jr.uniform(state_key, (_DRAWN, states.size), minval=low, maxval=high)
        taken = jr.uniform(action_key, (_DRAWN, actions.size), minval=actions.low, maxval=actions.high)
        # The model may be wrong at these states, so the next state is the same one.
        paid = jnp.concatenate([paid, jnp.abs(jax.vmap(mdp.reward)(drawn, taken, drawn))])
    return jnp.max(jnp.where(jnp.isfinite(paid), paid, 0.0))
