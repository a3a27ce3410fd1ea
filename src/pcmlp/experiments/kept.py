"""Runs of an experiment, and what is kept of them.

A run goes to `runs/experiments/NAME/TASK/LABEL` as any other; its configuration, metrics and summary are copied to
`results/NAME/TASK/LABEL`, which is committed. A run that is finished there is not run again, one that was cut off goes
on, and one of other settings is not touched.
"""

import argparse
import csv
import json
import shlex
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcmlp.framework import PCMLP
from pcmlp.runs.build import build_framework, build_task
from pcmlp.runs.cache import prepare
from pcmlp.runs.config import RunConfig, resolve, to_json
from pcmlp.runs.resume import check_same
from pcmlp.runs.train import train
from pcmlp.types import ConfigError

KEPT = ("config.json", "metrics.csv", "summary.json")
SEEDS = tuple(range(10))
PAPER_SEEDS = (1234, 2314, 2345, 1235)


@dataclass(frozen=True)
class Asked:
    """A run that an experiment asks for, by a name TASK/LABEL."""

    steps: int
    settings: tuple[str, ...] = ()
    algo: str = "pcmlp"
    seeds: tuple[int, ...] = SEEDS

    def kept(self, places: argparse.Namespace, experiment: str, name: str) -> tuple[Path, dict[str, Any]]:
        task, label = name.split("/")
        return kept_run(
            places,
            experiment,
            task,
            label,
            algo=self.algo,
            steps=self.steps,
            settings=self.settings,
            seeds=self.seeds,
        )


def parser(description: str) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--results", type=Path, default=Path("results"), help="where the kept files go")
    options.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="where the runs go")
    return options


def arguments(description: str) -> argparse.Namespace:
    return parser(description).parse_args()


def run_asked(
    options: argparse.ArgumentParser,
    name: str,
    runs: Collection[str],
    run_one: Callable[[argparse.Namespace, str], dict[str, Any]],
) -> None:
    """The runs that the command line names, or all of them and their table, a row each."""
    options.add_argument("runs_asked", nargs="*", metavar="TASK/RUN", choices=[*runs, []], default=[])
    places = options.parse_args()
    prepare()
    try:
        rows = [run_one(places, run) for run in (places.runs_asked or runs)]
    except ConfigError as error:
        options.error(str(error))
    if places.runs_asked:
        print(*rows, sep="\n")
    else:
        write_table(places.results / name / f"{name}.csv", rows)


def kept_run(
    places: argparse.Namespace,
    experiment: str,
    task: str,
    label: str,
    *,
    algo: str,
    steps: int,
    settings: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
) -> tuple[Path, dict[str, Any]]:
    """The run's folder and its summary."""
    where = Path(experiment) / task.replace(":", "-") / label  # not in every file system's names
    run, results = places.runs / where, places.results / where
    config = resolve(task, algo, seeds, steps, settings)
    if not _finished(run, to_json(config)):
        command = ["pcmlp", "train", task, "--algo", algo, "--seeds", *map(str, seeds), "--steps", str(steps)]
        command += ["--set", *settings] if settings else []
        check_mine(config, run)
        print(f"\n{label}: {shlex.join(command)}", flush=True)
        summary = train(config, run, command=shlex.join(command), resume=True)
        if summary["status"] != "finished":  # asked to stop: nothing is kept of it, and no other run begins
            raise KeyboardInterrupt
    results.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copyfile(run / name, results / name)
    return run, json.loads((run / "summary.json").read_text())


def algorithm_1(config: RunConfig) -> PCMLP:
    return build_framework(config, build_task(config))[1]


def check_mine(config: RunConfig, run: Path) -> None:
    """That the folder holds this run, or none."""
    if not (run / "config.json").exists():
        return
    try:
        check_same(config, run)
    except ConfigError as error:
        raise ConfigError(f"{run}: holds another run; remove it, or give another --runs ({error})") from error


def _finished(run: Path, config: str) -> bool:
    """Whether this very configuration was run to its end."""
    summary = run / "summary.json"
    if not summary.exists() or (run / "config.json").read_text() != config:
        return False
    return json.loads(summary.read_text())["status"] == "finished"


def solved_row(name: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Of a run that has a goal: how many seeds reached it, when, and how they ended."""
    task, label = name.split("/")
    seeds = summary["seeds"]
    solved = sorted(s["env_steps_to_success"] for s in seeds if s["env_steps_to_success"] is not None)
    return {
        "task": task,
        "run": label,
        "env_steps": seeds[0]["env_steps"],
        "solved": f"{len(solved)} of {len(seeds)}",
        "median_steps": int(np.median(solved)) if solved else "",
        "most_steps": solved[-1] if solved else "",
        "final_return": round(float(np.mean([s["final_return"] for s in seeds])), 2),
        "worst_return": round(min(s["final_return"] for s in seeds), 2),
        "final_success": round(float(np.mean([s["final_success"] for s in seeds])), 3),
    }


def slope(rows: Sequence[dict[str, Any]], x: str, y: str) -> float:
    """Of ln y against ln x over the rows of a table."""
    logs = np.log([[float(row[x]), float(row[y])] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """As CSV on disk, and on the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{path}")
    for row in rows:
        print("  " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
