"""`make soak`: `kill -9` at random moments of random configurations, until there were as many kills as were asked for.

    python tests/soak.py --kills 200     continues where it stopped, as long as no source file has changed

A bout is a run that is killed up to five times and resumed until it ends. It has to be the uninterrupted run of its
configuration, bit for bit. Some bouts are on a disk that fills and then gets room (a small tmpfs, where mounting one is
allowed, else a limit on the size of files), some in environments that hang, crash or return NaN.
"""

import argparse
import collections
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from fuzz import ROOT, read_log, sources
from killing import Trials

from pcmlp.runs.config import resolve, tiny_overrides

ITERATIONS = 6
_PAGE = 4096
PLAIN = (
    ("combination-lock", "pcmlp-linear"),
    ("knr-lds", "pcmlp-knr"),
    ("mountain-car", "pcmlp"),
    ("mountain-car", "pcmlp-mppi"),
    ("mountain-car", "mbpo"),
    ("acrobot", "pets"),
    ("pendulum", "sac"),
    ("point-umaze", "pc-pg"),
    ("point-umaze", "random"),
)
TROUBLED = {"a hanging environment": "Hanging", "a crashing environment": "Crashing", "a NaN environment": "NaN"}
FULL = "a disk that fills"
TROUBLES = ("none", "none", "none", "none", FULL, FULL, *TROUBLED)


class Bout(NamedTuple):
    """A configuration, and what else is wrong."""

    name: str
    words: list[str]  # of `pcmlp train`
    trouble: str


def choose(rng):
    """Return a bout."""
    trouble, seeds = rng.choice(TROUBLES), rng.choice([(0,), (0, 7)])
    (task, algo), own = rng.choice(PLAIN), []
    if trouble in TROUBLED:
        seeds = (0, 7)  # with a fault in either
        file = Path(__file__).parent / "troubled.py"
        task, algo = (
            f"{file}:{TROUBLED[trouble]}",
            rng.choice(["pcmlp", "trpo"] if "hang" not in trouble else ["pcmlp"]),
        )  # trpo steps more, 5 s each
        own = ["task.workers=1", "task.timeout=5", f"task.reward={file}:reward"]
    base = [*own, "task.horizon=20"] if own else []
    tiny = list(dict.fromkeys([*tiny_overrides(resolve(task, algo, seeds, None, base)), *base]))
    steps = int(ITERATIONS * resolve(task, algo, seeds, None, tiny).steps_per_iteration)
    words = ["--algo", algo, "--seeds", *map(str, seeds), "--steps", str(steps), *["--trust-code"] * bool(own)]
    return Bout(f"{TROUBLED.get(trouble, task)}-{algo}-{len(seeds)}", [task, *words, "--set", *tiny], trouble)


class SmallDisk:
    """A folder with little room, which grows each time that a run says it is full; a context manager."""

    def __init__(self, folder, size):
        self.folder, self.size, self.times = folder, size, 0
        folder.mkdir()
        self.mounted = self._mount("")

    def _mount(self, more):
        options = f"{more}size={self.size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "pcmlp-soak", self.folder], capture_output=True)
        return done.returncode == 0

    def limit(self):
        """For the process that trains: a limit on its files, if there is no small disk."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))

    def grow(self, said):
        """The run has stopped: it must have said why, in a line."""
        assert said.count("no space for") == 1, said
        assert "Traceback" not in said, said
        self.times += 1
        self.size = int(1.5 * self.size) + _PAGE
        if self.mounted:
            assert self._mount("remount,")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.mounted:
            subprocess.run(["umount", self.folder], check=True)


def fight(number, folder):
    """Run a bout; return its record."""
    rng = random.Random(number)
    bout = choose(rng)
    record = {"number": number, "name": bout.name, "trouble": bout.trouble, "kills": 0, "full": 0, "why": ""}
    (folder / bout.name).mkdir(exist_ok=True)
    trials, out = Trials(folder / bout.name, bout.words, folder / "cache"), folder / bout.name / f"bout-{number}"
    shutil.rmtree(out, ignore_errors=True)
    most, begun = rng.randrange(1, 6), time.perf_counter()
    try:
        assert bout.trouble not in TROUBLED or "environment faults: " in trials.said, "it had no fault"
        if bout.trouble == FULL:
            with SmallDisk(out, int(rng.uniform(0.3, 0.9) * room_of(trials.whole))) as disk:
                trials.limit = disk.limit
                record["kills"] = trials.kill_one(out / "run", most, rng, disk.grow)
                record["full"] = disk.times
        else:
            record["kills"] = trials.kill_one(out, most, rng)
        shutil.rmtree(out)
    except Exception as error:  # whatever the comparison finds
        record["why"] = f"{type(error).__name__}: {error}"[:2000]
    return {**record, "seconds": round(time.perf_counter() - begun, 1)}


def room_of(run):
    """The bytes that a run needs on a disk of pages; it does without pictures."""
    files = [file for file in run.rglob("*") if file.is_file() and file.suffix != ".png"]
    return sum(-(-file.stat().st_size // _PAGE) * _PAGE for file in files)


def show(records):
    """Print the table."""
    rows = collections.defaultdict(collections.Counter)
    for record in records:
        for name in (record["trouble"], "all"):
            rows[name] += collections.Counter(
                runs=1, kills=record["kills"], full=record["full"], same=0 if record["why"] else record["kills"]
            )
    print("| trouble | runs | kills | kills resumed bit for bit | stops for lack of room |\n|---|---|---|---|---|")
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        row = rows[name]
        print(f"| {name} | {row['runs']} | {row['kills']} | {row['same']} | {row['full']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "soak")
    given = parser.parse_args()
    folder = given.folder / sources("killing", "same_run", "soak", "troubled")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "bouts.jsonl"
    done = read_log(log) if log.exists() else {}
    while sum(record["kills"] for record in done.values()) < given.kills:
        record = fight(len(done), folder)
        done[record["number"]] = record
        with log.open("a") as file:
            print(json.dumps(record), file=file)
        total = sum(each["kills"] for each in done.values())
        line = "bout {number}: {name} ({trouble}), {kills} kills, {seconds} s; {total} kills in all {why}"
        print(line.format(**record, total=total), flush=True)
    show(done.values())
    return 1 if any(record["why"] for record in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
