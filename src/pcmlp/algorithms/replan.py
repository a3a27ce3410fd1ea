"""Planning for a new reward in a learned model: OP(Pi, r_new, P_theta), without a bonus or a new sample.

(paper: section 7.3 explores without a reward and shows the coverage / here: we also use the model. A model that is
right wherever the cover has been can be used for any reward that is paid there.)

Planning may find an imagined reward from one initial policy and not from another. So there are several `attempts`, each
of `rounds` calls of the planner, and the policy with the highest imagined return is kept. To compare policies, imagined
episodes begin at the world's own starts, as real ones do. For planning they also begin at states of the replay
(`Deep.replay_starts`), some of which are near a goal that is far from the start.

A policy that is planned for a whole episode can exploit errors of the model. The alternative is to plan at every step
of the real episode, only as many steps ahead as the model can be trusted, and to choose among actions of the exploring
policy (`Search`; planners/guided.py). This needs a reward that is paid on the way to the goal.
"""

import dataclasses
from dataclasses import asdict, dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.deep import Deep, DeepLearner, imagination
from pcmlp.algorithms.stages import PLANNING
from pcmlp.algorithms.starts import imagined_starts, own_starts
from pcmlp.planners import SAC, GuidedPolicy
from pcmlp.programs import program
from pcmlp.rollout import estimate_promise, mean_return, without_critic
from pcmlp.settings import SettingError
from pcmlp.trees import as_inputs, map_leading, scan, select
from pcmlp.types import MDP, Metrics, Policy

_MOST = 10_000  # larger counts are refused as mistakes
_JUDGED = 64  # number of imagined episodes that a return is averaged over
_SAC_STEPS, _ROUNDS = 20_000, 5


@dataclass(frozen=True)
class Ahead:
    """A way to plan: policies for whole episodes, planned before the episodes begin."""

    attempts: int = 3
    rounds: int | None = None  # None: the number that the planner usually needs

    def __post_init__(self) -> None:
        check_counts(self)

    def rounds_for(self, algo: Deep) -> int:
        """Return the rounds of an attempt: 20,000 of SAC's small steps, or five plans of TRPO."""
        if self.rounds is not None:
            return self.rounds
        return max(1, _SAC_STEPS // algo.planner.updates) if isinstance(algo.planner, SAC) else _ROUNDS


@dataclass(frozen=True)
class Search:
    """A way to plan: at every step, choose the best of several imagined episodes of the exploring policy."""

    num_plans: int = 200
    plan_length: int = 15

    def __post_init__(self) -> None:
        check_counts(self)


def check_counts(how: Ahead | Search) -> None:
    """Raise unless all counts are within their limits."""
    for name, count in asdict(how).items():
        if count is not None and not (type(count) is int and 1 <= count <= _MOST):
            raise SettingError(name, count, f"give 1 to {_MOST}")


def replan(
    keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, learner: DeepLearner, how: Ahead
) -> tuple[Policy, Float[Array, "seeds attempts rounds"]]:
    """Return for each seed the best policy for the MDP's reward in the learner's model, and the imagined return after
    every round of every attempt."""
    attempts, rounds = how.attempts, how.rounds_for(algo)
    policies, values = _replan(keys, as_inputs(algo), mdp, learner, attempts, rounds)
    return policies, values.reshape(-1, attempts, rounds)


@program
def _replan(keys, algo, mdp, learner, attempts, rounds):
    return map_leading(lambda key, learner: replan_one(key, algo, mdp, learner, attempts, rounds), keys, learner)


def replan_one(
    key: Key[Array, ""], algo: Deep, mdp: MDP, learner: DeepLearner, attempts: int, rounds: int
) -> tuple[Policy, Float[Array, " n"]]:
    """Plan for one seed. All attempts are one loop, so that the planner is compiled once."""
    starts_key, own_key, first_key, judge_key, loop_key = jr.split(jr.fold_in(key, PLANNING), 5)
    own = own_starts(own_key, mdp, algo.num_starts)
    planned = imagined_starts(starts_key, mdp, learner.replay, algo.num_starts, algo.replay_starts, algo.relabel)
    imagined, judged = (
        imagination(algo, mdp, learner.bonus, learner.seen, starts, learner.weight, learner.model, jnp.array(False))
        for starts in (planned, own)
    )

    def new_policy(key):
        return algo.planner.renormalise(mdp, algo.planner.init(key, imagined), learner.replay)

    def one_round(carry, inputs):
        policy, best, most = carry
        begins, (init_key, plan_key) = inputs
        policy = select(begins, new_policy(init_key), policy)
        policy, metrics = algo.planner.plan(plan_key, imagined, policy)
        value = imagined_value(judge_key, judged, policy, metrics)
        # Of equal values keep the last, which has learned for longest; never keep a policy whose value is NaN.
        return (policy, select(value >= most, policy, best), jnp.fmax(most, value)), value

    first = new_policy(first_key)
    count = attempts * rounds
    inputs = jnp.arange(count) % rounds == 0, jax.vmap(jr.split)(jr.split(loop_key, count))
    (_, best, _), values = scan(one_round, (first, first, jnp.array(-jnp.inf)), inputs)
    return best.without_bonus(), values


def imagined_value(key: Key[Array, ""], judged: MDP, policy: Policy, metrics: Metrics) -> Float[Array, ""]:
    """Return the imagined return; use the planner's own estimate if it has one, because a search is expensive."""
    if "planned_value" in metrics:
        return metrics["planned_value"]
    return mean_return(key, judged, policy.deterministic(), _JUDGED)


def search(
    keys: Key[Array, " seeds"], algo: Deep, mdp: MDP, learner: DeepLearner, how: Search
) -> tuple[GuidedPolicy, Float[Array, "seeds 1 1"]]:
    """Return for each seed the policy that searches for the MDP's reward in the learner's model, and its imagined
    return."""
    policies = guided_policies(algo, mdp, learner, how)
    return policies, _promises(keys, mdp, policies)[:, None, None]


@program
def _promises(keys, mdp, policies):
    def one_seed(key, policy):
        judged = dataclasses.replace(policy.mdp, initial=mdp.initial)
        return estimate_promise(jr.fold_in(key, PLANNING), judged, policy)

    return map_leading(one_seed, keys, policies)


def guided_policies(algo: Deep, mdp: MDP, learner: DeepLearner, how: Search) -> GuidedPolicy:
    """Return the searching policy of every seed."""
    return eqx.filter_vmap(lambda learner: guided_policy(as_inputs(algo), mdp, learner, how))(learner)


def guided_policy(algo: Deep, mdp: MDP, learner: DeepLearner, how: Search) -> GuidedPolicy:
    """Return the searching policy of one seed."""
    unused = jnp.zeros((1, mdp.states.size))  # a search begins at the current state, so starts are unused
    imagined = imagination(
        algo, mdp, learner.bonus, learner.seen, unused, learner.weight, learner.model, jnp.array(False)
    )
    return GuidedPolicy(without_critic(learner.policy), imagined, how.num_plans, how.plan_length)
