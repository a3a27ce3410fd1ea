"""The clock, and what there is to know of the machine."""

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


def compiled(function: Callable, *args: Any) -> Callable[[], Any]:
    """The call function(*args), compiled once; only arrays are handed over, so a call costs no more than it must."""
    arrays, rest = eqx.partition(args, eqx.is_array)
    program = jax.jit(lambda arrays: eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array))
    return lambda: program(arrays)


def time_of(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun


def times_of(call: Callable[[], Any], *, repeats: int = 3, seconds: float = 0.0) -> list[float]:
    """At least `repeats` times of `call`, for at least `seconds`, after one that compiles."""
    time_of(call)
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds:
        times.append(time_of(call))
    return times


def matrix_product(squares: tuple[int, ...], seconds: float) -> Callable[[], float]:
    """Measures the FLOP/s of float32 products at JAX's default precision, of the size that goes fastest.

    What the machine keeps up, in the median as a round's time is: a cloud machine does half as much again for a moment.
    """
    products = [compiled(jnp.matmul, *jr.normal(jr.key(0), (2, n, n))) for n in squares]

    def peak() -> float:
        times = [statistics.median(times_of(product, seconds=seconds)) for product in products]
        return max(2.0 * n**3 / t for n, t in zip(squares, times, strict=True))

    return peak


def peak_memory_mb() -> float:
    """The most this process has held so far: on the device if that has a memory of its own."""
    stats = jax.devices()[0].memory_stats()
    if stats is not None:
        return stats["peak_bytes_in_use"] / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
