"""Where an iteration's time goes in a simulator on the host: physics, policies, what is around both, the stage."""

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

    `policy_s` is what the policies take to answer; `around_s` what real steps cost besides both: transfers, Python,
    rewards and ends.
    """
    algo = build(config)[1]
    world, keys = algo.world, seed_keys(config)
    if not isinstance(world, GymnasiumWorld):
        raise ConfigError(
            f"host={config.task_name}: its steps are JAX, not a simulator's; give one such as half-cheetah"
        )
    learner = algo.iterate(keys, algo.start(keys), 1).learner  # compiles
    jax.block_until_ready(learner.env_steps)

    draws = jax.vmap(lambda key: jr.fold_in(key, 2))(keys)
    clocks = world.environments.steppers, world.answers
    before, begun = [clock.seconds for clock in clocks], time.perf_counter()
    samples, _ = world.collect(draws, learner.policy, config.samples_per_policy or 1)
    jax.block_until_ready(samples.reward)
    collect_s = time.perf_counter() - begun
    physics_s, policy_s = (clock.seconds - then for clock, then in zip(clocks, before, strict=True))
    around_s = collect_s - physics_s - policy_s
    whole_s = time_of(lambda: algo.iterate(keys, learner, 2).metrics)
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
