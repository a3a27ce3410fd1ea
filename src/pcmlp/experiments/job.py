"""A run of an experiment, and the files of it that are kept.

The run goes to `RUNS/EXPERIMENT/TASK/LABEL`, like any other run. Its configuration, metrics and summary are copied to
`RESULTS/EXPERIMENT/TASK/LABEL`, the summary last: if there is a summary, the result is complete. A run that is
finished in either place is not run again, one that was cut off is resumed, and one with other settings is not touched.
"""

import csv
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.runs.config import RunConfig, resolve, to_json
from pcmlp.runs.durable import read_json, room_for, write_durably
from pcmlp.runs.resume import ENDED, check_same, differences
from pcmlp.runs.train import train

KEPT = ("config.json", "metrics.csv", "summary.json")  # in the order in which they are written
SEEDS = tuple(range(10))
PAPER_SEEDS = (1234, 2314, 2345, 1235)
_SHOWN = 4  # most settings that a message names


@dataclass(frozen=True)
class Job:
    """A run of one method on one task, all seeds. Its values are plain, so that it can be sent to a machine."""

    experiment: str
    task: str
    label: str
    algo: str
    steps: int
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        """The name of the run in its experiment, as `--only` takes it."""
        return f"{self.task}/{self.label}"

    @property
    def where(self) -> Path:
        """The path of the run below the folder of all runs, and below that of all results."""
        return Path(self.experiment) / self.task.replace(":", "-") / self.label  # some file systems do not allow colons

    def config(self) -> RunConfig:
        """Return the checked configuration of the run."""
        return resolve(self.task, self.algo, self.seeds, self.steps, self.settings)

    @property
    def command(self) -> str:
        """The command that makes the same run."""
        seeds = map(str, self.seeds)
        words = ["pcmlp", "train", self.task, "--algo", self.algo, "--seeds", *seeds, "--steps", str(self.steps)]
        return shlex.join([*words, *(("--set", *self.settings) if self.settings else ())])


# A function that runs each job that is not finished, and returns when all results are kept. It raises KeyboardInterrupt
# if it is asked to stop, and ConfigError or RunStopped if a job fails; finished results stay.
Engine = Callable[[Sequence[Job], Path, Path], None]  # jobs, runs, results


def run_local(jobs: Sequence[Job], runs: Path, results: Path) -> None:
    """Run the jobs one after another in this process."""
    for job in jobs:
        run_job(job, runs, results)


def run_job(job: Job, runs: Path, results: Path) -> Path:
    """Run a job unless it is finished, keep its result, and return its folder."""
    config = job.config()
    run, result = runs / job.where, results / job.where
    if is_finished(config, result):
        return run if is_finished(config, run) else result
    check_run(config, run)
    if not is_finished(config, run):
        print(f"\n{job.where}: {job.command}", flush=True)
        summary = train(config, run, command=job.command, resume=True)
        if summary["status"] not in ENDED:  # asked to stop: nothing is kept, and no other run starts
            raise KeyboardInterrupt
    keep(run, result)
    return run


def keep(run: Path, result: Path) -> None:
    """Copy the kept files of a run. An old summary is removed first, so that it is never beside new metrics."""
    result.mkdir(parents=True, exist_ok=True)
    (result / "summary.json").unlink(missing_ok=True)
    for name in KEPT:
        data = (run / name).read_bytes()
        with room_for(f"the {name} that is kept", result, len(data)):
            write_durably(result / name, data)


def check_run(config: RunConfig, run: Path) -> None:
    """Raise if the run's folder holds another run."""
    if not (run / "config.json").exists():
        return
    try:
        check_same(config, run)
    except ConfigError as error:
        raise ConfigError(f"{run}: holds another run; remove it, or give another --runs ({error})") from error


def check_result(config: RunConfig, result: Path) -> None:
    """Raise if a kept result belongs to another run or is damaged."""
    if not (result / "config.json").exists():
        return
    if changed := _changed(config, result):
        raise ConfigError(
            f"{result}: holds another run, or one of another version of pcmlp ({changed}); "
            "remove it to run it again, or give another --results"
        )
    if not is_finished(config, result):
        return
    rows = (_read(result / "summary.json")["iterations"] + 1) * len(config.seeds)
    text = (result / "metrics.csv").read_text() if (result / "metrics.csv").exists() else ""
    lines = list(csv.reader(text.splitlines()))
    if not text.endswith("\n") or len(lines) != rows + 1 or any(len(line) != len(lines[0]) for line in lines):
        raise ConfigError(f"{result}/metrics.csv: half-written or edited; remove {result} to run it again")


def is_finished(config: RunConfig, folder: Path) -> bool:
    """Return whether the folder holds a finished run of exactly this configuration."""
    if not ((folder / "summary.json").exists() and (folder / "config.json").exists()):
        return False
    return not _changed(config, folder) and _read(folder / "summary.json").get("status") in ENDED


def _changed(config: RunConfig, folder: Path) -> str:
    """Return a description of how the folder's configuration differs; empty if it does not."""
    old = _read(folder / "config.json")
    if not isinstance(old.get("task"), dict):
        return "its config.json is not that of a run"
    changed = differences(old, json.loads(to_json(config)))
    if len(changed) > _SHOWN:
        return f"{len(changed)} settings differ, such as {', '.join(list(changed)[:_SHOWN])}"
    return ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ValueError as error:
        raise ConfigError(f"{path}: half-written or edited; remove {path.parent} to run it again") from error
