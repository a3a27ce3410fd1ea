"""Algorithm 1, the PC-MLP framework (paper: section 4), with a tag for each of its lines.

`improve` is pure, compiled once and vmapped over seeds. The world draws the samples, because real environments step on
the host. Outside `improve`, every array of a learner has a leading axis of seeds.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from pcmlp.algorithms.stages import round_up
from pcmlp.bonus import CONTROL, CappedBonus, Covariance, Elliptical, Number, choose_covariance, second_moment
from pcmlp.cover import Cover, Mixture, best_policy
from pcmlp.errors import ConfigError
from pcmlp.features import TaskFeatures, check_draw, check_norm
from pcmlp.imagine import imagine
from pcmlp.models import TaskModel
from pcmlp.planners import ValueIteration
from pcmlp.programs import brief_program, program
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.rollout import mean_first_return
from pcmlp.settings import setting
from pcmlp.trees import as_inputs
from pcmlp.types import (
    MDP,
    Algorithm,
    FeatureMap,
    Features,
    FittedModel,
    Iteration,
    Learner,
    Metrics,
    Model,
    Planner,
    Policy,
    Problem,
    World,
)


class PCMLP(Algorithm):
    """The inputs of Algorithm 1: (K, lambda, M, P, c), phi and OP. N is the number of iterations."""

    features: FeatureMap | Features = setting(TaskFeatures(), "phi")
    model: Model = setting(TaskModel(), "the class P of models")
    planner: Planner = setting(ValueIteration(), "planning oracle OP")
    samples_per_policy: int = setting(20, "K: samples of each policy", least=1)
    ridge: float = setting(0.01, "lambda of Sigma; below 1e-6 it is lost in rounding", least=1e-6, most=1e6)
    bonus_scale: float = setting(0.1, "c: weight of the bonus; 0: none", least=0, most=1e6, tune="0.005:0.5:log")
    # paper: K and M are independent draws, each one step of a separate episode / here: by default all steps of whole
    # episodes (draws=iid is the paper's version), and the model is fitted to the K samples of every policy so far,
    # not to M fresh ones (setting `fit_samples` is the paper's version). See docs/deviations.md.
    draws: Literal["episodes", "iid"] = setting("episodes", "all steps of whole episodes, or one step of each")
    fit_samples: int | None = setting(
        None, "M: fresh samples of the cover to fit to; none: those of every policy so far", least=1
    )
    covariance: bool = setting(True, CONTROL, traced=True)

    @property
    def draws_episodes(self) -> bool:
        """Whether the samples of a policy are whole episodes."""
        return self.draws == "episodes"

    def bind(self, problem: Problem) -> "PCMLP":
        """Return the algorithm with the features phi and the class P of the problem."""
        mdp = problem.world.mdp
        phi = self.features
        if isinstance(phi, TaskFeatures):
            phi = problem.features
            if phi is None:
                raise ConfigError("features.name=task: the task has no phi of its own; give fourier or polynomial")
        elif isinstance(phi, FeatureMap):
            check_draw(phi, mdp)
            phi = phi.draw(jr.key(0), mdp, Transitions.example(mdp.states, mdp.actions))
        check_norm(phi, mdp)
        model = self.model.bind(problem, phi)
        self.planner.check_model(mdp, model)
        return dataclasses.replace(self, features=phi, model=model)

    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> "CoverLearner":
        """Run lines 1 and 2 for all seeds."""
        return _start(keys, as_inputs(self), mdp, num_iterations)

    def iterate(self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int) -> Iteration:
        """Run iteration n of all seeds."""
        assert isinstance(learner, CoverLearner)
        draw_keys, cover_keys, improve_keys = _iteration_keys(keys, jnp.array(n))
        sample = world.collect if self.draws == "episodes" else world.draw
        samples, walked = sample(draw_keys, learner.policy, self.samples_per_policy)  # line 4: K samples from d_pi_n
        rows, steps = samples, [walked]
        if self.fit_samples is not None:  # line 7: M samples from d_cover
            rows, walked = sample(cover_keys, Mixture(learner.cover), self.fit_samples)
            steps.append(walked)
        learner, metrics = _improve((improve_keys, as_inputs(self), world.mdp, samples, rows, jnp.array(n)), learner)
        env_steps = learner.env_steps + sum(jnp.sum(walked.valid, axis=1) for walked in steps)
        return Iteration(dataclasses.replace(learner, env_steps=env_steps), metrics, samples, steps)

    def steps_per_iteration(self, horizon: int) -> float:
        """Return the env steps of one iteration: a draw from d_pi takes (H + 1) / 2 steps on average; whole episodes
        are rounded up."""
        sizes = self.samples_per_policy, self.fit_samples or 0
        if self.draws == "iid":
            return sum(sizes) * (horizon + 1) / 2
        return float(sum(round_up(size, horizon) for size in sizes))

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one iteration."""
        return self.planner.imagined_steps(horizon)


