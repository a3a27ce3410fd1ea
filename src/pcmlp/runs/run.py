"""A run in progress: its iterations are logged, some are evaluated, and it is saved as often as is cheap.

`evaluate.is_due` says which iterations are evaluated. The deployed policy is evaluated, and also the exploring policy
if the two are planned separately. Evaluation has random numbers of its own, fixed by the seed, and is not counted in
`env_steps`.

A checkpoint is written after the first iteration of a process and when the loop ends. In between, one that took t
seconds is followed by the next after at least t / `SAVING_SHARE` seconds. So slow iterations each have a checkpoint,
and fast ones share one.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcmlp.errors import RunStopped
from pcmlp.runs import checkpoint, kept
from pcmlp.runs.callbacks import Callback, notify
from pcmlp.runs.certificate import certificates, is_certified, needs_evaluation, standing
from pcmlp.runs.checkpoint import Checkpoint, Facts, fingerprint
from pcmlp.runs.config import RunConfig, seed_keys, to_json
from pcmlp.runs.dataset import Logged
from pcmlp.runs.durable import room_for, write_text
from pcmlp.runs.episodes import EpisodeLog, cut, read
from pcmlp.runs.evaluate import Entered, Evaluator, evaluation_keys, is_due
from pcmlp.runs.findings import Findings, failed_seeds, may_be_unseen
from pcmlp.runs.folder import Lock, RunFolder
from pcmlp.runs.logged import begin
from pcmlp.runs.manifest import Manifest
from pcmlp.runs.metrics import Row, as_read, mean_of
from pcmlp.runs.policy import save_policies
from pcmlp.runs.source import find_source
from pcmlp.runs.summary import CompileClock, add_findings, device, summarise, versions
from pcmlp.tasks.host import to_host
from pcmlp.types import Algorithm, Iteration, Learner, Policy, Problem

SAVING_SHARE = 0.02  # the largest share of a run's time that checkpoints take
_PATIENCE = 3  # consecutive iterations without learning after which a run stops


@dataclass
class Run:
    """The state of a run in progress."""

    config: RunConfig
    problem: Problem
    algorithm: Algorithm
    folder: RunFolder
    lock: Lock
    command: str = ""  # the command that makes the run
    learner: Learner | None = None  # after iteration `done`; the next iteration may use it up
    deployed: Policy | None = None  # the policies of all seeds to deploy
    done: int | None = None  # the last iteration that is logged
    rows: list[Row] = field(default_factory=list)
    latest: list[Row] = field(default_factory=list)  # rows of the newest iteration, for callbacks
    logged: Logged | None = None  # the logged steps that the run starts from
    threshold: float | None = None  # the run ends when the certificate is at most this
    callbacks: list[Callback] = field(default_factory=list)
    compiling: CompileClock = field(default_factory=CompileClock)
    before: Facts | None = None  # facts of the checkpoint that the run was resumed from
    shared_device: bool = False  # whether other runs use the device at the same time, or did before it was resumed
    failure: Exception | None = None  # what has ended the run, if anything did
    log: EpisodeLog | None = None  # of its real steps, while it is `opened`
    _failing: dict[int, int] = field(default_factory=dict)  # seed -> consecutive iterations without learning
    _concluding: threading.Lock = field(default_factory=threading.Lock)
    _summary: dict[str, Any] | None = None  # once it is written
    _stopped: bool = False  # whether a callback has stopped the run
    _saved: int | None = None  # the last iteration with a checkpoint
    _due: float = 0.0  # the time from which on the next checkpoint is cheap enough
    _saving: float = 0.0  # seconds spent on saving
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        find_source()  # it is read once in a process: now, because the files may change while the run goes on
        self.keys = seed_keys(self.config.seeds)
        self.world = self.algorithm.explored_world(self.problem)
        world, keys, episodes = self.problem.world, evaluation_keys(self.keys), self.config.eval_episodes
        self.evaluators = {"eval": Evaluator(world, keys, episodes)}
        if self.algorithm.evaluates_exploring:
            self.evaluators["explore"] = Evaluator(world, keys, episodes, exploring=True)
        self._entered = Entered(self.problem.map, len(self.config.seeds))
        self.findings = Findings(self.world.mdp.states, len(self.config.seeds))

    @property
    def num_iterations(self) -> int:
        """The iterations of the whole run."""
        return self.config.num_iterations

    def spent(self) -> dict[str, Any]:
        """Return seconds and evaluation episodes (of each seed) so far, including those before the run was resumed."""
        now = {
            "wall_s": time.perf_counter() - self._began,
            "compile_s": self.compiling.seconds,
            "save_s": self._saving,
            "evaluated_episodes": sum(evaluator.evaluated_episodes for evaluator in self.evaluators.values()),
        }
        before = self.before
        return {name: round(value + (getattr(before, name) if before else 0), 3) for name, value in now.items()}

    def restore(self, point: Checkpoint | None) -> None:
        """Continue from a checkpoint, or from the beginning; anything later in the folder is dropped and done again."""
        if point is not None:
            self.learner, self.deployed, self.before = point.learner, point.learner.deployed(), point.facts
            self.done = self._saved = point.facts.iteration
            self.shared_device |= point.facts.shared_device
        self.lock.check()
        before, config = self.before, to_json(self.config)
        with room_for("config.json and metrics.csv", self.folder.path, len(config)):
            write_text(self.folder.path / "config.json", config)
            checkpoint.sweep(self.folder.checkpoint)
            (self.folder.path / "summary.json").unlink(missing_ok=True)  # the run is in progress again
            self.rows = self.folder.metrics.cut(before.metrics_rows if before else 0)
            cut(self.folder.episodes, (before.log_bytes or 0) if before else 0)
        if self.learner is not None and self.done is not None:
            kept.keep(self.folder.policy, self.lock, self.learner, self.config, self.done)
        for record in read(self.folder.episodes):
            self._entered.add([record.rows])
            self.findings.add([record.rows])

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the lock and keep the log open in this block, and count the seconds of compiling."""
        with self.lock, self.compiling, EpisodeLog(self.folder.episodes) as self.log:
            yield

    def start(self) -> None:
        """Make the first learner."""
        self.learner = begin(self.algorithm, self.world.mdp, self.config, self.logged)

    def finish_start(self) -> None:
        """Evaluate the first learner."""
        self.record(0, {})
        self.tell()

    def goes_on(self) -> bool:
        """Return whether another iteration follows."""
        return self.status == "stopped" and not self._stopped

    @property
    def status(self) -> str:
        """The status of the run if no other iteration followed."""
        if self.failure is not None:
            return "failed"
        if self.certified():
            return "certified"
        return "finished" if (self.done or 0) == self.num_iterations else "stopped"

    def evaluates(self, n: int) -> bool:
        """Return whether iteration n is evaluated: if it is due, or if a certificate that needs it may end the run."""
        return is_due(self.config, n) or (self.threshold is not None and needs_evaluation(self.world.mdp))

    def certified(self) -> bool:
        """Return whether the certificates so far end the run; also checked right after resuming."""
        return is_certified(self.rows[-len(self.config.seeds) :], self.done, self.threshold)

    def finish_iteration(self, n: int, iteration: Iteration) -> None:
        """Log an iteration, evaluate it if that is due, and write a checkpoint if that is cheap enough."""
        assert self.log is not None
        self.learner = iteration.learner
        walked = to_host(iteration.walked)  # the log and the map are on the host
        began = time.perf_counter()
        for steps in walked:
            self.lock.check()
            self.log.append(n, self.config.seeds, steps)
        self._saving += time.perf_counter() - began
        self._entered.add(walked)
        self.findings.add(walked)
        measured = {name: np.asarray(values) for name, values in iteration.metrics.items()}
        self.record(n, measured)
        self.done = n
        if time.perf_counter() >= self._due or (self.config.eval_every and self.evaluates(n)):
            self.save()  # if few iterations are evaluated, each of them is saved: the best one is kept
        try:
            self.tell()
            self.check_progress(measured)
        except Exception:  # of a callback, or nothing is learned: no iteration is lost
            self.save()
            raise

    def save(self) -> None:
        """Write a checkpoint of the last iteration, unless it has one."""
        if self.done is None or self.done == self._saved:
            return
        assert self.learner is not None
        assert self.log is not None
        began = time.perf_counter()
        self.lock.check()
        self.log.sync()
        self.folder.metrics.sync()
        light = self.algorithm.without_replay(self.learner)
        checkpoint.save(self.folder.checkpoint, light, self.facts(self.done))
        self._saved, ended = self.done, time.perf_counter()
        self._saving += ended - began
        self._due = ended + (ended - began) / SAVING_SHARE

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of `summary.json`, once it is written."""
        assert self._summary is not None
        return self._summary

    def conclude(self, status: str) -> dict[str, Any]:
        """Write the summary and the policies; return the summary. Two threads may call this at the end of a run, of
        which the first one decides: a run that is finished stays so."""
        with self._concluding:
            self._summary = self._summary or self._conclude(status)
            return self._summary

    def _conclude(self, status: str) -> dict[str, Any]:
        summary = summarise(self.config, self.rows, self.command, status, self.shared_device, **self.spent())
        summary["manifest"] = self.manifest().record
        add_findings(summary, self.config, self.rows, self.findings)
        stands = standing(self.config, self.algorithm, self.problem, self.rows)
        if stands is not None:
            summary["certificate"] = {**stands._asdict(), "stop_when_certified": self.threshold}
        if self.deployed is not None:
            self.lock.check()
            save_policies(self.folder.policy, self.deployed, self.config)
        self.lock.check()
        self.folder.write_summary(summary)  # last: a run with a summary is whole
        return summary

    def check_progress(self, metrics: dict[str, np.ndarray]) -> None:
        """Raise if a seed failed to learn in three consecutive iterations (non-finite values)."""
        failed = failed_seeds(self.config, metrics)
        self._failing = {seed: self._failing.get(seed, 0) + 1 for seed in failed}
        for seed, times in self._failing.items():
            if times == _PATIENCE:
                raise RunStopped(
                    f"seed {seed}: {failed[seed]} in {times} iterations in a row; look for rewards or observations "
                    "that are huge or NaN, or give a smaller model.rate; all earlier iterations are saved"
                )

    def manifest(self) -> Manifest:
        """Return the hashes of the files as they are now."""
        log = (None, None) if self.log is None else self.log.seal
        return Manifest(fingerprint(self.config), *self.folder.metrics.seal, *log)

    def facts(self, n: int) -> Facts:
        """Return the facts for the checkpoint of iteration n."""
        score = mean_of(self.latest).get("eval_return_mean", np.nan)
        return Facts(
            **self.manifest().record,
            iteration=n,
            task=self.config.task_name,
            algo=self.config.algo,
            seeds=list(self.config.seeds),
            score=score if np.isfinite(score) else None,
            **self.spent(),
            shared_device=self.shared_device,
            device=device(),
            versions=versions(),
        )

    def record(self, n: int, metrics: dict[str, np.ndarray]) -> None:
        """Evaluate the policies if that is due, and write a row of `metrics.csv` for each seed."""
        assert self.learner is not None
        self.deployed = self.learner.deployed()
        began = time.perf_counter()
        kept.keep(self.folder.policy, self.lock, self.learner, self.config, n)
        self._saving += time.perf_counter() - began
        policies, due = evaluated_policies(self.learner), self.evaluates(n)
        returns = {name: each.returns(policies[name]) if due else None for name, each in self.evaluators.items()}
        metrics = metrics | self._entered.columns()
        metrics |= certificates(self.problem, self.deployed, metrics, returns["eval"])
        steps = np.asarray(self.learner.env_steps)
        wall_s, success = self.spent()["wall_s"], self.problem.success_return
        self.latest = []
        for i, seed in enumerate(self.config.seeds):
            first = {"iteration": n, "seed": seed, "env_steps": int(steps[i])}
            evaluated = {
                f"{name}_{column}": value
                for name, found in returns.items()
                for column, value in self.evaluators[name].scores(i, found, success).items()
            }
            measured = blank_unseen({name: float(values[i]) for name, values in sorted(metrics.items())})
            self.latest.append(as_read({**first, **evaluated, **measured, "wall_s": wall_s}))
        self.lock.check()
        self.folder.metrics.append(self.latest)
        self.rows += self.latest

    def tell(self) -> None:
        """Call the callbacks."""
        self._stopped = not notify(self.callbacks, self, mean_of(self.latest)) or self._stopped


def evaluated_policies(learner: Learner) -> dict[str, Policy]:
    """Return the policies of a learner by the name of their evaluator."""
    return {"eval": learner.deployed(), "explore": learner.policy}


def blank_unseen(row: Row) -> Row:
    """Return the row with empty cells for errors that cannot be measured yet."""
    return {name: None if may_be_unseen(name) and np.isnan(value) else value for name, value in row.items()}
