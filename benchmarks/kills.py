"""Kill parts of a sweep on one device with `kill -9`, let it continue, and compare it with an undisturbed one.

    python benchmarks/kills.py --out DIR [--jobs 4] [--iterations 60]

The sweep is four runs of `pcmlp paper controls --scale smoke`, with more iterations. It is made several times: twice
undisturbed (the first time fills the compilation cache), and then with a kill as soon as the first run has done a third
of its iterations: of the process of that run, of the command, and of the processes of MPS, where there are any. The
same command is given again until it succeeds. All runs, what the commands printed, and the cache go to DIR.

The table has the largest relative difference of each column of `metrics.csv` from the first sweep; times are left out.
The exit code is 1 if a run is lost, a command does not continue or a process stays, and on a CPU also if anything
differs: there, a run that continues is the undisturbed one bit for bit.
"""

import argparse
import contextlib
import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

EXPERIMENT = "controls"
RUNS = ("mountain-car/pcmlp", "mountain-car/no-bonus", "acrobot/pcmlp", "point-umaze/pcmlp")
CACHE, MPS = "PCMLP_CACHE", "nvidia-cuda-mps-control"
MOST = 3  # commands that a sweep may need
SWEEP_S, END_S = 180.0, 15.0  # the most time for a command; for its processes to end after it
POLL_S = 0.02
Kill = Callable[["Sweep", int], list[int]]  # (sweep, process of its command) -> processes to kill


def command(iterations: int, words: list[str]) -> int:
    """Run `pcmlp` with another number of iterations at the scale `smoke`."""
    from dataclasses import replace

    from pcmlp.cli import main
    from pcmlp.experiments.job import SCALES, SMOKE

    SCALES["smoke"] = replace(SMOKE, iterations=dict.fromkeys(SMOKE.iterations, iterations))
    return main(words)


@dataclass
class Sweep:
    """A sweep in a folder of its own, and what happened to it."""

    name: str
    folder: Path
    jobs: int
    iterations: int
    commands: int = 0  # how often the command was given
    begun_again: int = 0  # runs that the command itself continued
    killed: int = 0  # processes
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The folder of all sweeps."""
        return self.folder.parent

    def make(self, kill: Kill | None) -> None:
        """Make the sweep, with at most one kill; give the command again until it succeeds."""
        began = time.monotonic()
        while self.commands < MOST and self._command(kill if not self.killed else None):
            pass
        self.seconds = time.monotonic() - began
        if kill is not None and not self.killed:
            self.faults.append("nothing was killed")
        if lost := [run for run in RUNS if not (self._result(run) / "summary.json").exists()]:
            self.faults.append(f"lost after {self.commands} commands: {', '.join(lost)}")

    def _command(self, kill: Kill | None) -> int:
        """Give the command once; return its exit code."""
        self.commands += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["paper", EXPERIMENT, "--scale", "smoke", "--jobs", str(self.jobs), "--only", *RUNS]
        words += ["--runs", str(self.folder / "runs"), "--results", str(self.folder / "results")]
        line = [sys.executable, __file__, "--iterations", str(self.iterations), "--command", *words]
        said = self.folder / f"said-{self.commands}.txt"
        with said.open("w") as file:
            into = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            env = {**os.environ, CACHE: str(self.out / "cache")}
            process = subprocess.Popen(line, **into, env=env, start_new_session=True)
            end = time.monotonic() + SWEEP_S
            while process.poll() is None and time.monotonic() < end:
                if kill is not None and self._is_in_the_middle():
                    for number in kill(self, process.pid):
                        os.kill(number, signal.SIGKILL)
                        self.killed += 1
                    kill = None
                time.sleep(POLL_S)
        if process.poll() is None:
            self.faults.append(f"command {self.commands} did not end in {SWEEP_S:.0f} s")
        elif not wait_until_gone(self.out):
            self.faults.append(f"command {self.commands} left processes behind")
        end_processes(self.out)
        code = process.wait()
        self.begun_again += said.read_text().count("it begins again from its last checkpoint")
        print(f"{self.name}: command {self.commands} ended with exit code {code}", flush=True)
        return code

    def _run(self, run: str) -> Path:
        return self.folder / "runs" / EXPERIMENT / run

    def _result(self, run: str) -> Path:
        return self.folder / "results" / EXPERIMENT / run

    def _done(self, run: str) -> int:
        """Return the last iteration of a run that has begun; -1 for another."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((self._run(run) / "metrics.csv").read_text().splitlines()[-1].split(",")[0])
        return -1

    def _is_in_the_middle(self) -> bool:
        return max(map(self._done, RUNS)) >= self.iterations / 3

    def process_of_run(self) -> int:
        """Return the process of the run that has done most."""
        return int(json.loads((self._run(max(RUNS, key=self._done)) / "lock").read_text())["process"])

    def metrics(self, run: str) -> list[dict[str, str]]:
        """Return the rows of a run that is finished; none if it is lost."""
        with contextlib.suppress(OSError), (self._result(run) / "metrics.csv").open() as file:
            return list(csv.DictReader(file))
        return []

    def device(self) -> str:
        """Return the device of the runs."""
        found = [json.loads(file.read_text())["device"] for file in self.folder.glob("results/**/summary.json")]
        return ", ".join(dict.fromkeys(found))


