"""The scale of the reward: whether the default settings learn equally well with any unit of the reward.

paper: the weight c of the bonus is given for each task, and means nothing without the scale of its reward / here:
`bonus_scale=auto` finds the weight in units of the reward. `dock` is learned with a goal that pays 0.01 to 10,000, and
the classic tasks and the maze with all rewards divided or multiplied by 100. In `deceptive-umaze` the reward leads to a
wall, so its control, which has no bonus, should stay there.

    kept = the share of a seed's evaluations after its first success that also succeed, pooled over seeds

`dock` is also learned as a user would: `DeepPCMLP` is given its Gymnasium class, with reward and end as functions, or
with neither, so that both are learned. An agent has one seed and no run folder, so these are measured tables.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from pcmlp.agent import DeepPCMLP
from pcmlp.experiments import mps, share
from pcmlp.experiments.as_printed import ACROBOT, CAR
from pcmlp.experiments.catalogue import MAZE
from pcmlp.experiments.experiment import Done, Experiment, Row, Rows, Tables, machine_columns, solved_columns
from pcmlp.experiments.gpu import find_gpu
from pcmlp.experiments.job import NO_BONUS, Job, Scale
from pcmlp.experiments.pool import share_gpu
from pcmlp.report.reading import Run, load
from pcmlp.runs.keys import split_settings
from pcmlp.runs.metrics import read_table
from pcmlp.runs.summary import SUCCESS, device, find_changes, last_success

DOCK, DECEPTIVE = "dock", "deceptive-umaze"
GOALS = ("0.01", "1", "100", "10000")
SCALES = ("1", "0.01", "100")
_STEPS = {CAR: 2_000, ACROBOT: 2_000, MAZE: 10_000}
LEARNED = "class-learned"
_EPISODES = 100  # of an evaluation, as in the runs
_STAYS = 5  # evaluations in a row, one in each iteration, that must succeed


def jobs() -> list[Job]:
    """Return the runs."""
    return [
        *(_dock(f"goal-{goal}", goal, 4_000) for goal in GOALS),
        *(
            Job("scale", task, f"scale-{scale}", "pcmlp", steps, (f"task.reward_scale={scale}",))
            for task, steps in _STEPS.items()
            for scale in SCALES
        ),
        Job("scale", DECEPTIVE, "scale-1", "pcmlp", 10_000),
        Job("scale", DECEPTIVE, "no-bonus", "pcmlp", 10_000, (NO_BONUS,)),
    ]


def classes() -> dict[str, Job]:
    """Return task, steps and seeds of the agents, by the name of their table. These jobs are not run as jobs."""
    given = {f"class-{goal}": _dock(f"class-{goal}", goal, 4_000) for goal in GOALS}
    return {**given, LEARNED: _dock(LEARNED, "1", 20_000)}


def _dock(label: str, goal: str, steps: int) -> Job:
    return Job("scale", DOCK, label, "pcmlp", steps, (f"task.goal_reward={goal}",))


def learn_class(job: Job, scale: Scale) -> Rows:
    """Return a row for each seed, with what an agent has learned from the class of the environment. Return no rows if
    the scale leaves these agents out."""
    if not scale.has(job):
        return []
    sized = scale.apply(job)
    agents = [replace(sized, seeds=(seed,)) for seed in sized.seeds]
    gpu, cores = find_gpu(), share.count_cores()  # on a CPU, an agent keeps little more than one core busy
    fitting = cores if gpu is None else share.on_gpu(None, gpu, cores, mps.why_missing()).jobs
    processes = min(len(agents), fitting)
    with contextlib.ExitStack() as stack:
        if gpu is not None:
            stack.enter_context(share.variables_set(stack.enter_context(share_gpu(gpu, processes))()))
        pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
        rows = []
        for row in map(learn_seed, agents) if processes == 1 else pool.map(learn_seed, agents):
            rows.append(row)
            print(f"  {sized.name}: {row}", flush=True)
    return rows


def learn_seed(job: Job) -> Row:
    """Return what one agent has learned: its successes, with the names of `summary.json`, and its seconds.

    It stops as soon as it stays solved: when `_STAYS` evaluations in a row succeed.
    """
    from pcmlp.experiments.dock_env import DockEnv  # imports Gymnasium, which the base installation does not have

    given = split_settings(job.settings)
    own = [f"{key}={text}" for key, text in given.items() if not key.startswith("task.")]
    goal, mdp = float(given["task.goal_reward"]), job.config().task.build().world.mdp
    reward, terminal = (None, None) if job.label == LEARNED else (mdp.reward, mdp.terminal)
    evaluations: list[tuple[int, float]] = []

    def note(agent: DeepPCMLP, metrics: Mapping[str, Any]) -> bool:
        share = round(metrics["eval_return_mean"] / goal, 4)  # of the episodes; float32 returns are not exact
        evaluations.append((int(metrics["env_steps"]), share))
        last = [share for _, share in evaluations[-_STAYS:]]
        return len(last) < _STAYS or min(last) < SUCCESS

    began = time.perf_counter()
    agent = DeepPCMLP(
        partial(DockEnv, goal), reward=reward, terminal=terminal, horizon=mdp.horizon, seed=job.seeds[0], settings=own
    )
    agent.learn(job.steps, note, eval_episodes=int(given.get("eval_episodes", _EPISODES)))
    seconds = round(time.perf_counter() - began)
    changes = find_changes(evaluations)
    steps, shares = map(np.array, zip(*evaluations, strict=True))
    after = steps > changes[0] if changes else np.zeros(len(steps), bool)
    return {
        "seed": job.seeds[0],
        "env_steps": int(steps[-1]),
        "env_steps_to_success": changes[0] if changes else "",
        "env_steps_to_sustained_success": "" if last_success(changes) is None else last_success(changes),
        "final_return": round(float(goal * shares[-1]), 6),
        "final_success": float(shares[-1]),
        "evaluations_after": int(after.sum()),
        "kept": int((shares[after] >= SUCCESS).sum()),
        "wall_s": seconds,
        "device": device(),
    }


def tables(done: Done) -> Tables:
    """Yield `scale`, with a row for each run, and for each table of agents."""
    rows = [run_row(job, done.summary(job), load(done.result(job))) for job in done.jobs]
    for name, job in classes().items():
        file = done.results / "scale" / f"{name}.csv"
        rows += [class_row(job, read_table(file))] if file.exists() else []
    yield "scale", rows


def run_row(job: Job, summary: dict[str, Any], run: Run) -> Row:
    """Return the row of a run."""
    return {**solved_columns(job, summary), **kept_columns(*count_kept(run)), **machine_columns(job, summary)}


def class_row(job: Job, seeds: Sequence[Mapping[str, str]]) -> Row:
    """Return the row of a table of agents. `wall_s` is the sum of their seconds."""
    numbers = [{name: parse_cell(text) for name, text in seed.items() if name != "device"} for seed in seeds]
    kept, after, seconds = (sum(seed[name] for seed in numbers) for name in ("kept", "evaluations_after", "wall_s"))
    machine = {"wall_s": seconds, "device": seeds[0]["device"]}
    return {**solved_columns(job, {"seeds": numbers}), **kept_columns(kept, after), **machine}


def parse_cell(text: str) -> Any:
    """Return the number in a cell; None for an empty one."""
    return (int(text) if text.isdigit() else float(text)) if text else None


def count_kept(run: Run) -> tuple[int, int]:
    """Return how many evaluations after a seed's first success succeed, and how many there are."""
    success, steps = (run.metrics[name][run.evaluated] for name in ("eval_success", "env_steps"))
    after = steps > run.steps_to_success
    return int((success[after] >= SUCCESS).sum()), int(after.sum())


def kept_columns(kept: int, after: int) -> Row:
    """Return the columns of evaluations after a first success."""
    return {"kept": f"{kept} of {after}", "kept_share": round(kept / after, 4) if after else ""}


SCALE = Experiment(
    "scale",
    "The scale of the reward",
    "deviation BR",
    "the default settings with rewards of several scales, on tasks with a goal",
    jobs,
    tables,
    measured={name: partial(learn_class, job) for name, job in classes().items()},
    needs_protocol=True,
)
