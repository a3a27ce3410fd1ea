"""Run jobs on this machine, several at a time on one device, each in a process of its own.

A process that fails or dies does not affect the others. One that dies (`kill -9`, out of memory, a lost GPU) is started
once more and continues from its checkpoint, because the cause is often its neighbours; if it dies again, it is given
up. Threads are not limited: a run on a CPU splits its sums by the number of threads, and must give the bits that it
gives alone.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rich.console import Console

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import mps, share
from pcmlp.experiments.gpu import Gpu, find_gpu
from pcmlp.experiments.job import Engine, Job, is_finished, run_local
from pcmlp.experiments.job_process import Progress, log_of, serve
from pcmlp.experiments.order import Queue
from pcmlp.experiments.outcome import CONTINUES, Outcome, Tally
from pcmlp.experiments.table import JobTable, Row
from pcmlp.runs.cache import cache_in_use, check_device
from pcmlp.runs.callbacks import say, show_time
from pcmlp.signals import SIGNALS, finish_iterations, stop_when_asked

_POLL_S = 0.5  # between two looks at the processes
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def connect(asked: int | None) -> Engine:
    """Return the engine of this machine for `asked` jobs at a time, by default as many as pay off. One at a time runs
    in this process."""
    gpu = find_gpu()
    if gpu is not None:
        chosen = share.on_gpu(asked, gpu, share.count_cores(), mps.why_missing())
    elif check_device() == "cpu":
        chosen = share.on_cpu(asked, share.count_cores(), share.free_memory())
    elif asked in (None, 1):
        chosen = share.Share(1)
    else:
        raise ConfigError(f"--jobs {asked}: only a CPU or a GPU of NVIDIA takes several runs at a time; give --jobs 1")
    if chosen.note:
        print(chosen.note, flush=True)
    if chosen.jobs == 1:
        check_device()
        return run_local
    before = os.environ.get(_PREALLOCATE)
    if gpu is not None:  # this process may use the GPU for tables, and must leave the memory to the runs
        os.environ.setdefault(_PREALLOCATE, "false")

    def run(jobs: Sequence[Job], runs: Path, results: Path) -> None:
        todo = [job for job in jobs if not is_finished(job.config(), results / job.where)]
        count = min(chosen.jobs, len(todo))
        if count <= 1:
            run_local(todo, runs, results)
            return
        finish_iterations()
        with contextlib.ExitStack() as stack:
            try:
                variables = stack.enter_context(share_gpu(gpu, count)) if gpu is not None else dict[str, str]
            except RunStopped as error:
                if asked is not None:
                    raise
                print(f"{error}; one run at a time uses the GPU", flush=True)
                run_local(todo, runs, results)
                return
            Pool(todo, runs, results, count, lambda: {_PREALLOCATE: before, **variables()}, gpu is not None).run()

    return run


@contextlib.contextmanager
def share_gpu(gpu: Gpu, count: int) -> Iterator[Callable[[], dict[str, str]]]:
    """Yield a function that returns the variables for a process which is one of `count` on a GPU, with MPS."""
    memory = share.memory_share(count, [gpu])
    other = mps.find_other()
    if other is not None:
        print(f"MPS: the daemon at {other} is used; it was there before, and is not stopped", flush=True)
        yield lambda: {**memory, mps.PIPES: other}
        return
    with mps.Daemon() as daemon:
        daemon.environment()
        [part] = map(float, memory.values())
        print(f"MPS: {gpu.name}, each of {count} runs with {part:.0%} of its memory", flush=True)
        yield lambda: {**memory, **daemon.environment()}


@dataclass(eq=False)
class Running:
    """A job that runs, and its process."""

    job: Job
    process: SpawnProcess
    pipe: Connection
    row: Row
    outcome: Outcome | None = None

    def hear(self) -> Iterator[Progress]:
        """Yield the iterations that have ended; keep the outcome."""
        with contextlib.suppress(EOFError, OSError):  # the process has ended
            while not self.pipe.closed and self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, Outcome):
                    self.outcome = message
                else:
                    yield message
            return
        self.pipe.close()

    def ask_to_stop(self) -> None:
        """Let the run end after its iteration."""
        with contextlib.suppress(OSError):
            if self.process.pid is not None:
                os.kill(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()


class Pool:
    """The jobs of a sweep, and the processes of those that run."""

    def __init__(
        self,
        jobs: Sequence[Job],
        runs: Path,
        results: Path,
        count: int,
        variables: Callable[[], share.Variables],
        on_gpu: bool,
    ):
        self._runs, self._results, self._count = runs, results, count
        self._variables, self._on_gpu = variables, on_gpu
        self._console = Console()
        self._say = partial(say, self._console)
        self._queue = Queue(jobs, results, has_cache=cache_in_use())
        self._running: list[Running] = []
        self._begun: Counter[Job] = Counter()
        self._tally = Tally(self._say)
        self._table = JobTable(self._console, lambda: [each.row for each in list(self._running)])

    def run(self) -> None:
        """Run all jobs and wait for them; raise the first error."""
        clock = time.monotonic()
        self._say(f"{len(self._queue.waiting)} runs, {self._count} at a time")
        try:
            with self._table, stop_when_asked(self._say) as asked:
                self._wait(asked)
        finally:  # after a second Ctrl-C, or an error
            for each in self._running:
                each.kill()
        if self._queue.waiting:
            self._tally.ended["stopped"] += len(self._queue.waiting)
        self._tally.close(time.monotonic() - clock, sum(times - 1 for times in self._begun.values()))

    def _wait(self, asked: Callable[[], bool]) -> None:
        """Begin jobs and hear from them until all have ended; stop them if asked."""
        stopping = False
        while self._running or (self._queue.waiting and not asked()):
            if not asked():
                self._begin_some()
            elif not stopping:
                stopping = True
                for each in self._running:
                    each.ask_to_stop()
            waiting = f"{len(self._queue.waiting)} waiting"
            self._table.counts = ", ".join([waiting, *(f"{n} {status}" for status, n in self._tally.ended.items())])
            self._table.print_at_times()
            pipes = [each.pipe for each in self._running if not each.pipe.closed]
            wait([*pipes, *(each.process.sentinel for each in self._running)], _POLL_S)
            for each in list(self._running):
                has_ended = not each.process.is_alive()
                for progress in each.hear():
                    each.row.update(progress)
                    if progress.iteration > 0:
                        self._queue.note_iteration(each.job)
                if has_ended:
                    self._end(each, stopping)

    def _begin_some(self) -> None:
        while len(self._running) < self._count and (job := self._queue.take()) is not None:
            context = multiprocessing.get_context("spawn")
            pipe, theirs = context.Pipe(duplex=False)
            arguments = asdict(job), self._runs, self._results, theirs, self._on_gpu
            process = context.Process(target=serve, args=arguments, name=str(job.where))
            resource_tracker.ensure_running()  # its start would let signals through
            with share.variables_set(self._variables()), signals_held():
                process.start()
            theirs.close()  # otherwise the death of the process would not close the pipe
            self._running.append(Running(job, process, pipe, Row(job)))
            self._begun[job] += 1
            self._say(f"{job.where}: begun{', again' if self._begun[job] > 1 else ''}")

    def _end(self, each: Running, stopping: bool) -> None:
        """Report the outcome of a job whose process has ended; begin again if it died the first time."""
        self._running.remove(each)
        self._queue.note_end(each.job)
        each.process.join()
        outcome = each.outcome
        if outcome is None and stopping:  # in the moment before it could answer
            outcome = Outcome("", "stopped")
        if outcome is None:
            log, how = log_of(self._runs / each.job.where), describe_exit(each.process.exitcode)
            if self._begun[each.job] == 1:
                self._say(f"{each.job.where}: its process died ({how}); it begins again from its last checkpoint")
                self._queue.put_back(each.job)
                return
            what = f"its process died twice ({how}), perhaps for lack of memory, and {log} may say why"
            outcome = Outcome("", "failed", f"{each.job.where}: {what}; {CONTINUES}")
        self._tally.add(each.job.where, outcome, f" after {show_time(each.row.elapsed)}")


def describe_exit(code: int | None) -> str:
    """Describe how a process ended."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"exit code {code}"


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back in this block, and in a process that is started in it until it is ready for them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
