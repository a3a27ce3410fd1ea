"""A Ray cluster: reach it, or start one on this machine, and check its nodes."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.experiments.ray_task import Found, explain_not_shared, inspect_node
from pcmlp.runs.summary import versions

# Time limits in seconds:
_START_S = 120  # for a cluster to start on this machine
_ANSWER_S = 15  # for a cluster to answer
_NODE_S = 60  # for a node to start a process and read a file
_PROBE = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"
_HOST = """if True:
    import ray, sys
    made = ray.init(address='local', include_dashboard=False, log_to_driver=False, logging_level='CRITICAL')
    print(made.address_info['address'], flush=True)
    sys.stdin.read()
"""


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


def check_nodes(
    ray: Any, nodes: Sequence[dict[str, Any]], folders: tuple[str, ...], token: str
) -> list[tuple[str, Found]]:
    """Return the hosts and what was found there; raise unless every node has the folders, and the versions of this
    machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(inspect_node)
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked.append((node["NodeManagerHostname"], look.options(scheduling_strategy=there).remote(folders, token)))
    mine, hosts = versions(), []
    for host, answer in asked:
        try:
            found: Found = ray.get(answer, timeout=_NODE_S)
        except ray.exceptions.GetTimeoutError as error:
            raise ConfigError(f"node {host}: does not answer in {_NODE_S} s; ray stop on it leaves it out") from error
        except ray.exceptions.RayError as error:
            last = str(error).strip().splitlines()[-1]
            raise ConfigError(f"node {host}: cannot run pcmlp ({last}); install it there, or ray stop on it") from error
        if found.missing is not None:
            raise ConfigError(explain_not_shared(host, found.missing))
        theirs = found.versions
        if changed := [f"{key} {theirs.get(key)} and not {mine[key]}" for key in mine if theirs.get(key) != mine[key]]:
            raise ConfigError(f"node {host}: has {', '.join(changed)}; install the same versions on every node")
        hosts.append((host, found))
    return hosts
