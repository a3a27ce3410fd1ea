"""Trials: which policy of a seed is deployed, which one walks, and how much the bonus weighs.

Everything here is decided by the model and by the counted episodes of learning; evaluations decide nothing.

**Deployed** is the policy whose real episodes returned most. A policy that walked replaces it if it returned clearly
more, where `base` is what the first, untrained policy returned and `record` what the deployed one did in its walk:

    return - base > (1 + MARGIN) (record - base)

As long as no policy has done so, the model decides between the last two candidates.

**Trial.** The candidate is the policy that was planned for the reward alone. Where the model promises clearly more than
the deployed policy is known to return, it collects the samples of the next iteration, without its noise. A trial that
failed is followed by an exploring iteration.

    promise - base > (1 + MARGIN) (known - base),     known = min(record, promise of the deployed policy)

Policies that continue from iteration to iteration (`fresh=false`) need no trials: the exploring policy is nearly the
candidate, so its own walk shows what it is worth.

**Weight.** With `bonus_scale=auto`, the weight of the bonus is measured in units of the largest reward of one step:

    c = LEAST 2^level unit

The level is 0 after a success. It rises after an exploring walk whose states were less novel than those of the replay,
by the bonus itself, and falls after one whose states were more novel. So the bonus weighs next to nothing where the
reward leads, and grows where the reward holds the policy back, whatever the scale of either.

paper: c is given; one policy explores and is deployed / here: as above, and a given c is used as it is.
"""

import os
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
from pcmlp.types import MDP, FittedBonus, Metrics, Policy, Unknown

if TYPE_CHECKING:
    from pcmlp.algorithms.deep import Deep

OPT = dict(kv.split("=") for kv in os.environ.get("PROTO", "").split(",") if kv)
LEAST, HIGHEST = float(OPT.get("least", 5e-4)), int(OPT.get("highest", 12))  # the least weight, and the highest level
MARGIN = float(OPT.get("margin", 0.02))
SIZE = float(OPT.get("size", 0.0))
CAUTION = float(OPT.get("caution", 1.0))
NOVEL = float(OPT.get("novel", 1.0))
JUDGED = 16  # imagined episodes that a policy is judged by
_DRAWN = 4096  # states that a reward function is asked for its largest reward
_COMPARED = 256  # rows of the replay that a walk's novelty is compared with


class Pay(NamedTuple):
    """The reward that is planned for: r / unit + weight b."""

    unit: Float[Array, "*seeds"]
    weight: Float[Array, "*seeds"]


class Trial(eqx.Module):
    """What the counted episodes of a seed have shown so far."""

    deployed: Policy
    candidate: Policy  # the newest policy that was planned for the reward alone
    walks: Bool[Array, "*seeds"]  # whether the candidate collects the next samples
    failed: Bool[Array, "*seeds"]  # whether a trial has just failed
    record: Float[Array, "*seeds"]  # what the deployed policy returned in its walk; -inf before any is proven
    base: Float[Array, "*seeds"]  # what the first policy returned
    level: Int[Array, "*seeds"]  # of the bonus's weight
    unit: Float[Array, "*seeds"]  # the largest reward of a step so far; 0 before there was any
    pay: Pay  # what the last plans were paid

    @property
    def proven(self) -> Bool[Array, "*seeds"]:
        """Whether the deployed policy has shown its return in real episodes."""
        return self.record > -jnp.inf

    @property
    def on_trial(self) -> Policy:
        """The policy that walks in a trial: one that is not proven yet."""
        return select(self.proven, self.candidate, self.deployed)

    @staticmethod
    def new(deployed: Policy, pay: Pay) -> "Trial":
        """Return the state before the first iteration."""
        no, zero = jnp.array(False), jnp.zeros(())
        return Trial(deployed, deployed, no, no, zero - jnp.inf, zero, jnp.zeros((), int), zero, pay)


def is_better(value: Float[Array, ""], than: Float[Array, ""], base: Float[Array, ""]) -> Bool[Array, ""]:
    """Return whether a return is clearly better than another one, above that of the untrained policy."""
    return value - base > (1 + MARGIN) * jnp.maximum(than - base, 0.0)


