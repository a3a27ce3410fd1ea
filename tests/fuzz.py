"""`make fuzz`: damaged run folders by the thousand, over worker processes; a table of what the commands made of them.

    python tests/fuzz.py --cases 100000          continues where it stopped, as long as no source file has changed
    python tests/fuzz.py --case 12345            repeats one case and leaves its folder

A worker that hangs or dies is replaced. Every case that is not refused or harmless is printed with its number.
"""

import argparse
import collections
import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERDICTS = ("refused", "same", "other", "traceback", "hang")
BAD = VERDICTS[2:]
DECIDE = ("damaged_arrays", "damaged_bytes", "damaged_text", "fuzzing", "judging", "outcomes", "same_run", "staging")
DEAD = 120.0  # seconds without an answer after which a worker is replaced


def work(pipe, stage, root):
    """Judge the cases whose numbers come through a pipe. A process of its own."""
    from judging import Judge
    from staging import Stage

    with Judge(Stage(stage), root) as judge:
        for scene in judge.scenes:
            judge.expect(scene)
        gc.collect()
        gc.freeze()  # what is here now stays, and need not be looked at again
        pipe.send(None)
        while (number := pipe.recv()) is not None:
            pipe.send(judge.judge(number)._asdict())


def build(stage):
    """Make the undamaged runs. A process of its own."""
    from staging import Stage

    with contextlib.redirect_stdout(None):
        Stage(stage).build()


class Worker:
    """A process that judges cases."""

    def __init__(self, context, place, number):
        self.root = place / f"worker-{number}"
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, place / "stage", self.root), daemon=True)
        self.process.start()
        theirs.close()
        self.case, self.since = None, time.monotonic() + 600  # at first it compiles

    def give(self, case):
        self.case, self.since = case, time.monotonic()
        self.pipe.send(case)

    def end(self):
        self.process.kill()
        self.process.join()
        shutil.rmtree(self.root, ignore_errors=True)


def judge_all(numbers, place, workers):
    """Yield a record for each case."""
    context = multiprocessing.get_context("spawn")
    if not (place / "stage").exists():
        builder = context.Process(target=build, args=(place / "fresh",))
        builder.start()
        builder.join()
        assert builder.exitcode == 0, "the undamaged runs could not be made"
        (place / "fresh").rename(place / "stage")
    todo, team = iter(numbers), [Worker(context, place, i) for i in range(workers)]
    while team:
        ready = wait([worker.pipe for worker in team], timeout=5)
        for i, worker in reversed(list(enumerate(team))):
            record = None
            if worker.pipe in ready:
                try:
                    record = worker.pipe.recv()
                except EOFError:
                    assert worker.case is not None, "a worker died before its first case"
                    record = {"verdict": "traceback", "line": f"the process died ({worker.process.exitcode})"}
            elif time.monotonic() - worker.since > DEAD:
                record = {"verdict": "hang", "line": "and nothing could stop it"}
            else:
                continue
            if record is not None:
                yield {"number": worker.case, "scene": "", "what": "", **record}
            if record is not None and "scene" not in record:
                worker.end()
                team[i] = Worker(context, place, i)
                continue
            if (case := next(todo, None)) is None:
                worker.end()
                del team[i]
            else:
                worker.give(case)


def sources(*tests):
    """Return a hash of all that decides what comes of a case: the library and some files of the tests."""
    hashed = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / f"{name}.py" for name in tests)]):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:12]


def show(records):
    """Print the table."""
    rows = collections.defaultdict(collections.Counter)
    for record in records:
        rows[record["scene"].split(" ")[0] or "unknown"][record["verdict"]] += 1
        rows["all"][record["verdict"]] += 1
    print(f"| command | {' | '.join(VERDICTS)} | cases |\n|---|{'---|' * (len(VERDICTS) + 1)}")
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        print(f"| {name} | {' | '.join(str(rows[name][each]) for each in VERDICTS)} | {rows[name].total()} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int, help="repeat this one")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "fuzz", help="for the results")
    parser.add_argument("--fast", type=Path, default=Path("/dev/shm"), help="a folder in memory, for the cases")
    given = parser.parse_args()
    place = given.fast / f"pcmlp-fuzz-{os.getpid()}"
    place.mkdir()
    os.environ |= {"PCMLP_CACHE": str(place / "cache"), "JAX_PLATFORMS": "cpu"}
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    numbers = range(given.first, given.first + given.cases) if given.case is None else [given.case]
    given.folder.mkdir(parents=True, exist_ok=True)
    log = given.folder / f"{sources(*DECIDE)}.jsonl"
    done = {} if given.case is not None or not log.exists() else read_log(log)
    try:
        with log.open("a") as file:
            for record in judge_all([n for n in numbers if n not in done], place, given.workers):
                done[record["number"]] = record
                if given.case is None:
                    print(json.dumps(record), file=file, flush=True)
                if record["verdict"] in BAD or given.case is not None:
                    print("case {number} | {scene} | {what} | {verdict} | {line}".format(**record), flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    records = [done[n] for n in numbers]
    show(records)
    return 1 if any(record["verdict"] in BAD for record in records) else 0


def read_log(path):
    """The records of an earlier run, by number; the last line may be half-written."""
    found = {}
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["number"]] = record
    return found


if __name__ == "__main__":
    sys.exit(main())
