"""`pcmlp bench`: the cost of one paper round against the machine's own matrix-product peak, and where the time goes.

A *paper round* is 100 steps of SGD on the model and 40 TRPO updates of 4,000 imagined steps each on mountain-car, with
the paper's networks: [500, 500] for the model and for phi, 32 x 32 for the policy, 64 x 64 for its values. It counts as
3.2e11 FLOP by definition, whatever the code really does, so that

    share_of_peak = 3.2e11 / round_s / peak_flop_per_s

compares any two versions of the code on any machine. Both are medians over the same minute, measured in turn.
No time includes compiling, except `time_to_solved_s`, the wall time of a whole `pcmlp train`.
"""

import json
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from pcmlp.bench import clock, parts
from pcmlp.errors import ConfigError
from pcmlp.models import Probabilistic
from pcmlp.planners import CEM
from pcmlp.runs.summary import device, versions
from pcmlp.settings import flatten

_ROUND_FLOP = 3.2e11
# A plan takes 525,000 steps of a net, as in mbrl-lib's PETS.
_PETS_SEARCH = CEM(
    num_plans=350,
    plan_length=15,
    iterations=5,
    elites=35,
    noise_std=0.5,
    correlation=0.0,
    particles=20,
    truncated=True,
    smoothing=0.1,
)


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measured parts; published numbers are for the defaults."""

    net: tuple[int, ...] = (500, 500)  # hidden layers of model and phi
    samples: int = 2_000  # real steps the model is trained on
    model_steps: int = 100
    updates: int = 40
    streams: int = 80
    length: int = 50
    seeds: tuple[int, ...] | None = None  # numbers of seeds besides 1; None: 2, 4 on a CPU, 4, 16, 64 elsewhere
    squares: tuple[int, ...] | None = None  # sizes of the matrices that measure the peak; None: by the device
    small: parts.Plans = (200, 30, (64, 64))  # plans of MPPI
    large: parts.Plans = (1_000, 30, (500, 500))
    pets_search: CEM = _PETS_SEARCH
    pets_model: Probabilistic = field(default_factory=Probabilistic)
    fourier: int = 20  # features of MPPI's bonus
    repeats: int = 5  # least number of rounds
    seconds: float = 2.0  # shorter measurements are repeated for this long
    solve: bool = True  # time whole runs as well


def main(out: Path | None, sizes: Sizes = Sizes()) -> int:  # noqa: B008 (frozen)
    """Measure, show, and write the numbers if asked."""
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"out={out}: there is no folder {out.parent}; make it, or give another")
    result = measure(sizes)
    show(result)
    if out is not None:
        out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def measure(sizes: Sizes) -> dict[str, Any]:
    """Return all measured numbers."""
    load = os.getloadavg()[0]
    solved = clock.time_to_solved() if sizes.solve else None  # first: its process needs all of a GPU's memory
    cpu = jax.default_backend() == "cpu"
    seeds = ((2, 4) if cpu else (4, 16, 64)) if sizes.seeds is None else sizes.seeds
    squares = sizes.squares or ((1024, 2048) if cpu else (4096, 8192))

    algo = parts.paper_round(sizes.net, sizes.samples, sizes.model_steps, sizes.updates, sizes.streams, sizes.length)
    round_of_one = parts.compile_round(algo, 1)
    clock.time_call(round_of_one)  # compiles
    rounds: dict[int, list[float]] = {1: []}
    peaks = [clock.peak_flops(squares, sizes.seconds / 2)]
    for _ in range(sizes.repeats):  # alternating, so that other load on the machine affects both
        rounds[1].append(clock.time_call(round_of_one))
        peaks.append(clock.peak_flops(squares, sizes.seconds / 2))
    memory = clock.peak_memory_mb()  # measured before there are more seeds
    phases = parts.phase_seconds(algo, sizes.seconds)
    mppi_small, mppi_large = (parts.mppi_ms(case, sizes.fourier, sizes.seconds) for case in (sizes.small, sizes.large))
    floor = parts.floor_ms(sizes.large, sizes.seconds)
    pets = parts.pets_plan_s(sizes.pets_search, sizes.pets_model, sizes.seconds)
    for n in seeds:
        rounds[n] = clock.time_calls(parts.compile_round(algo, n), repeats=sizes.repeats)

    round_s, peak_flop_per_s = statistics.median(rounds[1]), statistics.median(peaks)
    return {
        "round_s": round_s,
        "share_of_peak": _ROUND_FLOP / round_s / peak_flop_per_s,
        "peak_flop_per_s": peak_flop_per_s,
        "imagined_steps_per_s": sizes.updates * sizes.streams * sizes.length / round_s,
        "phases": phases,
        "mppi_small_ms": mppi_small,
        "mppi_large_ms": mppi_large,
        "mppi_large_floor_ms": floor,
        "pets_plan_s": pets,
        "seeds_scaling": {str(n): statistics.median(times) for n, times in rounds.items()},
        "peaks_flop_per_s": peaks,  # one before and one after each round of a single seed
        "rounds_s": {str(n): times for n, times in rounds.items()},  # all times, of which the medians are taken
        "time_to_solved_s": solved,
        "peak_memory_mb": memory,
        "load_before": load,  # load by other programs: if there is any, times are too long
        "device": device(),
        "processor": clock.processor(),
        "versions": versions(),
    }


def show(result: dict[str, Any]) -> None:
    """Print the numbers by their keys in the file."""
    table = Table("key", "value", title=f"pcmlp bench on {result['device']}")
    for key, value in flatten({**result, "versions": {}, "rounds_s": {}}).items():
        if isinstance(value, float):
            table.add_row(key, f"{value:.4g}")
    Console().print(table)
