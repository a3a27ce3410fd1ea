"""Model-free TRPO and SAC beside sb3-contrib's and stable-baselines3's, on the same Gymnasium environments.

    python3 -m venv SB3
    SB3/bin/pip install stable-baselines3 sb3-contrib "gymnasium[mujoco]" mujoco==3.11.0 imageio packaging
    python benchmarks/model_free.py --sb3 SB3/bin/python --out benchmarks/model_free.csv

Both sides have equal steps, the environment's own reward, three seeds, and the settings of their presets and defaults.
These are the same except for the differences that docs/rivals/trpo.md and sac.md name. The sides take turns: each seed
of theirs, then all of ours at once. Seconds are those of learning alone, without imports, evaluation and compiling (for
ours in a column of its own). `cpu_s` is the processor time of all threads, which other programs on the machine change
less than the clock's time. Without --sb3 only ours run. stable-baselines3 is not a dependency of pcmlp.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

SEEDS = (0, 1, 2)
EPISODES = 20  # of an evaluation, without the policy's noise
CASES = (  # environment, algorithm, steps
    ("HalfCheetah-v5", "trpo", 100_000),
    ("Pendulum-v1", "trpo", 100_000),
    ("HalfCheetah-v5", "sac", 20_000),
    ("Pendulum-v1", "sac", 5_000),
)


def ours(env: str, algo: str, steps: int) -> list[dict]:
    """Measure our side, all seeds at once."""
    import jax
    import numpy as np

    from pcmlp.runs.config import build, resolve, seed_keys
    from pcmlp.runs.evaluate import evaluation_keys

    config = resolve(f"gym:{env}", algo, SEEDS, steps)
    problem, algorithm = build(config)
    keys, world = seed_keys(config.seeds), problem.world
    learner = algorithm.start(keys, world.mdp, config.num_iterations)
    began = time.perf_counter()
    jax.block_until_ready(algorithm.iterate(keys, world, learner, 1).metrics)  # compiles; repeated below
    compiling = time.perf_counter() - began
    began, worked = time.perf_counter(), time.process_time()
    for n in range(1, config.num_iterations + 1):
        learner = algorithm.iterate(keys, world, learner, n).learner
    jax.block_until_ready(learner.env_steps)
    seconds = (time.perf_counter() - began) / len(SEEDS), (time.process_time() - worked) / len(SEEDS)
    returns = np.asarray(world.evaluate(evaluation_keys(keys), learner.deployed(), EPISODES))
    walked = np.asarray(learner.env_steps)
    return [
        measured("pcmlp", seed, int(n), float(np.mean(r)), *seconds) | {"first_call_s": compiling}
        for seed, n, r in zip(SEEDS, walked, returns, strict=True)
    ]


def theirs(env: str, algo: str, steps: int, seed: int) -> dict:
    """Measure one seed of their side, in the Python that has them installed."""
    from sb3_contrib import TRPO
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    made = make_vec_env(env, seed=seed)
    if algo == "trpo":  # states in running units, as ours
        made = VecNormalize(made, norm_reward=False)
    model = (TRPO if algo == "trpo" else SAC)("MlpPolicy", made, seed=seed, device="cpu")
    began, worked = time.perf_counter(), time.process_time()
    model.learn(steps)
    seconds = time.perf_counter() - began, time.process_time() - worked
    judged = make_vec_env(env, seed=10_000 + seed)
    if isinstance(made, VecNormalize):
        judged = VecNormalize(judged, training=False, norm_reward=False)
        judged.obs_rms = made.obs_rms
    mean, _ = evaluate_policy(model, judged, EPISODES, deterministic=True)
    who = "sb3-contrib" if algo == "trpo" else "stable-baselines3"
    return measured(who, seed, model.num_timesteps, float(mean), *seconds)


def measured(who: str, seed: int, steps: int, paid: float, seconds: float, worked: float) -> dict:
    each = 1e4 / steps
    record = {"who": who, "seed": seed, "env_steps": steps, "return": paid}
    return {**record, "s_per_10000": each * seconds, "cpu_s_per_10000": each * worked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", help="a Python with stable-baselines3 and sb3-contrib; ours alone if not given")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/model_free.csv"))
    parser.add_argument("--theirs", nargs=4, metavar=("ENV", "ALGO", "STEPS", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.theirs:
        env, algo, steps, seed = given.theirs
        print(json.dumps(theirs(env, algo, int(steps), int(seed))))
        return
    with given.out.open("w", newline="") as file:
        columns = (
            "env",
            "algo",
            "who",
            "seed",
            "env_steps",
            "return",
            "s_per_10000",
            "cpu_s_per_10000",
            "first_call_s",
        )
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for env, algo, steps in CASES:
            rows = []
            for seed in SEEDS if given.sb3 else ():
                asked = [given.sb3, __file__, "--theirs", env, algo, str(steps), str(seed)]
                said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
                rows.append(json.loads(said.splitlines()[-1]))
            for row in rows + ours(env, algo, steps):
                shown = {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
                table.writerow({"env": env, "algo": algo, **shown})
                print(env, algo, shown, flush=True)
            file.flush()


if __name__ == "__main__":
    sys.exit(main())
