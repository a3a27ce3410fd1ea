"""A run of an experiment: what it is, how large it is, and the files of it that are kept.

The run goes to `RUNS/EXPERIMENT/TASK/LABEL`, like any other run. Its configuration, metrics and summary are copied to
`RESULTS/EXPERIMENT/TASK/LABEL`, the summary last: if there is a summary, the result is complete. A run that is
finished in either place is not run again, one that was cut off is resumed, and one with other settings is not touched.

A scale changes only sizes: how many seeds and iterations a run has, how large its networks and plans are, which runs
are left out, and the sizes of measurements without runs. The task, the method, the bonus and the control are the
same at every scale.
"""

import fnmatch
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.algorithms.pc_pg import PCPG
from pcmlp.algorithms.random import RandomPlay
from pcmlp.errors import ConfigError
from pcmlp.runs.callbacks import Callback
from pcmlp.runs.checkpoint import ENDED, check_same, check_unchanged, describe_differences, differences
from pcmlp.runs.config import RunConfig, resolve, split_settings, tiny_overrides, to_json
from pcmlp.runs.durable import Damaged, read_bytes, read_json, room_for, write_durably
from pcmlp.runs.keys import unused_reason
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train
from pcmlp.types import Algorithm

KEPT = ("config.json", "metrics.csv", "summary.json")  # in the order in which they are written
SEEDS = tuple(range(10))
PAPER_SEEDS = (1234, 2314, 2345, 1235)
NO_BONUS, NO_COVER = "bonus_scale=0", "covariance=off"  # the two controls


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


def run_job(
    job: Job, runs: Path, results: Path, *, callbacks: Sequence[Callback] = (), shared_device: bool = False
) -> Path:
    """Run a job unless it is finished, keep its result, and return its folder."""
    config = job.config()
    run, result = runs / job.where, results / job.where
    if is_finished(config, result):
        return run if is_finished(config, run) else result
    check_run(config, run)
    if not is_finished(config, run):
        print(f"\n{job.where}: {job.command}", flush=True)
        summary = train(config, run, command=job.command, resume=True, callbacks=callbacks, shared_device=shared_device)
        if summary["status"] not in ENDED:  # asked to stop: nothing is kept, and no other run starts
            raise KeyboardInterrupt
    keep(run, result)
    return run


def keep(run: Path, result: Path) -> None:
    """Copy the kept files of a run. An old summary is removed first, so that it is never beside new metrics."""
    result.mkdir(parents=True, exist_ok=True)
    (result / "summary.json").unlink(missing_ok=True)
    for name in KEPT:
        data = read_bytes(run / name)
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
    try:
        check_unchanged(result)
    except (Damaged, OSError) as error:
        raise ConfigError(f"{result}: half-written or edited ({error}); remove {result} to run it again") from error


def is_finished(config: RunConfig, folder: Path) -> bool:
    """Return whether the folder holds a finished run of exactly this configuration."""
    if not ((folder / "summary.json").exists() and (folder / "config.json").exists()):
        return False
    if _changed(config, folder):
        return False
    try:
        return read_summary(folder).get("status") in ENDED
    except ConfigError as error:
        what = str(error).partition(";")[0]
        raise ConfigError(f"{what}; remove {folder} to run it again") from error


def _changed(config: RunConfig, folder: Path) -> str:
    """Return a description of how the folder's configuration differs; empty if it does not. A run that was evaluated in
    every iteration also has the evaluations of one that is evaluated less often, and has learned the same."""
    old = _read(folder / "config.json")
    if not isinstance(old.get("task"), dict):
        return "its config.json is not that of a run"
    changed = differences(old, json.loads(to_json(config)))
    if "eval_every" not in old:
        changed.pop("eval_every", None)
    return describe_differences(changed)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except Damaged as error:
        raise ConfigError(f"{path}: half-written or edited; remove {path.parent} to run it again") from error


@dataclass(frozen=True)
class Scale:
    """The sizes of all experiments."""

    name: str
    seeds: int | None = None  # number of seeds of a run; None: all
    iterations: Mapping[type[Algorithm], int] = field(default_factory=dict)  # most iterations of a run
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by method, and by "planner NAME"
    tiny: bool = False  # whether all settings have their tiny values
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # experiment -> patterns of its runs; all if none
    most: Mapping[str, int] = field(default_factory=dict)  # sizes of measurements without runs

    @property
    def _suffix(self) -> str:
        return "" if self.name == "full" else f"-{self.name}"

    @property
    def results(self) -> Path:
        """The folder of results."""
        return Path(f"results{self._suffix}")

    @property
    def folder(self) -> Path:
        """The folder of runs."""
        return Path(f"runs/experiments{self._suffix}")

    def size(self, what: str, full: int) -> int:
        """Return the size of a measurement without runs."""
        return min(full, self.most.get(what, full))

    def has(self, job: Job) -> bool:
        """Return whether a run belongs to this scale."""
        patterns = self.runs.get(job.experiment, ("*",))
        return any(fnmatch.fnmatchcase(job.name, pattern) for pattern in patterns)

    def apply(self, job: Job) -> Job:
        """Return the run at this scale."""
        config, given = job.config(), split_settings(job.settings)
        smaller = split_settings(tiny_overrides(config)) if self.tiny else {}
        if isinstance(config.algorithm, Deep):
            smaller |= split_settings(self.settings.get(f"planner {config.part_names()['planner']}", ()))
        smaller |= split_settings(self.settings.get(config.algo, ()))
        used = {
            key: value
            for key, value in smaller.items()
            if unused_reason(config.method, config.task, config.algorithm, key) is None
            and not _is_less(given.get(key), value)
        }
        settings = tuple(f"{key}={value}" for key, value in {**given, **used}.items())
        scaled = replace(job, seeds=job.seeds[: self.seeds], settings=settings)
        most = self.iterations.get(type(config.algorithm), 0)
        steps = int(most * scaled.config().steps_per_iteration) if most else job.steps
        return replace(scaled, steps=min(job.steps, steps))


