"""Run jobs on this machine, several at a time on one device, each in a process of its own; on a GPU, jobs of equal
programs are a group, which shares a process.

A process that fails or dies does not affect the others. One that dies (`kill -9`, out of memory, a lost GPU) is started
once more and continues from its checkpoints, because the cause is often its neighbours. If it dies again, it is given
up; but a group may have lacked memory, so its jobs begin again alone. Threads are not limited: a run on a CPU splits
its sums by the number of threads, and must give the bits that it gives alone.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
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
from pcmlp.experiments.order import Group, Queue, count_seeds, form_groups
from pcmlp.experiments.outcome import CONTINUES, Outcome, Tally
from pcmlp.experiments.table import JobTable, Row
from pcmlp.runs.cache import cache_in_use, check_device
from pcmlp.runs.callbacks import say, show_time
from pcmlp.signals import SIGNALS, finish_iterations, stop_when_asked

_POLL_S = 0.5  # between two looks at the processes
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def connect(asked: int | None) -> Engine:
    """Return the engine of this machine for `asked` processes at a time, by default as many as pay off. Jobs that run
    one at a time, and are no group, run in this process."""
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
    if gpu is None and chosen.jobs == 1:
        check_device()
        return run_local
    before = os.environ.get(_PREALLOCATE)
    if gpu is not None:  # this process may use the GPU for tables, and must leave the memory to the runs
        os.environ.setdefault(_PREALLOCATE, "false")

    def run(jobs: Sequence[Job], runs: Path, results: Path) -> None:
        todo = [job for job in jobs if not is_finished(job.config(), results / job.where)]
        groups = form_groups(todo, 1 if gpu is None else share.most_seeds(gpu))
        count = min(chosen.jobs, len(groups))
        if gpu is not None and len(groups) < len(todo):
            count = min(count, share.count_groups(max(map(count_seeds, groups)), gpu))
        with contextlib.ExitStack() as stack:
            variables: Callable[[], share.Variables] = dict
            try:
                if gpu is not None:
                    variables = stack.enter_context(share_gpu(gpu, count))
            except RunStopped as error:
                if asked is not None:
                    raise
                print(f"{error}; one process at a time uses the GPU", flush=True)
                count = 1
            if count <= 1 and len(groups) == len(todo):  # there is nothing to share
                with share.variables_set({_PREALLOCATE: before}):
                    run_local(todo, runs, results)
                return
            finish_iterations()
            Pool(groups, runs, results, count, lambda: {_PREALLOCATE: before, **variables()}, gpu is not None).run()

    return run


@contextlib.contextmanager
def share_gpu(gpu: Gpu, count: int) -> Iterator[Callable[[], dict[str, str]]]:
    """Yield a function that returns the variables for a process which is one of `count` on a GPU: several have MPS."""
    if count <= 1:
        yield dict
        return
    memory = share.memory_share(count, [gpu])
    other = mps.find_other()
    if other is not None:
        print(f"MPS: the daemon at {other} is used; it was there before, and is not stopped", flush=True)
        yield lambda: {**memory, mps.PIPES: other}
        return
    with mps.Daemon() as daemon:
        daemon.environment()
        [part] = map(float, memory.values())
        print(f"MPS: {gpu.name}, each of {count} processes with {part:.0%} of its memory", flush=True)
        yield lambda: {**memory, **daemon.environment()}


@dataclass(eq=False)
class Running:
    """A group of jobs that runs, and its process."""

    group: Group
    process: SpawnProcess
    pipe: Connection
    rows: list[Row]
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by the number of the job in the group

    def hear(self) -> Iterator[tuple[int, Progress]]:
        """Yield the iterations that have ended, with the number of their job; keep the outcomes."""
        with contextlib.suppress(EOFError, OSError):  # the process has ended
            while not self.pipe.closed and self.pipe.poll():
                number, message = self.pipe.recv()
                if isinstance(message, Outcome):
                    self.outcomes[number] = message
                else:
                    yield number, message
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
    """The groups of jobs of a sweep, and the processes of those that run."""

    def __init__(
        self,
        groups: Sequence[Group],
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
        compilers = share.count_compilers(share.count_cores())
        self._queue = Queue(groups, results, compilers=compilers, has_cache=cache_in_use())
        self._running: list[Running] = []
        self._begun: Counter[Group] = Counter()
        self._again = 0  # jobs that have begun again
        self._tally = Tally(self._say)
        self._table = JobTable(self._console, lambda: [row for each in list(self._running) for row in each.rows])

    def run(self) -> None:
        """Run all jobs and wait for them; raise the first error."""
        clock = time.monotonic()
        jobs, groups = self._count_waiting(), len(self._queue.waiting)
        grouped = f" in {groups} process{'es' if groups > 1 else ''}" if groups < jobs else ""
        self._say(f"{jobs} runs{grouped}, {self._count} at a time")
        try:
            with self._table, stop_when_asked(self._say) as asked:
                self._wait(asked)
        finally:  # after a second Ctrl-C, or an error
            for each in self._running:
                each.kill()
        if self._queue.waiting:
            self._tally.ended["stopped"] += self._count_waiting()
        self._tally.close(time.monotonic() - clock, self._again)

    def _count_waiting(self) -> int:
        return sum(map(len, self._queue.waiting))

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
            waiting = f"{self._count_waiting()} waiting"
            self._table.counts = ", ".join([waiting, *(f"{n} {status}" for status, n in self._tally.ended.items())])
            self._table.print_at_times()
            pipes = [each.pipe for each in self._running if not each.pipe.closed]
            wait([*pipes, *(each.process.sentinel for each in self._running)], _POLL_S)
            for each in list(self._running):
                has_ended = not each.process.is_alive()
                for number, progress in each.hear():
                    each.rows[number].update(progress)
                    if progress.iteration > 0:
                        self._queue.note_iteration(each.group)
                if has_ended:
                    self._end(each, stopping)

    def _begin_some(self) -> None:
        while len(self._running) < self._count and (group := self._queue.take()) is not None:
            context = multiprocessing.get_context("spawn")
            pipe, theirs = context.Pipe(duplex=False)
            log = log_of(self._runs / group[0].where)
            arguments = log, list(map(asdict, group)), self._runs, self._results, theirs, self._on_gpu
            process = context.Process(target=serve, args=arguments, name=str(group[0].where))
            resource_tracker.ensure_running()  # its start would let signals through
            with share.variables_set(self._variables()), signals_held():
                process.start()
            theirs.close()  # otherwise the death of the process would not close the pipe
            self._running.append(Running(group, process, pipe, list(map(Row, group))))
            self._begun[group] += 1
            together = f" in a group of {len(group)}" if len(group) > 1 else ""
            for job in group:
                self._say(f"{job.where}: begun{together}{', again' if self._begun[group] > 1 else ''}")

    def _end(self, each: Running, stopping: bool) -> None:
        """Report the outcomes of a group whose process has ended; the jobs without one begin again."""
        self._running.remove(each)
        self._queue.note_end(each.group)
        each.process.join()
        left: list[Job] = []
        for number, (job, row) in enumerate(zip(each.group, each.rows, strict=True)):
            outcome = each.outcomes.get(number)
            if outcome is None and stopping:  # in the moment before it could answer
                outcome = Outcome("", "stopped")
            if outcome is None:
                left.append(job)
            else:
                self._tally.add(job.where, outcome, f" after {show_time(row.elapsed)}")
        if left:
            self._begin_again(each, left)

    def _begin_again(self, each: Running, left: list[Job]) -> None:
        """Let jobs whose process died begin again: the first time together, the second time each alone; a job that died
        alone twice is given up."""
        how, times = describe_exit(each.process.exitcode), self._begun[each.group]
        if times > 1 and len(each.group) == 1:
            [job] = left
            log = log_of(self._runs / job.where)
            what = f"its process died twice ({how}), perhaps for lack of memory, and {log} may say why"
            outcome = Outcome("", "failed", f"{job.where}: {what}; {CONTINUES}")
            self._tally.add(job.where, outcome, f" after {show_time(each.rows[0].elapsed)}")
            return
        alone = " alone" if times > 1 else ""
        for job in left:
            self._say(f"{job.where}: its process died ({how}); it begins again{alone} from its last checkpoint")
        self._queue.put_back([(job,) for job in left] if alone else [tuple(left)])
        self._again += len(left)


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
