"""The clock of the benchmark, the time of whole runs, and facts about the machine."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from pcmlp.programs import program
from pcmlp.runs.summary import device_memory_mb

# One iteration of one episode, which is enough for nine of ten seeds (docs/results.md).
_RUN = ("train", "mountain-car", "--algo", "pcmlp", "--seeds", "0", "--steps", "200")


def compile_call(function: Callable, *args: Any) -> Callable[[], Any]:
    """Return the call function(*args), compiled once; only arrays are passed, so that a call has no other cost."""
    arrays, rest = eqx.partition(args, eqx.is_array)
    compiled = program(lambda arrays: eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array))
    return lambda: compiled(arrays)


def time_call(call: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun


def time_calls(call: Callable[[], Any], *, repeats: int = 3, seconds: float = 0.0) -> list[float]:
    """Time at least `repeats` calls, for at least `seconds`, after one that compiles."""
    time_call(call)
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds:
        times.append(time_call(call))
    return times


def median_time(seconds: float, function: Callable, *args: Any) -> float:
    """Return the median seconds of a compiled call."""
    return statistics.median(time_calls(compile_call(function, *args), seconds=seconds))


def peak_flops(squares: tuple[int, ...], seconds: float) -> float:
    """Return the FLOP/s of float32 products at JAX's default precision, of the fastest size.

    It is a median, as for a round: a cloud machine may be faster by half for a moment.
    """
    pairs = {n: jr.normal(jr.key(0), (2, n, n)) for n in squares}
    return max(2.0 * n**3 / median_time(seconds, jnp.matmul, *pair) for n, pair in pairs.items())


def time_to_solved() -> dict[str, float | None]:
    """Time a whole run of mountain-car, first with an empty compilation cache, then with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PCMLP_CACHE": str(Path(folder) / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        return {name: time_run(Path(folder) / name, environment) for name in ("cold_cache", "warm_cache")}


def time_run(out: Path, environment: dict[str, str]) -> float | None:
    """Return the seconds of a run; None if it failed or did not solve its task."""
    command = [sys.executable, "-m", "pcmlp.cli", *_RUN, "--out", str(out)]
    begun = time.perf_counter()
    run = subprocess.run(command, env=environment, capture_output=True)
    taken = time.perf_counter() - begun
    if run.returncode != 0:
        return None
    summary = json.loads((out / "summary.json").read_text())
    return None if summary["seeds"][0]["env_steps_to_success"] is None else taken


def peak_memory_mb() -> float:
    """Return the peak memory of this process so far, on the device if it has its own memory."""
    if (of_device := device_memory_mb()) is not None:
        return of_device
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
