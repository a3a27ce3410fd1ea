"""Trials: which policy is deployed, and which one walks next.

The model and the counted episodes of learning decide; evaluations decide nothing.

**Deployed** is the policy whose own real episodes returned most, its `record`. An exploring policy replaces it if it
returned clearly more. `base` is what the first, untrained policy returned, `largest` the largest reward of one step:

    clearly more than y:    x > y + max(MARGIN (y - base), LEAST largest)

As long as no policy has returned clearly more than `base`, the model decides between the last two candidates.

**The candidate** is the policy that was planned for the reward alone. Where the model promises clearly more than the
deployed policy is known to return, the candidate collects the samples of the next iteration, without its noise; so does
the first candidate, whatever the model promises. It is then deployed if it returned at least nearly as much as the
record.

    promise - std > known,     known = min(record, what the model promises of the deployed policy)
    return - base > TOLERANCE (record - base)

**Again.** One lucky episode makes a record that nothing beats. So in every fourth iteration without a trial, the
deployed policy itself walks, and its record becomes the mean of its walks. At least every second walk explores.

A policy that continues from iteration to iteration (`fresh=false`) needs no trials: the exploring policy is nearly the
candidate, so its own walk shows what it is worth.

paper: one policy explores and is deployed / here: as above, with `deploys=proven`.
"""

import dataclasses
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
JUDGED = 16  # imagined episodes that a policy is judged by
Rule = Literal["exploring", "newest", "imagined", "walked", "proven"]
JUDGING: tuple[Rule, ...] = ("imagined", "walked", "proven")  # the rules by which the model judges policies
_AGAIN = 4  # iterations between two walks of the deployed policy


class Trial(eqx.Module):
    """The policies of a seed that may be deployed, and what real episodes have shown of them."""

    deployed: Policy
    candidate: Policy  # the newest policy that was planned for the reward alone
    tries: Bool[Array, "*seeds"]  # whether the candidate walks next
    repeats: Bool[Array, "*seeds"]  # whether the deployed policy walks next
    failed: Bool[Array, "*seeds"]  # whether the last walk was a trial that failed
    improved: Bool[Array, "*seeds"]  # whether the last walk returned clearly more than any before
    record: Float[Array, "*seeds"]  # mean return of the deployed policy's walks; -inf before it has walked
    walks: Float[Array, "*seeds"]  # number of these walks
    base: Float[Array, "*seeds"]  # what the first policy returned

    @staticmethod
    def new(deployed: Policy) -> "Trial":
        """Return the state before the first iteration."""
        no, zero = jnp.array(False), jnp.zeros(())
        return Trial(deployed, deployed, no, no, no, no, jnp.full((), -jnp.inf, jnp.float32), zero, zero)

    @property
    def explores(self) -> Bool[Array, "*seeds"]:
        """Whether the exploring policy walks next."""
        return ~(self.tries | self.repeats)

    @property
    def proven(self) -> Bool[Array, "*seeds"]:
        """Whether the deployed policy has shown its return in real episodes."""
        return self.walks > 0

    def walker(self, exploring: Policy) -> Policy:
        """Return the policy that walks next: the exploring one, or one to deploy, without its noise."""
        tested = select(self.tries, self.candidate, self.deployed)
        return select(self.explores, exploring, tested.deterministic())


def is_clearly_more(
    value: Float[Array, ""], than: Float[Array, ""], base: Float[Array, ""], largest: Float[Array, ""]
) -> Bool[Array, ""]:
    """Return whether a return is clearly more than another one."""
    return value > than + jnp.maximum(MARGIN * (than - base), LEAST * largest)


def settle(
    trial: Trial, exploring: Policy, samples: Transitions, horizon: int, largest: Float[Array, ""], n: Int[Array, ""]
) -> tuple[Trial, Metrics]:
    """Return the trial after line 5: the policy that walked may be deployed, or lose its place."""
    returned = mean_first_return(samples, horizon)
    base = jnp.where(n == 1, returned, trial.base)
    known = jnp.where(trial.proven, trial.record, base)
    clearly = is_clearly_more(returned, known, base, largest)
    nearly = trial.proven & (returned - base > TOLERANCE * (trial.record - base))
    succeeds = jnp.where(trial.tries, clearly | nearly, clearly & (n > 1))
    again = trial.repeats & trial.proven
    deployed = select(trial.explores, exploring, select(trial.tries, trial.candidate, trial.deployed))
    walks = jnp.where(again, trial.walks + 1.0, jnp.where(succeeds, 1.0, trial.walks))
    mean = trial.record + (returned - trial.record) / walks
    settled = Trial(
        deployed=select(succeeds & ~again, deployed, trial.deployed),
        candidate=trial.candidate,
        tries=trial.tries,
        repeats=trial.repeats,
        failed=~trial.explores & ~again & ~succeeds,
        improved=succeeds & clearly & ~again,
        record=jnp.where(again, mean, jnp.where(succeeds, returned, trial.record)),
        walks=walks,
        base=base,
    )
    walked = {"tried": trial.tries | (trial.repeats & ~again), "repeated": again}
    return settled, {"walked_return": returned, **{name: flag.astype(jnp.float32) for name, flag in walked.items()}}


def propose(
    key: Key[Array, ""],
    rule: Rule,
    mdp: MDP,
    imagined: MDP,
    trial: Trial,
    candidate: Policy,
    weight: Weight,
    n: Int[Array, ""],
) -> tuple[Trial, Metrics]:
    """Return the trial with a new candidate: whether it is deployed now, walks next, or neither."""
    candidate = candidate if rule == "exploring" else candidate.without_bonus()
    if rule not in JUDGING:
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (candidate, candidate)), {}
    judged, largest = dataclasses.replace(imagined, initial=mdp.initial), weight.largest  # real episodes begin there
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]) if eqx.is_array(x) else x, candidate, trial.deployed)
    keys = jr.split(key, JUDGED)
    returns = weight.unit * map_leading(
        lambda policy: jax.vmap(lambda k: episode_return(k, judged, policy.deterministic()))(keys), both
    )
    promise, again = jnp.mean(returns, axis=1)
    seen = {"candidate_imagined": promise, "deployed_imagined": again}
    if rule == "imagined":
        deployed = select((promise >= again) | ~jnp.isfinite(again), candidate, trial.deployed)
        return eqx.tree_at(lambda t: (t.deployed, t.candidate), trial, (deployed, candidate)), seen
    favoured = (n == 1) | trial.failed | is_clearly_more(promise, again, trial.base, largest)
    deployed = select(favoured & ~trial.proven, candidate, trial.deployed)
    known = jnp.minimum(trial.record, again)
    opens = trial.proven & is_clearly_more(promise - jnp.std(returns[0]), known, trial.base, largest)
    # An unproven policy is deployed already: it is tried as the deployed one.
    hopeful = ~trial.proven & is_clearly_more(jnp.where(favoured, promise, again), trial.base, trial.base, largest)
    first, repeats = n == 1, trial.proven & (n % _AGAIN == 0)
    may = trial.explores & (rule == "proven")  # at least every second walk explores
    proposed = (deployed, candidate, may & opens, may & ~opens & (hopeful | first | repeats))
    trial = eqx.tree_at(lambda t: (t.deployed, t.candidate, t.tries, t.repeats), trial, proposed)
    return trial, {**seen, "record": jnp.where(trial.proven, trial.record, jnp.nan)}
