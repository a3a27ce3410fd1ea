"""Algorithm 2, Deep PC-MLP (paper: section 6), a statement for each of its lines.

Neural dynamics in place of a class with a theorem, a replay buffer in place of fresh samples from the policy cover,
TRPO or MPPI in place of a planning oracle. `improve` is a stage: pure, compiled once for all seeds. In each stage model
and planner are updated in turn, `rounds` times (paper: after Luo et al. 2018).

paper: one policy, which explores and is evaluated / here: that one, and one to deploy, planned in the same model for
the reward alone, which starts from the exploring one and takes no samples.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from pcmlp.bonus import AbstractBonus, add_moment, elliptical, information_gain, second_moment
from pcmlp.framework import example_row
from pcmlp.imagine import BoundedBonus, as_learned, bounds, expected, grounded, imagine, no_bonus, reward_free, widened
from pcmlp.replay import Replay, numbers_only
from pcmlp.rollout import mean_return, select
from pcmlp.types import (
    MDP,
    AbstractAlgorithm,
    AbstractLearner,
    AbstractPlanner,
    AbstractPolicy,
    AbstractWorld,
    Box,
    ConfigError,
    Features,
    Iteration,
    Metrics,
    Transitions,
)
from pcmlp.world import JaxWorld

Number = float | Float[Array, ""]

JUDGED = 16  # imagined episodes that a policy to deploy is judged by
_FEATURES = 2**31 + 1  # folded into a seed's key, where iterations fold in their own number and evaluation 2**31


def as_it_is(policies: AbstractPolicy) -> AbstractPolicy:
    return policies


class Deep(AbstractAlgorithm):
    """The inputs of Algorithm 2: an MDP and its hyperparameters (paper: the tables of appendix D)."""

    world: AbstractWorld
    features: Callable  # key, first samples -> phi, drawn once
    model: Callable  # key -> P_theta, untrained
    planner: AbstractPlanner
    num_iterations: int = eqx.field(static=True)
    samples_per_policy: int = eqx.field(static=True)  # K
    replay_size: int = eqx.field(static=True, default=30_000)  # of D
    rounds: int = eqx.field(static=True, default=1)  # of model and planner updates in a stage
    ridge: Number = 0.01  # lambda
    bonus_scale: Number = 1.0  # c
    cover_weight: Number = 1.0  # of the moments in Sigma; 0: it stays lambda I, the control for the method itself
    num_starts: int = eqx.field(static=True, default=1024)  # states that a stage's imagined episodes begin at
    replay_starts: Number = 0.2  # the share of imagined episodes that begin at a state of the replay
    margin: Number = 1.0  # how far imagined states may leave what was seen, in ranges of that
    bounded: Number = 1.0  # 0: imagined states may be anywhere, to measure what their bounds change
    fresh: bool = eqx.field(static=True, default=True)  # whether a stage plans from a new policy, not from the last one
    reward_free: bool = eqx.field(static=True, default=False)  # explore for the bonus alone
    keeps_better: bool = eqx.field(static=True, default=False)  # deploy the last one where the new is worse
    # what a rival has in their place
    novelty: Callable = eqx.field(default=elliptical)  # key, b_{n-1}, phi, Sigma_n, D, c, H -> b_n
    exploring: Callable = eqx.field(default=as_it_is)  # pi_n of all seeds -> what collects
    judges_exploring: ClassVar[bool] = True

    @jax.ensure_compile_time_eval()  # its numbers are known, also where the shapes of a learner are asked for
    def __check_init__(self) -> None:
        for name, good, remedy in (
            ("num_iterations", self.num_iterations >= 1, "give 1 or more"),
            ("samples_per_policy", self.samples_per_policy >= 1, "give 1 or more"),
            ("replay_size", self.replay_size >= 1, "give 1 or more"),
            ("rounds", self.rounds >= 1, "give 1 or more"),
            ("num_starts", self.num_starts >= 1, "give 1 or more"),
            ("ridge", 0 < self.ridge < math.inf, "the covariance must be invertible; give a number above 0"),
            ("bonus_scale", 0 <= self.bonus_scale < math.inf, "give 0 (no bonus) or more"),
            (
                "cover_weight",
                0 <= self.cover_weight < math.inf,
                "give 1, or 0 for a bonus that does not know the cover",
            ),
            ("replay_starts", 0 <= self.replay_starts <= 1, "give a probability"),
            ("margin", self.margin >= 0, "give 0 or more"),
        ):
            if not good:
                raise ConfigError(f"{name}={getattr(self, name)}: {remedy}")
        if not (isinstance(self.world.states, Box) and isinstance(self.world.actions, Box)):
            raise ConfigError("algo=pcmlp: needs states and actions that are vectors; give pcmlp-linear")

    def start(self, keys: Key[Array, " seeds"]) -> "DeepLearner":
        return _start(keys, self.stage())

    def iterate(self, keys: Key[Array, " seeds"], learner: AbstractLearner, n: int) -> Iteration:
        """Iteration n of all seeds: draw, then improve."""
        assert isinstance(learner, DeepLearner)
        draw_keys = jax.vmap(lambda k: jr.fold_in(jr.fold_in(k, n), 0))(keys)
        exploring = self.exploring(learner.policy)
        samples, walked = self.world.collect(draw_keys, exploring, self.samples_per_policy)  # line 5
        learner, metrics = _improve(keys, self.stage(), learner, samples, jnp.array(n))
        return Iteration(learner, metrics, samples, [walked])

    def lightened(self, learner: AbstractLearner) -> "DeepLearner":
        assert isinstance(learner, DeepLearner)
        return with_rows(learner, jax.tree.map(lambda x: x[:, :0], learner.replay.data))

    def refilled(self, learner: AbstractLearner, walked: Iterable[Transitions]) -> "DeepLearner":
        assert isinstance(learner, DeepLearner)

        def empty(x: Array) -> Array:
            return jnp.zeros((x.shape[0], self.replay_size, *x.shape[2:]), x.dtype)

        nothing = jax.tree.map(empty, learner.replay.data), jnp.zeros_like(learner.replay.head)
        replay = eqx.tree_at(lambda r: (r.data, r.head), learner.replay, nothing)
        for samples in walked:
            replay = _added(self.stage(), replay, samples)
        return with_rows(learner, replay.data)

    def stage(self) -> "Deep":
        """Itself without what a stage does not ask: a longer run or another copy of an environment is not another
        program."""
        known = JaxWorld(self.world.mdp, self.world.states, self.world.actions)
        return dataclasses.replace(self, world=known, num_iterations=1, samples_per_policy=1)


class DeepLearner(AbstractLearner):
    policy: AbstractPolicy  # pi_n, explores
    deploying: AbstractPolicy
    covariance: Float[Array, "*seeds d d"]  # Sigma_n
    rounding: Float[Array, "*seeds d d"]  # what single precision has lost of it
    model: Any  # P_theta
    bonus: AbstractBonus  # b_n
    replay: Replay  # D
    seen: Box  # the smallest box around every state so far
    env_steps: Int[Array, "*seeds"]

    @property
    def features(self) -> Features:
        return self.bonus.features  # phi

    def deployed(self) -> AbstractPolicy:
        return self.deploying


def start(key: Key[Array, ""], algo: Deep) -> DeepLearner:
    model_key, policy_key = jr.split(jr.fold_in(key, 0))
    example = example_row(algo.world)
    features = algo.features(feature_key(key), example)
    dim = features(example.state[0], example.action[0]).shape[0]
    covariance = algo.ridge * jnp.eye(dim)
    replay = Replay.like(example, algo.replay_size)  # line 2
    bonus = algo.novelty(
        novelty_key(key, 0), None, features, covariance, replay, algo.bonus_scale, algo.world.mdp.horizon
    )
    model = algo.model(model_key)  # line 3
    nowhere = jnp.full(example.state.shape[1], jnp.inf, jnp.float32)
    seen = Box(nowhere, -nowhere)
    starts = jnp.broadcast_to(example.state, (algo.num_starts, example.state.shape[1]))
    anywhere = algo.world.states
    assert isinstance(anywhere, Box)
    exploring, deploying = (
        algo.planner.init(policy_key, imagination(algo, model, b, anywhere, starts)) for b in (bonus, no_bonus)
    )  # line 1
    return DeepLearner(
        policy=exploring,
        deploying=deploying,
        covariance=covariance,
        rounding=jnp.zeros_like(covariance),
        model=model,
        bonus=bonus,
        replay=replay,
        seen=seen,
        env_steps=jnp.zeros((), int),
    )


def improve(
    key: Key[Array, ""], algo: Deep, learner: DeepLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[DeepLearner, Metrics]:
    """Lines 6 to 11 of iteration n, for one seed, given line 5's `samples`; `key` is the seed's own."""
    start_key, policy_key, round_key, deploy_key = jr.split(jr.fold_in(jr.fold_in(key, n), 1), 4)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    samples, rejected = numbers_only(done(algo, samples))

    features = first_only(n, algo.features(feature_key(key), samples), learner.features)
    moment = second_moment(features, samples)  # line 6
    moment = algo.cover_weight * moment
    covariance, rounding, skipped = add_moment(learner.covariance, moment, learner.rounding)  # line 7
    replay = learner.replay.add(samples)  # line 8
    bonus = algo.novelty(
        novelty_key(key, n), learner.bonus, features, covariance, replay, algo.bonus_scale, algo.world.mdp.horizon
    )  # line 10
    seen = widened(learner.seen, samples)
    starts = imagined_starts(start_key, algo, replay)
    # paper: the policy goes on from iteration to iteration / here: it begins anew unless asked. One that has converged
    # for the last bonus sees little but what that paid for; a new one finds in the same imagination what it misses.
    imagined = imagination(algo, learner.model, bonus, seen, starts)
    policy = algo.planner.init(policy_key, imagined) if algo.fresh else learner.policy

    def alternate(carry, round_key):
        model, policy = eqx.combine(carry, rest)
        model, policy, metrics = one_round(round_key, algo, model, policy, replay, bonus, seen, starts)
        return eqx.filter((model, policy), eqx.is_array), metrics

    carry, rest = eqx.partition((learner.model, policy), eqx.is_array)
    carry, metrics = jax.lax.scan(alternate, carry, jr.split(round_key, algo.rounds))  # lines 9 and 11, in turn
    model, policy = eqx.combine(carry, rest)
    # beyond the paper: the policy to deploy
    rewarded = imagination(algo, model, no_bonus, seen, starts)
    deploying, _ = algo.planner.plan(deploy_key, rewarded, policy)
    if algo.keeps_better and not deploying.searches:  # an imagined episode of one that does takes as long as a stage
        deploying = better(jr.fold_in(deploy_key, 1), algo, rewarded, deploying, learner.deploying)

    # what line 11 promised pi_n, at the states it met; the first phi was drawn before there were any
    promised = eqx.tree_at(lambda b: b.features, learner.bonus, features)
    paid = jax.vmap(promised)(samples.state, samples.action)
    learner = DeepLearner(
        policy=policy,
        deploying=deploying,
        covariance=covariance,
        rounding=rounding,
        model=model,
        bonus=bonus,
        replay=replay,
        seen=seen,
        env_steps=env_steps,
    )
    return learner, {
        "bonus_mean": jnp.mean(paid, where=samples.valid),
        "info_gain": information_gain(covariance, algo.ridge),
        "covariance_skipped": skipped,
        **rejected,
        **{name: values[-1] for name, values in metrics.items()},
    }


_start = eqx.filter_jit(eqx.filter_vmap(start, in_axes=(0, None)))


def one_round(
    key: Key[Array, ""],
    algo: Deep,
    model: Any,
    policy: AbstractPolicy,
    replay: Replay,
    bonus: AbstractBonus,
    seen: Box,
    starts: Float[Array, "n s"],
) -> tuple[Any, AbstractPolicy, Metrics]:
    fit_key, plan_key = jr.split(key)
    model, fit_metrics = model.train(fit_key, replay)  # line 9: C steps of SGD
    imagined = imagination(algo, model, bonus, seen, starts)
    policy, plan_metrics = algo.planner.plan(plan_key, imagined, policy)  # line 11
    return model, policy, {**fit_metrics, **plan_metrics}


def over_seeds(function: Callable, *inputs: PyTree) -> Any:
    """function(*inputs) for each seed, the leading axis of every array: side by side on a GPU, which one seed does not
    fill; one after another on a CPU, whose products of several seeds' matrices take longer than the same products
    alone. What is not an array must come out as it is for one seed."""
    arrays, rest = eqx.partition(inputs, eqx.is_array)
    fixed = []

    def of_a_seed(arrays):
        out, static = eqx.partition(function(*eqx.combine(arrays, rest)), eqx.is_array)
        fixed[:] = [static]
        return out

    mapped = jax.lax.map(of_a_seed, arrays) if jax.default_backend() == "cpu" else jax.vmap(of_a_seed)(arrays)
    return eqx.combine(mapped, fixed[0])


@eqx.filter_jit
def _improve(
    keys: Key[Array, " seeds"], algo: Deep, learner: DeepLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[DeepLearner, dict[str, Float[Array, " seeds"]]]:
    return over_seeds(lambda key, learner, samples: improve(key, algo, learner, samples, n), keys, learner, samples)


def imagination(algo: Deep, model: Callable, bonus: Callable, seen: Box, starts: Float[Array, "n s"]) -> MDP:
    states, actions = algo.world.states, algo.world.actions
    assert isinstance(states, Box)
    assert isinstance(actions, Box)
    world = as_learned(algo.world.mdp, model)
    if bonus is no_bonus:  # to get what can be got, not to find out
        model = expected(model)
    else:
        bonus = BoundedBonus(bonus, actions)
        world = reward_free(world) if algo.reward_free else world
    imagined = imagine(world, model, bonus)
    allowed = bounds(states, seen, algo.margin)
    anywhere = jnp.where(algo.bounded > 0, 0.0, jnp.inf)
    allowed = Box(allowed.low - anywhere, allowed.high + anywhere)
    return grounded(imagined, allowed, actions, starts)


def better(key: Key[Array, ""], algo: Deep, imagined: MDP, new: AbstractPolicy, old: AbstractPolicy) -> AbstractPolicy:
    """The one with the higher imagined return from the world's own starts, as the model now has it."""
    judged = eqx.tree_at(lambda mdp: mdp.initial, imagined, algo.world.mdp.initial)
    gained, before = (mean_return(key, judged, policy.deterministic(), JUDGED) for policy in (new, old))
    return select((gained >= before) | ~jnp.isfinite(before), new, old)


