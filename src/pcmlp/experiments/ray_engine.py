"""The jobs of an experiment on the machines of a Ray cluster, one task each.

A task is a process of its own that calls `run_job`, so what comes out is what a local run gives. One whose node or
process died is begun again elsewhere and goes on from its checkpoint. All that is shared is the storage: `runs` and
`results` must be the same folders on every machine, which is tried out before anything begins.
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
from pathlib import Path
from typing import Any

from rich.console import Console

from pcmlp.experiments.engines import Engine
from pcmlp.experiments.job import Job, is_finished
from pcmlp.experiments.ray_task import Board, Outcome, look_around, says_not_shared, work
from pcmlp.runs.interrupt import stop_when_asked
from pcmlp.runs.lock import InUse
from pcmlp.runs.notes import say
from pcmlp.runs.summary import versions
from pcmlp.types import ConfigError, RunStopped

_CORES = 2  # of a task where there is no GPU: compiling takes one, the rest of a run more
_RETRIES = 5  # of a task whose node or process died, or whose run another process has
_START_S = 120  # in which a cluster starts on this machine
_ANSWER_S = 15  # in which a cluster answers
_NODE_S = 60  # in which a node starts a process and reads a file
_LOCK_S = 120.0  # in which a dead process has lost its lock; a file server may wait 90 s for a machine that is silent
_LOOK_S = 0.5  # between two looks at what the tasks do
_ADD = "ray start --address=… adds one"
_DEATHS = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")  # as Ray calls them
_HEAD = {"node:__internal_head__": 0.001}  # Ray's own name for the node that a cluster cannot lose
_PROBE = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"
_HOST = """if True:
    import ray, sys
    made = ray.init(address='local', include_dashboard=False, log_to_driver=False, logging_level='CRITICAL')
    print(made.address_info['address'], flush=True)
    sys.stdin.read()
