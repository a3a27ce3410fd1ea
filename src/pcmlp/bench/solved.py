"""How long a whole run of mountain-car takes until it has solved it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# One iteration of one episode: what nine of ten seeds need (docs/deep.md).
_RUN = ("train", "mountain-car", "--algo", "pcmlp", "--seeds", "0", "--steps", "200")


def time_to_solved() -> dict[str, float | None]:
    """Seconds of a whole run of mountain-car, with an empty compilation cache and with the one that leaves."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PCMLP_CACHE": str(Path(folder) / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        return {name: seconds_of_run(Path(folder) / name, environment) for name in ("cold_cache", "warm_cache")}


def seconds_of_run(out: Path, environment: dict[str, str]) -> float | None:
    """None where the run failed or did not solve its task."""
    command = [sys.executable, "-m", "pcmlp.cli", *_RUN, "--out", str(out)]
    begun = time.perf_counter()
    run = subprocess.run(command, env=environment, capture_output=True)
    taken = time.perf_counter() - begun
    if run.returncode != 0:
        return None
    summary = json.loads((out / "summary.json").read_text())
    return None if summary["seeds"][0]["env_steps_to_success"] is None else taken
