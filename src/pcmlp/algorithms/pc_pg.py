"""PC-PG: policy cover and policy gradient, without a model (Agarwal, Henaff, Kakade, Sun 2020).

    Sigma_n = sum_{i<=n} Sigma_pi_i + lambda I,     b_n(s, a) = min{ 2 c sqrt(phi^T Sigma_n^-1 phi), H }
    start of an episode: pi_i, i uniform in the cover, for t steps, t uniform in 0 ... H - 1
    pi_{n+1} = natural gradient of r + b_n on the real steps after that

PC-MLP does in its model what PC-PG does in the world, so the two differ in the cost of a step: here every step to a
start is real and counted, although PC-PG learns only from the steps after the start.

Agarwal et al.: a bonus of 1 / (1 - gamma) where phi^T Sigma^-1 phi is above a threshold / here: PC-MLP's bonus, which
has no threshold. NPG with a linear critic / here: TRPO's step, a natural gradient with a line search, and its value
net. A new policy for each iteration / here: the last one continues, unless `fresh`. The best policy of the cover is
returned / here: the policy with the highest return in its K samples.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.algorithms.framework import capped_ellipse
from pcmlp.algorithms.method import FREE_BUDGET, NO_IMAGINATION, Method
from pcmlp.algorithms.stages import (
    COLLECT,
    STAGE,
    choose_phi,
    feature_key,
    round_up,
    stage_key,
    stage_keys,
    with_executed_actions,
    without_goal,
)
from pcmlp.algorithms.trpo import REAL_TRPO
from pcmlp.bonus import CONTROL, CappedBonus, Covariance, choose_covariance, second_moment
from pcmlp.cover import Cover, best_policy
from pcmlp.features import RandomNetwork, check_draw
from pcmlp.nets import RunningMoments
from pcmlp.planners import TRPO, ActorCritic
from pcmlp.programs import brief_program, program
from pcmlp.replay import Transitions, drop_nonfinite
from pcmlp.rollout import mean_first_return, split_streams
from pcmlp.settings import SettingError, setting
from pcmlp.trees import as_inputs, map_leading, select
from pcmlp.types import (
    MDP,
    Action,
    Algorithm,
    Carry,
    FeatureMap,
    Iteration,
    Learner,
    Metrics,
    Planner,
    Policy,
    Problem,
    State,
    World,
)

_LEARN = 2**20  # added to the `use` of keys for learning; keys for collecting have smaller numbers


class PCPG(Algorithm):
    """The inputs of PC-PG."""

    features: FeatureMap = setting(RandomNetwork(sizes=(128, 128)), "phi of the bonus")
    planner: Planner = setting(TRPO(), "planner whose update is applied to real steps: TRPO")
    samples_per_policy: int = setting(400, "K: real steps that Sigma is estimated from", least=1, tiny=20)
    updates: int = setting(4, "updates of the policy in one iteration", least=1, tiny=1)
    batch_steps: int = setting(2_000, "real steps for each update, in whole episodes", least=1, tiny=40)
    ridge: float = setting(1e-3, "lambda of Sigma", least=1e-6, most=1e6)
    bonus_scale: float = setting(0.05, "c: weight of the bonus; 0: none", least=0, most=1e6, tune="0.005:0.5:log")
    covariance: bool = setting(True, CONTROL, traced=True)
    fresh: bool = setting(False, "every iteration begins with a new policy, not with the last one")
    normalise: bool = setting(True, "normalise states by the mean and std of all states so far")
    reward_free: bool = setting(False, "explore for the bonus alone")

    def check(self) -> None:
        """Raise unless the planner is TRPO, whose update is applied to real steps."""
        if not isinstance(self.planner, TRPO):
            raise SettingError("planner", type(self.planner).__name__, "has no update for real steps; give TRPO")

    def bind(self, problem: Problem) -> "PCPG":
        """Return the algorithm for a problem with vectors. A reward for moving is kept (paper: section 7.3)."""
        _ = problem.world.mdp.boxes
        check_draw(self.features, problem.world.mdp)
        return dataclasses.replace(self, reward_free=False) if problem.pays_for_moving else self

    def explored_world(self, problem: Problem) -> World:
        """Return the world to collect in, without its goal if there is no reward."""
        return without_goal(problem) if self.reward_free else problem.world

    def steps_per_iteration(self, horizon: int) -> float:
        """Return the env steps of one iteration."""
        samples, batch = (round_up(size, horizon) for size in (self.samples_per_policy, self.batch_steps))
        return float(samples + self.updates * batch)

    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> "PCPGLearner":
        """Return the covers { pi_1 } of all seeds."""
        return _start(keys, as_inputs(self), mdp, num_iterations + 1)

    def iterate(self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int) -> Iteration:
        """Run iteration n of all seeds: estimate Sigma, then update the policy on episodes that the cover begins."""
        assert isinstance(learner, PCPGLearner)
        mdp, algo = world.mdp, as_inputs(self)
        samples, walked = world.collect(stage_keys(keys, n, COLLECT), learner.policy, self.samples_per_policy)
        learner, metrics = _observe(keys, algo, mdp, learner, samples, jnp.array(n))
        steps = [walked]
        for update in range(1, self.updates + 1):
            roll_in = _roll_in(stage_keys(keys, n, 2 * update + 1), learner, mdp.horizon)
            rows, walked = world.collect(stage_keys(keys, n, 2 * update), roll_in, self.batch_steps)
            learner, learned = _learn(stage_keys(keys, n, 2 * update + _LEARN), algo, mdp, learner, rows, roll_in)
            metrics = {**metrics, **learned}
            steps.append(walked)
        return Iteration(_push(learner), metrics, samples, steps)


class PCPGLearner(Learner):
    """The state of PC-PG between iterations."""

    policy: ActorCritic  # pi_n
    cover: Cover  # { pi_1 ... pi_n }
    values: Float[Array, "*seeds N"]  # J of each policy, estimated from its own K samples
    covariance: Covariance  # Sigma_n
    bonus: CappedBonus  # b_n
    seen: RunningMoments  # mean and variance of all states so far
    env_steps: Int[Array, "*seeds"]

    def deployed(self) -> Policy:
        """Return the policy of the cover with the highest return in its K samples."""
        return best_policy(self.cover, self.values)


class RollIn(Policy):
    """A policy of the cover for the first steps of an episode, then `policy`.

    The member of the cover and its number of steps are drawn with a key that depends on the first state of the episode.
    So the episode alone determines which policy took which step, in a simulator as in a scan.
    """

    cover: Cover
    policy: ActorCritic
    key: Key[Array, ""]
    horizon: int = eqx.field(static=True)

    def init(self) -> Carry:
        """Return the clock, the member and the time of the switch, all 0."""
        zero = jnp.zeros((), int)
        return zero, zero, zero

    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the action of the member before the switch, of the policy after it."""
        clock, member, switch = carry
        member, switch = select(clock == 0, self.draw_switch(state), (member, switch))
        walks_in, learns = self.cover[member](key, (), state)[1], self.policy(key, (), state)[1]
        return (clock + 1, member, switch), jnp.where(clock < switch, walks_in, learns)

    def draw_switch(self, first: State) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Draw the member of the cover and the number of steps that it takes."""
        bits = jax.lax.bitcast_convert_type(first, jnp.uint32)
        word = jnp.sum(bits * (2 * jnp.arange(bits.shape[0], dtype=jnp.uint32) + 1), dtype=jnp.uint32)
        member, switch = jr.uniform(jr.fold_in(self.key, word), (2,))
        return _scale(member, self.cover.size), _scale(switch, jnp.array(self.horizon))

    def learner_steps(self, stream: Transitions) -> Bool[Array, " n"]:
        """Return which steps of a stream `policy` took."""

        def step(carry, row):
            clock, switch = carry
            state, over = row
            switch = jnp.where(clock == 0, self.draw_switch(state)[1], switch)
            return (jnp.where(over, 0, clock + 1), switch), clock >= switch

        zero, over = jnp.zeros((), int), stream.last | ~stream.valid  # a damaged episode is all padding
        return jax.lax.scan(step, (zero, zero), (stream.state, over))[1]


def _scale(uniform: Float[Array, ""], count: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.minimum(jnp.floor(uniform * count.astype(jnp.float32)).astype(int), count - 1)


@brief_program
@eqx.filter_vmap(in_axes=(0, None, None, None))
def _start(key: Key[Array, ""], algo: PCPG, mdp: MDP, capacity: int) -> PCPGLearner:
    example = Transitions.example(mdp.states, mdp.actions)
    phi = algo.features.draw(feature_key(key), mdp, example)
    covariance = Covariance.ridge_only(algo.ridge, phi(example.state[0], example.action[0]).shape[0])
    policy = algo.planner.init(jr.fold_in(key, 0), mdp)
    assert isinstance(policy, ActorCritic)
    return PCPGLearner(
        policy=policy,
        cover=Cover.of(policy, capacity),
        values=jnp.full(capacity, -jnp.inf, jnp.float32),
        covariance=covariance,
        bonus=capped_ellipse(phi, covariance.matrix, algo.bonus_scale, mdp.horizon),
        seen=RunningMoments.empty(example.state.shape[1]),
        env_steps=jnp.zeros((), int),
    )


def observe(
    key: Key[Array, ""], algo: PCPG, mdp: MDP, learner: PCPGLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[PCPGLearner, Metrics]:
    """Compute the moment, the value and the next bonus from the K samples of pi_n."""
    value = mean_first_return(samples, mdp.horizon)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    samples, rejected = drop_nonfinite(with_executed_actions(samples, mdp))
    phi = choose_phi(n == 1, algo.features.draw(feature_key(key), mdp, samples), learner.bonus.bonus.features)
    covariance = learner.covariance.add(second_moment(phi, samples))
    sigma = choose_covariance(algo.covariance, covariance.matrix, phi, samples)
    promised = eqx.tree_at(lambda b: b.bonus.features, learner.bonus, phi)
    paid = jax.vmap(promised)(samples.state, samples.action)
    known = jnp.where(jnp.isfinite(value), value, -jnp.inf)  # a policy with NaN in its samples is never the best
    policy = learner.policy
    if algo.fresh:
        fresh = algo.planner.init(stage_key(key, n, STAGE), mdp)
        assert isinstance(fresh, ActorCritic)
        policy = fresh.with_normaliser(learner.seen.normaliser()) if algo.normalise else fresh
    learner = dataclasses.replace(
        learner,
        policy=policy,
        values=learner.values.at[n - 1].set(known),
        covariance=covariance,
        bonus=capped_ellipse(phi, sigma, algo.bonus_scale, mdp.horizon),
        env_steps=env_steps,
    )
    bonus_mean = jnp.mean(paid, where=samples.valid)
    return learner, {"bonus_mean": bonus_mean, "sample_return": value, **covariance.metrics(algo.ridge), **rejected}


def learn(
    key: Key[Array, ""], algo: PCPG, mdp: MDP, learner: PCPGLearner, rows: Transitions, roll_in: RollIn
) -> tuple[PCPGLearner, Metrics]:
    """Update the policy once for r + b_n, on the steps after the roll-in."""
    env_steps = learner.env_steps + jnp.sum(rows.valid)
    own = jax.vmap(roll_in.learner_steps)(split_streams(rows, mdp.horizon))
    rows, _ = drop_nonfinite(rows)
    novelty = jax.vmap(learner.bonus)(rows.state, with_executed_actions(rows, mdp).action)
    rows = dataclasses.replace(rows, reward=novelty if algo.reward_free else rows.reward + novelty)
    seen = learner.seen.add(rows.state, rows.valid)
    policy = learner.policy.with_normaliser(seen.normaliser()) if algo.normalise else learner.policy
    streams = split_streams(rows, mdp.horizon)
    counted = streams.valid & own
    assert isinstance(algo.planner, TRPO)
    policy, metrics = algo.planner.learn(key, policy, streams, counted)
    learner = dataclasses.replace(learner, policy=policy, seen=seen, env_steps=env_steps)
    return learner, {**metrics, "learned_share": jnp.mean(counted.astype(jnp.float32))}


@program
def _observe(keys, algo, mdp, learner, samples, n):
    return map_leading(lambda k, learner, samples: observe(k, algo, mdp, learner, samples, n), keys, learner, samples)


@program
def _learn(keys, algo, mdp, learner, rows, roll_in):
    return map_leading(lambda k, *inputs: learn(k, algo, mdp, *inputs), keys, learner, rows, roll_in)


@program
@eqx.filter_vmap(in_axes=(0, eqx.if_array(0), None))
def _roll_in(key: Key[Array, ""], learner: PCPGLearner, horizon: int) -> RollIn:
    return RollIn(learner.cover, learner.policy, key, horizon)


@program
@eqx.filter_vmap
def _push(learner: PCPGLearner) -> PCPGLearner:
    return dataclasses.replace(learner, cover=learner.cover.push(learner.policy))


METHOD = Method(
    about="PC-PG: policy cover, bonus and natural gradient without a model; the cover begins the episodes",
    algorithm=PCPG(planner=REAL_TRPO),
    presets={
        "ours": {
            "small": {"steps": 40_000},
            "robot": {**FREE_BUDGET, "samples_per_policy": 1_000, "batch_steps": 4_000},
            "gym": {"steps": 30_000, "eval_episodes": 20},
        }
    },
    choices={"features": ("random-network", "fourier")},
    unused={**NO_IMAGINATION, "planner.entropy": "its TRPO has no entropy term"},
)