class CoverLearner(Learner):
    """The state of Algorithm 1 between iterations."""

    policy: Policy  # pi_n
    env_steps: Int[Array, "*seeds"]
    cover: Cover  # { pi_1 ... pi_n }
    covariance: Covariance  # Sigma_n
    model: FittedModel  # P_n
    bonus: CappedBonus  # b_n
    replay: Replay  # the samples to fit to; only the new ones if the model remembers the others
    values: Float[Array, "*seeds N"]  # J of each policy of the cover, estimated from its own K samples

    def deployed(self) -> Policy:
        """Return the policy to deploy: the best of the cover, which the theorems are about.

        paper: some policy of the cover is near-optimal / here: the policy with the highest return in its K samples.
        """
        return best_policy(self.cover, self.values)


def start(key: Key[Array, ""], algo: PCMLP, mdp: MDP, num_iterations: int) -> CoverLearner:
    """Run lines 1 and 2 for one seed."""
    example = Transitions.example(mdp.states, mdp.actions)
    phi, init_key = algo.features, jr.fold_in(key, 0)
    assert callable(phi)
    covariance = Covariance.ridge_only(algo.ridge, phi(example.state[0], example.action[0]).shape[0])
    bonus = elliptical_bonus(algo, mdp, covariance.matrix)
    model = algo.model.init(init_key, mdp)
    policy = algo.planner.init(init_key, imagine(mdp, model, bonus))  # line 1: initialise pi_1
    cover = Cover.of(policy, num_iterations + 1)  # line 2: the cover is { pi_1 }
    replay = Replay.empty(example, rows_to_fit(algo, mdp.horizon, num_iterations))
    values = jnp.full(num_iterations, -jnp.inf, jnp.float32)
    return CoverLearner(policy, jnp.zeros((), int), cover, covariance, model, bonus, replay, values)


def improve(
    key: Key[Array, ""],
    algo: PCMLP,
    mdp: MDP,
    learner: CoverLearner,
    samples: Transitions,
    rows: Transitions,
    n: Int[Array, ""],
) -> tuple[CoverLearner, Metrics]:
    """Run lines 5 to 10 for one seed, given line 4's `samples` and line 7's `rows`."""
    fit_key, plan_key = jr.split(key)
    assert callable(algo.features)
    value = estimate_value(algo, mdp.horizon, samples)  # computed before non-finite rewards are replaced by 0
    samples, rejected = drop_nonfinite(samples)

    moment = second_moment(algo.features, samples)  # line 5
    covariance = learner.covariance.add(moment)  # line 6
    replay = learner.replay.add(drop_nonfinite(rows)[0])
    forgets = algo.model.remembers and algo.fit_samples is not None  # M fresh samples are all that is fitted to
    before = algo.model.init(fit_key, mdp) if forgets else learner.model
    model, fitted = algo.model.train(fit_key, mdp, before, replay)  # line 7: maximum likelihood over P
    # Sigma_n, except in the control
    sigma = choose_covariance(algo.covariance, covariance.matrix, algo.features, samples)
    bonus = elliptical_bonus(algo, mdp, sigma)  # line 8
    policy, planned = algo.planner.plan(plan_key, imagine(mdp, model, bonus), learner.policy)  # line 9
    cover = learner.cover.push(policy)  # line 10

    paid = jax.vmap(learner.bonus)(samples.state, samples.action)  # the bonus that pi_n was planned for, where it went
    metrics = {
        "bonus_mean": jnp.mean(paid, where=samples.valid),
        "sample_return": value,
        **fitted,
        **planned,
        **covariance.metrics(algo.ridge),
        **rejected,
    }
    known = jnp.where(jnp.isfinite(value), value, -jnp.inf)  # a policy with NaN in its samples is never the best
    values = learner.values.at[n - 1].set(known)
    return CoverLearner(policy, learner.env_steps, cover, covariance, model, bonus, replay, values), metrics


