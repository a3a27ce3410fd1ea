"""Trials: which policy is deployed, and which one walks next. A policy walks when it collects an iteration's samples.

The model and the counted episodes of learning decide; evaluations are not used.

**The deployed policy** is the one whose own real episodes, without its noise, returned most. This return is its
`record`. `base` is what the first, untrained policy returned, `largest` the largest reward of one step:

    clearly more than y:    x > y + max(MARGIN (y - base), LEAST largest)

As long as no policy has returned clearly more than `base`, the model chooses between the last two candidates.

**The candidate** is the policy that was planned for the reward alone. But if the last walk was the exploring policy's
and returned clearly more than the record, the policy of that walk is the candidate. In a trial, the candidate walks in
the next iteration, without its noise. It is then deployed if it returned clearly more than the record, or nearly as
much. There is a trial

- of the first candidate, and of the policy of a walk that returned clearly more,
- of a candidate for which the model promises clearly more than the deployed policy is known to return,

      promise - std > known,     known = min(record, what the model promises for the deployed policy)

- in every fourth iteration, of a candidate for which the model promises more than for the deployed policy. If it does
  not, the deployed policy walks again, and its record becomes the mean of its walks. Otherwise, one lucky episode could
  make a record that no policy exceeds.

At least every second walk explores.

**The plan** of the candidate begins with the exploring policy or, if that returns more in the model, with the deployed
one. So each better model improves what was found before.

A policy that continues from iteration to iteration (`fresh=false`) needs no trials: the exploring policy is nearly the
same as the candidate, so its own walk shows how good the candidate is.

paper: one policy explores and is deployed / here: as above, with `deploys=proven`.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.algorithms.weight import Weight
from pcmlp.replay import Transitions
from pcmlp.rollout import episode_return, mean_first_return
from pcmlp.trees import map_leading, select
from pcmlp.types import MDP, Metrics, Policy

MARGIN, LEAST, TOLERANCE = 0.02, 0.2, 0.9
JUDGED = 16  # number of imagined episodes by which a policy is judged
Rule = Literal["exploring", "newest", "imagined", "walked", "proven"]
JUDGING: tuple[Rule, ...] = ("imagined", "walked", "proven")  # the rules by which the model judges policies
_AGAIN = 4  # iterations between two walks of the deployed policy


class Trial(eqx.Module):
    """The policies of a seed that may be deployed, and what their real episodes returned."""

    deployed: Policy
    candidate: Policy
    tries: Bool[Array, "*seeds"]  # whether the candidate walks next
    repeats: Bool[Array, "*seeds"]  # whether the deployed policy walks next
    found: Bool[Array, "*seeds"]  # whether the last walk explored and returned clearly more than the record
    failed: Bool[Array, "*seeds"]  # whether the last walk was a trial that failed
    record: Float[Array, "*seeds"]  # mean return of the deployed policy's walks; -inf before it has walked
    walks: Float[Array, "*seeds"]  # number of these walks
    base: Float[Array, "*seeds"]  # what the first policy returned

    @staticmethod
    def new(deployed: Policy) -> "Trial":
        """Return the state before the first iteration."""
        no, zero, nothing = jnp.array(False), jnp.zeros(()), jnp.full((), -jnp.inf, jnp.float32)
        return Trial(deployed, deployed, no, no, no, no, nothing, zero, zero)

    @property
    def explores(self) -> Bool[Array, "*seeds"]:
        """Whether the exploring policy walks next."""
        return ~(self.tries | self.repeats)

    @property
    def proven(self) -> Bool[Array, "*seeds"]:
        """Whether the deployed policy has shown its return in real episodes."""
        return self.walks > 0

    def walker(self, exploring: Policy) -> Policy:
        """Return the policy that walks next: the exploring one; or the candidate or the deployed one, without noise."""
        tested = select(self.tries, self.candidate, self.deployed)
        return select(self.explores, exploring, tested.deterministic())


def is_clearly_more(
    value: Float[Array, ""], than: Float[Array, ""], base: Float[Array, ""], largest: Float[Array, ""]
) -> Bool[Array, ""]:
    """Return whether a return is clearly more than another one."""
    return value > than + jnp.maximum(MARGIN * (than - base), LEAST * largest)


def settle(
    trial: Trial,
    rule: Rule,
    exploring: Policy,
    samples: Transitions,
    horizon: int,
    largest: Float[Array, ""],
    n: Int[Array, ""],
) -> tuple[Trial, Metrics]:
    """Return the trial after line 5, in which the policy that walked may be deployed, or become the candidate."""
    returned = mean_first_return(samples, horizon)
    returned = jnp.where(jnp.isfinite(returned), returned, -horizon * largest)  # the lowest possible return
    base = jnp.where(n == 1, returned, trial.base)
    clearly = is_clearly_more(returned, jnp.where(trial.proven, trial.record, base), base, largest) & (n > 1)
    nearly = trial.proven & (returned - base > TOLERANCE * (trial.record - base))
    found = trial.explores & clearly
    wins = found if rule == "walked" else trial.tries & (clearly | nearly)
    walked = exploring if rule == "exploring" else exploring.without_bonus()
    candidate = select(found, walked, trial.candidate)
    walks = jnp.where(trial.repeats, trial.walks + 1.0, jnp.where(wins, 1.0, trial.walks))
    mean = trial.record + (returned - trial.record) / walks
    settled = Trial(
        deployed=select(wins, candidate, trial.deployed),
        candidate=candidate,
        tries=trial.tries,
        repeats=trial.repeats,
        found=found,
        failed=trial.tries & ~wins,
        record=jnp.where(trial.repeats, mean, jnp.where(wins, returned, trial.record)),
        walks=walks,
        base=base,
    )
    flags = {"tried": trial.tries, "repeated": trial.repeats, "found": found}
    return settled, {"walked_return": returned, **{name: flag.astype(jnp.float32) for name, flag in flags.items()}}


def choose_start(
    key: Key[Array, ""], rule: Rule, imagined: MDP, proven: Bool[Array, ""], deployed: Policy, exploring: Policy
) -> Policy:
    """Return the policy with which the plan of the candidate begins."""
    if rule != "proven":
        return exploring
    ours, theirs = jnp.mean(judge(key, imagined, exploring, deployed), axis=1)
    return select(proven & (theirs > ours), deployed, exploring)


def propose(
    key: Key[Array, ""],
    rule: Rule,
    imagined: MDP,
    trial: Trial,
    planned: Policy,
    weight: Weight,
    n: Int[Array, ""],
) -> tuple[Trial, Metrics]:
    """Return the trial with a new candidate: whether it is deployed now, walks next, or neither."""
    planned = planned if rule == "exploring" else planned.without_bonus()
    if rule not in JUDGING:
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (planned, planned)), {}
    candidate = select(trial.found & (rule == "proven"), trial.candidate, planned)
    returns = weight.unit * judge(key, imagined, candidate, trial.deployed)
    promise, again = jnp.mean(returns, axis=1)
    seen = {"candidate_imagined": promise, "deployed_imagined": again}
    if rule == "imagined":
        deployed = select((promise >= again) | ~jnp.isfinite(again), candidate, trial.deployed)
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (deployed, candidate)), seen
    # Before a policy has proved itself, the candidate is deployed at once, and may be tried later.
    favoured = (n == 1) | trial.failed | trial.found | is_clearly_more(promise, again, trial.base, weight.largest)
    candidate = select(trial.proven | favoured, candidate, trial.deployed)
    deployed = select(trial.proven, trial.deployed, candidate)
    hope = jnp.where(trial.proven, promise - jnp.std(returns[0]), jnp.where(favoured, promise, again))
    known = jnp.where(trial.proven, jnp.minimum(trial.record, again), trial.base)
    hopeful = (n == 1) | trial.found | is_clearly_more(hope, known, trial.base, weight.largest)
    renews = trial.proven & (n % _AGAIN == 0)
    may = trial.explores & (rule == "proven")  # at least every second walk explores
    tries = may & (hopeful | (renews & (promise > again)))
    proposed = (deployed, candidate, tries, may & renews & ~tries)
    trial = eqx.tree_at(lambda t: (t.deployed, t.candidate, t.tries, t.repeats), trial, proposed)
    return trial, {**seen, "record": jnp.where(trial.proven, trial.record, jnp.nan)}


def judge(key: Key[Array, ""], imagined: MDP, first: Policy, second: Policy) -> Float[Array, "2 episodes"]:
    """Return what two policies return in the model without their noise, in the same episodes."""
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]) if eqx.is_array(x) else x, first, second)
    keys = jr.split(key, JUDGED)
    return map_leading(
        lambda policy: jax.vmap(lambda k: episode_return(k, imagined, policy.deterministic()))(keys), both
    )