"""


def engine(address: str | None) -> Engine:
    """On the cluster at that address (HOST:PORT, ray://HOST:PORT, auto), or on one that is started on this machine."""
    if address is None:  # as Ray does where it starts one, and as those who connect to it must know
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    load_ray()
    if address is not None:
        check_answers(address)

    def run(jobs: Sequence[Job], runs: Path, results: Path) -> None:
        asked = {job: job.config() for job in jobs}  # whatever is wrong with one is said before a cluster is asked
        todo = [job for job, config in asked.items() if not is_finished(config, results / job.where)]
        if not todo:
            return
        folders = (str(runs.absolute()), str(results.absolute()))
        with cluster(address) as ray, shared_token(folders) as token:
            resources = resources_of_a_task([node for node in ray.nodes() if node["Alive"]])
            used = nodes_for(ray, resources)
            check_nodes(ray, used, folders, token)
            Sweep(ray, todo, resources).run((*folders, token, os.environ.get("XLA_FLAGS", ""), _LOCK_S), len(used))

    return run


def load_ray() -> Any:
    """Ray, told before it is loaded to keep to itself what it has to say about its own processes."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--engine ray: Ray is not installed; pip install 'pcmlp[ray]'") from error
    return ray


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    ray = load_ray()
    with cluster_of_this_machine() if address is None else contextlib.nullcontext(address) as place:
        ray.init(address=place, log_to_driver=False, logging_level="CRITICAL")
        try:
            yield ray
        finally:
            ray.shutdown()


@contextlib.contextmanager
def cluster_of_this_machine() -> Iterator[str]:
    """Its address. Another process has it: this one may have used JAX, and should not fork then, as Ray does."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOST],
        stdin=subprocess.PIPE,  # which is closed when this process ends, however it ends, and the cluster with it
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process to pass on
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
    """Tried in another process, as Ray waits for minutes, talks meanwhile, and then takes its process with it."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    start = "ray start --head begins a cluster, and without --address one is started here"
    if address != "auto" and not (host and port.isdigit()):
        raise ConfigError(f"--address {address}: not HOST:PORT, ray://HOST:PORT or auto; {start}")
    try:
        if address != "auto":
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
        probe = [sys.executable, "-c", _PROBE, address]
        said = subprocess.run(probe, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--address {address}: does not answer ({error}); {start}") from error
    except subprocess.TimeoutExpired as error:
        if b"Unauthenticated" in (error.stderr or b""):
            remedy = "set RAY_AUTH_MODE=token, with the token of the cluster in ~/.ray/auth_token"
            raise ConfigError(f"--address {address}: asks for a token; {remedy}") from error
        what = f"no Ray cluster answers in {_ANSWER_S} s, or this machine is not one of its nodes"
        raise ConfigError(f"--address {address}: {what} (ray start --address={address}); {start}") from error
    if said.returncode:
        last = said.stderr.strip().splitlines()[-1:] or [f"exit code {said.returncode}"]
        raise ConfigError(f"--address {address}: Ray cannot be reached ({last[0][:300]}); {start}")


def resources_of_a_task(nodes: Sequence[dict[str, Any]]) -> dict[str, int]:
    """A GPU where there are any, else some cores; one GPU is for one process, which takes all of its memory.

    Some node has all of it: a core of another node is no use to a GPU."""
    with_gpu = [node for node in nodes if node["Resources"].get("GPU", 0) >= 1]
    cores = int(max((node["Resources"].get("CPU", 0) for node in with_gpu or nodes), default=0))
    if with_gpu:
        return {"num_gpus": 1, "num_cpus": min(1, cores)}
    if cores < 1:
        raise ConfigError(f"--engine ray: the cluster has no node with a GPU or a core; {_ADD}")
    return {"num_gpus": 0, "num_cpus": min(_CORES, cores)}


def nodes_for(ray: Any, resources: dict[str, int]) -> list[dict[str, Any]]:
    """The living nodes that can take a task, once it is free."""
    return [node for node in ray.nodes() if node["Alive"] and fits(node, resources)]


def fits(node: dict[str, Any], resources: dict[str, int]) -> bool:
    has = node["Resources"]
    return has.get("GPU", 0) >= resources["num_gpus"] and has.get("CPU", 0) >= resources["num_cpus"]


@contextlib.contextmanager
def shared_token(folders: tuple[str, ...]) -> Iterator[str]:
    """The name of a file in each of the folders, which is there for as long as jobs run."""
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
    """That every node has the folders, and the versions of this machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(look_around)
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
            raise ConfigError(says_not_shared(host, missing))
        if changed := [f"{key} {theirs.get(key)} and not {mine[key]}" for key in mine if theirs.get(key) != mine[key]]:
            raise ConfigError(f"node {host}: has {', '.join(changed)}; install the same versions on every node")


def why(error: Exception) -> str:
    """A task came to nothing, as Ray has it."""
    kind = type(error).__name__
    if kind in _DEATHS:
        return f"its node or process died every time ({kind}), perhaps for want of memory"
    return f"Ray did not run it ({kind}: {(str(error).strip().splitlines() or ['no reason given'])[0][:300]})"


@dataclass
class Sweep:
    """Jobs under way, from the side of whoever waits for them."""

    ray: Any
    jobs: Sequence[Job]
    resources: dict[str, int]  # of a task
    console: Console = field(default_factory=Console)
    begun: Counter[int] = field(default_factory=Counter)  # how often each job was
    ended: Counter[str] = field(default_factory=Counter)  # how many jobs, by status
    wrong: list[Exception] = field(default_factory=list)

    def run(self, told: tuple[Any, ...], nodes: int) -> None:
        clock = time.monotonic()
        board = self.ray.remote(num_cpus=0, resources=_HEAD)(Board).remote()
        # A process for each job: one that is used again would keep the GPU and the memory of its first.
        retried = {"max_retries": _RETRIES, "retry_exceptions": [InUse]}
        task = self.ray.remote(max_calls=1, **retried, **self.resources)(work)
        waiting = {task.remote(i, asdict(job), *told, board): i for i, job in enumerate(self.jobs)}
        say(self.console, f"{len(waiting)} runs on {nodes} node{'s' if nodes > 1 else ''} of a Ray cluster")
        with stop_when_asked(self.console) as asked:
            try:
                self.wait(board, waiting, asked)
            except KeyboardInterrupt:  # asked twice
                for reference in waiting:
                    self.ray.cancel(reference, force=True)
                raise
        again = sum(times - 1 for times in self.begun.values())
        counts = ", ".join(f"{count} {status}" for status, count in self.ended.items())
        seconds = time.monotonic() - clock
        say(self.console, f"{counts}; {again} begun again; {seconds:.0f} s")
        if self.wrong:
            raise self.wrong[0]
        if self.ended["stopped"]:
            raise KeyboardInterrupt

    def wait(self, board: Any, waiting: dict[Any, int], asked: Callable[[], bool]) -> None:
        told = stuck = False
        while waiting:
            done, _ = self.ray.wait(list(waiting), timeout=_LOOK_S)
            for i, place in self.ray.get(board.take.remote()):
                self.begun[i] += 1
                after = "" if self.begun[i] == 1 else ", again: its node or process died, or another had its lock"
                say(self.console, f"{self.jobs[i].where}: begun on {place}{after}")
            for reference in done:
                self.end(waiting.pop(reference), reference)
            was, stuck = stuck, bool(waiting) and not nodes_for(self.ray, self.resources)
            if stuck and not was:  # Ray waits for a node without a word
                say(self.console, f"no node of the cluster can take the runs that are left, which wait; {_ADD}")
            if asked() and not told:
                told = True
                for reference in waiting:  # what runs hears Ctrl-C, what waits is taken from the queue
                    self.ray.cancel(reference)

    def end(self, i: int, reference: Any) -> None:
        where = self.jobs[i].where
        try:
            outcome = self.ray.get(reference)
        except self.ray.exceptions.TaskCancelledError:
            outcome = Outcome("no node", "stopped")
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InUse):
                outcome = Outcome("a node", "refused", str(error.cause))
            else:  # a mistake of ours: whoever looks for it needs its trace
                outcome = Outcome("a node", "failed", type(error.cause).__name__)
                self.wrong.insert(0, error)
        except self.ray.exceptions.RayError as error:
            saved = "what was saved is there, and the same command goes on"
            outcome = Outcome("a node", "failed", f"{where}: {why(error)}; {saved}")
        self.ended[outcome.status] += 1
        say(self.console, f"{where}: {outcome.status} on {outcome.place}{': ' if outcome.line else ''}{outcome.line}")
        if outcome.line:
            self.wrong.append((ConfigError if outcome.status == "refused" else RunStopped)(outcome.line))
