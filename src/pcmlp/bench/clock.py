"""The clock of the benchmark, and facts about the machine."""

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr


def compile_call(function: Callable, *args: Any) -> Callable[[], Any]:
    """Return the call function(*args), compiled once; only arrays are passed, so that a call has no other cost."""
    arrays, rest = eqx.partition(args, eqx.is_array)
    program = jax.jit(lambda arrays: eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array))
    return lambda: program(arrays)


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


def median_time(call: Callable[[], Any], seconds: float) -> float:
    """Return the median seconds of a call."""
    return statistics.median(time_calls(call, seconds=seconds))


def matrix_product(squares: tuple[int, ...], seconds: float) -> Callable[[], float]:
    """Return a function that measures the FLOP/s of float32 products at JAX's default precision, of the fastest size.

    It takes the median, as for a round: a cloud machine may be faster by half for a moment.
    """
    products = [compile_call(jnp.matmul, *jr.normal(jr.key(0), (2, n, n))) for n in squares]

    def peak() -> float:
        times = [median_time(product, seconds) for product in products]
        return max(2.0 * n**3 / t for n, t in zip(squares, times, strict=True))

    return peak


def peak_memory_mb() -> float:
    """Return the peak memory of this process so far, on the device if it has its own memory."""
    stats = jax.devices()[0].memory_stats()
    if stats is not None:
        return stats["peak_bytes_in_use"] / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
