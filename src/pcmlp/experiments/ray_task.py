"""What a node of a Ray cluster does for `ray_engine`: it looks around, and runs a job in a process of its own.

Only plain values go to and fro, and what needs JAX is imported once a process knows how many threads it has.
"""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_SEEN_S = 10.0  # in which a file that one machine wrote is seen by another


class Outcome(NamedTuple):
    """`line` says what is wrong with the job, if anything is."""

    place: str
    status: str  # "finished", "stopped", "refused" (bad input) or "failed" (a run that cannot go on)
    line: str = ""


class Board:
    """An actor: which jobs have begun and where, until somebody asks."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, str]] = []

    def begin(self, number: int, place: str) -> None:
        self._begun.append((number, place))

    def take(self) -> list[tuple[int, str]]:
        begun, self._begun = self._begun, []
        return begun


def look_around(folders: tuple[str, ...], token: str) -> tuple[str | None, dict[str, str]]:
    """The folder that is not the shared one, if any is, and the versions of what is installed here."""
    from pcmlp.runs.summary import versions

    return not_shared(folders, token), versions()


def not_shared(folders: tuple[str, ...], token: str) -> str | None:
    end = time.monotonic() + _SEEN_S
    for folder in folders:
        while not (os.path.exists(os.path.join(folder, token)) and os.access(folder, os.W_OK | os.X_OK)):
            if time.monotonic() > end:
                return folder
            time.sleep(0.5)
    return None


def says_not_shared(host: str, folder: str) -> str:
    remedy = "give --runs and --results on storage that all nodes share"
    return f"node {host}: {folder} is not there, cannot be written, or is another folder than here; {remedy}"


def lost_hosts(nodes: Sequence[dict[str, Any]]) -> set[str]:
    """The machines whose nodes have died. One that was never a node may be alive, whatever a cluster knows."""
    living = {node["NodeManagerHostname"] for node in nodes if node["Alive"]}
    return {node["NodeManagerHostname"] for node in nodes} - living


def work(
    number: int, job: dict[str, Any], runs: str, results: str, token: str, flags: str, lock_s: float, board: Any
) -> Outcome:
    """Runs the job (the fields of a `Job`), or goes on with it where another process was cut off.

    `InUse` is raised, so that Ray tries again later: whoever has the run may have finished it by then, or died."""
    import ray

    # As in a local run, where sums are split in the same way: Ray would have a task's cores for the first of them.
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ["XLA_FLAGS"] = flags
    from pcmlp.experiments.job import Job, run_job
    from pcmlp.runs.cache import prepare
    from pcmlp.runs.lock import InUse, once_free
    from pcmlp.types import ConfigError, RunStopped

    place = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:6]})"
    board.begin.remote(number, place)
    prepare()
    asked = Job(**job)
    try:
        if (missing := not_shared((runs, results), token)) is not None:  # a node that came later
            raise ConfigError(says_not_shared(platform.node(), missing))
        run = Path(runs) / asked.where
        once_free(run, lambda: run_job(asked, Path(runs), Path(results)), lock_s, lambda: lost_hosts(ray.nodes()))
    except KeyboardInterrupt:
        return Outcome(place, "stopped")
    except InUse:
        raise
    except ConfigError as error:
        return Outcome(place, "refused", str(error))
    except RunStopped as error:
        return Outcome(place, "failed", str(error))
    return Outcome(place, "finished")