def imagined_starts(key: Key[Array, ""], algo: Deep, replay: Replay) -> Float[Array, "n s"]:
    """States for a stage's imagined episodes to begin at: of the replay, and the world's own."""
    coin_key, row_key, world_key = jr.split(key, 3)
    been = replay.windows(row_key, algo.num_starts, 1).state[:, 0]
    own = jax.vmap(algo.world.mdp.initial)(jr.split(world_key, algo.num_starts))
    return jnp.where(jr.uniform(coin_key, (algo.num_starts, 1)) < algo.replay_starts, been, own)


def done(algo: Deep, samples: Transitions) -> Transitions:
    """The samples with the actions that were done: worlds clip what a policy asks for."""
    assert isinstance(algo.world.actions, Box)
    return eqx.tree_at(lambda t: t.action, samples, jax.vmap(algo.world.actions.clip)(samples.action))


def with_rows(learner: DeepLearner, rows: Transitions) -> DeepLearner:
    return eqx.tree_at(lambda l: l.replay.data, learner, rows)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _added(algo: Deep, replay: Replay, samples: Transitions) -> Replay:
    """Line 8, again."""
    return replay.add(numbers_only(done(algo, samples))[0])


def feature_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """The same whenever a seed's phi is drawn."""
    return jr.fold_in(key, _FEATURES)


def novelty_key(key: Key[Array, ""], n: Int[Array, ""] | int) -> Key[Array, ""]:
    """Of iteration n, where drawing has 0 and a stage 1."""
    return jr.fold_in(jr.fold_in(key, n), 2)


def first_only(n: Int[Array, ""], new: Features, old: Features) -> Features:
    """phi is drawn from the first samples and then stays: another phi would not fit into the same Sigma."""
    return jax.tree.map(lambda x, y: jnp.where(n == 1, x, y) if eqx.is_array(x) else x, new, old)
