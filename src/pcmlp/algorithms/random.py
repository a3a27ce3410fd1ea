"""Uniform random actions: the baseline without any exploration strategy. Nothing is learned."""

import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from pcmlp.algorithms.method import FREE_BUDGET, Method
from pcmlp.algorithms.stages import COLLECT, stage_keys, without_goal
from pcmlp.planners import UniformPolicy
from pcmlp.settings import setting
from pcmlp.types import MDP, Algorithm, Iteration, Learner, Policy, Problem, World


class RandomPlay(Algorithm):
    """Uniform random actions."""

    samples_per_policy: int = setting(200, "real steps of one iteration, in whole episodes", least=1, tiny=20)
    reward_free: bool = setting(False, "do not end episodes at the goal, as in a reward-free run")

    def explored_world(self, problem: Problem) -> World:
        """Return the world to collect in, without its goal if there is no reward."""
        return without_goal(problem) if self.reward_free else problem.world

    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> "RandomLearner":
        """Return random play."""
        return RandomLearner(UniformPolicy(mdp.actions), jnp.zeros(keys.shape, int))

    def iterate(self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int) -> Iteration:
        """Collect steps with random actions and count them."""
        samples, walked = world.collect(stage_keys(keys, n, COLLECT), learner.policy, self.samples_per_policy)
        env_steps = learner.env_steps + jnp.sum(samples.valid, axis=1)
        return Iteration(RandomLearner(learner.policy, env_steps), {}, samples, [walked])


class RandomLearner(Learner):
    """Random play, and the steps it has taken."""

    policy: Policy
    env_steps: Int[Array, "*seeds"]

    def deployed(self) -> Policy:
        """Return random play."""
        return self.policy


METHOD = Method(
    about="uniform random actions: the baseline without any exploration strategy",
    algorithm=RandomPlay(),
    presets={
        "ours": {
            "small": {"steps": 2_000},
            "point-umaze": {"steps": 10_000},
            "pendulum": {"steps": 4_000},
            "robot": {**FREE_BUDGET, "samples_per_policy": 4_000},
            "gym": {"steps": 30_000, "eval_episodes": 20},
            "finite": {"steps": 4_000, "samples_per_policy": 1},
            "low-rank": {"steps": 50_000, "samples_per_policy": 1_000},
            "linear-core": {"steps": 8_000, "samples_per_policy": 100},
            "regulator": {"steps": 600, "samples_per_policy": 40},
            "knr-poly": {"steps": 800, "samples_per_policy": 80},
            "knr-pendulum": {"steps": 360, "samples_per_policy": 30},
            "knr-rbf": {"steps": 360, "samples_per_policy": 30},
        }
    },
)
