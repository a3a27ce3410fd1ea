"""Run the jobs of an experiment on the machines of a Ray cluster, one task for each job.

A task is a separate process that calls `run_job`, so its result is that of a local run. If its node or process dies,
the task is started again elsewhere and continues from its checkpoint. Only storage is shared: `runs` and `results` must
be the same folders on every machine, which is checked before anything begins.
"""

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import mps
from pcmlp.experiments.gpu import list_gpus
from pcmlp.experiments.job import Engine, Job, is_finished
from pcmlp.experiments.outcome import CONTINUES, Outcome, Tally
from pcmlp.experiments.ray_cluster import check_answers, check_nodes, cluster, load_ray, shared_token
from pcmlp.experiments.ray_task import Board, Found, Terms, work
from pcmlp.experiments.share import Share, memory_share, on_gpu, variables_set
from pcmlp.runs.callbacks import say
from pcmlp.runs.folder import InUse
from pcmlp.signals import stop_when_asked

_CORES = 2  # cores of a task without a GPU: compiling uses one, the rest of a run more
_RETRIES = 5  # restarts of a task whose node or process died, or whose run is locked by another process
# Time limits in seconds:
_LOCK_S = 120.0  # for a dead process to lose its lock; a file server may wait 90 s for a machine that is silent
_POLL_S = 0.5  # between two checks of the tasks
_ADD = "ray start --address=… adds one"
_DEATHS = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")  # Ray's names
_HEAD = {"node:__internal_head__": 0.001}  # Ray's name for the node that a cluster cannot lose


def connect(address: str | None, jobs: int | None = None) -> Engine:
    """Return the engine of the cluster at an address (HOST:PORT, ray://HOST:PORT, auto), or of one that is started on
    this machine. `jobs` is the number of runs on a GPU at a time; by default as many as pay off."""
    if address is None:  # Ray's default when it starts a cluster; other processes need it too
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    load_ray()
    if address is not None:
        check_answers(address)

    def run(asked: Sequence[Job], runs: Path, results: Path) -> None:
        configs = {job: job.config() for job in asked}  # raises if a configuration is wrong
        todo = [job for job, config in configs.items() if not is_finished(config, results / job.where)]
        if not todo:
            return
        folders = (str(runs.absolute()), str(results.absolute()))
        daemon = mps_here(jobs) if address is None else contextlib.nullcontext()
        with daemon, cluster(address) as ray, shared_token(folders) as token:
            nodes = [node for node in ray.nodes() if node["Alive"]]
            used = nodes_for(ray, choose_resources(nodes))
            found = check_nodes(ray, used, folders, token)
            share = share_gpus(jobs, found, math.ceil(len(todo) / max(1, count_gpus(used))))
            resources = choose_resources(nodes, share.jobs)
            if share.note:
                print(share.note, flush=True)
            gpus = [gpu for _, node in found for gpu in node.gpus]
            flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
            memory = memory_share(share.jobs, gpus) if share.jobs > 1 else {}
            terms = Terms(*folders, token, {**flags, **memory}, resources["num_gpus"] < 1, _LOCK_S)
            Sweep(ray, todo, resources).run(terms, len(used))

    return run


@contextlib.contextmanager
def mps_here(jobs: int | None) -> Iterator[None]:
    """Start a daemon of MPS for the nodes of a cluster on this machine, unless there is one already, or no GPU."""
    if jobs == 1 or not list_gpus() or mps.why_missing() or mps.find_other():
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            daemon = stack.enter_context(mps.Daemon())
            stack.enter_context(variables_set(daemon.environment()))
        except RunStopped as error:
            if jobs is not None:
                raise
            print(error, flush=True)  # then each GPU gets one run at a time
        yield


