"""Algorithm 1, the PC-MLP framework (paper: section 4), a statement for each of its lines.

`improve` is a stage: pure, compiled once, vmapped over seeds. Drawing samples is the world's business, because real
environments step on the host. Every array of a `Learner` carries a leading axis of seeds outside `improve`.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.bonus import EllipticalBonus, add_moment, elliptical_bonus, information_gain, second_moment
from pcmlp.cover import Cover, Mixture
from pcmlp.features.checks import check_norm
from pcmlp.imagine import imagine
from pcmlp.replay import Replay, numbers_only
from pcmlp.rollout import first_episode
from pcmlp.types import (
    AbstractAlgorithm,
    AbstractLearner,
    AbstractModel,
    AbstractPlanner,
    AbstractPolicy,
    AbstractWorld,
    ConfigError,
    Features,
    Iteration,
    Metrics,
    Transitions,
)

SeedMetrics = dict[str, Float[Array, " seeds"]]


class PCMLP(AbstractAlgorithm):
    """The inputs of Algorithm 1: an MDP and (N, K, lambda, M, P, c)."""

    world: AbstractWorld
    features: Features  # phi
    model: AbstractModel  # the class P
    planner: AbstractPlanner  # OP
    num_iterations: int = eqx.field(static=True)  # N
    samples_per_policy: int = eqx.field(static=True)  # K
    ridge: float = 1.0  # lambda
    bonus_scale: float = 1.0  # c
    # paper: K and M are independent draws, each one step of an episode of its own / here: by default all steps of
    # whole episodes ("iid" gives the paper's), and the model is fitted to the K samples of every policy so far
    # rather than to M fresh ones (a number of `fit_samples` gives the paper's). See docs/deviations.md.
    draws: Literal["episodes", "iid"] = eqx.field(static=True, default="episodes")
    fit_samples: int | None = eqx.field(static=True, default=None)  # M
    covariance: Literal["on", "off"] = eqx.field(static=True, default="on")  # off: Sigma stays lambda I, a control

    def __check_init__(self) -> None:
        fresh = self.fit_samples is None or self.fit_samples >= 1
        for name, good, remedy in (
            ("num_iterations", self.num_iterations >= 1, "give 1 or more"),
            ("samples_per_policy", self.samples_per_policy >= 1, "give 1 or more"),
            ("fit_samples", fresh, "give 1 or more, or None to fit to every sample so far"),
            ("ridge", 0 < self.ridge < math.inf, "the covariance must be invertible; give a number above 0"),
            ("bonus_scale", 0 <= self.bonus_scale < math.inf, "give 0 (no bonus) or more"),
            ("draws", self.draws in ("episodes", "iid"), "give episodes or iid"),
            ("covariance", self.covariance in ("on", "off"), "give on or off"),
        ):
            if not good:
                raise ConfigError(f"{name}={getattr(self, name)}: {remedy}")
        check_norm(self.features, self.world.states, self.world.actions)

    def start(self, keys: Key[Array, " seeds"]) -> "Learner":
        return start(keys, self)

    def iterate(self, keys: Key[Array, " seeds"], learner: AbstractLearner, n: int) -> Iteration:
        assert isinstance(learner, Learner)
        return iterate(keys, self, learner, n)

    def lightened(self, learner: AbstractLearner) -> AbstractLearner:
        return learner  # its replay is small beside its cover

    def refilled(self, learner: AbstractLearner, walked: Iterable[Transitions]) -> AbstractLearner:
        return learner


class Learner(AbstractLearner):
    policy: AbstractPolicy  # pi_n
    cover: Cover  # { pi_1 ... pi_n }
    covariance: Float[Array, "*seeds d d"]  # Sigma_n
    rounding: Float[Array, "*seeds d d"]  # what single precision has lost of it
    model: AbstractModel  # P_n
    bonus: EllipticalBonus  # b_n
    replay: Replay  # what the model is fitted to
    values: Float[Array, "*seeds N"]  # J of each policy of the cover, estimated from its own K samples
    env_steps: Int[Array, "*seeds"]

    def deployed(self) -> AbstractPolicy:
        """The policy the theorems speak of: the best of the cover.

        paper: some policy of the cover is near-optimal / here: the one whose own K samples paid the most.
        """
        if self.values.ndim > 1:
            return eqx.filter_vmap(lambda learner: learner.deployed())(self)
        return self.cover[jnp.argmax(self.values)]


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(0, None))
def start(key: Key[Array, ""], algo: PCMLP) -> Learner:
    mdp = algo.world.mdp
    example = example_row(algo.world)
    dim = algo.features(example.state[0], example.action[0]).shape[0]
    covariance = algo.ridge * jnp.eye(dim)
    bonus = elliptical_bonus(algo.features, covariance, algo.bonus_scale, mdp.horizon)
    policy = algo.planner.init(jr.fold_in(key, 0), imagine(mdp, algo.model, bonus))  # line 1: initialise pi_1
    cover = Cover.of(policy, algo.num_iterations + 1)  # line 2: the cover is { pi_1 }
    replay = Replay.like(example, rows_to_fit(algo))
    values = jnp.full(algo.num_iterations, -jnp.inf, jnp.float32)
    return Learner(
        policy=policy,
        cover=cover,
        covariance=covariance,
        rounding=jnp.zeros_like(covariance),
        model=algo.model,
        bonus=bonus,
        replay=replay,
        values=values,
        env_steps=jnp.zeros((), int),
    )


def improve(
    key: Key[Array, ""], algo: PCMLP, learner: Learner, samples: Transitions, rows: Transitions, n: Int[Array, ""]
) -> tuple[Learner, Metrics]:
    """Lines 5 to 10, for one seed, given line 4's `samples` and line 7's `rows`."""
    fit_key, plan_key = jr.split(key)
    mdp = algo.world.mdp
    value = estimated_value(algo, samples)  # before rewards that are not numbers count as 0
    samples, rejected = numbers_only(samples)

    moment = second_moment(algo.features, samples)  # line 5
    counted = moment if algo.covariance == "on" else jnp.zeros_like(moment)
    covariance, rounding, skipped = add_moment(learner.covariance, counted, learner.rounding)  # line 6
    replay = learner.replay.add(numbers_only(rows)[0])
    model, fit_metrics = algo.model.fit(fit_key, replay.data)  # line 7: maximum likelihood over P
    bonus = elliptical_bonus(algo.features, covariance, algo.bonus_scale, mdp.horizon)  # line 8
    policy, plan_metrics = algo.planner.plan(plan_key, imagine(mdp, model, bonus), learner.policy)  # line 9
    cover = learner.cover.push(policy)  # line 10

    paid = jax.vmap(learner.bonus)(samples.state, samples.action)  # what line 9 promised pi_n, at the states it met
    metrics = {
        "bonus_mean": jnp.mean(paid, where=samples.valid),
        "info_gain": information_gain(covariance, algo.ridge),
        "sample_return": value,
        **fit_metrics,
        **plan_metrics,
        "covariance_skipped": skipped,
        **rejected,
    }
    known = jnp.where(jnp.isfinite(value), value, -jnp.inf)  # a policy that made a NaN is not the best
    learner = Learner(
        policy=policy,
        cover=cover,
        covariance=covariance,
        rounding=rounding,
        model=model,
        bonus=bonus,
        replay=replay,
        values=learner.values.at[n - 1].set(known),
        env_steps=learner.env_steps,
    )
    return learner, metrics


_improve = eqx.filter_jit(
    eqx.filter_vmap(improve, in_axes=(0, None, eqx.if_array(0), eqx.if_array(0), eqx.if_array(0), None))
)


def iterate(keys: Key[Array, " seeds"], algo: PCMLP, learner: Learner, n: int) -> Iteration:
    """Iteration n of all seeds: draw, then improve."""
    draw_keys, cover_keys, improve_keys = jax.vmap(lambda k: jr.split(jr.fold_in(k, n), 3), out_axes=1)(keys)
    sample = algo.world.collect if algo.draws == "episodes" else algo.world.draw

    samples, walked = sample(draw_keys, learner.policy, algo.samples_per_policy)  # line 4: K samples from d_pi_n
    rows, steps = samples, [walked]
    if algo.fit_samples is not None:  # line 7: M samples from d_cover
        rows, walked = sample(cover_keys, Mixture(learner.cover), algo.fit_samples)
        steps.append(walked)
    learner, metrics = _improve(improve_keys, algo, learner, samples, rows, jnp.array(n))
    env_steps = learner.env_steps + sum(jnp.sum(walked.valid, axis=1) for walked in steps)
    return Iteration(eqx.tree_at(lambda l: l.env_steps, learner, env_steps), metrics, samples, steps)


def learn(keys: Key[Array, " seeds"], algo: PCMLP) -> Iterator[tuple[Learner, SeedMetrics, Transitions]]:
    """The whole of Algorithm 1 for one key per seed: the state, metrics and samples of every iteration."""
    learner = start(keys, algo)
    for n in range(1, algo.num_iterations + 1):  # line 3
        learner, metrics, samples, _ = iterate(keys, algo, learner, n)
        assert isinstance(learner, Learner)
        yield learner, metrics, samples


def rows_to_fit(algo: PCMLP) -> int:
    """M, or the K of every policy, as they come out: whole episodes are rounded up."""
    size = algo.samples_per_policy if algo.fit_samples is None else algo.fit_samples
    horizon = algo.world.mdp.horizon
    rows = size if algo.draws == "iid" else -(-size // horizon) * horizon
    return rows * algo.num_iterations if algo.fit_samples is None else rows


def estimated_value(algo: PCMLP, samples: Transitions) -> Float[Array, ""]:
    """J(pi_n; r, P*) from the samples of line 4: the mean return of whole episodes, or H times the mean reward."""
    horizon = algo.world.mdp.horizon
    if algo.draws == "iid":
        return horizon * jnp.mean(jnp.where(samples.valid, samples.reward, 0.0))
    # The rows are streams of H steps. What a stream has after its first episode was cut short and tells nothing of J.
    streams = jax.tree.map(lambda x: x.reshape(-1, horizon, *x.shape[1:]), samples)
    first = jax.vmap(first_episode)(streams)
    return jnp.mean(jnp.sum(jnp.where(first.valid, first.reward, 0.0), axis=1))


def example_row(world: AbstractWorld) -> Transitions:
    """One row, for its shapes and types; 0 where a space has no bounds to draw between."""
    key = jr.key(0)
    drawn = world.states.sample(key)[None], world.actions.sample(key)[None]
    state, action = (jnp.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0) for x in drawn)
    no = jnp.zeros(1, bool)
    return Transitions(state, action, jnp.zeros(1), state, no, no, no)
