"""A run that an experiment asks for, and what is kept of it.

It goes to `RUNS/EXPERIMENT/TASK/LABEL` as any other run; its configuration, metrics and summary are copied to
`RESULTS/EXPERIMENT/TASK/LABEL`, the summary last: where that is, the result is whole. A run that is finished in either
place is not run again, one that was cut off goes on, and one of other settings is not touched.
"""

import csv
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmlp.runs import checkpoint
from pcmlp.runs.config import RunConfig, resolve, to_json
from pcmlp.runs.durable import room_for, write_durably
from pcmlp.runs.resume import ENDED, check_same, differences
from pcmlp.runs.train import train
from pcmlp.types import ConfigError

KEPT = ("config.json", "metrics.csv", "summary.json")  # in the order in which they are written
SEEDS = tuple(range(10))
PAPER_SEEDS = (1234, 2314, 2345, 1235)
CLIPPED_PLANS = ("planner.truncated=false", "planner.smoothing=0")  # of PETS, in runs from before it had these
_SHOWN = 4  # settings that differ, named
_BEFORE = {  # what the first results that are kept had and did not say; a model is told by its settings
    "preset": "ours",
    "num_starts": 1024,
    "keeps_better": False,
    "model.members": 1,
    "model.method": "exact",
    "planner.restarts": 0,
}


@dataclass(frozen=True)
class Job:
    """One algorithm on one task, all seeds. Plain values only, so that it can be sent to another machine."""

    experiment: str
    task: str
    label: str
    algo: str
    steps: int
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        return f"{self.task}/{self.label}"

    @property
    def where(self) -> Path:
        """Below the folder of all runs, and below that of all results."""
        return Path(self.experiment) / self.task.replace(":", "-") / self.label  # not in every file system's names

    def config(self) -> RunConfig:
        return resolve(self.task, self.algo, self.seeds, self.steps, self.settings)

    @property
    def command(self) -> str:
        seeds = map(str, self.seeds)
        words = ["pcmlp", "train", self.task, "--algo", self.algo, "--seeds", *seeds, "--steps", str(self.steps)]
        return shlex.join([*words, *(("--set", *self.settings) if self.settings else ())])


def run_job(job: Job, runs: Path, results: Path) -> Path:
    """Runs it unless it is finished, keeps what is kept of it, and returns the folder that has it."""
    config = job.config()
    run, result = runs / job.where, results / job.where
    if is_finished(config, result):
        return run if is_finished(config, run) else result
    check_mine(config, run)
    if not is_finished(config, run):
        print(f"\n{job.where}: {job.command}", flush=True)
        summary = train(config, run, command=job.command, resume=True)
        if summary["status"] not in ENDED:  # asked to stop: nothing is kept of it, and no other run begins
            raise KeyboardInterrupt
    keep(run, result)
    return run


def keep(run: Path, result: Path) -> None:
    """Each file whole; of a run that was cut off before, no summary stays beside the metrics of this one."""
    result.mkdir(parents=True, exist_ok=True)
    (result / "summary.json").unlink(missing_ok=True)
    for name in KEPT:
        data = (run / name).read_bytes()
        with room_for(f"the {name} that is kept", result, len(data)):
            write_durably(result / name, data)


def check_mine(config: RunConfig, run: Path) -> None:
    """That the run's folder holds this run, or none."""
    if not (run / "config.json").exists():
        return
    try:
        check_same(config, run)
    except ConfigError as error:
        raise ConfigError(f"{run}: holds another run; remove it, or give another --runs ({error})") from error


def check_result(config: RunConfig, result: Path) -> None:
    """That what is kept is of this run, if anything is, and whole."""
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
    """Whether this very configuration was run to its end."""
    if not ((folder / "summary.json").exists() and (folder / "config.json").exists()):
        return False
    return not _changed(config, folder) and _read(folder / "summary.json").get("status") in ENDED


def _changed(config: RunConfig, folder: Path) -> str:
    """How the folder's configuration differs from this one, in words; settings that came later and are off do not."""
    old, new = _read(folder / "config.json"), json.loads(to_json(config))
    try:
        changed = differences(_of_before(checkpoint.of_old(old)), _of_before(checkpoint.of_old(new)))
    except (KeyError, TypeError, AttributeError):
        return "its config.json is none of a run"
    if len(changed) > _SHOWN:
        return f"{len(changed)} settings differ, such as {', '.join(list(changed)[:_SHOWN])}"
    return ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())


def _of_before(record: dict[str, Any]) -> dict[str, Any]:
    """Without what the first results that are kept did not say yet, where it is what they had."""
    unread = () if record.get("bounded", True) else ("margin",)  # nothing is bounded by it
    kept = {key: value for key, value in record.items() if _BEFORE.get(key) != value and key not in unread}
    for group in ("model", "planner"):
        inside = record[group].items()
        kept[group] = {key: value for key, value in inside if _BEFORE.get(f"{group}.{key}") != value}
    kept["model"].pop("name", None)
    return kept


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        if not isinstance(record, dict):
            raise ValueError("not an object")
        return record
    except ValueError as error:
        raise ConfigError(f"{path}: half-written or edited; remove {path.parent} to run it again") from error
