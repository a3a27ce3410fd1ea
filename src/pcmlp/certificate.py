"""The certificate: an upper bound on what could still be gained (paper: the optimism lemmas of appendix A.3).

    promised_n    = max_pi J(pi; r + b_n, P_n)                   what planning promises after iteration n, line 9
    certificate_n = promised_n - J(deployed_n; r, P*)  >=  J* - J(deployed_n; r, P*)     if promised_n >= J*, optimism

Nobody who learns knows J*; optimism bounds it by a number that the planner has anyway. Where the bound is proved and
where it is a guess: docs/theory.md and `runs.certificate`. It looks at what a learner has learned and changes nothing
of it, and its random numbers are its own.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp import finite
from pcmlp.deep import Deep, DeepLearner, imagination, over_seeds
from pcmlp.framework import PCMLP, Learner
from pcmlp.imagine import imagine
from pcmlp.planners import FinitePolicy
from pcmlp.types import MDP, AbstractAlgorithm, AbstractLearner, AbstractPolicy, FiniteTransition, Metrics

_PROMISE = 2**31 + 3  # folded into a seed's key, where iterations fold in their own number


def promised(
    keys: Key[Array, " seeds"], algo: AbstractAlgorithm, learner: AbstractLearner, n: int
) -> dict[str, Float[Array, " seeds"]]:
    """The column `promised` of iteration n, of which `learner` is the outcome; none for algorithms that promise nothing
    of the reward: random play, and exploring for the bonus alone."""
    number = jnp.array(n)
    if isinstance(algo, Deep) and isinstance(learner, DeepLearner) and not algo.reward_free:
        return _of_deep(keys, algo.stage(), learner, number)
    if isinstance(algo, PCMLP) and isinstance(learner, Learner):
        return _of_framework(keys, algo, learner, number)
    return {}


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(0, None, eqx.if_array(0), None))
def _of_framework(key, algo, learner, n) -> Metrics:
    imagined = imagine(algo.world.mdp, learner.model, learner.bonus)
    return _named(algo.planner.promise(_key(key, n), imagined, learner.policy))


@eqx.filter_jit
def _of_deep(keys, algo, learner, n) -> dict[str, Array]:
    def of_a_seed(key, learner):
        start_key, promise_key = jr.split(_key(key, n))
        # the world's own starts: those of the replay are for learning to go on from, and no episode begins there
        own = jax.vmap(algo.world.mdp.initial)(jr.split(start_key, algo.num_starts))
        imagined = imagination(algo, learner.model, learner.bonus, learner.seen, own)
        return _named(algo.planner.promise(promise_key, imagined, learner.policy))

    return over_seeds(of_a_seed, keys, learner)


def _key(key: Key[Array, ""], n: Array) -> Key[Array, ""]:
    return jr.fold_in(jr.fold_in(key, _PROMISE), n)


def _named(value: Float[Array, ""] | None) -> Metrics:
    return {} if value is None else {"promised": value}


def exact_values(mdp: MDP, policies: AbstractPolicy) -> Float[Array, " seeds"] | None:
    """J of each seed's policy without its noise, by policy evaluation in the true MDP; none where it is not finite."""
    if not (isinstance(policies, FinitePolicy) and isinstance(mdp.transition, FiniteTransition)):
        return None
    return _values(mdp, policies)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, eqx.if_array(0)))
def _values(mdp, policy) -> Float[Array, ""]:
    return finite.value(mdp, policy.deterministic().probabilities())
