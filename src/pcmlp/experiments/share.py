"""How many runs share a device: from its memory, the cores of the machine, and whether MPS is there.

With MPS, eight runs on an H200 with 16 cores did about four times the work of one (benchmarks/README.md); without MPS
they take turns, which gains nothing. On a CPU a run keeps about two cores busy.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pcmlp.errors import ConfigError
from pcmlp.experiments.gpu import EXCLUSIVE, PROHIBITED, Gpu

Variables = Mapping[str, str | None]  # of the environment of a process; None: not set

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_NEW_FRACTION = "XLA_CLIENT_MEM_FRACTION"  # the same in newer versions of JAX, which refuse to have both
_USABLE = 0.85  # share of the free memory that runs get; CUDA itself and MPS need the rest
_SEED_GB, _MOST_SEEDS = 0.5, 32  # of a group: memory of each seed, also a guess, and the most seeds
_GPU_GB, _CPU_GB = 10.0, 2.0  # memory of a run: a guess, to be compared with `peak_memory_mb` in summary.json
_GPU_CORES, _CPU_CORES = 4, 2  # cores that a run keeps busy: physics and compiling, or everything
_COMPILER_CORES = 8  # cores that a compiler uses
_ONE = "one process at a time uses the GPU"


class Share(NamedTuple):
    """The number of runs that share a device."""

    jobs: int
    note: str = ""  # why there is only one, in a line for the user


def on_gpu(asked: int | None, gpu: Gpu, cores: int, no_mps: str = "") -> Share:
    """Return how many runs share a GPU. `asked` is the number that the user wants, if any; `no_mps` says why there is
    no MPS."""
    if gpu.mode == PROHIBITED:
        remedy = "nvidia-smi -c DEFAULT changes this, and JAX_PLATFORMS=cpu uses the CPU"
        raise ConfigError(f"{gpu.name}: its compute mode is {gpu.mode}, so no process can use it; {remedy}")
    if no_mps and asked != 1:
        only = f", and the GPU, whose compute mode is {gpu.mode}, takes one process" if gpu.mode == EXCLUSIVE else ""
        why = f"{no_mps}, and without MPS processes take turns{only}"
        if asked is not None:
            raise ConfigError(f"--jobs {asked}: {why}; give --jobs 1")
        return Share(1, f"{_ONE}: {why}")
    fits = count_fitting(asked, _USABLE * gpu.free, _GPU_GB, f"{gpu.free:.0f} of {gpu.total:.0f} GB of the GPU")
    return Share(asked or max(1, min(fits, cores // _GPU_CORES)))


def most_seeds(gpu: Gpu) -> int:
    """Return how many seeds a group of runs may have on a GPU. On a CPU, where the seeds run one after another, groups
    gain nothing."""
    return max(1, int(min(_USABLE * gpu.free / _SEED_GB, _MOST_SEEDS)))


def count_groups(seeds: int, gpu: Gpu) -> int:
    """Return how many groups of so many seeds fit into the memory of a GPU."""
    return max(1, int(min(_USABLE * gpu.free / (_SEED_GB * seeds), 1000.0)))


def count_compilers(cores: int) -> int:
    """Return how many runs may compile at the same time."""
    return max(1, cores // _COMPILER_CORES)


def on_cpu(asked: int | None, cores: int, memory: float) -> Share:
    """Return how many runs share the cores; `memory` is in GB."""
    fits = count_fitting(asked, memory, _CPU_GB, f"{memory:.0f} GB of memory")
    return Share(asked or max(1, min(fits, cores // _CPU_CORES)))


def count_fitting(asked: int | None, memory: float, need: float, free: str) -> int:
    """Return how many runs fit into memory (in GB); raise if the user asked for several and they do not fit."""
    fits = int(min(memory / need, 1000.0))
    if asked is not None and asked > max(1, fits):
        what = f"a run may take {need:.0f} GB, and {free} are free: {fits} fit"
        raise ConfigError(f"--jobs {asked}: {what}; give --jobs {max(1, fits)} or fewer")
    return fits


def memory_share(jobs: int, gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variable that gives each of the runs its share of a GPU's memory: what is free on the fullest of the
    GPUs, or the fraction that the user has set, divided by their number."""
    name = _NEW_FRACTION if _NEW_FRACTION in os.environ else FRACTION
    given = os.environ.get(name)
    try:
        fraction = float(given) if given else None
    except ValueError as error:
        raise ConfigError(f"{name}={given}: not a number; give a fraction such as 0.8, or leave it out") from error
    free = min((gpu.free / gpu.total for gpu in gpus if math.isfinite(gpu.total)), default=1.0)
    return {name: f"{(_USABLE * free if fraction is None else fraction) / jobs:.4f}"}


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> float:
    """Return the available memory of the machine in GB; infinite if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        [kib] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(kib) * 1024 / 1e9
    except (OSError, ValueError, IndexError):
        return math.inf


@contextlib.contextmanager
def variables_set(variables: Variables) -> Iterator[None]:
    """Set variables of the environment in this block, for a process that is started in it."""
    before = {name: os.environ.get(name) for name in variables}
    set_variables(variables)
    try:
        yield
    finally:
        set_variables(before)


def set_variables(variables: Variables) -> None:
    """Set variables of the environment; None removes one."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
