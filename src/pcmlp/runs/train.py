"""A run: Algorithm 1 for all seeds at once, measured, logged and shown, iteration by iteration.

The best policy of the cover is what is evaluated: the theorems speak of that one, and it is chosen by samples already
paid for. Evaluation has random numbers of its own, fixed by the seed, and is not counted in `env_steps`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console

from pcmlp import framework
from pcmlp.framework import PCMLP, Learner
from pcmlp.runs.build import build
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.episodes import EpisodeLog
from pcmlp.runs.folder import Row, RunFolder, check_free
from pcmlp.runs.interrupt import stop_when_asked
from pcmlp.runs.policy import best_policies, save_policies
from pcmlp.runs.progress import LiveProgress, PlainProgress, show_progress, status_line
from pcmlp.runs.summary import CompileClock, summarise
from pcmlp.types import Task

_EVALUATION = 2**31  # folded into a seed's key, where iterations fold in their own number


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
            save_policies(folder.policy, best_policies(run.learner), config.seeds, run.best_index().tolist())
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
    algo: PCMLP
    folder: RunFolder
    keys: Array
    learner: Learner | None = None
    rows: list[Row] = field(default_factory=list)
    evaluations: int = 0
    _judged: np.ndarray | None = None  # which policies the returns below are of
    _returns: np.ndarray | None = None
    _began: float = field(default_factory=time.perf_counter)

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._began

    def loop(self, log: EpisodeLog, progress: LiveProgress | PlainProgress, asked: Callable[[], bool]) -> bool:
        """Every iteration; whether none was left out."""
        learner = self.learner = framework.start(self.keys, self.algo)
        self.record(0, {}, progress)
        for n in range(1, self.algo.num_iterations + 1):
            if asked():
                return False
            learner, metrics, _, walked = framework.iterate(self.keys, self.algo, learner, n)
            self.learner = learner
            for steps in walked:
                log.append(n, self.config.seeds, steps)
            self.record(n, {name: np.asarray(values) for name, values in metrics.items()}, progress)
        return True

    def record(self, n: int, metrics: dict[str, np.ndarray], progress: LiveProgress | PlainProgress) -> None:
        """A row of `metrics.csv` for each seed, on disk."""
        assert self.learner is not None
        returns = self.evaluate()
        steps = np.asarray(self.learner.env_steps)
        wall_s = round(self.wall_s, 3)
        rows: list[Row] = []
        for i, seed in enumerate(self.config.seeds):
            scores = self.scores(returns[i])
            measured = {name: float(values[i]) for name, values in sorted(metrics.items())}
            index = {"best_index": int(self._judged[i])} if self._judged is not None and n > 0 else {}
            first = {"iteration": n, "seed": seed, "env_steps": int(steps[i])}
            rows.append({**first, **scores, **measured, "wall_s": wall_s, **index})
        self.rows += rows
        self.folder.append(rows)
        bonus = float(np.mean(metrics["bonus_mean"])) if metrics else None
        progress.update(n, status_line(float(np.mean(steps)), float(np.mean(returns)), bonus), wall_s)

    def evaluate(self) -> np.ndarray:
        """Returns of the best policies, [seeds, episodes]; anew only when one of them is another policy."""
        assert self.learner is not None
        chosen = self.best_index()
        if self._returns is None or self._judged is None or not np.array_equal(chosen, self._judged):
            keys = jax.vmap(lambda key: jr.fold_in(key, _EVALUATION))(self.keys)
            returns = self.algo.world.evaluate(keys, best_policies(self.learner), self.config.eval_episodes)
            self._returns = np.asarray(returns)
            self._judged = chosen
            self.evaluations += 1
        return self._returns

    def best_index(self) -> np.ndarray:
        """Where in its cover the best policy of each seed is."""
        assert self.learner is not None
        return np.argmax(np.asarray(self.learner.values), axis=1)

    def scores(self, returns: np.ndarray) -> Row:
        enough = self.task.success_return
        success = None if enough is None else float(np.mean(returns >= enough))
        return {
            "eval_return_mean": float(np.mean(returns)),
            "eval_return_std": float(np.std(returns)),
            "eval_success": success,
        }
