"""How large the experiments are: `full` as they are meant, `quick` for minutes on two cores, `smoke` for whether all of
it runs.

Every size of a scale is here: what it makes of a run, which runs it leaves out, and how much is measured where no run
is. What a run is for (its task, algorithm, bonus, control) is the same at every scale.
"""

import dataclasses
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcmlp.experiments.job import Job
from pcmlp.runs.meaning import meaningless
from pcmlp.runs.options import (
    GROUPS,
    CoverConfig,
    DeepConfig,
    FrameworkConfig,
    FreeConfig,
    RunConfig,
    name_of,
)
from pcmlp.runs.parse import split_settings

_RECORDS = {DeepConfig: "deep", FrameworkConfig: "framework", FreeConfig: "model-free", CoverConfig: "cover"}


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: int | None = None  # of a run, the first ones; none: all
    iterations: Mapping[str, int] = field(default_factory=dict)  # of a run at most, by the kind of its algorithm
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by what a run is made of
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # experiment -> patterns of those it has; or all
    most: Mapping[str, int] = field(default_factory=dict)  # of what is measured besides runs

    @property
    def results(self) -> Path:
        return Path("results" if self.name == "full" else f"results-{self.name}")

    @property
    def folder(self) -> Path:
        """Of the runs."""
        return Path("runs") / ("experiments" if self.name == "full" else f"experiments-{self.name}")

    def size(self, what: str, full: int) -> int:
        """Of what is measured besides runs."""
        return min(full, self.most.get(what, full))

    def has(self, job: Job) -> bool:
        patterns = self.runs.get(job.experiment, ("*",))
        return any(fnmatch.fnmatchcase(job.name, pattern) for pattern in patterns)

    def of(self, job: Job) -> Job:
        """The run at this scale."""
        seeds = job.seeds[: self.seeds]
        if not self.settings and not self.iterations:
            return dataclasses.replace(job, seeds=seeds)
        parts = parts_of(job.config())
        given = split_settings(job.settings)
        for part in parts:
            smaller = split_settings(self.settings.get(part, ()))
            given |= {
                key: value
                for key, value in smaller.items()
                if not meaningless(job.algo, key) and not _is_less(given.get(key), value)
            }
        settings = tuple(f"{key}={value}" for key, value in given.items())
        scaled = dataclasses.replace(job, seeds=seeds, settings=settings)
        most = self.iterations.get(parts[0], 0)
        steps = int(most * scaled.config().steps_per_iteration) if most else job.steps
        return dataclasses.replace(scaled, steps=min(job.steps, steps))


def _is_less(given: str | None, value: str) -> bool:
    """Of numbers; what is none is not compared."""
    try:
        return given is not None and float(given) < float(value)
    except ValueError:
        return False


def parts_of(config: RunConfig) -> list[str]:
    """What sizes are chosen by: the kind of algorithm, then the names of its parts."""
    named = [f"{group} {name_of(names, getattr(config, group))}" for group, names in GROUPS.items()]
    return [_RECORDS[type(config)], *named, f"algo {config.algo}"]


_TINY_NETS = ("planner.policy_sizes=8", "planner.value_sizes=8")
_TINY_PLANS = ("planner.num_plans=8", "planner.plan_length=5", "planner.warmup=1")

_FEW_PLANS = ("planner.num_plans=50", "planner.elites=5", "planner.particles=2")
_SHORT_PLANS = ("planner.num_plans=100", "planner.plan_length=50", "planner.warmup=10", "planner.restarts=2")

FULL = Scale("full")
QUICK = Scale(
    "quick",
    seeds=2,
    iterations={"deep": 3, "model-free": 5, "cover": 2},
    settings={
        "deep": ("eval_episodes=10",),
        "model-free": ("eval_episodes=10",),
        "planner trpo": ("rounds=2",),
        "planner sac": ("planner.updates=50", "rounds=4"),
        "algo pets": (*_FEW_PLANS, "model.sizes=64,64", "model.steps=200", "eval_episodes=2"),
        "algo pets-gt": (*_FEW_PLANS, "eval_episodes=2"),
        "algo mbpo": ("model.sizes=64,64", "model.steps=200"),
        "algo pcmlp-mppi": (*_SHORT_PLANS, "eval_episodes=2"),
        "algo lc3": (*_SHORT_PLANS, "eval_episodes=2"),
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
    iterations={"deep": 2, "model-free": 2, "cover": 2, "framework": 3},
    settings={
        "deep": (
            "task.horizon=20",
            "samples_per_policy=20",
            "rounds=1",
            "replay_size=50",
            "num_starts=16",
            "eval_episodes=2",
        ),
        "model-free": ("task.horizon=20", "samples_per_policy=40", "eval_episodes=2"),
        "cover": ("task.horizon=20", "samples_per_policy=20", "updates=1", "batch_steps=40", "eval_episodes=2"),
        "framework": ("eval_episodes=2",),
        "task combination-lock": ("samples_per_policy=40",),
        "features random-network": ("features.sizes=16,16",),
        "model neural": ("model.sizes=16,16", "model.steps=2", "model.batch=16"),
        "model probabilistic": ("model.sizes=16,16", "model.steps=2", "model.batch=16"),
        "planner trpo": (
            *_TINY_NETS,
            "planner.updates=1",
            "planner.streams=8",
            "planner.length=10",
            "planner.value_batch=20",
        ),
        "planner real-trpo": (*_TINY_NETS, "planner.value_batch=20"),
        "planner sac": ("planner.sizes=8", "planner.updates=2", "planner.streams=16", "planner.batch=16"),
        "planner real-sac": ("planner.sizes=8", "planner.batch=16", "planner.updates_per_step=0.1"),
        "planner cem": (*_TINY_PLANS, "planner.elites=2", "planner.iterations=1", "planner.particles=1"),
        "planner mppi": (*_TINY_PLANS, "planner.restarts=1"),
    },
    # Compiling is all that takes time: runs that share a program are cheap, others stand for their kind.
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
