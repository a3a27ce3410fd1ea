"""PC-PG: policy cover and policy gradient, with no model (Agarwal, Henaff, Kakade, Sun 2020).

    Sigma_n = sum_{i<=n} Sigma_pi_i + lambda I,     b_n(s, a) = min{ 2 c sqrt(phi^T Sigma_n^-1 phi), H }
    start of an episode: pi_i, i uniform in the cover, for t steps, t uniform in 0 ... H - 1
    pi_{n+1} = natural gradient of r + b_n on the real steps after that

PC-MLP does in its model what this does in the world, so the two differ by the price of a step: here every one that is
walked to a start is a real one and is counted, though only those after it are learned from.

Agarwal et al.: a bonus of 1 / (1 - gamma) where phi^T Sigma^-1 phi is above a threshold / here: PC-MLP's, which needs
no threshold. NPG with a linear critic / here: TRPO's step, a natural gradient with a line search, and its value net.
A new policy for each iteration / here: the last one goes on, unless `fresh`. The best of the cover is returned / here:
the one whose own K samples paid the most.
"""

import dataclasses
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.baselines.model_free import check_vectors, in_streams, mean_first_return
from pcmlp.bonus import EllipticalBonus, add_moment, elliptical_bonus, information_gain, second_moment
from pcmlp.cover import Cover
from pcmlp.deep import feature_key, first_only, over_seeds
from pcmlp.framework import example_row
from pcmlp.nets import Running
from pcmlp.planners.trpo import TRPO, ActorCritic
from pcmlp.replay import numbers_only
from pcmlp.rollout import select
from pcmlp.types import (
    AbstractAlgorithm,
    AbstractLearner,
    AbstractPolicy,
    AbstractWorld,
    Action,
    Box,
    Carry,
    Iteration,
    Metrics,
    State,
    Transitions,
)
from pcmlp.world import JaxWorld

Number = float | Float[Array, ""]


class PCPG(AbstractAlgorithm):
    world: AbstractWorld
    features: Callable  # key, first samples -> phi, drawn once
    planner: TRPO
    num_iterations: int = eqx.field(static=True)
    samples_per_policy: int = eqx.field(static=True)  # K
    updates: int = eqx.field(static=True, default=4)  # of an iteration
    batch_steps: int = eqx.field(static=True, default=2_000)  # walked for each of them
    ridge: Number = 1e-3
    bonus_scale: Number = 0.05
    cover_weight: Number = 1.0  # of the moments in Sigma; 0: it stays lambda I
    fresh: bool = eqx.field(static=True, default=False)
    normalise: bool = eqx.field(static=True, default=True)
    reward_free: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_vectors(self.world)

    def start(self, keys: Key[Array, " seeds"]) -> "CoverLearner":
        stage = self.stage()
        return _start(keys, stage, self.num_iterations + 1)

    def iterate(self, keys: Key[Array, " seeds"], learner: AbstractLearner, n: int) -> Iteration:
        assert isinstance(learner, CoverLearner)
        stage, number = self.stage(), jnp.array(n)
        samples, walked = self.world.collect(_keys(keys, n, 0), learner.policy, self.samples_per_policy)
        learner, metrics = _observe(keys, stage, learner, samples, number)
        all_walked = [walked]
        for update in range(1, self.updates + 1):
            roll_in = _roll_in(_keys(keys, n, 2 * update + 1), learner, self.world.mdp.horizon)
            rows, walked = self.world.collect(_keys(keys, n, 2 * update), roll_in, self.batch_steps)
            learner, learned = _learn(_keys(keys, n, 2 * update + 2**20), stage, learner, rows, roll_in)
            metrics = {**metrics, **learned}
            all_walked.append(walked)
        return Iteration(_pushed(learner), metrics, samples, all_walked)

    def lightened(self, learner: AbstractLearner) -> AbstractLearner:
        return learner  # a cover is small, and there is no replay

    def refilled(self, learner: AbstractLearner, walked: Iterable[Transitions]) -> AbstractLearner:
        return learner

    def stage(self) -> "PCPG":
        """Itself without what a stage does not ask."""
        known = JaxWorld(self.world.mdp, self.world.states, self.world.actions)
        return dataclasses.replace(self, world=known, num_iterations=1, samples_per_policy=1, updates=1, batch_steps=1)


