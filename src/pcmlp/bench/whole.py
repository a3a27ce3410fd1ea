"""Whole runs and iterations: the time until mountain-car is solved, and the parts of an iteration on a simulator."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr

from pcmlp.algorithms.deep import Deep
from pcmlp.bench.clock import time_call
from pcmlp.errors import ConfigError
from pcmlp.runs.config import RunConfig, build, resolve
from pcmlp.runs.run import seed_keys
from pcmlp.tasks.host import GymnasiumWorld

# One iteration of one episode, which is enough for nine of ten seeds (docs/results.md).
_RUN = ("train", "mountain-car", "--algo", "pcmlp", "--seeds", "0", "--steps", "200")


def time_to_solved() -> dict[str, float | None]:
    """Time a whole run of mountain-car, first with an empty compilation cache, then with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PCMLP_CACHE": str(Path(folder) / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        return {name: time_run(Path(folder) / name, environment) for name in ("cold_cache", "warm_cache")}


def time_run(out: Path, environment: dict[str, str]) -> float | None:
    """Return the seconds of a run; None if it failed or did not solve its task."""
    command = [sys.executable, "-m", "pcmlp.cli", *_RUN, "--out", str(out)]
    begun = time.perf_counter()
    run = subprocess.run(command, env=environment, capture_output=True)
    taken = time.perf_counter() - begun
    if run.returncode != 0:
        return None
    summary = json.loads((out / "summary.json").read_text())
    return None if summary["seeds"][0]["env_steps_to_success"] is None else taken


def host_config(task: str, seeds: int, settings: tuple[str, ...] = ()) -> RunConfig:
    """Return the configuration of Deep PC-MLP on a task with a simulator."""
    return resolve(task, "pcmlp", range(seeds), settings=settings)


def host_seconds(config: RunConfig) -> dict[str, float | int | str]:
    """Time an iteration of a run, without compiling, evaluating and saving.

    `policy_s` is the time of the policies' actions; `around_s` is the time of real steps without physics and policies:
    transfers, Python, rewards and ends.
    """
    problem, algorithm = build(config)
    world, keys = problem.world, seed_keys(config.seeds)
    assert isinstance(algorithm, Deep)
    if not isinstance(world, GymnasiumWorld):
        raise ConfigError(
            f"host={config.task_name}: its steps are JAX, not a simulator's; give one such as half-cheetah"
        )
    learner = algorithm.iterate(keys, world, algorithm.start(keys, world.mdp, 2), 1).learner  # compiles
    jax.block_until_ready(learner.env_steps)

    draws = jax.vmap(lambda key: jr.fold_in(key, 2))(keys)
    environments = world.environments
    physics_before, policy_before, begun = environments.physics_s, environments.policy_s, time.perf_counter()
    samples, _ = world.collect(draws, learner.policy, algorithm.samples_per_policy)
    jax.block_until_ready(samples.reward)
    collect_s = time.perf_counter() - begun
    physics_s, policy_s = environments.physics_s - physics_before, environments.policy_s - policy_before
    around_s = collect_s - physics_s - policy_s
    whole_s = time_call(lambda: algorithm.iterate(keys, world, learner, 2).metrics)
    world.close()
    return {
        "task": config.task_name,
        "seeds": len(config.seeds),
        "steps": int(jnp.sum(samples.valid)),
        "physics_s": physics_s,
        "policy_s": policy_s,
        "around_s": around_s,
        "stage_s": whole_s - collect_s,
        "share_policy": policy_s / whole_s,
        "share_around": around_s / whole_s,
    }
