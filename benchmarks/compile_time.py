"""Compare how long a newcomer waits for the compiler in several versions of the library.

    python benchmarks/compile_time.py OLD/src src [--repeats 3]

For each folder of sources it runs `pcmlp train mountain-car --seeds 0 --steps 200` with an empty compilation cache and
again with a full one, in turn, so that a change of the machine's speed affects all of them. The difference is the time
of compiling; the table also has the CPU time, which other programs on the machine disturb less.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = ["train", "mountain-car", "--seeds", "0", "--steps", "200"]


def run(sources: Path, cache: Path) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of one run."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(sources.resolve()), "PCMLP_CACHE": str(cache)}
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "pcmlp.cli", *COMMAND, "--out", f"{folder}/run"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    """Print a row for each version, and the last version's share of the first one's compile time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    names = ("cold_s", "warm_s", "cold_cpu_s", "warm_cpu_s")
    totals = {source: dict.fromkeys(names, 0.0) for source in options.sources}
    for _ in range(options.repeats):
        for source, total in totals.items():
            with tempfile.TemporaryDirectory() as cache:
                for name in ("cold", "warm"):
                    wall, cpu = run(source, Path(cache))
                    total[f"{name}_s"] += wall / options.repeats
                    total[f"{name}_cpu_s"] += cpu / options.repeats
    rows = []
    for source, total in totals.items():
        compiling = {"compile_s": total["cold_s"] - total["warm_s"]}
        compiling["compile_cpu_s"] = total["cold_cpu_s"] - total["warm_cpu_s"]
        rows.append({name: round(value, 1) for name, value in {**total, **compiling}.items()})
        print(source, json.dumps(rows[-1]))
    if len(rows) > 1:
        for name in ("compile_s", "compile_cpu_s", "warm_s"):
            print(f"{name}: {rows[-1][name] / rows[0][name]:.2f} of the first")


if __name__ == "__main__":
    main()
