"""Run the jobs of an experiment on the machines of a Ray cluster, one task for each job.

A task is a separate process that calls `run_job`, so its result is that of a local run. If its node or process dies,
the task is started again elsewhere and continues from its checkpoint. Only storage is shared: `runs` and `results` must
be the same folders on every machine, which is checked before anything begins.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments.job import Engine, Job, is_finished
from pcmlp.experiments.ray_task import Board, Outcome, explain_not_shared, inspect_node, work
from pcmlp.runs.callbacks import say
from pcmlp.runs.folder import InUse
from pcmlp.runs.summary import versions
from pcmlp.signals import stop_when_asked

_CORES = 2  # cores of a task without a GPU: compiling uses one, the rest of a run more
_RETRIES = 5  # restarts of a task whose node or process died, or whose run is locked by another process
# Time limits in seconds:
_START_S = 120  # for a cluster to start on this machine
_ANSWER_S = 15  # for a cluster to answer
_NODE_S = 60  # for a node to start a process and read a file
_LOCK_S = 120.0  # for a dead process to lose its lock; a file server may wait 90 s for a machine that is silent
_POLL_S = 0.5  # between two checks of the tasks
_ADD = "ray start --address=… adds one"
_DEATHS = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")  # Ray's names
_HEAD = {"node:__internal_head__": 0.001}  # Ray's name for the node that a cluster cannot lose
_PROBE = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"
_HOST = """if True:
    import ray, sys
    made = ray.init(address='local', include_dashboard=False, log_to_driver=False, logging_level='CRITICAL')
    print(made.address_info['address'], flush=True)
    sys.stdin.read()
"""


def connect(address: str | None) -> Engine:
    """Return the engine of the cluster at an address (HOST:PORT, ray://HOST:PORT, auto), or of one that is started on
    this machine."""
    if address is None:  # Ray's default when it starts a cluster; other processes need it too
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    load_ray()
    if address is not None:
        check_answers(address)

    def run(jobs: Sequence[Job], runs: Path, results: Path) -> None:
        asked = {job: job.config() for job in jobs}  # raises if a configuration is wrong
        todo = [job for job, config in asked.items() if not is_finished(config, results / job.where)]
        if not todo:
            return
        folders = (str(runs.absolute()), str(results.absolute()))
        with cluster(address) as ray, shared_token(folders) as token:
            resources = choose_resources([node for node in ray.nodes() if node["Alive"]])
            used = nodes_for(ray, resources)
            check_nodes(ray, used, folders, token)
            Sweep(ray, todo, resources).run((*folders, token, os.environ.get("XLA_FLAGS", ""), _LOCK_S), len(used))

    return run


def load_ray() -> Any:
    """Import Ray, with its messages about its own processes switched off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--engine ray: Ray is not installed; pip install 'pcmlp[ray]'") from error
    return ray


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine for the time being."""
    ray = load_ray()
    with local_cluster() if address is None else contextlib.nullcontext(address) as place:
        ray.init(address=place, log_to_driver=False, logging_level="CRITICAL")
        try:
            yield ray
        finally:
            ray.shutdown()


@contextlib.contextmanager
def local_cluster() -> Iterator[str]:
    """Start a cluster on this machine and yield its address. Another process hosts it: Ray forks, and this
    process must not fork if it has used JAX."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOST],
        stdin=subprocess.PIPE,  # closed when this process ends, in any way; this ends the cluster
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # this process passes Ctrl-C on
    ) as host:
        assert host.stdout is not None
        late = threading.Timer(_START_S, host.kill)  # there is nothing to read then
        late.start()
        try:
            address = host.stdout.readline().strip()
        finally:
            late.cancel()
        if not address:
            what = f"no cluster starts on this machine in {_START_S} s"
            raise ConfigError(f"--engine ray: {what}; ray start --head says why")
        yield address


def check_answers(address: str) -> None:
    """Raise if no cluster answers. Another process tries to connect: Ray waits for minutes, prints, and then ends
    the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    start = "ray start --head begins a cluster, and without --address one is started here"
    if address != "auto" and not (host and port.isdigit()):
        raise ConfigError(f"--address {address}: not HOST:PORT, ray://HOST:PORT or auto; {start}")
    try:
        if address != "auto":
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
        probe = [sys.executable, "-c", _PROBE, address]
        answer = subprocess.run(probe, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--address {address}: does not answer ({error}); {start}") from error
    except subprocess.TimeoutExpired as error:
        if b"Unauthenticated" in (error.stderr or b""):
            remedy = "set RAY_AUTH_MODE=token, with the token of the cluster in ~/.ray/auth_token"
            raise ConfigError(f"--address {address}: asks for a token; {remedy}") from error
        what = f"no Ray cluster answers in {_ANSWER_S} s, or this machine is not one of its nodes"
        raise ConfigError(f"--address {address}: {what} (ray start --address={address}); {start}") from error
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or [f"exit code {answer.returncode}"]
        raise ConfigError(f"--address {address}: Ray cannot be reached ({last[0][:300]}); {start}")


def choose_resources(nodes: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the resources of a task: a whole GPU if there is one, because a process takes all of its memory, else some
    cores. One node must have all of them."""
    with_gpu = [node for node in nodes if node["Resources"].get("GPU", 0) >= 1]
    cores = int(max((node["Resources"].get("CPU", 0) for node in with_gpu or nodes), default=0))
    if with_gpu:
        return {"num_gpus": 1, "num_cpus": min(1, cores)}
    if cores < 1:
        raise ConfigError(f"--engine ray: the cluster has no node with a GPU or a core; {_ADD}")
    return {"num_gpus": 0, "num_cpus": min(_CORES, cores)}


