"""Compare the memory and time that the page of a run with a large log takes in several versions of the library.

    python benchmarks/report_memory.py OLD/src src [--megabytes 10 100 1000]

For each size it writes a run of point-umaze with four seeds into a temporary folder: random walks in the maze, in the
real format, in records of 2 MB. Then it runs `pcmlp report` on it with each folder of sources. The memory is the
largest resident set of the process.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = (0, 1, 2, 3)
HORIZON = 100
EPISODES = 160  # of each seed and record
STEP_BYTES = 31  # of one row of point-umaze: two states, an action, a reward and three flags


def write_run(path: Path, megabytes: int) -> None:
    """Write the run; in a process of its own, since a child's peak includes its parent's memory."""
    import numpy as np

    from pcmlp.replay import Transitions
    from pcmlp.runs.episodes import EpisodeLog
    from pcmlp.runs.folder import RunFolder

    config = {"task": {"name": "point-umaze", "horizon": HORIZON}, "algo": "pcmlp", "seeds": SEEDS, "steps": 0}
    folder, held = RunFolder.create(path, json.dumps(config))
    held.close()
    rng = np.random.default_rng(0)
    shape = (len(SEEDS), EPISODES * HORIZON)
    records = max(1, round(megabytes * 1e6 / (len(SEEDS) * EPISODES * HORIZON * STEP_BYTES)))
    last = np.tile(np.arange(HORIZON) == HORIZON - 1, (len(SEEDS), EPISODES))
    no = np.zeros(shape, bool)
    with EpisodeLog(folder.episodes) as log:
        for n in range(records + 1):
            scores = {"env_steps": n * shape[1], "eval_return_mean": 0.0, "eval_success": 0.0, "wall_s": float(n)}
            folder.append([{"iteration": n, "seed": seed, **scores} for seed in SEEDS])
            if n:
                moves = rng.normal(0, 0.1, (len(SEEDS), EPISODES, HORIZON + 1, 2)).cumsum(axis=2)
                walk = np.clip(0.5 + moves, 0, (3.0, 1.0)).astype(np.float32)  # in the lower corridor
                state, after = walk[:, :, :-1].reshape(*shape, 2), walk[:, :, 1:].reshape(*shape, 2)
                rows = Transitions.of_arrays(state, after - state, no.astype(np.float32), after, no, last, ~no)
                log.append(n, SEEDS, rows)
    folder.write_summary({"status": "finished"})


def measure(sources: Path, run: Path) -> dict[str, float]:
    """Return the seconds and the peak memory of one report."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "pcmlp.cli", "report", str(run), "--out", str(run.parent / "page.html")],
        env={**os.environ, "PYTHONPATH": str(sources.resolve())},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"pcmlp report failed with {sources}")
    wall = time.perf_counter() - began
    return {
        "peak_mb": round(used.ru_maxrss / 1e3),
        "wall_s": round(wall, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
    }


def main() -> None:
    """Print a row for each size of the log and each version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--megabytes", nargs="+", type=int, default=[10, 100, 1000])
    options = parser.parse_args()
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as place:
            run = Path(place) / "run"
            writing = multiprocessing.get_context("spawn").Process(target=write_run, args=(run, megabytes))
            writing.start()
            writing.join()
            size = (run / "episodes" / "log").stat().st_size / 1e6
            for sources in options.sources:
                print(f"{size:.0f} MB", sources, json.dumps(measure(sources, run)), flush=True)


if __name__ == "__main__":
    main()