_start = brief_program(eqx.filter_vmap(start, in_axes=(0, None, None, None)))


@brief_program
def _iteration_keys(keys: Key[Array, " seeds"], n: Int[Array, ""]) -> Key[Array, "3 seeds"]:
    return jax.vmap(lambda key: jr.split(jr.fold_in(key, n), 3), out_axes=1)(keys)


@functools.partial(program, donates=True)  # the cover has room for every policy, and a copy in each iteration is slow
def _improve(inputs: tuple, learner: CoverLearner) -> tuple[CoverLearner, dict[str, Float[Array, " seeds"]]]:
    over_seeds = eqx.filter_vmap(
        improve, in_axes=(0, None, None, eqx.if_array(0), eqx.if_array(0), eqx.if_array(0), None)
    )
    keys, algo, mdp, samples, rows, n = inputs
    return over_seeds(keys, algo, mdp, learner, samples, rows, n)


def learn(
    keys: Key[Array, " seeds"], algo: PCMLP, problem: Problem, num_iterations: int
) -> Iterator[tuple[CoverLearner, dict[str, Float[Array, " seeds"]], Transitions]]:
    """Run Algorithm 1 for one key per seed; yield a copy of the learner, the metrics and the samples of every
    iteration: the next iteration uses up the learner itself."""
    algo = algo.bind(problem)
    learner: Learner = algo.start(keys, problem.world.mdp, num_iterations)
    for n in range(1, num_iterations + 1):  # line 3
        learner, metrics, samples, _ = algo.iterate(keys, problem.world, learner, n)
        assert isinstance(learner, CoverLearner)
        yield jax.tree.map(lambda x: x.copy() if eqx.is_array(x) else x, learner), metrics, samples


def elliptical_bonus(algo: PCMLP, mdp: MDP, covariance: Float[Array, "d d"]) -> CappedBonus:
    """Return b_n of Eq. 2."""
    assert callable(algo.features)
    return capped_ellipse(algo.features, covariance, algo.bonus_scale, mdp.horizon)


def capped_ellipse(phi: Features, covariance: Float[Array, "d d"], scale: Number, horizon: int) -> CappedBonus:
    """Return min{2 c sqrt(phi^T Sigma^-1 phi), H}."""
    return CappedBonus(Elliptical().init(jr.key(0), phi, covariance), scale, float(horizon))


def rows_to_fit(algo: PCMLP, horizon: int, num_iterations: int) -> int:
    """Return the number of rows to fit: M, or K for every policy, with whole episodes rounded up. If the model
    remembers earlier rows, those of one policy are enough."""
    size = algo.samples_per_policy if algo.fit_samples is None else algo.fit_samples
    rows = size if algo.draws == "iid" else round_up(size, horizon)
    return rows if algo.fit_samples is not None or algo.model.remembers else rows * num_iterations


def estimate_value(algo: PCMLP, horizon: int, samples: Transitions) -> Float[Array, ""]:
    """Estimate J(pi_n; r, P*) from the samples of line 4: the mean return of whole episodes, or H times the mean
    reward."""
    if algo.draws == "iid":
        return horizon * jnp.mean(jnp.where(samples.valid, samples.reward, 0.0))
    return mean_first_return(samples, horizon)