def share_gpus(asked: int | None, hosts: Sequence[tuple[str, Found]], most: int) -> Share:
    """Return how many runs share each GPU of the nodes: what all of them allow, and at most `most`. Nothing is known
    about GPUs that are not of NVIDIA."""
    chosen = Share(asked or most)
    for host, found in hosts:
        why = "" if found.has_mps else f"node {host}: no MPS daemon answers (nvidia-cuda-mps-control -d)"
        for gpu in found.gpus:
            here = on_gpu(asked, gpu, found.cores // len(found.gpus), why)
            chosen = min(chosen, here, key=lambda share: share.jobs)
    if asked is None and not any(found.gpus for _, found in hosts):
        return Share(1)
    return chosen._replace(jobs=min(chosen.jobs, most))


def count_gpus(nodes: Sequence[dict[str, Any]]) -> int:
    """Return the number of GPUs of some nodes."""
    return int(sum(node["Resources"].get("GPU", 0) for node in nodes))


def choose_resources(nodes: Sequence[dict[str, Any]], jobs: int = 1) -> dict[str, float]:
    """Return the resources of a task: a share of a GPU if there is one, else some cores. One node must have all of
    them."""
    with_gpu = [node["Resources"] for node in nodes if node["Resources"].get("GPU", 0) >= 1]
    if with_gpu:
        cores = min(has.get("CPU", 0) / has["GPU"] for has in with_gpu)  # for each GPU
        return {"num_gpus": 1 / jobs, "num_cpus": min(1.0, cores / jobs)}
    cores = int(max((node["Resources"].get("CPU", 0) for node in nodes), default=0))
    if cores < 1:
        raise ConfigError(f"--engine ray: the cluster has no node with a GPU or a core; {_ADD}")
    if jobs > 1:
        raise ConfigError(f"--jobs {jobs}: the cluster has no GPU, and a run takes {_CORES} cores; leave it out")
    return {"num_gpus": 0.0, "num_cpus": float(min(_CORES, cores))}


def nodes_for(ray: Any, resources: dict[str, float]) -> list[dict[str, Any]]:
    """Return the live nodes that can take a task when they are free."""
    return [node for node in ray.nodes() if node["Alive"] and fits(node, resources)]


def fits(node: dict[str, Any], resources: dict[str, float]) -> bool:
    """Return whether a node has the resources of a task."""
    has = node["Resources"]
    return has.get("GPU", 0) >= resources["num_gpus"] and has.get("CPU", 0) >= resources["num_cpus"]


def explain_failure(error: Exception) -> str:
    """Return why Ray did not complete a task."""
    kind = type(error).__name__
    if kind in _DEATHS:
        return f"its node or process died every time ({kind}), perhaps for lack of memory"
    return f"Ray did not run it ({kind}: {(str(error).strip().splitlines() or ['no reason given'])[0][:300]})"


@dataclass
class Sweep:
    """The state of all jobs, in the process that waits for them."""

    ray: Any
    jobs: Sequence[Job]
    resources: dict[str, float]  # resources of a task
    console: Console = field(default_factory=Console)
    begun: Counter[int] = field(default_factory=Counter)  # how often each job was started

    def __post_init__(self) -> None:
        self.tally = Tally(partial(say, self.console))

    def run(self, terms: Terms, nodes: int) -> None:
        """Run all jobs and wait for them; raise the first error."""
        clock = time.monotonic()
        board = self.ray.remote(num_cpus=0, resources=_HEAD)(Board).remote()
        # Each job has its own process: a reused process would keep the GPU and the memory of its first job.
        retried = {"max_retries": _RETRIES, "retry_exceptions": [InUse]}
        task = self.ray.remote(max_calls=1, **retried, **self.resources)(work)
        waiting = {task.remote(i, asdict(job), terms, board): i for i, job in enumerate(self.jobs)}
        say(self.console, f"{len(waiting)} runs on {nodes} node{'s' if nodes > 1 else ''} of a Ray cluster")
        with stop_when_asked(partial(say, self.console)) as asked:
            try:
                self.wait(board, waiting, asked)
            except KeyboardInterrupt:  # Ctrl-C was pressed twice
                for reference in waiting:
                    self.ray.cancel(reference, force=True)
                raise
        self.tally.close(time.monotonic() - clock, sum(times - 1 for times in self.begun.values()))

    def wait(self, board: Any, waiting: dict[Any, int], asked: Callable[[], bool]) -> None:
        """Wait for the tasks, and report when they begin and end; stop them if asked."""
        cancelled = stuck = False
        while waiting:
            done, _ = self.ray.wait(list(waiting), timeout=_POLL_S)
            for i, place in self.ray.get(board.take.remote()):
                self.begun[i] += 1
                after = "" if self.begun[i] == 1 else ", again: its node or process died, or another had its lock"
                say(self.console, f"{self.jobs[i].where}: begun on {place}{after}")
            for reference in done:
                self.end(waiting.pop(reference), reference)
            was, stuck = stuck, bool(waiting) and not nodes_for(self.ray, self.resources)
            if stuck and not was:  # Ray waits for a node without a message
                say(self.console, f"no node of the cluster can take the remaining runs, which wait; {_ADD}")
            if asked() and not cancelled:
                cancelled = True
                for reference in waiting:  # a running task gets Ctrl-C, a waiting one leaves the queue
                    self.ray.cancel(reference)

    def end(self, i: int, reference: Any) -> None:
        """Report the outcome of a task."""
        where = self.jobs[i].where
        try:
            outcome = self.ray.get(reference)
        except self.ray.exceptions.TaskCancelledError:
            outcome = Outcome("no node", "stopped")
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InUse):
                outcome = Outcome("a node", "refused", str(error.cause))
            else:  # a bug in pcmlp: keep its traceback
                outcome = Outcome("a node", "failed", type(error.cause).__name__)
                self.tally.errors.insert(0, error)
        except self.ray.exceptions.RayError as error:
            outcome = Outcome("a node", "failed", f"{where}: {explain_failure(error)}; {CONTINUES}")
        self.tally.add(where, outcome)
