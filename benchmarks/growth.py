"""Measure whether a step of Algorithm 1 costs the same in a long run as in a short one.

    python benchmarks/growth.py OLD/src src [--steps 2000 32000 500000] [--old-steps 2000 32000] [--task NAME]

For each number of steps it runs `pcmlp train combination-lock --seeds 0 --steps N` with each folder of sources in turn,
the last of which is the new code. Iterations of the lock take milliseconds, so whatever grows with the run shows. The
rate is that of the iterations after the tenth, without compiling and the pictures at the end. A row of the table has:

    ms_per_step       wall-clock milliseconds of a real step
    cpu_ms_per_step   CPU milliseconds, of all threads, which other programs on the machine disturb less
    checkpoints, MB   how many checkpoints were written, and their megabytes in all
    saving            the share of the time that checkpoints and the episode log took
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

WARM = 10  # the iteration after which everything is compiled


def measure(task: str, steps: int) -> dict[str, Any]:
    """Run the library that this process imports, and return the row of the table."""
    from pcmlp.runs import checkpoint
    from pcmlp.runs.config import resolve
    from pcmlp.runs.train import train

    config = resolve(task, seeds=(0,), steps=steps)
    save, written = checkpoint.save, []
    marks: dict[float, np.ndarray] = {}

    def counted(folder: Path, learner: Any, facts: Any) -> None:
        save(folder, learner, facts)
        written.append(checkpoint.path_of(folder, facts.iteration).stat().st_size)

    def clock(run: Any, metrics: dict[str, float]) -> None:
        n = metrics["iteration"]
        if n in (WARM, config.num_iterations):
            spent = time.perf_counter(), time.process_time(), run.spent()["save_s"], metrics["env_steps"]
            marks[n] = np.array(spent)

    checkpoint.save = counted
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        from rich.console import Console

        train(config, Path(folder) / "run", console=Console(file=nowhere), callbacks=[clock])
    wall, cpu, saving, taken = marks[config.num_iterations] - marks[WARM]
    return {
        "ms_per_step": round(1e3 * wall / taken, 3),
        "cpu_ms_per_step": round(1e3 * cpu / taken, 3),
        "checkpoints": len(written),
        "MB": round(sum(written) / 1e6, 1),
        "saving": round(saving / wall, 4),
    }


def main() -> None:
    """Print a row for each version and number of steps, and how much a step of the last version grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--steps", nargs="+", type=int, default=[2_000, 32_000, 500_000])
    parser.add_argument("--old-steps", nargs="+", type=int, default=[2_000, 32_000], help="for all but the last folder")
    parser.add_argument("--task", default="combination-lock")
    options = parser.parse_args()
    if not options.sources:  # the process of one measurement
        print(json.dumps(measure(options.task, options.steps[0])))
        return
    new, rates = options.sources[-1], []
    for steps in options.steps:
        for source in options.sources:
            if source != new and steps not in options.old_steps:
                continue
            environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "PCMLP_CACHE": "off"}
            command = [sys.executable, __file__, "--task", options.task, "--steps", str(steps)]
            said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            row = json.loads(said.splitlines()[-1])
            print(source, steps, json.dumps(row), flush=True)
            if source == new:
                rates.append((row["ms_per_step"], row["cpu_ms_per_step"]))
    for name, per_step in zip(("ms_per_step", "cpu_ms_per_step"), zip(*rates, strict=True), strict=True):
        print(f"{name} of {new}: largest / smallest = {max(per_step) / min(per_step):.2f}")


if __name__ == "__main__":
    main()