def _is_less(given: str | None, value: str) -> bool:
    """Return whether a given number is below that of a scale; False if one is not a number."""
    try:
        return given is not None and float(given) < float(value)
    except ValueError:
        return False


_FEW = ("eval_episodes=10",)
_FEW_PLANS = ("planner.num_plans=50", "planner.elites=5", "planner.particles=2", "eval_episodes=2")
_SMALL_MODEL = ("model.sizes=64,64", "model.steps=200")
_SHORT_PLANS = ("planner.num_plans=100", "planner.plan_length=50", "planner.warmup=10", "planner.restarts=2")

FULL = Scale("full")
QUICK = Scale(
    "quick",
    seeds=2,
    iterations={Deep: 3, ModelFree: 5, PCPG: 2},
    settings={
        "planner trpo": ("rounds=2", *_FEW),
        "planner sac": ("planner.updates=50", "rounds=4", *_FEW),
        "pets": (*_FEW_PLANS, *_SMALL_MODEL),
        "pets-gt": _FEW_PLANS,
        "mbpo": _SMALL_MODEL,
        "pcmlp-mppi": (*_SHORT_PLANS, "eval_episodes=2"),
        "lc3": (*_SHORT_PLANS, "eval_episodes=2"),
        "trpo": _FEW,
        "sac": _FEW,
    },
    runs={
        "sparse": ("mountain-car/*", "acrobot/pcmlp", "acrobot/no-bonus", "point-umaze/pcmlp", "point-umaze/no-bonus"),
        "own_tasks": ("cart-pole/*", "pendulum/*", "gym:Pendulum-v1/*", "mountain-car/*"),
        "dense": ("half-cheetah/pcmlp", "half-cheetah/no-bonus", "half-cheetah/covariance-off", "pendulum/pcmlp"),
        "held_out": ("point-umaze/*", "mountain-car/*", "acrobot/*"),
        "as_printed": ("mountain-car/pcmlp", "mountain-car/no-bonus", "mountain-car/cov*", "mountain-car/c-1"),
        "ablation": ("mountain-car/*",),
        "forgetting": ("mountain-car/*",),
        "scale": ("dock/goal-1", "dock/goal-100", "dock/class-100", "mountain-car/*"),
        "costs": ("half-cheetah/*",),
        "environments": ("gym:CartPole-v1/*", "gym:MountainCar-v0/*"),
        "theory": ("combination-lock/*", "low-rank/*", "linear-core/*", "knr-lds/*", "*/gain-preset", "*/own"),
    },
    most={"lemma_samples": 10_000, "lemma_runs": 20, "trials": 20, "plan_rounds": 5, "plan_attempts": 1, "places": 3},
)
SMOKE = Scale(
    "smoke",
    seeds=2,
    iterations={Deep: 2, ModelFree: 2, PCPG: 2, PCMLP: 3, RandomPlay: 2},
    tiny=True,
    # Compiling takes almost all the time: runs that share a program are cheap, so one run of each kind is made.
    runs={
        "combination_lock": ("*/horizon-5", "*/pcmlp-linear", "*/random", "*/covariance-off"),
        "low_rank": ("*/pcmlp-linear", "*/random", "*/covariance-off"),
        "knr": ("knr-lds/exact", "knr-lds/sgd*", "knr-lds/random", "knr-lds/covariance-off"),
        "certificate": ("combination-lock/theorem", "*/preset"),
        "theory": ("*/gain-preset", "*/actions-10", "low-rank/rank-[46]*", "*/oracle-1-*", "*/likelihood", "*/own"),
        "sparse": ("mountain-car/*", "*/pcmlp", "*/no-bonus", "*/covariance-off"),
        "controls": ("*/pcmlp", "*/no-bonus", "*/covariance-off", "point-umaze/*", "mountain-car/*"),
        "own_tasks": ("pendulum/trpo", "gym:Pendulum-v1/sac", "mountain-car/*"),
        "dense": ("half-cheetah/pcmlp", "half-cheetah/no-bonus", "half-cheetah/covariance-off", "pendulum/pcmlp"),
        "held_out": ("point-umaze/*",),
        "as_printed": ("*/pcmlp", "mountain-car/no-bonus", "mountain-car/covariance-off", "mountain-car/pcmlp-mppi"),
        "ablation": ("mountain-car/pcmlp", "mountain-car/no-bonus", "mountain-car/covariance-off"),
        "planners": ("mountain-car/*",),
        "forgetting": ("mountain-car/*",),
        "scale": ("dock/goal-1", "dock/class-1", "deceptive-umaze/*"),
        "costs": ("half-cheetah/*",),
        "environments": ("gym:CartPole-v1/*",),
    },
    most={"lemma_samples": 300, "lemma_runs": 3, "trials": 2, "plan_rounds": 1, "plan_attempts": 1, "places": 2},
)
SCALES = {scale.name: scale for scale in (SMOKE, QUICK, FULL)}
