"""Where an iteration's time goes in a simulator on the host: its physics, what is around a step of it, the stage."""

import time

import jax
import jax.numpy as jnp
import jax.random as jr

from pcmlp.bench.clock import time_of
from pcmlp.runs.build import build
from pcmlp.runs.config import RunConfig, resolve
from pcmlp.runs.run import seed_keys
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import ConfigError


def host_config(task: str, seeds: int, settings: tuple[str, ...] = ()) -> RunConfig:
    return resolve(task, "pcmlp", range(seeds), settings=settings)


def host_seconds(config: RunConfig) -> dict[str, float | int | str]:
    """An iteration of `pcmlp train TASK` with so many seeds, without compiling, evaluating and saving.

    `around_s` is what real steps cost besides the physics: the policy, rewards and ends, transfers, Python.
    """
    algo = build(config)[1]
    world, keys = algo.world, seed_keys(config)
    if not isinstance(world, GymnasiumWorld):
        raise ConfigError(
            f"host={config.task_name}: its steps are JAX, not a simulator's; give one such as half-cheetah"
        )
    learner = algo.iterate(keys, algo.start(keys), 1).learner  # compiles
    jax.block_until_ready(learner.env_steps)

    before, begun = world.environments.steppers.seconds, time.perf_counter()
    draws = jax.vmap(lambda key: jr.fold_in(key, 2))(keys)
    samples, _ = world.collect(draws, learner.policy, config.samples_per_policy or 1)
    jax.block_until_ready(samples.reward)
    collect_s, physics_s = time.perf_counter() - begun, world.environments.steppers.seconds - before
    whole_s = time_of(lambda: algo.iterate(keys, learner, 2).metrics)
    world.close()
    return {
        "task": config.task_name,
        "seeds": len(config.seeds),
        "steps": int(jnp.sum(samples.valid)),
        "physics_s": physics_s,
        "around_s": collect_s - physics_s,
        "stage_s": whole_s - collect_s,
        "share_around": (collect_s - physics_s) / whole_s,
    }
