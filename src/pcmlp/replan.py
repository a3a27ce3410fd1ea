"""A reward that a model was learned without: OP(Pi, r_new, P_theta), planned with no bonus and no new sample.

(paper: section 7.3 explores with no reward and shows what was covered / here: also what that is good for. A model that
is right wherever the cover has been serves any reward that is paid there.)

One imagined reward may be found from one fresh policy and not from another, so there are `attempts`, of `rounds` calls
of the planner each, and the policy with the highest imagined return is kept. That return is of episodes that begin at
the world's own starts, as real ones do; planning also begins at states of the replay (`Deep.replay_starts`), from which
a goal is near that is far from the start.

A policy that is planned for all of an episode can rest on whatever the model is wrong about. The other way is to plan
at every step of the real episode, as far as the model is to be trusted, and to choose among what the exploring policy
would do (`Search`; planners/guided.py). That wants a reward that is paid on the way.
"""

from dataclasses import asdict, dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.deep import Deep, DeepLearner, imagination, imagined_starts, over_seeds
from pcmlp.imagine import no_bonus
from pcmlp.planners.guided import GuidedPolicy
from pcmlp.rollout import mean_return, promised_return, select
from pcmlp.types import MDP, AbstractPolicy, Box, ConfigError, DrawsAhead, Metrics

_PLANNING = 2**31 + 2  # folded into a seed's key, where iterations fold in their own number
_MOST = 10_000  # of whatever is asked for: more is a slip
_JUDGED = 64  # imagined episodes that a policy is judged by


@dataclass(frozen=True)
class Ahead:
    """Policies for whole episodes, planned before there are any."""

    attempts: int = 3
    rounds: int | None = None  # as many as the planner usually takes

    def __post_init__(self) -> None:
        check_counts(self)


@dataclass(frozen=True)
class Search:
    """A plan at every step of an episode: the best of so many imagined ones of the exploring policy."""

    num_plans: int = 200
    plan_length: int = 15

    def __post_init__(self) -> None:
        check_counts(self)


def check_counts(how: Ahead | Search) -> None:
    for name, count in asdict(how).items():
        if count is not None and not (type(count) is int and 1 <= count <= _MOST):
            raise ConfigError(f"{name}={count}: give 1 to {_MOST}")


def replan(
    keys: Key[Array, " seeds"], algo: Deep, learner: DeepLearner, attempts: int, rounds: int
) -> tuple[AbstractPolicy, Float[Array, "seeds attempts rounds"]]:
    """For each seed, the best policy for the reward of `algo.world.mdp` in the learner's model, and what every round of
    every attempt would have returned there."""
    policies, values = _replan(keys, algo.stage(), learner, attempts, rounds)
    return policies, values.reshape(-1, attempts, rounds)


@eqx.filter_jit
def _replan(keys, algo, learner, attempts, rounds):
    return over_seeds(lambda key, learner: plan_anew(key, algo, learner, attempts, rounds), keys, learner)


def plan_anew(
    key: Key[Array, ""], algo: Deep, learner: DeepLearner, attempts: int, rounds: int
) -> tuple[AbstractPolicy, Float[Array, " n"]]:
    """For one seed. All attempts are one loop, so that the planner is compiled once."""
    starts_key, own_key, first_key, judge_key, loop_key = jr.split(jr.fold_in(key, _PLANNING), 5)
    own_only = eqx.tree_at(lambda a: a.replay_starts, algo, jnp.zeros(()))
    imagined, judged = (
        imagination(algo, learner.model, no_bonus, learner.seen, imagined_starts(k, a, learner.replay))
        for k, a in ((starts_key, algo), (own_key, own_only))
    )

    def one_round(carry, inputs):
        (policy, best), most = eqx.combine(carry[0], rest), carry[1]
        begins, (init_key, plan_key) = inputs
        policy = select(begins, algo.planner.init(init_key, imagined), policy)
        policy, metrics = algo.planner.plan(plan_key, imagined, policy)
        value = _value(judge_key, judged, policy, metrics)
        # The last of those that are alike, which has learned for longest; never one whose value is no number.
        best = select(value >= most, policy, best)
        return (eqx.filter((policy, best), eqx.is_array), jnp.fmax(most, value)), value

    first = algo.planner.init(first_key, imagined)
    arrays, rest = eqx.partition((first, first), eqx.is_array)
    count = attempts * rounds
    inputs = jnp.arange(count) % rounds == 0, jax.vmap(jr.split)(jr.split(loop_key, count))
    ((arrays, _), values) = jax.lax.scan(one_round, (arrays, jnp.array(-jnp.inf)), inputs)
    return eqx.combine(arrays, rest)[1], values


def _value(key: Key[Array, ""], judged: MDP, policy: AbstractPolicy, metrics: Metrics) -> Float[Array, ""]:
    """The imagined return, as the planner knows it where it judges its own plans: each action of theirs is dear."""
    if "planned_value" in metrics:
        return metrics["planned_value"]
    return mean_return(key, judged, policy.deterministic(), _JUDGED)


def search(
    keys: Key[Array, " seeds"], algo: Deep, learner: DeepLearner, asked: Search
) -> tuple[GuidedPolicy, Float[Array, "seeds 1 1"]]:
    """For each seed, the policy that searches for the reward of `algo.world.mdp` in the learner's model, and its own
    imagined return."""
    policies = searching_of_seeds(algo, learner, asked)
    return policies, _promised(keys, algo.stage(), policies)[:, None, None]


@eqx.filter_jit
def _promised(keys, algo, policies):
    def of_a_seed(key, policy):
        judged = eqx.tree_at(lambda mdp: mdp.initial, policy.mdp, algo.world.mdp.initial)
        return promised_return(jr.fold_in(key, _PLANNING), judged, policy)

    return over_seeds(of_a_seed, keys, policies)


def searching_of_seeds(algo: Deep, learner: DeepLearner, asked: Search) -> GuidedPolicy:
    return eqx.filter_vmap(lambda learner: searching(algo.stage(), learner, asked))(learner)


def searching(algo: Deep, learner: DeepLearner, asked: Search) -> GuidedPolicy:
    """For one seed."""
    states = algo.world.states
    assert isinstance(states, Box)
    nowhere = jnp.zeros((1, states.size))  # a search begins where the episode is
    imagined = imagination(algo, learner.model, no_bonus, learner.seen, nowhere)
    guide = learner.policy.acting() if isinstance(learner.policy, DrawsAhead) else learner.policy
    return GuidedPolicy(guide, imagined, asked.num_plans, asked.plan_length)
