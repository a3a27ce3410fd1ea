"""A run under way: its iterations in turn, each evaluated, logged and saved.

What is evaluated is the policy that the algorithm would deploy, and beside it the one that explores where the two are
planned apart. Evaluation has random numbers of its own, fixed by the seed, and is not counted in `env_steps`.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from pcmlp.certificate import promised
from pcmlp.runs import checkpoint
from pcmlp.runs.certificate import certificates, is_certified, standing, without
from pcmlp.runs.checkpoint import Checkpoint, Facts, fingerprint
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.coverage import Entered
from pcmlp.runs.episodes import EpisodeLog, Extent, cut, read, rows_of
from pcmlp.runs.evaluate import Judge, evaluation_keys, scores
from pcmlp.runs.folder import Row, RunFolder, as_read
from pcmlp.runs.lock import Lock
from pcmlp.runs.options import ONE_PLAN
from pcmlp.runs.policy import deployed, save_policies
from pcmlp.runs.progress import LiveProgress, PlainProgress, status_line
from pcmlp.runs.resume import changes_of_machine
from pcmlp.runs.summary import CompileClock, device, summarise, versions
from pcmlp.runs.tensorboard import Boards
from pcmlp.tasks.acting import beside_simulator
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import AbstractAlgorithm, AbstractLearner, AbstractPolicy, AbstractWorld, Iteration, RunStopped, Task

_HOPELESS = 3  # iterations in a row in which a seed learned nothing, after which a run stops
_FEWER = 5  # episodes that the deploying policy is judged by, for each of the exploring one's


def seed_keys(config: RunConfig) -> Key[Array, " seeds"]:
    return jnp.stack([jr.key(seed) for seed in config.seeds])


def overlaps(world: AbstractWorld) -> bool:
    """Whether real steps and stages do not share a processor."""
    return isinstance(world, GymnasiumWorld) and jax.default_backend() != "cpu"


def hopeless(config: RunConfig, metrics: dict[str, np.ndarray]) -> dict[int, str]:
    """The seeds that learned nothing in an iteration, and why."""
    found: dict[int, str] = {}
    for name, most, why in (
        ("model_skipped", getattr(config.model, "steps", 1), "no step of the model's fit could be taken"),
        ("covariance_skipped", 1, "the covariance could not take what was collected"),
        ("outcome_skipped", 1, "the reward and the end could not be learned"),
    ):
        for seed, value in zip(config.seeds, metrics.get(name, ()), strict=False):
            if value >= most:
                found[seed] = why
    return found


@dataclass
class Run:
    """What a run knows while it is under way."""

    config: RunConfig
    task: Task
    algo: AbstractAlgorithm
    folder: RunFolder
    lock: Lock
    keys: Array
    learner: AbstractLearner | None = None
    done: int | None = None  # the last iteration with a checkpoint
    rows: list[Row] = field(default_factory=list)
    threshold: float | None = None  # of the certificate, below which the run is finished
    boards: Boards = field(default_factory=lambda: Boards({}))
    compiling: CompileClock = field(default_factory=CompileClock)
    _before: Facts | None = None  # what the run had spent when it was taken up
    _ill: dict[int, int] = field(default_factory=dict)  # seed -> for how many iterations
    _saving: float = 0.0  # seconds
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        def judge(episodes: int) -> Judge:
            return Judge(self.task.world, evaluation_keys(self.keys), episodes)

        self._judges = {"eval": judge(self.config.eval_episodes)}
        # The exploring policy is not what a run is for: a look at it is enough, and a planner's episodes are dear.
        if self.algo.judges_exploring and self.config.algo not in ONE_PLAN:
            self._judges["explore"] = judge(-(-self.config.eval_episodes // _FEWER))
        self._entered = Entered(self.task.map, len(self.config.seeds))

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._began + (self._before.wall_s if self._before else 0.0)

    @property
    def compile_s(self) -> float:
        return self.compiling.seconds + (self._before.compile_s if self._before else 0.0)

    @property
    def save_s(self) -> float:
        return self._saving + (self._before.save_s if self._before else 0.0)

    @property
    def judged_episodes(self) -> int:
        now = sum(judge.judged_episodes for judge in self._judges.values())
        return now + (self._before.judged_episodes if self._before else 0)

    def take_up(self, point: Checkpoint | None) -> None:
        """Goes on from the checkpoint, or from nothing; what the folder has after it is done again."""
        n = -1
        if point is not None:
            self.learner, self._before, self.done = point.learner, point.facts, point.facts.iteration
            n = point.facts.iteration
        self.lock.check()
        self.folder.write_config(to_json(self.config))
        checkpoint.sweep(self.folder.checkpoint)
        self.rows = self.folder.cut(n)
        cut(self.folder.episodes, n)
        self._entered.add(map(rows_of, read(self.folder.episodes)))

    def changes(self) -> list[str]:
        return changes_of_machine(self._before, device(), versions()) if self._before else []

    def loop(self, log: EpisodeLog, progress: LiveProgress | PlainProgress, asked: Callable[[], bool]) -> str:
        """Every iteration that is left, and the status in which that leaves the run.

        Where the simulator and the stages are not on the same device, an iteration is evaluated and saved while the
        stage of the next one is under way; not where it may be the last."""
        if self.learner is None:
            self.learner = self.algo.start(self.keys)
            self.record(0, {}, progress)
        learner, begun = self.learner, deque[tuple[int, Iteration]]()
        todo = range((self.done or 0) + 1, self.algo.num_iterations + 1)
        behind = 1 if overlaps(self.algo.world) and self.threshold is None else 0
        failure = None
        for n in itertools.takewhile(lambda _: not (asked() or self.certified()), todo):
            try:
                iteration = self.algo.iterate(self.keys, learner, n)
            except RunStopped as error:  # what was done before it is to be saved all the same
                failure = error
                break
            learner = iteration.learner
            # Where it bounds nothing, what is promised is not asked for: it takes imagined episodes.
            promises = {} if without(self.config) else promised(self.keys, self.algo, learner, n)
            metrics = {**iteration.metrics, **promises}
            begun.append((n, iteration._replace(metrics=metrics)))
            if len(begun) > behind:
                self.settle(*begun.popleft(), log, progress)
        while begun:
            self.settle(*begun.popleft(), log, progress)
        if failure is not None:
            raise failure
        if self.certified():
            return "certified"
        return "finished" if (self.done or 0) == self.algo.num_iterations else "stopped"

    def certified(self) -> bool:
        """Asked of the rows, so that a run that was cut off right after its last iteration ends there as well."""
        return is_certified(self.rows, self.done, self.threshold)

    def settle(self, n: int, iteration: Iteration, log: EpisodeLog, progress: LiveProgress | PlainProgress) -> None:
        """What an iteration gave, evaluated and on disk."""
        self.learner = iteration.learner
        walked = beside_simulator(iteration.walked)  # the accelerator may be busy
        began = time.perf_counter()
        for steps in walked:
            self.lock.check()
            log.append(n, self.config.seeds, steps)
        self._saving += time.perf_counter() - began
        self._entered.add(walked)
        measured = {name: np.asarray(values) for name, values in iteration.metrics.items()}
        self.record(n, measured, progress)
        began = time.perf_counter()
        self.lock.check()
        checkpoint.save(self.folder.checkpoint, self.algo.lightened(self.learner), self.facts(n, log.extent))
        self._saving += time.perf_counter() - began
        self.done = n
        self.check_recovers(measured)

    def conclude(self, status: str, command: str) -> dict[str, Any]:
        """The summary and the policies, on disk."""
        spent = self.wall_s, self.compile_s, self.save_s, self.judged_episodes
        summary = summarise(self.config, self.rows, *spent, command, status)
        stands = standing(self.config, self.algo)
        if stands is not None:
            summary["certificate"] = {**stands._asdict(), "stop_when_certified": self.threshold}
        self.lock.check()
        self.folder.write_summary(summary)
        if self.learner is not None:
            policies = deployed(self.learner)
            self.lock.check()
            save_policies(self.folder.policy, policies, self.config)
        return summary

    def check_recovers(self, metrics: dict[str, np.ndarray]) -> None:
        """That no seed has learned nothing for some iterations running, its numbers being none."""
        ill = hopeless(self.config, metrics)
        self._ill = {seed: self._ill.get(seed, 0) + 1 for seed in ill}
        for seed, times in self._ill.items():
            if times == _HOPELESS:
                raise RunStopped(
                    f"seed {seed}: {ill[seed]} in {times} iterations in a row; look for rewards or observations "
                    "that are huge or no numbers, or give a smaller model.rate; all that was good is saved"
                )

    def facts(self, n: int, log: Extent) -> Facts:
        last = [row["eval_return_mean"] for row in self.rows if row["iteration"] == n]
        return Facts(
            iteration=n,
            task=self.config.task_name,
            algo=self.config.algo,
            seeds=list(self.config.seeds),
            config_sha256=fingerprint(self.config),
            score=float(np.mean(last)),
            wall_s=round(self.wall_s, 3),
            compile_s=round(self.compile_s, 3),
            save_s=round(self.save_s, 3),
            judged_episodes=self.judged_episodes,
            log_bytes=log.size,
            log_sha256=log.sha256,
            device=device(),
            versions=versions(),
        )

    def record(self, n: int, metrics: dict[str, np.ndarray], progress: LiveProgress | PlainProgress) -> None:
        """A row of `metrics.csv` for each seed, on disk."""
        assert self.learner is not None
        policies = {name: self.judged(name) for name in self._judges}
        returns = {name: judge.returns(policies[name]) for name, judge in self._judges.items()}
        metrics = metrics | self._entered.columns()
        metrics |= certificates(self.task, policies["eval"], metrics, returns["eval"])
        steps = np.asarray(self.learner.env_steps)
        wall_s = round(self.wall_s, 3)
        rows: list[Row] = []
        for i, seed in enumerate(self.config.seeds):
            first = {"iteration": n, "seed": seed, "env_steps": int(steps[i])}
            measured = {name: float(values[i]) for name, values in sorted(metrics.items())}
            rows.append(as_read({**first, **self.scores(returns, i), **measured, "wall_s": wall_s}))
        self.lock.check()
        self.rows += rows
        self.folder.append(rows)
        try:
            self.boards.add(rows)
        except OSError as error:
            self.boards = Boards({})
            progress.note(f"--tensorboard: {error.strerror}, going on without; metrics.csv has it all")
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
