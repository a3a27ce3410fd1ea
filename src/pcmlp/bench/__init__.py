"""`pcmlp bench`: the cost of one paper round against the machine's own matrix-product peak, and where the time goes.

A *paper round* is 100 steps of SGD on the model and 40 TRPO updates of 4,000 imagined steps each on mountain-car, with
the paper's networks: [500, 500] for the model and for phi, 32 x 32 for the policy, 64 x 64 for its values. It counts as
3.2e11 FLOP by definition, whatever the code really does, so that

    share_of_peak = 3.2e11 / round_s / peak_flop_per_s

compares any two versions of the code on any machine. Both are medians over the same minute, measured in turn.
No time includes compiling, except `time_to_solved_s`, the wall time of a whole `pcmlp train`.

The parts are measured one after another. The numbers of each are shown and written as soon as it has ended
(`record.py`), because all parts together take minutes, and the process may be stopped earlier.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from pcmlp.bench import clock, parts, robot, updates
from pcmlp.bench.record import open_record, write_record
from pcmlp.errors import ConfigError
from pcmlp.models import Probabilistic
from pcmlp.parts import find_known
from pcmlp.planners import CEM, SAC, TRPO
from pcmlp.settings import flatten
from pcmlp.types import Planner

_ROUND_FLOP = 3.2e11
# A CPU measures a twentieth: SAC then imagines a twentieth of the episodes as well, so that an update costs the same.
_UPDATES: dict[str, Planner] = {"trpo": TRPO(), "sac": SAC()}
_FEW_UPDATES: dict[str, Planner] = {"trpo": TRPO(updates=2), "sac": SAC(updates=10, streams=50)}
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
    """The sizes of the measured parts; published numbers are for the defaults. None: by the device."""

    net: tuple[int, ...] = (500, 500)  # hidden layers of model and phi
    samples: int = 2_000  # real steps the model is trained on
    model_steps: int = 100
    planner: TRPO = field(default_factory=TRPO)  # of the round
    seeds: tuple[int, ...] | None = None  # numbers of seeds besides 1; 2, 4 on a CPU, 4, 16, 64 elsewhere
    squares: tuple[int, ...] | None = None  # sizes of the matrices that measure the peak
    small: parts.Plans = (200, 30, (64, 64))  # plans of MPPI
    large: parts.Plans = (1_000, 30, (500, 500))
    pets_search: CEM = _PETS_SEARCH
    pets_model: Probabilistic = field(default_factory=Probabilistic)
    fourier: int = 20  # features of MPPI's bonus
    updating: dict[str, Planner] | None = None  # planners whose updates are counted
    updating_seeds: tuple[int, ...] = (1, 4, 16)
    jobs: int = 1  # processes that update side by side, after one that updates alone
    robot: str = "half-cheetah"
    robot_settings: tuple[str, ...] = ()
    robot_seeds: tuple[int, ...] = (1, 4)
    robot_round_seeds: tuple[int, ...] | None = None  # 1 on a CPU, 1, 4, 16 elsewhere
    repeats: int = 5  # least number of rounds
    seconds: float = 2.0  # shorter measurements are repeated for this long


def main(out: Path | None, names: Sequence[str] = (), sizes: Sizes = Sizes()) -> int:  # noqa: B008 (frozen)
    """Measure the named parts, by default all; show the numbers of each, and write them to `out`, if given. Leave out
    parts that the file already contains."""
    for name in names:
        find_known("part", name, PARTS, "one of " + ", ".join(PARTS))
    if sizes.jobs < 1:
        raise ConfigError(f"--jobs {sizes.jobs}: give 1 or more")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"out={out}: there is no folder {out.parent}; make it, or give another")
    result = open_record(out, {"seeds": list(sizes.seeds or ()), "jobs": sizes.jobs})
    load = os.getloadavg()[0]
    for name in (name for name in PARTS if name in names or not names):
        if name in result["parts"]:
            print(f"{name}: {out} has it already; to measure it again, give another file")
            continue
        begun = time.perf_counter()
        numbers = PARTS[name](sizes)
        measured = {"load_before": load, "wall_s": round(time.perf_counter() - begun, 1)}
        show(f"{name} on {result['device']}", numbers)
        result = {**result, **numbers, "parts": {**result["parts"], name: measured}}
        write_record(out, result)
    return 0


def is_cpu() -> bool:
    """Return whether JAX computes on a CPU, which measures less."""
    return jax.default_backend() == "cpu"


def measure_round(sizes: Sizes) -> dict[str, Any]:
    """Measure the paper round, its phases, and the peak beside it."""
    seeds = ((2, 4) if is_cpu() else (4, 16, 64)) if sizes.seeds is None else sizes.seeds
    squares = sizes.squares or ((1024, 2048) if is_cpu() else (4096, 8192))
    algo, world = parts.paper_round(sizes.net, sizes.samples, sizes.model_steps, sizes.planner), parts.mountain_car()
    round_of_one = parts.compile_round(algo, world, 1)
    clock.time_call(round_of_one)  # compiles
    rounds: dict[int, list[float]] = {1: []}
    peaks = [clock.peak_flops(squares, sizes.seconds / 2)]
    for _ in range(sizes.repeats):  # alternating, so that other load on the machine affects both
        rounds[1].append(clock.time_call(round_of_one))
        peaks.append(clock.peak_flops(squares, sizes.seconds / 2))
    memory = clock.peak_memory_mb()  # measured before there are more seeds
    phases = parts.phase_seconds(algo, sizes.seconds)
    for n in seeds:
        rounds[n] = clock.time_calls(parts.compile_round(algo, world, n), repeats=sizes.repeats)
    round_s, peak_flop_per_s = statistics.median(rounds[1]), statistics.median(peaks)
    return {
        "round_s": round_s,
        "share_of_peak": _ROUND_FLOP / round_s / peak_flop_per_s,
        "peak_flop_per_s": peak_flop_per_s,
        "imagined_steps_per_s": sizes.planner.updates * sizes.planner.imagined_rows / round_s,
        "phases": phases,
        "seeds_scaling": {str(n): statistics.median(times) for n, times in rounds.items()},
        "peaks_flop_per_s": peaks,  # one before and one after each round of a single seed
        "rounds_s": {str(n): times for n, times in rounds.items()},  # all times, of which the medians are taken
        "peak_memory_mb": memory,
    }


def measure_mppi(sizes: Sizes) -> dict[str, Any]:
    """Measure the control steps of MPPI."""
    small, large = (parts.mppi_ms(case, sizes.fourier, sizes.seconds) for case in (sizes.small, sizes.large))
    floor = parts.floor_ms(sizes.large, sizes.seconds)
    return {"mppi_small_ms": small, "mppi_large_ms": large, "mppi_large_floor_ms": floor}


def measure_updates(sizes: Sizes) -> dict[str, Any]:
    """Measure the updates of TRPO and SAC per second, alone and side by side."""
    planners = (_FEW_UPDATES if is_cpu() else _UPDATES) if sizes.updating is None else sizes.updating
    cases = {
        name: updates.Case(planner, sizes.updating_seeds, sizes.net, sizes.samples, sizes.seconds)
        for name, planner in planners.items()
    }
    counts = {"alone": 1, **({f"jobs_{sizes.jobs}": sizes.jobs} if sizes.jobs > 1 else {})}
    return {
        "updates": {
            name: {count: updates.measure_rates(case, jobs) for count, jobs in counts.items()}
            for name, case in cases.items()
        }
    }


def measure_robot(sizes: Sizes) -> dict[str, Any]:
    """Measure an iteration of half-cheetah, and the paper's round of TRPO; None if the simulator is not installed."""
    if not robot.is_installed():
        return {"robot": None, "robot_round_s": None}
    round_seeds = sizes.robot_round_seeds or ((1,) if is_cpu() else (1, 4, 16))
    where = sizes.robot, sizes.robot_settings
    return {
        "robot": {str(n): robot.iteration_s(*where, n, whole=not is_cpu()) for n in sizes.robot_seeds},
        "robot_round_s": {str(n): robot.paper_round_s(*where, n, 1 if is_cpu() else 3) for n in round_seeds},
    }


# In this order: parts that start processes come first, when this process has the least memory.
PARTS: dict[str, Callable[[Sizes], dict[str, Any]]] = {
    "solved": lambda sizes: {"time_to_solved_s": clock.time_to_solved()},
    "updates": measure_updates,
    "round": measure_round,
    "mppi": measure_mppi,
    "pets": lambda sizes: {"pets_plan_s": parts.pets_plan_s(sizes.pets_search, sizes.pets_model, sizes.seconds)},
    "robot": measure_robot,
}


def show(title: str, numbers: dict[str, Any]) -> None:
    """Print the numbers of a part with their keys in the file."""
    table = Table("key", "value", title=title)
    for key, value in flatten({**numbers, "rounds_s": {}}).items():
        if isinstance(value, float | int):
            table.add_row(key, f"{value:.4g}")
    Console().print(table)
