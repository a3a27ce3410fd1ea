"""A run: an algorithm for all seeds at once, measured, logged and shown, iteration by iteration.

What is evaluated is the policy that the algorithm would deploy, and beside it the one that explores where the two are
planned apart. Evaluation has random numbers of its own, fixed by the seed, and is not counted in `env_steps`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console

from pcmlp.runs.build import build
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.episodes import EpisodeLog
from pcmlp.runs.evaluate import Judge, evaluation_keys, scores
from pcmlp.runs.folder import Row, RunFolder, check_free
from pcmlp.runs.interrupt import stop_when_asked
from pcmlp.runs.policy import deployed, save_policies
from pcmlp.runs.progress import LiveProgress, PlainProgress, show_progress, status_line
from pcmlp.runs.summary import CompileClock, summarise
from pcmlp.types import AbstractAlgorithm, AbstractLearner, AbstractPolicy, Task


def train(config: RunConfig, out: Path, *, command: str = "", console: Console | None = None) -> dict[str, Any]:
    """Runs the configuration into the folder `out` and returns the summary; bad input writes nothing."""
    console = console or Console()
    check_free(out)
    task, algo = build(config)
    folder = RunFolder.create(out, to_json(config))
    console.print(heading(config, out), highlight=False, soft_wrap=True)
    run = Run(config, task, algo, folder, seed_keys(config))
    finished = False
    with CompileClock() as compiling, EpisodeLog(folder.episodes) as log, stop_when_asked(console) as asked:
        try:
            with show_progress(console, algo.num_iterations) as progress:
                finished = run.loop(log, progress, asked)
        except (KeyboardInterrupt, BrokenPipeError):  # asked twice, or nobody reads our lines: this iteration is lost
            pass
        summary = summarise(config, run.rows, run.wall_s, compiling.seconds, run.evaluations, command, finished)
        folder.write_summary(summary)
        if run.learner is not None:
            save_policies(folder.policy, deployed(run.learner), config.seeds)
    return summary


def heading(config: RunConfig, out: Path) -> str:
    runs = f"{len(config.seeds)} seed{'s' if len(config.seeds) > 1 else ''}"
    each = f"{config.num_iterations} iterations of {config.steps_per_iteration:g} env steps"
    return f"{config.task_name}, {config.algo}: {runs}, {each}, into {out}"


def seed_keys(config: RunConfig) -> Key[Array, " seeds"]:
    return jnp.stack([jr.key(seed) for seed in config.seeds])


@dataclass
class Run:
    """What a run knows while it is under way."""

    config: RunConfig
    task: Task
    algo: AbstractAlgorithm
    folder: RunFolder
    keys: Array
    learner: AbstractLearner | None = None
    rows: list[Row] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        def judge() -> Judge:
            return Judge(self.algo.world, evaluation_keys(self.keys), self.config.eval_episodes)

        self._judges = {"eval": judge()} | ({"explore": judge()} if self.algo.judges_exploring else {})

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._began

    @property
    def evaluations(self) -> int:
        return sum(judge.evaluations for judge in self._judges.values())

    def loop(self, log: EpisodeLog, progress: LiveProgress | PlainProgress, asked: Callable[[], bool]) -> bool:
        """Every iteration; whether none was left out."""
        learner = self.learner = self.algo.start(self.keys)
        self.record(0, {}, progress)
        for n in range(1, self.algo.num_iterations + 1):
            if asked():
                return False
            learner, metrics, _, walked = self.algo.iterate(self.keys, learner, n)
            self.learner = learner
            for steps in walked:
                log.append(n, self.config.seeds, steps)
            self.record(n, {name: np.asarray(values) for name, values in metrics.items()}, progress)
        return True

    def record(self, n: int, metrics: dict[str, np.ndarray], progress: LiveProgress | PlainProgress) -> None:
        """A row of `metrics.csv` for each seed, on disk."""
        assert self.learner is not None
        returns = {name: judge.returns(self.judged(name)) for name, judge in self._judges.items()}
        steps = np.asarray(self.learner.env_steps)
        wall_s = round(self.wall_s, 3)
        rows: list[Row] = []
        for i, seed in enumerate(self.config.seeds):
            first = {"iteration": n, "seed": seed, "env_steps": int(steps[i])}
            measured = {name: float(values[i]) for name, values in sorted(metrics.items())}
            rows.append({**first, **self.scores(returns, i), **measured, "wall_s": wall_s})
        self.rows += rows
        self.folder.append(rows)
        bonus = float(np.mean(metrics["bonus_mean"])) if "bonus_mean" in metrics else None
        progress.update(n, status_line(float(np.mean(steps)), float(np.mean(returns["eval"])), bonus), wall_s)

    def judged(self, name: str) -> AbstractPolicy:
        assert self.learner is not None
        return deployed(self.learner) if name == "eval" else self.learner.policy

    def scores(self, returns: dict[str, np.ndarray], i: int) -> Row:
        """The columns eval_* of seed `i`, and explore_* where they are measured."""
        return {
            f"{name}_{column}": value
            for name, of_seeds in returns.items()
            for column, value in scores(of_seeds[i], self.task.success_return).items()
        }
