"""Where the time of an iteration on a simulator goes, in seconds.

python benchmarks/host.py                               # half-cheetah, four seeds
"""

import json
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import tyro

from pcmlp.algorithms.deep import Deep
from pcmlp.bench.clock import time_call
from pcmlp.errors import ConfigError
from pcmlp.runs.cache import prepare
from pcmlp.runs.config import RunConfig, build, resolve, seed_keys
from pcmlp.runs.summary import device, versions
from pcmlp.tasks.host import GymnasiumWorld


def main(task: str = "half-cheetah", seeds: int = 4) -> None:
    """Measure an iteration of Deep PC-MLP and print the seconds as JSON."""
    prepare()
    config = resolve(task, "pcmlp", range(seeds))
    print(json.dumps({**host_seconds(config), "device": device(), "versions": versions()}, indent=2))


def host_seconds(config: RunConfig) -> dict[str, float | int | str]:
    """Time an iteration of a run, without compiling, evaluating and saving.

    `policy_s` is the time of the policies' actions; `around_s` is the time of real steps without physics and policies:
    transfers, Python, rewards and ends.
    """
    problem, algorithm = build(config)
    world, keys = problem.world, seed_keys(config.seeds)
    assert isinstance(algorithm, Deep)
    if not isinstance(world, GymnasiumWorld):
        raise ConfigError(f"{config.task_name}: its steps are JAX, not a simulator's; give one such as half-cheetah")
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


if __name__ == "__main__":
    tyro.cli(main)
