"""Algorithm 2, Deep PC-MLP (paper: section 6), with a tag for each of its lines.

Neural dynamics replace the class with a theorem, a replay buffer replaces fresh samples from the policy cover, and
TRPO or MPPI replaces the planning oracle. In each iteration, model and planner are updated in turn, `rounds` times
(paper: after Luo et al. 2018).

paper: one policy, which explores and is evaluated / here: a second policy is deployed, unless `exploits` is off. It
starts from the exploring policy and is planned in the same model for the reward alone, in one more round that takes no
samples.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from pcmlp.algorithms.learner import DeepLearner, find_walkers
from pcmlp.algorithms.noise import add_noise
from pcmlp.algorithms.stages import (
    BONUS,
    COLLECT,
    STAGE,
    choose_phi,
    drop_rows,
    feature_key,
    restore_rows,
    round_up,
    stage_key,
    stage_keys,
    with_executed_actions,
    without_goal,
)
from pcmlp.algorithms.starts import check_relabel, imagined_starts
from pcmlp.algorithms.trials import JUDGED, JUDGING, Rule, Trial, choose_start, propose, settle
from pcmlp.algorithms.weight import Weight, largest_reward, weigh
from pcmlp.bonus import CONTROL, Covariance, Elliptical, choose_covariance, second_moment
from pcmlp.features import RandomNetwork, check_draw
from pcmlp.imagine import (
    RewardFree,
    SwitchedBonus,
    bounds_around,
    expand_range,
    imagine,
    nothing_seen,
    restrict,
    unknown_functions,
)
from pcmlp.models import Known, Neural, OutcomeNet
from pcmlp.models.known import check_transition
from pcmlp.models.outcome import WithOutcome
from pcmlp.planners import TRPO
from pcmlp.programs import brief_program, program
from pcmlp.replay import Replay, Transitions, drop_nonfinite
from pcmlp.settings import SettingError, setting
from pcmlp.spaces import Range
from pcmlp.trees import as_inputs, map_leading, run_if, scan, select, stack_inputs, update_if
from pcmlp.types import (
    MDP,
    Algorithm,
    Bonus,
    FeatureMap,
    FittedBonus,
    FittedModel,
    Iteration,
    Learner,
    Metrics,
    Model,
    Planner,
    Problem,
    World,
)


class Deep(Algorithm):
    """The inputs of Algorithm 2 (paper: the tables of appendix D)."""

    features: FeatureMap = setting(RandomNetwork(), "phi of the bonus")
    model: Model = setting(Neural(), "dynamics")
    outcome: OutcomeNet = setting(OutcomeNet(), "reward and end, where they are not given as functions")
    planner: Planner = setting(TRPO(), "planning oracle")
    bonus: Bonus = setting(Elliptical(), "the bonus that rewards novelty")
    bonus_scale: float | Literal["auto"] = setting(
        0.05,
        "c: weight of the bonus; 0: none; auto: in units of the reward",
        least=0,
        most=1e6,
        tune="0.005:0.5:log",
        traced=True,
    )
    rescales: bool = setting(False, "plan in units of the largest reward of one step", traced=True)
    ridge: float = setting(1e-3, "lambda of Sigma; below 1e-6 it is lost in rounding", least=1e-6, most=1e6)
    covariance: bool = setting(True, CONTROL, traced=True)
    samples_per_policy: int = setting(200, "K: real steps of one iteration, in whole episodes", least=1, tiny=20)
    rounds: int = setting(2, "rounds of model and planner updates in one iteration", least=1, tiny=1, tune="1:8:log")
    deploys: Literal["exploring", "newest", "imagined", "proven"] = setting(
        "newest", "which policy is deployed: the exploring one, or one of those that are planned without the bonus"
    )
    fresh: bool = setting(True, "every iteration plans from a new policy, not from the last one")
    replay_size: int = setting(30_000, "rows of the replay buffer D", least=1, most=2**31 - 1, tiny=50)
    num_starts: int = setting(1024, "states that imagined episodes begin at", least=1, most=1_000_000, tiny=16)
    replay_starts: float = setting(
        0.5, "share of imagined episodes that begin at a replayed state", least=0, most=1, tune="0.2:0.95"
    )
    relabel: float = setting(0.0, "share of replayed states whose goal is one reached soon after", least=0, most=1)
    margin: float = setting(3.0, "how far imagined states may leave the range of real ones, in ranges", least=0)
    bounded: bool = setting(True, "whether imagined states are kept near real ones", traced=True)
    reward_free: bool = setting(False, "explore for the bonus alone")
    noise: float = setting(0.0, "Ornstein-Uhlenbeck noise on real actions, in half action ranges", least=0, most=10)

    def check(self) -> None:
        """Raise if a batch of TRPO's value net is larger than what it imagines."""
        if isinstance(self.planner, TRPO) and self.planner.value_batch > (rows := self.planner.imagined_rows):
            remedy = f"more than the {rows} imagined steps of an update (streams x length); give at most {rows}"
            raise SettingError("planner.value_batch", self.planner.value_batch, remedy)

    @property
    def replay_rows(self) -> int:
        """The rows of the replay buffer."""
        return self.replay_size

    @property
    def evaluates_exploring(self) -> bool:
        """Whether the exploring and the deployed policy differ: not for a search without a bonus or random model."""
        return self.exploits and (self.bonus.pays or self.model.randomised or not self.planner.searches)

    def bind(self, problem: Problem) -> "Deep":
        """Return the algorithm for a problem with vectors. A reward for moving is kept (paper: section 7.3)."""
        _ = problem.world.mdp.boxes
        check_draw(self.features, problem.world.mdp)
        check_relabel(self.relabel, problem.world.mdp)
        if isinstance(self.model, Known):
            check_transition(problem.world.mdp)
        return dataclasses.replace(self, reward_free=False) if problem.pays_for_moving else self

    def explored_world(self, problem: Problem) -> World:
        """Return the world to collect in, without its goal if there is no reward."""
        return without_goal(problem) if self.reward_free else problem.world

    def model_for(self, mdp: MDP) -> Model:
        """Return the model to train: with a network for reward and end where these are unknown."""
        return WithOutcome(self.model, self.outcome) if unknown_functions(mdp) else self.model

    def steps_per_iteration(self, horizon: int) -> float:
        """Return the env steps of one iteration."""
        return float(round_up(self.samples_per_policy, horizon))

    @property
    def rule(self) -> Rule:
        """The rule by which policies are deployed. The model cannot judge a policy that searches: it takes too long."""
        if self.deploys in ("imagined", "proven") and (self.planner.searches or self.reward_free):
            return "newest"
        return "walked" if self.deploys == "proven" and not self.fresh else self.deploys

    def weigh(self, largest: Float[Array, ""], bold: Bool[Array, ""]) -> Weight:
        """Return the weight of the bonus, given the largest reward of one step."""
        return weigh(self.bonus_scale, self.rescales, self.planner.reward_size, largest, bold & self.fresh)

    @property
    def exploits(self) -> bool:
        """Whether a second policy is planned without the bonus, to be deployed."""
        return self.deploys != "exploring"

    @property
    def plans(self) -> int:
        """The plans of one iteration: one in each round, and one for the policy to deploy."""
        return self.rounds + self.exploits

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one iteration."""
        action, plan = self.planner.imagined_steps(horizon)
        judged = 2 * JUDGED * horizon if self.rule in JUDGING else 0
        return action, self.plans * plan + judged

    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> "DeepLearner":
        """Run lines 1 to 3 for all seeds."""
        return _start(keys, as_inputs(self), mdp)

    def iterate(
        self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int, each: Sequence["Deep"] = ()
    ) -> Iteration:
        """Run iteration n of all seeds. With `each`, the inputs of the program are those of an algorithm per seed."""
        assert isinstance(learner, DeepLearner)
        policies = add_noise(find_walkers(learner, self.rule).resolve(), self.noise, world.mdp)
        samples, walked = world.collect(stage_keys(keys, n, COLLECT), policies, self.samples_per_policy)  # line 5
        improved = _improve(keys, stack_inputs(each or [self] * len(keys)), world.mdp, learner, samples, jnp.array(n))
        return Iteration(*improved, samples, [walked])

    def without_replay(self, learner: Learner) -> "DeepLearner":
        """Return the learner without the rows of its replay, which can be restored from the episode log."""
        assert isinstance(learner, DeepLearner)
        return dataclasses.replace(learner, replay=drop_rows(learner.replay))

    def restore_replay(self, learner: Learner, mdp: MDP, walked: Iterable[Transitions]) -> "DeepLearner":
        """Return the learner with the rows of its replay, given every real step it has taken."""
        assert isinstance(learner, DeepLearner)
        return dataclasses.replace(learner, replay=restore_rows(learner.replay, self.replay_size, mdp, walked))


def start(key: Key[Array, ""], algo: Deep, mdp: MDP) -> DeepLearner:
    """Run lines 1 to 3 for one seed."""
    model_key, policy_key = jr.split(jr.fold_in(key, 0))
    states, _ = mdp.boxes
    example = Transitions.example(mdp.states, mdp.actions)
    phi = algo.features.draw(feature_key(key), mdp, example)
    covariance = Covariance.ridge_only(algo.ridge, phi(example.state[0], example.action[0]).shape[0])
    bonus = algo.bonus.init(stage_key(key, 0, BONUS), phi, covariance.matrix)
    replay = Replay.empty(example, algo.replay_size)  # line 2
    model = algo.model_for(mdp).init(model_key, mdp)  # line 3
    seen = nothing_seen(states)
    starts = jnp.broadcast_to(example.state, (algo.num_starts, states.size))
    weight = algo.weigh(jnp.zeros(()), jnp.array(True))
    imagined = partial(imagination, algo, mdp, bonus, seen, starts, weight, model)
    policy = algo.planner.init(policy_key, imagined(jnp.array(True)))  # line 1
    deployed = algo.planner.init(policy_key, imagined(jnp.array(False))).without_bonus() if algo.exploits else policy
    return DeepLearner(policy, jnp.zeros((), int), Trial.new(deployed), weight, covariance, model, bonus, replay, seen)


def improve(
    key: Key[Array, ""], algo: Deep, mdp: MDP, learner: DeepLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[DeepLearner, Metrics]:
    """Run lines 6 to 11 of iteration n for one seed, given line 5's samples; `key` is the key of the seed."""
    start_key, policy_key, round_key, judge_key, compare_key, reward_key = jr.split(stage_key(key, n, STAGE), 6)
    trial, walked = settle(learner.trial, algo.rule, learner.policy, samples, mdp.horizon, learner.weight.largest, n)
    env_steps = learner.env_steps + jnp.sum(samples.valid)
    samples, rejected = drop_nonfinite(with_executed_actions(samples, mdp))
    phi = choose_phi(learner.seen.is_empty, algo.features.draw(feature_key(key), mdp, samples), learner.features)
    covariance = learner.covariance.add(second_moment(phi, samples))  # lines 6 and 7
    tested = learner.model.measure(mdp, samples)  # the model that pi_n was planned in, on rows it has not seen
    replay = learner.replay.add(samples)  # line 8
    sigma = choose_covariance(algo.covariance, covariance.matrix, phi, samples)  # Sigma_n, except in the control
    bonus = algo.bonus.update(stage_key(key, n, BONUS), learner.bonus, phi, sigma, replay)  # b_n
    seen = expand_range(learner.seen, samples)
    starts = imagined_starts(start_key, mdp, replay, algo.num_starts, algo.replay_starts, algo.relabel)
    weight = algo.weigh(
        largest_reward(reward_key, mdp, seen, algo.margin, replay, learner.weight.largest),
        learner.weight.bold ^ trial.explores,  # every second exploring policy is bold
    )
    imagined = partial(imagination, algo, mdp, bonus, seen, starts, weight)
    # paper: the policy continues from iteration to iteration / here: by default each iteration starts a new one. A
    # policy that has converged for the last bonus explores little; a new one finds what it misses in the same model.
    policy = algo.planner.init(policy_key, imagined(learner.model, jnp.array(True))) if algo.fresh else learner.policy
    policy, deployed = (algo.planner.renormalise(mdp, each, replay) for each in (policy, trial.deployed))

    def expected(model: FittedModel) -> MDP:
        return dataclasses.replace(imagined(model, jnp.array(False)), initial=mdp.initial)

    def one_round(carry: tuple, inputs: tuple) -> tuple[tuple, Metrics]:
        model, exploring, policy = carry
        explores, (fit_key, plan_key) = inputs  # a last round plans the policy to deploy
        train = partial(algo.model_for(mdp).train, fit_key, mdp, replay=replay)
        model, fitted = update_if(explores, train, model)  # line 9: C steps of SGD
        optimistic = imagined(model, explores)  # line 10: the reward is r + b_n
        refine = partial(choose_start, compare_key, algo.rule, expected(model), trial.proven, deployed)
        policy = run_if(~explores, refine, policy)
        policy, planned = algo.planner.plan(plan_key, optimistic, policy)  # line 11
        return (model, select(explores, policy, exploring), policy), {**fitted, **planned}

    rounds = jnp.arange(algo.plans) < algo.rounds, jax.vmap(jr.split)(jr.split(round_key, algo.plans))
    (model, exploring, deploying), metrics = scan(one_round, (learner.model, policy, policy), rounds)
    trial, judged = propose(judge_key, algo.rule, expected(model), trial, deploying, weight, n)
    found = {name: values[algo.rounds - 1] for name, values in metrics.items()}  # of the last exploring round
    found["bonus_mean"] = learner.weight.mean_bonus(learner.bonus, phi, samples, mdp.horizon)
    found |= {**covariance.metrics(algo.ridge), **rejected, **tested, **walked, **weight.metrics(), **judged}
    return DeepLearner(exploring, env_steps, trial, weight, covariance, model, bonus, replay, seen), found


