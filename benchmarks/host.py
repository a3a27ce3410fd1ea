"""Where the time of an iteration on a simulator goes, in seconds.

python benchmarks/host.py                               # half-cheetah, four seeds
"""

import json
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array, Float, Key

from pcmlp.algorithms.certificate import promised
from pcmlp.algorithms.deep import Deep
from pcmlp.bench.clock import time_call, time_calls
from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.runs.arrays import save_tree
from pcmlp.runs.cache import prepare
from pcmlp.runs.config import RunConfig, build, resolve, seed_keys
from pcmlp.runs.episodes import EpisodeLog
from pcmlp.runs.evaluate import Evaluator, count_evaluations, evaluation_keys
from pcmlp.runs.summary import device, versions
from pcmlp.tasks.host import GymnasiumWorld, to_host
from pcmlp.types import MDP, Learner, Policy, Problem, World


def main(task: str = "half-cheetah", seeds: int = 4) -> None:
    """Measure an iteration of Deep PC-MLP and print the seconds as JSON."""
    prepare()
    config = resolve(task, "pcmlp", range(seeds))
    print(json.dumps({**host_seconds(config), "device": device(), "versions": versions()}, indent=2))


def host_seconds(config: RunConfig) -> dict[str, float | int | str]:
    """Time the parts of an iteration of a run, without compiling.

    `policy_s` is the time of the policies' actions; `around_s` is the time of real steps without physics and policies:
    transfers, Python, rewards and ends. `dispatch_s` is the part of `stage_s` until the stage is under way: only after
    it can an evaluation run beside the stage. `evaluate_s` is one evaluation and `promise_s` the promise of its
    certificate, which few iterations have; `iteration_s` has the share that each of them has on average. `log_s` is the
    time to log the real steps, and `save_s` that of a checkpoint.
    """
    problem, algorithm = build(config)
    world, keys = problem.world, seed_keys(config.seeds)
    assert isinstance(algorithm, Deep)
    if not isinstance(world, GymnasiumWorld):
        raise ConfigError(f"{config.task_name}: its steps are JAX, not a simulator's; give one such as half-cheetah")
    learner = algorithm.iterate(keys, world, algorithm.start(keys, world.mdp, 2), 1).learner  # compiles
    jax.block_until_ready(learner.env_steps)
    samples, steps = time_steps(world, keys, learner.policy, algorithm.samples_per_policy)
    stage_s, dispatch_s, learner = time_stage(algorithm, keys, Collected(world.mdp, samples), learner)
    evaluate_s = time_evaluation(config, problem, algorithm, learner)
    promise = partial(promised, keys, algorithm, world.mdp, learner, 2)
    promise_s = time_calls(promise, repeats=1)[0]
    log_s, save_s = time_saving(config, algorithm, learner, samples)
    world.close()
    evaluated = count_evaluations(config) / (config.num_iterations + 1)
    whole_s = sum(steps.values()) + stage_s
    return {
        "task": config.task_name,
        "seeds": len(config.seeds),
        "steps": int(np.sum(samples.valid)),
        **steps,
        "stage_s": stage_s,
        "dispatch_s": dispatch_s,
        "evaluate_s": evaluate_s,
        "promise_s": promise_s,
        "log_s": log_s,
        "save_s": save_s,
        "iteration_s": whole_s + evaluated * (evaluate_s + promise_s) + log_s,
        "share_evaluated": evaluated,
        "share_policy": steps["policy_s"] / whole_s,
        "share_around": steps["around_s"] / whole_s,
    }


class Collected(World):
    """A world whose samples were collected before, so that an iteration in it is its stage alone."""

    mdp: MDP
    samples: Transitions

    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Return the samples."""
        return self.samples, self.samples

    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Return the samples."""
        return self.samples, self.samples

    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Float[Array, "seeds episodes"]:
        """Raise: nothing is evaluated here."""
        raise NotImplementedError


def time_steps(world: GymnasiumWorld, keys: Array, policy: Policy, n: int) -> tuple[Transitions, dict[str, float]]:
    """Collect samples; return them and the seconds of their parts."""
    draws, environments = jax.vmap(lambda key: jr.fold_in(key, 2))(keys), world.environments
    physics_before, policy_before, begun = environments.physics_s, environments.policy_s, time.perf_counter()
    samples, _ = world.collect(draws, policy, n)
    jax.block_until_ready(samples.reward)
    collect_s = time.perf_counter() - begun
    physics_s, policy_s = environments.physics_s - physics_before, environments.policy_s - policy_before
    return samples, {"physics_s": physics_s, "policy_s": policy_s, "around_s": collect_s - physics_s - policy_s}


def time_stage(algorithm: Deep, keys: Array, world: World, learner: Learner) -> tuple[float, float, Learner]:
    """Return the seconds of a stage, those until it is under way, and the learner after it."""
    jax.block_until_ready(learner.env_steps)
    begun = time.perf_counter()
    learner = algorithm.iterate(keys, world, learner, 2).learner
    dispatched = time.perf_counter()
    jax.block_until_ready(learner.env_steps)
    return time.perf_counter() - begun, dispatched - begun, learner


def time_evaluation(config: RunConfig, problem: Problem, algorithm: Deep, learner: Learner) -> float:
    """Return the seconds of an evaluation, of the deployed policy and, if there is one, of the exploring policy."""
    chosen = [(learner.deployed(), False), *([(learner.policy, True)] if algorithm.evaluates_exploring else [])]
    keys = evaluation_keys(seed_keys(config.seeds))

    def evaluate() -> None:
        for policies, exploring in chosen:
            Evaluator(problem.world, keys, config.eval_episodes, exploring).returns(policies)

    return time_calls(evaluate, repeats=1)[0]


def time_saving(config: RunConfig, algorithm: Deep, learner: Learner, samples: Transitions) -> tuple[float, float]:
    """Return the seconds to log the samples and to write a checkpoint."""
    with tempfile.TemporaryDirectory() as folder, EpisodeLog(Path(folder) / "episodes") as log:
        walked = to_host(samples)
        log_s = time_call(lambda: log.append(1, config.seeds, walked))
        file = Path(folder) / "learner.safetensors"
        return log_s, time_call(lambda: save_tree(file, algorithm.without_replay(learner), {}))


if __name__ == "__main__":
    tyro.cli(main)