class CoverLearner(AbstractLearner):
    policy: ActorCritic  # pi_n
    cover: Cover  # { pi_1 ... pi_n }
    values: Float[Array, "*seeds N"]  # J of each of them, estimated from its own K samples
    covariance: Float[Array, "*seeds d d"]  # Sigma_n
    rounding: Float[Array, "*seeds d d"]  # what single precision has lost of it
    bonus: EllipticalBonus  # b_n
    seen: Running  # of states
    env_steps: Int[Array, "*seeds"]

    def deployed(self) -> AbstractPolicy:
        if self.values.ndim > 1:
            return eqx.filter_vmap(lambda learner: learner.deployed())(self)
        return self.cover[jnp.argmax(self.values)]


class RollIn(AbstractPolicy):
    """A policy of the cover for the first steps of an episode, then `policy`.

    Which one, and for how long, is drawn by a key that the episode's first state is folded into: so whoever sees an
    episode knows which steps were whose, in a simulator as in a scan.
    """

    cover: Cover
    policy: ActorCritic
    key: Key[Array, ""]
    horizon: int = eqx.field(static=True)

    def init(self) -> Carry:
        zero = jnp.zeros((), int)
        return zero, zero, zero

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        clock, member, switch = carry
        member, switch = select(clock == 0, self.drawn(state), (member, switch))
        walks_in, learns = self.cover[member](key, (), state)[1], self.policy(key, (), state)[1]
        return (clock + 1, member, switch), jnp.where(clock < switch, walks_in, learns)

    def drawn(self, first: State) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The member of the cover, and the steps that it walks."""
        bits = jax.lax.bitcast_convert_type(first, jnp.uint32)
        word = jnp.sum(bits * (2 * jnp.arange(bits.shape[0], dtype=jnp.uint32) + 1), dtype=jnp.uint32)
        member, switch = jr.uniform(jr.fold_in(self.key, word), (2,))
        return _floor(member, self.cover.size), _floor(switch, jnp.array(self.horizon))

    def deterministic(self) -> "RollIn":
        return self

    def own(self, stream: Transitions) -> Bool[Array, " n"]:
        """The steps of a stream that `policy` took."""

        def back(carry, row):
            clock, switch = carry
            state, over = row
            switch = jnp.where(clock == 0, self.drawn(state)[1], switch)
            return (jnp.where(over, 0, clock + 1), switch), clock >= switch

        zero, over = jnp.zeros((), int), stream.last | ~stream.valid  # a spoilt episode is all padding
        return jax.lax.scan(back, (zero, zero), (stream.state, over))[1]


def _floor(uniform: Float[Array, ""], count: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.minimum(jnp.floor(uniform * count.astype(jnp.float32)).astype(int), count - 1)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(0, None, None))
def _start(key: Key[Array, ""], algo: PCPG, capacity: int) -> CoverLearner:
    example = example_row(algo.world)
    features = algo.features(feature_key(key), example)
    dim = features(example.state[0], example.action[0]).shape[0]
    covariance = algo.ridge * jnp.eye(dim)
    policy = algo.planner.init(jr.fold_in(key, 0), algo.world.mdp)
    return CoverLearner(
        policy=policy,
        cover=Cover.of(policy, capacity),
        values=jnp.full(capacity, -jnp.inf, jnp.float32),
        covariance=covariance,
        rounding=jnp.zeros_like(covariance),
        bonus=elliptical_bonus(features, covariance, algo.bonus_scale, algo.world.mdp.horizon),
        seen=Running.nothing(example.state.shape[1]),
        env_steps=jnp.zeros((), int),
    )


def observe(
    key: Key[Array, ""], algo: PCPG, learner: CoverLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[CoverLearner, Metrics]:
    """What pi_n's own K samples say: its moment, its value, and the next bonus."""
    horizon = algo.world.mdp.horizon
    value = mean_first_return(samples, horizon)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    samples, rejected = numbers_only(done(algo, samples))
    features = first_only(n, algo.features(feature_key(key), samples), learner.bonus.features)
    moment = algo.cover_weight * second_moment(features, samples)
    covariance, rounding, skipped = add_moment(learner.covariance, moment, learner.rounding)
    promised = eqx.tree_at(lambda b: b.features, learner.bonus, features)
    paid = jax.vmap(promised)(samples.state, samples.action)
    known = jnp.where(jnp.isfinite(value), value, -jnp.inf)  # a policy that made a NaN is not the best
    policy = learner.policy
    if algo.fresh:
        drawn = algo.planner.init(jr.fold_in(jr.fold_in(key, n), 1), algo.world.mdp)
        policy = drawn.at(learner.seen.units()) if algo.normalise else drawn
    learner = CoverLearner(
        policy=policy,
        cover=learner.cover,
        values=learner.values.at[n - 1].set(known),
        covariance=covariance,
        rounding=rounding,
        bonus=elliptical_bonus(features, covariance, algo.bonus_scale, horizon),
        seen=learner.seen,
        env_steps=env_steps,
    )
    return learner, {
        "bonus_mean": jnp.mean(paid, where=samples.valid),
        "info_gain": information_gain(covariance, algo.ridge),
        "sample_return": value,
        "covariance_skipped": skipped,
        **rejected,
    }


