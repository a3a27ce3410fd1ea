"""The certificate: an upper bound on what could still be gained (paper: the optimism lemmas of appendix A.3).

    promised_n    = max_pi J(pi; r + b_n, P_n)                   the return that planning promises (line 9)
    certificate_n = promised_n - J(deployed_n; r, P*)  >=  J* - J(deployed_n; r, P*)     if promised_n >= J*, optimism

A learner does not know J*, but optimism bounds it by a number that the planner computes anyway. docs/theory.md and
`runs.certificate` say where the bound is proved and where it is only a heuristic. Computing it does not change the
learner, and uses separate random numbers.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp import finite
from pcmlp.algorithms.deep import Deep, DeepLearner, imagination
from pcmlp.algorithms.framework import PCMLP, CoverLearner
from pcmlp.algorithms.stages import PROMISE
from pcmlp.algorithms.starts import own_starts
from pcmlp.imagine import imagine
from pcmlp.planners import FinitePolicy
from pcmlp.programs import brief_program
from pcmlp.trees import as_inputs, map_leading, stack_inputs
from pcmlp.types import MDP, Algorithm, Learner, Metrics, Policy


def promised(
    keys: Key[Array, " seeds"], algo: Algorithm, mdp: MDP, learner: Learner, n: int, each: Sequence[Deep] = ()
) -> dict[str, Float[Array, " seeds"]]:
    """Return the column `promised` of iteration n, given the learner after it; an empty dict for algorithms that
    promise nothing about the reward. With `each`, the inputs are those of an algorithm per seed (`Deep.iterate`)."""
    number = jnp.array(n)
    if isinstance(algo, Deep) and isinstance(learner, DeepLearner) and not algo.reward_free:
        return _promised_deep(keys, stack_inputs(each or [algo] * len(keys)), mdp, learner, number)
    if isinstance(algo, PCMLP) and isinstance(learner, CoverLearner):
        return _promised_framework(keys, as_inputs(algo), mdp, learner, number)
    return {}


@brief_program
@eqx.filter_vmap(in_axes=(0, None, None, eqx.if_array(0), None))
def _promised_framework(key, algo, mdp, learner, n) -> Metrics:
    imagined = imagine(mdp, learner.model, learner.bonus)
    return _as_column(algo.planner.promise(_promise_key(key, n), imagined, learner.policy))


@brief_program
def _promised_deep(keys, algos, mdp, learner, n) -> dict[str, Array]:
    def one_seed(key, algo, learner):
        start_key, promise_key = jr.split(_promise_key(key, n))
        # Use the world's own starts: real episodes do not begin at states of the replay.
        own = own_starts(start_key, mdp, algo.num_starts)
        imagined = imagination(
            algo, mdp, learner.bonus, learner.seen, own, learner.weight, learner.model, jnp.array(True)
        )
        promise = algo.planner.promise(promise_key, imagined, learner.policy)
        return _as_column(None if promise is None else promise * learner.weight.unit)

    return map_leading(one_seed, keys, algos, learner)


def _promise_key(key: Key[Array, ""], n: Array) -> Key[Array, ""]:
    return jr.fold_in(jr.fold_in(key, PROMISE), n)


def _as_column(value: Float[Array, ""] | None) -> Metrics:
    return {} if value is None else {"promised": value}


def exact_values(mdp: MDP, policies: Policy) -> Float[Array, " seeds"] | None:
    """Return J of each seed's deterministic policy, by policy evaluation in the true MDP; None if the MDP is not
    finite."""
    if not (isinstance(policies, FinitePolicy) and isinstance(mdp.transition, finite.FiniteTransition)):
        return None
    return _values(mdp, policies)


@brief_program
@eqx.filter_vmap(in_axes=(None, eqx.if_array(0)))
def _values(mdp, policy) -> Float[Array, ""]:
    return finite.value(mdp, policy.deterministic().probabilities())
