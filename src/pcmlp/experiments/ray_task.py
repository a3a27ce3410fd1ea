"""The part of `ray_engine` that runs on a node of a Ray cluster: inspect the node, and run a job in its own process.

Only plain values are passed. Modules that need JAX are imported after the number of threads is set.
"""

import os
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pcmlp.errors import ConfigError
from pcmlp.experiments import mps
from pcmlp.experiments.gpu import Gpu, list_gpus
from pcmlp.experiments.outcome import Outcome, attempt
from pcmlp.experiments.share import count_cores, set_variables

_SEEN_S = 10.0  # seconds until a file written by one machine is visible to another


class Board:
    """An actor that records which jobs have begun, and where."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, str]] = []

    def begin(self, number: int, place: str) -> None:
        """Add a job that has begun."""
        self._begun.append((number, place))

    def take(self) -> list[tuple[int, str]]:
        """Return the jobs that have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun


class Found(NamedTuple):
    """The findings about a node."""

    missing: str | None  # a folder that is not shared with it
    versions: dict[str, str]
    gpus: list[Gpu]
    has_mps: bool  # whether a daemon of MPS answers
    cores: int


def inspect_node(folders: tuple[str, ...], token: str) -> Found:
    """Return what there is on this node."""
    from pcmlp.runs.summary import versions

    has_mps = mps.find_other() is not None
    return Found(not_shared(folders, token), versions(), list_gpus(), has_mps, count_cores())


def not_shared(folders: tuple[str, ...], token: str) -> str | None:
    """Return the first folder without the token, or that cannot be written; None if all are shared."""
    end = time.monotonic() + _SEEN_S
    for folder in folders:
        while not (os.path.exists(os.path.join(folder, token)) and os.access(folder, os.W_OK | os.X_OK)):
            if time.monotonic() > end:
                return folder
            time.sleep(0.5)
    return None


def explain_not_shared(host: str, folder: str) -> str:
    """Return what is wrong with a folder of a node, and what to do."""
    remedy = "give --runs and --results on storage that all nodes share"
    return f"node {host}: {folder} is not there, cannot be written, or is another folder than here; {remedy}"


def lost_hosts(nodes: Sequence[dict[str, Any]]) -> set[str]:
    """Return the machines whose nodes have died. A machine that was never a node may be alive."""
    living = {node["NodeManagerHostname"] for node in nodes if node["Alive"]}
    return {node["NodeManagerHostname"] for node in nodes} - living


class Terms(NamedTuple):
    """The terms of all tasks of a sweep."""

    runs: str
    results: str
    token: str
    variables: dict[str, str]  # of the environment
    shared_device: bool
    lock_s: float


def work(number: int, job: dict[str, Any], terms: Terms, board: Any) -> Outcome:
    """Run the job (the fields of a `Job`), or resume it where another process was cut off.

    Raise `InUse` if another process has the run: then Ray tries again later, when the other process may have finished
    or died.
    """
    import ray

    # Ray sets the number of threads to a task's cores. Undo it, so that sums are split as in a local run.
    os.environ.pop("OMP_NUM_THREADS", None)
    set_variables(terms.variables)
    from pcmlp.experiments.job import Job, run_job
    from pcmlp.runs.cache import prepare
    from pcmlp.runs.folder import once_free

    place = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:6]})"
    board.begin.remote(number, place)
    prepare()
    asked, runs, results = Job(**job), Path(terms.runs), Path(terms.results)

    def do() -> None:
        if (missing := not_shared((terms.runs, terms.results), terms.token)) is not None:  # a node that joined later
            raise ConfigError(explain_not_shared(platform.node(), missing))
        run = partial(run_job, asked, runs, results, shared_device=terms.shared_device)
        once_free(runs / asked.where, run, terms.lock_s, lambda: lost_hosts(ray.nodes()))

    return attempt(place, do)
