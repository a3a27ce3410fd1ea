"""How much the bonus weighs, and in what unit rewards are planned for.

    planned reward = r / unit + w b

With `rescales`, the unit is such that the largest reward of one step has the size that the planner's constants expect
(`Planner.reward_size`). So planners and critics see numbers of the same size, whatever the task pays.

With `bonus_scale=auto`, exploring policies are careful or bold:

    careful:    planned reward = r / unit + w b,    w = c / unit,    c = SHARE largest reward of one step
    bold:       planned reward = w b

A careful policy explores on the way to the reward. A bold one ignores the reward, so it also leaves places where the
reward would keep it. Every second exploring policy is bold. Nothing then depends on the scale of the reward. A policy
that continues from iteration to iteration (`fresh=false`) is always careful: after a bold iteration it would have to
unlearn what the bonus has taught it.

paper: rewards in [0, 1], and c is given / here: as above; a number is used as it is.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from pcmlp.bonus import CappedBonus, Number
from pcmlp.imagine import Unknown
from pcmlp.replay import Replay, Transitions
from pcmlp.spaces import Range
from pcmlp.types import MDP, Features, FittedBonus, Metrics

SHARE = 5e-4
_DRAWN = 16_384  # states at which a reward function is asked for its largest reward


class Weight(eqx.Module):
    """The weight of a seed's bonus, and the unit of its rewards."""

    unit: Float[Array, "*seeds"]  # of planned rewards
    scale: Float[Array, "*seeds"]  # w
    bold: Bool[Array, "*seeds"]  # whether exploring plans ignore the reward
    largest: Float[Array, "*seeds"]  # |r| of a single step, so far; 0 before anything was paid

    def apply(self, bonus: FittedBonus, horizon: int) -> CappedBonus:
        """Return the bonus as it is planned for: min{w b, H}."""
        return CappedBonus(bonus, self.scale, float(horizon))

    def mean_bonus(self, last: FittedBonus, phi: Features, samples: Transitions, horizon: int) -> Float[Array, ""]:
        """Return the mean of c b_{n-1}, for which line 11 planned pi_n, over the states that pi_n visited."""
        promised = eqx.tree_at(lambda b: b.features, last, phi)  # the first phi was drawn before there were samples
        paid = jax.vmap(self.apply(promised, horizon))(samples.state, samples.action)
        return self.unit * jnp.mean(paid, where=samples.valid)

    def metrics(self) -> Metrics:
        """Return the columns that a run logs."""
        c = self.scale * self.unit
        return {"largest_reward": self.largest, "bonus_weight": c, "bold": self.bold.astype(jnp.float32)}


def weigh(
    bonus_scale: Number | Literal["auto"],
    rescales: bool | Bool[Array, ""],
    reward_size: float,
    largest: Float[Array, ""],
    bold: Bool[Array, ""],
) -> Weight:
    """Return the weight, given the largest reward of one step. In a compiled program, `bonus_scale=auto` is NaN."""
    known = jnp.where(largest > 0, largest, 1.0)
    given = jnp.asarray(math.nan if isinstance(bonus_scale, str) else bonus_scale)
    auto = jnp.isnan(given)
    unit = jnp.where(rescales, known / reward_size, 1.0)
    return Weight(unit, jnp.where(auto, SHARE * known, given) / unit, auto & bold, largest)


def largest_reward(
    key: Key[Array, ""], mdp: MDP, seen: Range, margin: Number, replay: Replay, last: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the largest |r| of one step: the largest so far (`last`), in the replay and, if the reward is given as a
    function, at random states.

    These states are drawn from the observation space or, in coordinates in which it has no bounds, from the range of
    the states that were seen, extended by up to `margin` times its width. A reward that is not finite does not count.
    The result is 0 if nothing was paid.
    """
    paid = jnp.where(replay.data.valid, jnp.abs(replay.data.reward), 0.0)
    if not isinstance(mdp.reward, Unknown):
        states, actions = mdp.boxes
        bounded = jnp.isfinite(states.low) & jnp.isfinite(states.high)

        def draw_reward(key: Key[Array, ""]) -> Float[Array, ""]:
            width_key, state_key, action_key = jr.split(key, 3)
            room = margin * jr.uniform(width_key) * (seen.high - seen.low)
            low = jnp.where(bounded, states.low, seen.low - room)
            high = jnp.where(bounded, states.high, seen.high + room)
            state = jr.uniform(state_key, low.shape, minval=low, maxval=high)
            return jnp.abs(mdp.reward(state, actions.sample(action_key), state))  # s' = s: a model may be wrong here

        paid = jnp.concatenate([paid, jax.vmap(draw_reward)(jr.split(key, _DRAWN))])
    return jnp.maximum(last, jnp.max(jnp.where(jnp.isfinite(paid), paid, 0.0)))