_start = brief_program(eqx.filter_vmap(start, in_axes=(0, None, None)))


@program
def _improve(
    keys: Key[Array, " seeds"], algos: Deep, mdp: MDP, learner: DeepLearner, samples: Transitions, n: Int[Array, ""]
) -> tuple[DeepLearner, dict[str, Float[Array, " seeds"]]]:
    return map_leading(lambda k, algo, old, rows: improve(k, algo, mdp, old, rows, n), keys, algos, learner, samples)


def imagination(
    algo: Deep,
    mdp: MDP,
    bonus: FittedBonus,
    seen: Range,
    starts: Float[Array, "n s"],
    weight: Weight,
    model: FittedModel,
    explores: Bool[Array, ""],
) -> MDP:
    """Return the MDP to plan in: reward + bonus in the model to explore, reward in the mean model to exploit."""
    states, actions = mdp.boxes
    known = model.complete(mdp)
    known = dataclasses.replace(known, reward=RewardFree(known.reward, explores & (weight.bold | algo.reward_free)))
    paid = SwitchedBonus(weight.apply(bonus, mdp.horizon), explores, actions)
    imagined = imagine(known, select(explores, model, model.expected()), paid, weight.unit)
    return restrict(imagined, bounds_around(states, seen, algo.margin, algo.bounded), starts)
