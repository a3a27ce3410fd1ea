"""The size of experiments: `full` as reported, `quick` for minutes on two cores, `smoke` to see that everything runs.

A scale changes only sizes: how many seeds and iterations a run has, how large its networks and plans are, which runs
are left out, and the sizes of measurements without runs. The task, the method, the bonus and the control are the
same at every scale.
"""

import dataclasses
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.algorithms.pc_pg import PCPG
from pcmlp.algorithms.random import RandomPlay
from pcmlp.experiments.job import Job
from pcmlp.runs.config import RunConfig, split_settings, tiny_overrides
from pcmlp.runs.keys import unused_reason
from pcmlp.types import Algorithm


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
    def results(self) -> Path:
        """The folder of results."""
        return Path("results" if self.name == "full" else f"results-{self.name}")

    @property
    def folder(self) -> Path:
        """The folder of runs."""
        return Path("runs") / ("experiments" if self.name == "full" else f"experiments-{self.name}")

    def size(self, what: str, full: int) -> int:
        """Return the size of a measurement without runs."""
        return min(full, self.most.get(what, full))

    def has(self, job: Job) -> bool:
        """Return whether a run belongs to this scale."""
        patterns = self.runs.get(job.experiment, ("*",))
        return any(fnmatch.fnmatchcase(job.name, pattern) for pattern in patterns)

    def apply(self, job: Job) -> Job:
        """Return the run at this scale."""
        seeds = job.seeds[: self.seeds]
        config, given = job.config(), split_settings(job.settings)
        smaller = {
            key: value
            for key, value in split_settings(self.settings_for(config)).items()
            if unused_reason(config.method, config.task, config.algorithm, key) is None
            and not _is_less(given.get(key), value)
        }
        settings = tuple(f"{key}={value}" for key, value in {**given, **smaller}.items())
        scaled = dataclasses.replace(job, seeds=seeds, settings=settings)
        most = self.iterations.get(type(config.algorithm), 0)
        steps = int(most * scaled.config().steps_per_iteration) if most else job.steps
        return dataclasses.replace(scaled, steps=min(job.steps, steps))

    def settings_for(self, config: RunConfig) -> tuple[str, ...]:
        """Return the settings that make a run smaller."""
        tiny = tiny_overrides(config) if self.tiny else []
        planner = config.part_names().get("planner", "")
        few = self.settings.get(f"planner {planner}", ()) if isinstance(config.algorithm, Deep) else ()
        merged = split_settings(tiny) | split_settings(few) | split_settings(self.settings.get(config.algo, ()))
        return tuple(f"{key}={value}" for key, value in merged.items())


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
        "ablation": ("mountain-car/*",),
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
        "sparse": ("mountain-car/*", "*/pcmlp", "*/no-bonus", "*/covariance-off"),
        "controls": ("*/pcmlp", "*/no-bonus", "*/covariance-off", "point-umaze/*", "mountain-car/*"),
        "own_tasks": ("pendulum/trpo", "gym:Pendulum-v1/sac", "mountain-car/*"),
        "dense": ("half-cheetah/pcmlp", "half-cheetah/no-bonus", "half-cheetah/covariance-off", "pendulum/pcmlp"),
        "held_out": ("point-umaze/*",),
        "ablation": ("mountain-car/*", "walker2d-et/c-0.1", "walker2d-et/covariance-off"),
        "planners": ("mountain-car/*",),
    },
    most={"lemma_samples": 300, "lemma_runs": 3, "trials": 2, "plan_rounds": 1, "plan_attempts": 1, "places": 2},
)
SCALES = {scale.name: scale for scale in (SMOKE, QUICK, FULL)}
