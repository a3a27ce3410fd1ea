"""Trials: which policy of a seed is deployed, which one walks, and how much the bonus weighs.

Everything here is decided by the model and by the counted episodes of learning; evaluations decide nothing.

A policy that was planned for the reward alone, the *candidate*, may look good only because the model is wrong. So it is
tried: where the model promises more than the deployed policy is known to return, the candidate collects the samples of
the next iteration, without its noise. It is deployed from then on if it returned more.

    opens      promise - base > (1 + MARGIN) (known - base),     known = min(record, promise of the deployed policy)
    succeeds   return > record - luck,                           luck = std of the promised episodes / sqrt(episodes)

`record` is what the deployed policy returned in its own trial, `base` what the first, untrained policy did. A trial
that failed is followed by an exploring iteration. As long as no trial has succeeded, the newest candidate is deployed.

With `bonus_scale=auto`, the weight of the bonus follows from this. It is measured in units of `unit`, the largest
reward of a single step, begins at LEAST, and doubles with each exploring iteration without a success. A success, or
the end of the ladder, sets it back: where the reward leads there is hardly a bonus, and where it misleads the bonus
soon exceeds it, whatever its scale.

    weight = LEAST 2^(waited mod LEVELS) unit

paper: c is given, and one policy explores and is deployed / here: as above; a given c is used as it is.
"""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.replay import Replay, Transitions
from pcmlp.rollout import episode_return, mean_first_return
from pcmlp.spaces import Range
from pcmlp.trees import map_leading, select
from pcmlp.types import MDP, Metrics, Policy, Unknown

if TYPE_CHECKING:
    from pcmlp.algorithms.deep import Deep

import os

OPT = dict(kv.split("=") for kv in os.environ.get("PROTO", "").split(",") if kv)
LEAST, LEVELS = float(OPT.get("least", 5e-4)), int(OPT.get("levels", 8))  # the ladder of weights
MARGIN = float(OPT.get("margin", 0.05))
ALWAYS = int(OPT.get("always", 0))
LARGEST = float(
    OPT.get("largest", 10.0)
)  # the largest reward of a step that planners see: their constants are tuned to it
JUDGED = 16  # imagined episodes that a policy is judged by
_DRAWN = 4096  # states that a reward function is asked for its largest reward


class Pay(NamedTuple):
    """The reward that is planned for: r / unit + weight b."""

    unit: Float[Array, ""]
    weight: Float[Array, ""]


class Trial(eqx.Module):
    """What the counted episodes of a seed have shown so far."""

    deployed: Policy
    candidate: Policy  # the newest policy that was planned for the reward alone
    walks: Bool[Array, "*seeds"]  # whether the candidate collects the next samples
    record: Float[Array, "*seeds"]  # what the deployed policy returned in its trial; -inf before any has succeeded
    luck: Float[Array, "*seeds"]  # how much of a trial's return may be chance
    base: Float[Array, "*seeds"]  # what the first policy returned
    waited: Int[Array, "*seeds"]  # exploring iterations since the last success
    unit: Float[Array, "*seeds"]  # the largest reward of a step so far; 0 before there was any
    pay: Pay  # what the last plans were paid

    @staticmethod
    def new(deployed: Policy, pay: Pay) -> "Trial":
        """Return the state before the first iteration."""
        zero = jnp.zeros(())
        nothing = -jnp.inf * jnp.ones(())
        return Trial(deployed, deployed, jnp.array(False), nothing, zero, zero, jnp.zeros((), int), zero, pay)


def settle(trial: Trial, samples: Transitions, horizon: int, n: Int[Array, ""]) -> tuple[Trial, Metrics]:
    """Return the trial after line 5: if the candidate walked and did better, it is deployed."""
    returned = mean_first_return(samples, horizon)
    better = trial.walks & (returned > trial.record - trial.luck)
    explored = ~trial.walks & (n > 1)
    settled = Trial(
        deployed=select(better, trial.candidate, trial.deployed),
        candidate=trial.candidate,
        walks=trial.walks & ~better,  # whether a trial has just failed
        record=jnp.where(better, returned, trial.record),
        luck=trial.luck,
        base=jnp.where(n == 1, returned, trial.base),
        waited=jnp.where(better, 0, trial.waited + explored),
        unit=trial.unit,
        pay=trial.pay,
    )
    return settled, {"walked_return": returned, "tried": trial.walks.astype(jnp.float32)}