def settle(
    trial: Trial, policy: Policy, novelty: Float[Array, ""], samples: Transitions, horizon: int, n: Int[Array, ""]
) -> tuple[Trial, Metrics]:
    """Return the trial after line 5: what the policy that walked is worth, and how much the next bonus weighs."""
    returned = mean_first_return(samples, horizon)
    base = jnp.where(n == 1, returned, trial.base)
    better = (n > 1) & is_better(returned, trial.record, base)
    walked = select(trial.walks, trial.on_trial, policy)
    explored = ~trial.walks & (n > 1)
    level = jnp.clip(trial.level + jnp.where(novelty < NOVEL, 1, -1) * explored, 0, HIGHEST)
    settled = Trial(
        deployed=select(better, walked, trial.deployed),
        candidate=trial.candidate,
        walks=jnp.array(False),
        failed=trial.walks & ~better,
        record=jnp.where(better, returned, trial.record),
        base=base,
        level=jnp.where(better, 0, level),
        unit=trial.unit,
        pay=trial.pay,
    )
    return settled, {"walked_return": returned, "tried": trial.walks.astype(jnp.float32), "novelty": novelty}


def measure_novelty(key: Key[Array, ""], bonus: FittedBonus, samples: Transitions, replay: Replay) -> Float[Array, ""]:
    """Return the bonus of the samples, which have not been counted yet, relative to that of the replay's rows."""
    rows = replay.windows(key, _COMPARED, 1)
    new = jnp.mean(jax.vmap(bonus)(samples.state, samples.action), where=samples.valid)
    old = jnp.mean(jax.vmap(bonus)(rows.state[:, 0], rows.action[:, 0]), where=rows.valid[:, 0])
    return new / old


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


def weigh(algo: "Deep", unit: Float[Array, ""], level: Int[Array, ""]) -> Pay:
    """Return what to plan for: r + c b in units of the reward, where c is given or follows from the walks."""
    known = jnp.where(unit > 0, unit, 1.0)
    auto = LEAST * 2.0 ** (level if algo.fresh else 0) * known
    scale = jnp.where(jnp.isnan(algo.bonus_scale), auto, algo.bonus_scale)
    divisor = jnp.where(algo.rescales, known / (SIZE or algo.planner.reward_size), 1.0)
    return Pay(divisor, scale / divisor)


def see_reward(key: Key[Array, ""], algo: "Deep", mdp: MDP, trial: Trial, seen: Range, replay: Replay) -> Trial:
    """Return the trial with the unit of the rewards so far, and what to plan for next."""
    unit = jnp.maximum(trial.unit, largest_reward(key, mdp, seen, replay))
    return eqx.tree_at(lambda t: (t.unit, t.pay), trial, (unit, weigh(algo, unit, trial.level)))


def propose(
    key: Key[Array, ""], algo: "Deep", mdp: MDP, imagined: MDP, trial: Trial, candidate: Policy, n: Int[Array, ""]
) -> tuple[Trial, Metrics]:
    """Return the trial of a new candidate: whether it is deployed now, or has to walk first."""
    if algo.deploys in ("exploring", "newest") or algo.planner.searches or algo.reward_free:
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (candidate, candidate)), {}
    judged = eqx.tree_at(lambda m: m.initial, imagined, mdp.initial)
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]) if eqx.is_array(x) else x, candidate, trial.deployed)
    keys = jr.split(key, JUDGED)
    returns = trial.pay.unit * map_leading(
        lambda policy: jax.vmap(lambda k: episode_return(k, judged, policy.deterministic()))(keys), both
    )
    promise, again = jnp.mean(returns, axis=1)
    if algo.deploys == "imagined":
        deployed = select((promise >= again) | ~jnp.isfinite(again), candidate, trial.deployed)
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (deployed, candidate)), {}
    favoured = (n == 1) | trial.failed | is_better(promise, again, trial.base)
    deployed = select(favoured & ~trial.proven, candidate, trial.deployed)
    promised = jnp.where(favoured, promise, again)
    cautious = promise - CAUTION * jnp.std(returns[0])
    opens = jnp.where(
        trial.proven,
        is_better(cautious, jnp.minimum(trial.record, again), trial.base),
        is_better(promised, trial.base, trial.base),
    )
    walks = (opens | (n == 1)) & ~trial.failed & algo.fresh
    trial = eqx.tree_at(lambda t: (t.deployed, t.candidate, t.walks), trial, (deployed, candidate, walks))
    return trial, {"candidate_imagined": promise, "deployed_imagined": again, "record": trial.record}