def our_processes(out: Path) -> dict[int, str]:
    """Return all processes that come from a command, with their names: those with the
    variable of its cache, those in the session of one of them, and their children."""
    marker, found = f"{CACHE}={out / 'cache'}".encode(), dict(read_processes())
    ours = {number for number in found if marker in _read(number, "environ").split(b"\0")}
    while True:
        sessions = {found[number][2] for number in ours}
        more = {number for number, (_, parent, session) in found.items() if parent in ours or session in sessions}
        if more <= ours:
            return {number: found[number][0] for number in ours}
        ours |= more


def read_processes() -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Yield each live process with its name, its parent and its session."""
    for folder in Path("/proc").glob("[0-9]*"):
        name, _, rest = _read(int(folder.name), "stat").decode(errors="replace").rpartition(") ")
        if name and (values := rest.split())[0] not in "ZX":
            yield int(folder.name), (name.partition("(")[2], int(values[1]), int(values[3]))


def _read(number: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{number}/{file}").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return b""


def wait_until_gone(out: Path) -> bool:
    """Wait until all processes have ended; return whether they have."""
    end = time.monotonic() + END_S
    while our_processes(out):
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def end_processes(out: Path) -> None:
    """End whatever is left."""
    for number in our_processes(out):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)


def difference(one: str, other: str) -> float:
    """Return the relative difference of two cells; infinite if only one is a finite number."""
    if one == other:
        return 0.0
    try:
        a, b = float(one), float(other)
    except ValueError:  # one is empty
        return math.inf
    return abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf


def compare(whole: Sweep, again: Sweep) -> dict[str, float]:
    """Return the largest difference of each column over all runs; note runs with other rows."""
    largest: dict[str, float] = {}
    for run in RUNS:
        rows, others = whole.metrics(run), again.metrics(run)
        if len(rows) != len(others) or not rows:
            again.faults.append(f"{run}: {len(others)} rows in place of {len(rows)}")
            continue
        for name in dict.fromkeys([*rows[0], *others[0]]):
            if not name.endswith("_s"):
                found = (difference(a.get(name, ""), b.get(name, "")) for a, b in zip(rows, others, strict=True))
                largest[name] = max(largest.get(name, 0.0), *found)
    return largest


def print_table(sweeps: list[Sweep], found: dict[str, dict[str, float]]) -> None:
    """Print a row for each fact and each column of `metrics.csv`."""
    rows = [
        ["killed", *(sweep.name for sweep in sweeps)],
        ["---"] * (len(sweeps) + 1),
        ["processes killed", *(str(sweep.killed) for sweep in sweeps)],
        ["commands given", *(str(sweep.commands) for sweep in sweeps)],
        ["runs begun again by the command", *(str(sweep.begun_again) for sweep in sweeps)],
        ["seconds", *(f"{sweep.seconds:.0f}" for sweep in sweeps)],
    ]
    for name in dict.fromkeys(name for each in found.values() for name in each):
        values = [found[sweep.name].get(name) for sweep in sweeps]
        rows.append([name, *("" if v is None else f"{v:.1g}" if v else "identical" for v in values)])
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> int:
    """Make the sweeps and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a new or empty folder")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.command:
        return command(given.iterations, given.command)
    if given.out is None or (given.out.exists() and any(given.out.iterdir())):
        parser.error("--out: give a new or empty folder")
    out = given.out.resolve()
    kills: dict[str, Kill | None] = {
        "nothing": None,
        "a run": lambda sweep, _: [sweep.process_of_run()],
        "the command": lambda _, process: [process],
    }
    if shutil.which(MPS):
        kills["MPS"] = lambda *_: [n for n, name in our_processes(out).items() if name.startswith(MPS[:15])]
    try:
        whole = Sweep("the first sweep", out / "whole", given.jobs, given.iterations)
        whole.make(None)
        sweeps = []
        for number, (name, kill) in enumerate(kills.items() if not whole.faults else ()):
            sweeps.append(Sweep(name, out / f"sweep-{number}", given.jobs, given.iterations))
            sweeps[-1].make(kill)
    finally:
        end_processes(out)
    found = {sweep.name: compare(whole, sweep) for sweep in sweeps}
    if whole.device() == "cpu":
        for sweep in sweeps:
            if differing := [name for name, value in found[sweep.name].items() if value]:
                sweep.faults.append(f"differs in {', '.join(differing)}")
    print(f"\n{len(RUNS)} runs of {given.iterations} iterations, {given.jobs} at a time, device: {whole.device()}\n")
    print_table(sweeps, found)
    faults = [f"{sweep.name}: {fault}" for sweep in (whole, *sweeps) for fault in sweep.faults]
    print("\n" + "\n".join(faults or ["no run was lost, and every command continued"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