def learn(
    key: Key[Array, ""], algo: PCPG, learner: CoverLearner, rows: Transitions, roll_in: RollIn
) -> tuple[CoverLearner, Metrics]:
    """One update for r + b_n, by the steps after the roll-in."""
    env_steps = learner.env_steps + jnp.sum(rows.valid)
    streams = in_streams(rows, algo.world.mdp.horizon)
    own = jax.vmap(roll_in.own)(streams)
    rows, _ = numbers_only(rows)
    novel = jax.vmap(learner.bonus)(rows.state, done(algo, rows).action)
    paid = novel if algo.reward_free else rows.reward + novel
    rows = eqx.tree_at(lambda t: t.reward, rows, paid)
    seen = learner.seen.add(rows.state, rows.valid)
    policy = learner.policy.at(seen.units()) if algo.normalise else learner.policy
    streams = in_streams(rows, algo.world.mdp.horizon)
    counted = streams.valid & own
    policy, metrics = algo.planner.learn(key, policy, streams, counted)
    learner = eqx.tree_at(lambda l: (l.policy, l.seen, l.env_steps), learner, (policy, seen, env_steps))
    return learner, {**metrics, "learned_share": jnp.mean(counted.astype(jnp.float32))}


@eqx.filter_jit
def _observe(keys, algo, learner, samples, n):
    return over_seeds(lambda k, learner, samples: observe(k, algo, learner, samples, n), keys, learner, samples)


@eqx.filter_jit
def _learn(keys, algo, learner, rows, roll_in):
    return over_seeds(lambda k, *inputs: learn(k, algo, *inputs), keys, learner, rows, roll_in)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(0, eqx.if_array(0), None))
def _roll_in(key: Key[Array, ""], learner: CoverLearner, horizon: int) -> RollIn:
    return RollIn(learner.cover, learner.policy, key, horizon)


@eqx.filter_jit
@eqx.filter_vmap
def _pushed(learner: CoverLearner) -> CoverLearner:
    return eqx.tree_at(lambda l: l.cover, learner, learner.cover.push(learner.policy))


def _keys(keys: Key[Array, " seeds"], n: int, use: int) -> Key[Array, " seeds"]:
    return jax.vmap(lambda k: jr.fold_in(jr.fold_in(k, n), use))(keys)


def done(algo: PCPG, samples: Transitions) -> Transitions:
    """The samples with the actions that were done: worlds clip what a policy asks for."""
    assert isinstance(algo.world.actions, Box)
    return eqx.tree_at(lambda t: t.action, samples, jax.vmap(algo.world.actions.clip)(samples.action))