def nodes_for(ray: Any, resources: dict[str, int]) -> list[dict[str, Any]]:
    """Return the live nodes that can take a task when they are free."""
    return [node for node in ray.nodes() if node["Alive"] and fits(node, resources)]


def fits(node: dict[str, Any], resources: dict[str, int]) -> bool:
    """Return whether a node has the resources of a task."""
    has = node["Resources"]
    return has.get("GPU", 0) >= resources["num_gpus"] and has.get("CPU", 0) >= resources["num_cpus"]


@contextlib.contextmanager
def shared_token(folders: tuple[str, ...]) -> Iterator[str]:
    """Create a file in each of the folders, for as long as jobs run, and yield its name."""
    name = f".shared-{uuid.uuid4().hex}"
    try:
        for folder in map(Path, folders):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written ({error.strerror}); give another folder") from error
    try:
        yield name
    finally:
        for folder in map(Path, folders):
            (folder / name).unlink(missing_ok=True)


def check_nodes(ray: Any, nodes: Sequence[dict[str, Any]], folders: tuple[str, ...], token: str) -> None:
    """Raise unless every node has the folders, and the versions of this machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(inspect_node)
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked.append((node["NodeManagerHostname"], look.options(scheduling_strategy=there).remote(folders, token)))
    mine = versions()
    for host, answer in asked:
        try:
            missing, theirs = ray.get(answer, timeout=_NODE_S)
        except ray.exceptions.GetTimeoutError as error:
            raise ConfigError(f"node {host}: does not answer in {_NODE_S} s; ray stop on it leaves it out") from error
        except ray.exceptions.RayError as error:
            last = str(error).strip().splitlines()[-1]
            raise ConfigError(f"node {host}: cannot run pcmlp ({last}); install it there, or ray stop on it") from error
        if missing is not None:
            raise ConfigError(explain_not_shared(host, missing))
        if changed := [f"{key} {theirs.get(key)} and not {mine[key]}" for key in mine if theirs.get(key) != mine[key]]:
            raise ConfigError(f"node {host}: has {', '.join(changed)}; install the same versions on every node")


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
    resources: dict[str, int]  # resources of a task
    console: Console = field(default_factory=Console)
    begun: Counter[int] = field(default_factory=Counter)  # how often each job was started
    ended: Counter[str] = field(default_factory=Counter)  # number of jobs by status
    errors: list[Exception] = field(default_factory=list)

    def run(self, arguments: tuple[Any, ...], nodes: int) -> None:
        """Run all jobs and wait for them; raise the first error."""
        clock = time.monotonic()
        board = self.ray.remote(num_cpus=0, resources=_HEAD)(Board).remote()
        # Each job has its own process: a reused process would keep the GPU and the memory of its first job.
        retried = {"max_retries": _RETRIES, "retry_exceptions": [InUse]}
        task = self.ray.remote(max_calls=1, **retried, **self.resources)(work)
        waiting = {task.remote(i, asdict(job), *arguments, board): i for i, job in enumerate(self.jobs)}
        say(self.console, f"{len(waiting)} runs on {nodes} node{'s' if nodes > 1 else ''} of a Ray cluster")
        with stop_when_asked(partial(say, self.console)) as asked:
            try:
                self.wait(board, waiting, asked)
            except KeyboardInterrupt:  # Ctrl-C was pressed twice
                for reference in waiting:
                    self.ray.cancel(reference, force=True)
                raise
        again = sum(times - 1 for times in self.begun.values())
        counts = ", ".join(f"{count} {status}" for status, count in self.ended.items())
        seconds = time.monotonic() - clock
        say(self.console, f"{counts}; {again} begun again; {seconds:.0f} s")
        if self.errors:
            raise self.errors[0]
        if self.ended["stopped"]:
            raise KeyboardInterrupt

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
                self.errors.insert(0, error)
        except self.ray.exceptions.RayError as error:
            saved = "saved results are kept, and the same command continues"
            outcome = Outcome("a node", "failed", f"{where}: {explain_failure(error)}; {saved}")
        self.ended[outcome.status] += 1
        say(self.console, f"{where}: {outcome.status} on {outcome.place}{': ' if outcome.line else ''}{outcome.line}")
        if outcome.line:
            self.errors.append((ConfigError if outcome.status == "refused" else RunStopped)(outcome.line))
