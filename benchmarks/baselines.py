"""DQN, PPO and SAC of stable-baselines3 on the tasks of `pcmlp paper environments`.

    python3 -m venv SB3
    SB3/bin/pip install stable-baselines3 torch -e ".[robotics,dmc,box2d]"
    python benchmarks/baselines.py --sb3 SB3/bin/python --jobs 8

Each method has its own defaults, one environment, and the steps and seeds of the experiment (at most 50,000 steps),
on a CPU with one thread. DQN needs discrete actions and SAC continuous ones; PPO takes both. `dmc:` tasks are pcmlp's
environments of the suite. At the end, 20 episodes are played without the policy's noise. `steps` are those taken: PPO
takes whole rollouts of 2,048. `success` is the share of episodes in which a step reports success, or which reach the
goal of MountainCar, and empty for tasks without one. `seconds` are those of learning.

Rows that are in the table with enough steps are not made again. stable-baselines3 is not a dependency of pcmlp.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pcmlp.experiments.environments import BASELINES, EPISODES, MOUNTAIN_CAR, SEEDS, TASKS
from pcmlp.tasks import dmc
from pcmlp.tasks.registered import registered_maker

COLUMNS = ("method", "task", "seed", "steps", "return", "success", "seconds", "versions")
METHODS = ("dqn", "ppo", "sac")
Key = tuple[str, str, int]  # task, method, seed


def make(task: str) -> Any:
    """Return the environment of a task."""
    kind, _, name = task.partition(":")
    return dmc.make(task) if kind == "dmc" else registered_maker(name)()


def learn(task: str, method: str, steps: int, seed: int) -> dict[str, Any]:
    """Learn a task with one seed and return its row, in the Python that has stable-baselines3."""
    import stable_baselines3
    import torch
    from gymnasium.spaces import Dict
    from stable_baselines3.common.env_util import make_vec_env

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    made = make_vec_env(lambda: make(task), seed=seed)
    policy = "MultiInputPolicy" if isinstance(made.observation_space, Dict) else "MlpPolicy"
    model = getattr(stable_baselines3, method.upper())(policy, made, seed=seed, device="cpu")
    began = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - began
    returns, reached = play(model, make(task), task, 10_000 * (1 + seed))
    names = ("stable-baselines3", "torch", "gymnasium")
    return {
        "method": method,
        "task": task,
        "seed": seed,
        "steps": model.num_timesteps,
        "return": round(sum(returns) / EPISODES, 4),
        "success": "" if None in reached else sum(reached) / EPISODES,
        "seconds": round(seconds, 1),
        "versions": " ".join(f"{name} {version(name)}" for name in names),
    }


def play(model: Any, env: Any, task: str, seed: int) -> tuple[list[float], list[bool | None]]:
    """Return the return of each episode without noise, and whether it succeeded; None if no step says so."""
    returns: list[float] = []
    reached: list[bool | None] = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=seed + episode)
        paid, success, ended = 0.0, None, False
        while not ended:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, info = env.step(action)
            paid, ended = paid + float(reward), terminated or truncated
            said = info.get("is_success", info.get("success", terminated if task == MOUNTAIN_CAR else None))
            success = success if said is None else bool(success or said)
        returns.append(paid)
        reached.append(success)
    return returns, reached


def read(path: Path) -> dict[Key, dict[str, str]]:
    """Return the rows that are in the table."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["task"], row["method"], int(row["seed"])): row for row in csv.DictReader(file)}


def write(path: Path, rows: dict[Key, dict[str, Any]]) -> None:
    """Write the table in the order of the tasks; a killed command leaves the old one."""
    order = list(TASKS)
    part = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows[key] for key in sorted(rows, key=lambda key: (order.index(key[0]), *key[1:])))
    part.replace(path)


def left(rows: dict[Key, dict[str, Any]], tasks: list[str], methods: list[str], steps: int | None) -> dict[Key, int]:
    """Return the steps of each row that is missing, or has fewer steps than asked."""
    asked = {
        (task, method, seed): TASKS[task].compared if steps is None else steps
        for task in tasks
        for method in TASKS[task].methods
        for seed in SEEDS
        if method in methods
    }
    return {key: n for key, n in asked.items() if key not in rows or int(rows[key]["steps"]) < n}


def run_one(python: str, key: Key, steps: int) -> dict[str, Any]:
    """Return a row that the other Python makes."""
    task, method, seed = key
    asked = [python, __file__, "--learn", task, method, str(steps), str(seed)]
    alone = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}  # pcmlp is imported, and needs no GPU
    done = subprocess.run(asked, capture_output=True, text=True, env=alone)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it was killed"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", help="a Python with stable-baselines3 and pcmlp")
    parser.add_argument("--out", type=Path, default=Path("results") / BASELINES)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, help="fewer steps, for a trial; give another --out")
    parser.add_argument("--learn", nargs=4, metavar=("TASK", "METHOD", "STEPS", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.learn:
        task, method, steps, seed = given.learn
        print(json.dumps(learn(task, method, int(steps), int(seed))))
        return 0
    if given.sb3 is None:
        parser.error("--sb3: give a Python that has stable-baselines3")
    rows, failed = read(given.out), 0
    todo = left(rows, given.only, given.methods, given.steps)
    print(f"{len(todo)} rows to make, {len(rows)} in {given.out}", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        asked = {pool.submit(run_one, given.sb3, key, steps): key for key, steps in todo.items()}
        for future in as_completed(asked):
            key = asked[future]
            try:
                rows[key] = future.result()
            except RuntimeError as error:
                failed += 1
                print(*key, "failed:", error, flush=True)
                continue
            write(given.out, rows)
            print(*(rows[key][name] for name in COLUMNS[:-1]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
