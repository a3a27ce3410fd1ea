"""A robot on a simulator: where the time of an iteration goes, and the paper's round of TRPO.

An iteration is that of the default settings, whose planner is SAC. It is measured twice, first to compile. A GPU
measures all of it. A CPU measures two of its rounds and a quarter of its evaluation episodes, and scales both times to
the whole. All real steps are taken.
"""

import importlib.util
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.stages import COLLECT, stage_keys
from pcmlp.bench.clock import peak_memory_mb, time_call, time_calls
from pcmlp.bench.parts import compile_round
from pcmlp.runs.config import build, resolve
from pcmlp.runs.evaluate import count_evaluations
from pcmlp.runs.run import Run
from pcmlp.runs.train import open_run
from pcmlp.tasks.host import GymnasiumWorld, to_host
from pcmlp.world import RecordedWorld

_CPU_ROUNDS, _CPU_EPISODES = 1, 5  # the exploring policy is evaluated in a fifth of the episodes


def is_installed() -> bool:
    """Return whether the simulator of the robots is on this machine."""
    return importlib.util.find_spec("mujoco") is not None


def paper_round_s(task: str, settings: tuple[str, ...], seeds: int, repeats: int) -> float:
    """Time a round with the paper's settings: 40 TRPO updates of 4,000 imagined steps, value batches of 64."""
    problem, algorithm = build(resolve(task, "pcmlp", range(seeds), settings=("preset=paper", *settings)))
    assert isinstance(algorithm, Deep)
    return statistics.median(time_calls(compile_round(algorithm, problem.world, seeds), repeats=repeats))


def iteration_s(task: str, settings: tuple[str, ...], seeds: int, *, whole: bool) -> dict[str, Any]:
    """Time the parts of an iteration of several seeds, without compiling; of a shorter one if not `whole`."""
    full = resolve(task, "pcmlp", range(seeds), settings=settings)
    assert isinstance(full.algorithm, Deep)
    rounds = full.algorithm.rounds if whole else min(_CPU_ROUNDS, full.algorithm.rounds)
    timed = replace(full.algorithm, rounds=rounds)
    episodes = full.eval_episodes if whole else min(_CPU_EPISODES, full.eval_episodes)
    shorter = replace(full, eval_episodes=episodes, eval_every=0, algorithm=timed)
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(shorter, Path(folder) / "run", resume=False)
        assert run is not None
        with run.opened():
            seconds = time_parts(run)
    seconds["stage_s"] *= full.algorithm.plans / timed.plans
    seconds["evaluation_s"] *= full.eval_episodes / episodes
    evaluated = count_evaluations(full) / (full.num_iterations + 1)
    measured = {"rounds_measured": timed.plans, "eval_episodes_measured": episodes}
    every = sum(seconds[part] for part in ("physics_s", "policy_s", "around_s", "stage_s", "log_s"))
    average = {"share_evaluated": evaluated, "iteration_s": every + evaluated * seconds["evaluation_s"]}
    return {**measured, **seconds, **average, "peak_memory_mb": peak_memory_mb()}


def time_parts(run: Run) -> dict[str, Any]:
    """Time the second iteration of a run.

    `policy_s` is the time of the policies' actions; `around_s` is the time of real steps without physics and policies:
    transfers, Python, rewards and ends. `evaluation_s` is one evaluation, which few iterations have; `log_s` is the log
    of the real steps, and `save_s` a checkpoint.
    """
    algorithm, keys, world = run.algorithm, run.keys, run.world
    assert isinstance(algorithm, Deep)
    assert isinstance(world, GymnasiumWorld)
    first = algorithm.iterate(keys, world, algorithm.start(keys, world.mdp, 2), 1)
    run.finish_iteration(1, first)

    environments, draws = world.environments, stage_keys(keys, 2, COLLECT)
    physics, policy, begun = environments.physics_s, environments.policy_s, time.perf_counter()
    samples, walked = world.collect(draws, first.learner.policy, algorithm.samples_per_policy)
    jax.block_until_ready(samples.reward)
    collect_s = time.perf_counter() - begun
    physics_s, policy_s = environments.physics_s - physics, environments.policy_s - policy
    begun = time.perf_counter()
    second = algorithm.iterate(keys, RecordedWorld(world.mdp, samples, walked), first.learner, 2)
    jax.block_until_ready(second.metrics)
    stage_s = time.perf_counter() - begun

    run.learner = second.learner
    measured = {name: np.asarray(values) for name, values in second.metrics.items()}
    evaluation_s = time_call(lambda: run.record(2, measured))
    run.done = 2
    begun = time.perf_counter()
    assert run.log is not None
    for steps in to_host(second.walked):
        run.log.append(2, run.config.seeds, steps)
    log_s = time.perf_counter() - begun
    save_s = time_call(run.save)
    world.close()
    return {
        "steps": int(jnp.sum(samples.valid)),
        "physics_s": physics_s,
        "policy_s": policy_s,
        "around_s": collect_s - physics_s - policy_s,
        "stage_s": stage_s,
        "evaluation_s": evaluation_s,
        "log_s": log_s,
        "save_s": save_s,
    }