def largest_reward(key: Key[Array, ""], mdp: MDP, seen: Range, replay: Replay) -> Float[Array, ""]:
    """Return the largest |r| of a single step: of the replay and, where the reward is given as a function, of random
    states in the box of what was seen, or in the observation space where that has bounds. 0 if nothing was paid."""
    paid = jnp.where(replay.data.valid, jnp.abs(replay.data.reward), 0.0)
    if not isinstance(mdp.reward, Unknown):
        states, actions = mdp.boxes
        bounded = jnp.isfinite(states.low) & jnp.isfinite(states.high)
        low, high = jnp.where(bounded, states.low, seen.low), jnp.where(bounded, states.high, seen.high)
        state_key, action_key = jr.split(key)
        drawn = low + (high - low) * jr.uniform(state_key, (_DRAWN, states.size))
        taken = jax.vmap(actions.from_unit)(jr.uniform(action_key, (_DRAWN, actions.size), minval=-1.0))
        # The model may be wrong here, so the drawn state is taken as the next state, too.
        paid = jnp.concatenate([paid, jnp.abs(jax.vmap(mdp.reward)(drawn, taken, drawn))])
    return jnp.max(jnp.where(jnp.isfinite(paid), paid, 0.0))


def weigh(algo: "Deep", unit: Float[Array, ""], waited: Int[Array, ""]) -> Pay:
    """Return what to plan for: c b in units of the reward, where c is given or follows from the trials."""
    known = jnp.where(unit > 0, unit, 1.0)
    auto = LEAST * 2.0 ** (waited % LEVELS if not algo.reward_free else LEVELS - 1) * known
    scale = jnp.where(jnp.isnan(algo.bonus_scale), auto, algo.bonus_scale)
    divisor = jnp.where(algo.rescales, known / LARGEST, 1.0)
    return Pay(divisor, scale / divisor)


def see_reward(key: Key[Array, ""], algo: "Deep", mdp: MDP, trial: Trial, seen: Range, replay: Replay) -> Trial:
    """Return the trial with the unit of the rewards so far, and what to plan for next."""
    unit = jnp.maximum(trial.unit, largest_reward(key, mdp, seen, replay))
    return eqx.tree_at(lambda t: (t.unit, t.pay), trial, (unit, weigh(algo, unit, trial.waited)))


def propose(
    key: Key[Array, ""], algo: "Deep", mdp: MDP, imagined: MDP, trial: Trial, candidate: Policy, streams: int
) -> tuple[Trial, Metrics]:
    """Return the trial of a new candidate: whether it is deployed now, later, or has to walk first."""
    if algo.deploys in ("exploring", "newest") or algo.planner.searches or algo.reward_free:
        return eqx.tree_at(
            lambda t: (t.deployed, t.candidate, t.walks), trial, (candidate, candidate, jnp.array(False))
        ), {}
    judged = eqx.tree_at(lambda m: m.initial, imagined, mdp.initial)
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]) if eqx.is_array(x) else x, candidate, trial.deployed)
    keys = jr.split(key, JUDGED)
    returns = map_leading(
        lambda policy: jax.vmap(lambda k: episode_return(k, judged, policy.deterministic()))(keys), both
    )
    returns = returns * trial.pay.unit
    promise, again = jnp.mean(returns, axis=1)
    if algo.deploys == "imagined":
        deployed = select((promise >= again) | ~jnp.isfinite(again), candidate, trial.deployed)
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (deployed, candidate)), {}
    failed, proven = trial.walks, trial.record > -jnp.inf
    known = jnp.where(proven, jnp.minimum(trial.record, again), trial.base)
    opens = ~failed & (promise - trial.base > (1 + MARGIN) * jnp.maximum(known - trial.base, 0.0))
    if ALWAYS:
        opens = ~failed
    trial = eqx.tree_at(
        lambda t: (t.deployed, t.candidate, t.walks, t.luck),
        trial,
        (select(proven, trial.deployed, candidate), candidate, opens, jnp.std(returns[0]) / jnp.sqrt(float(streams))),
    )
    return trial, {"candidate_imagined": promise, "deployed_imagined": again, "record": trial.record}
