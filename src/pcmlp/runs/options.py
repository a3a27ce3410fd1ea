"""The whole configuration of a run as frozen records; what each of them means to the algorithm is in `framework`."""

from dataclasses import dataclass
from typing import Any, Literal

from pcmlp.tasks import TASKS


@dataclass(frozen=True)
class TaskFeatures:
    """The task's own phi, under which its setting is proved."""


@dataclass(frozen=True)
class OneHotFeatures:
    """A coordinate for each pair of a finite MDP."""


@dataclass(frozen=True)
class PolynomialFeatures:
    degree: int = 2
    scale: float | None = None  # none: one over the square root of the number of monomials


@dataclass(frozen=True)
class FourierFeatures:
    dim: int = 100
    bandwidth: float | None = None  # none: the median heuristic


@dataclass(frozen=True)
class ModelOptions:
    """Of a KNR; finite models have none."""

    method: Literal["exact", "sgd", "sgd-corrected"] = "exact"
    radius: float | None = None  # F; none: the task's own


@dataclass(frozen=True)
class ValueIterationOptions:
    pass


@dataclass(frozen=True)
class CEMOptions:
    num_plans: int = 200
    plan_length: int | None = None  # none: the horizon
    iterations: int = 4
    elites: int = 20
    noise_std: float = 1.0  # in units of half the action range
    correlation: float = 0.8  # of the noise at consecutive steps
    particles: int = 1
    warmup: int = 10  # refinements of the plan that an episode begins with


@dataclass(frozen=True)
class MPPIOptions:
    num_plans: int = 200
    plan_length: int | None = None
    temperature: float = 0.2
    noise_cov: float = 0.3
    particles: int = 1
    warmup: int = 10


@dataclass(frozen=True)
class UniformOptions:
    pass


FEATURES = {
    "task": TaskFeatures,
    "one-hot": OneHotFeatures,
    "polynomial": PolynomialFeatures,
    "fourier": FourierFeatures,
}
PLANNERS = {
    "value-iteration": ValueIterationOptions,
    "cem": CEMOptions,
    "mppi": MPPIOptions,
    "uniform": UniformOptions,
}
GROUPS: dict[str, dict[str, type]] = {"task": TASKS, "features": FEATURES, "planner": PLANNERS}
COMMAND_LINE = ("task", "algo", "seeds", "steps")  # what has a flag of its own


def name_of(names: dict[str, type], options: Any) -> str:
    return next(name for name, made in names.items() if type(options) is made)


@dataclass(frozen=True)
class RunConfig:
    task: Any  # the task's own options: one of the records in TASKS
    algo: str
    seeds: tuple[int, ...]
    steps: int  # env steps of each seed
    features: Any
    model: ModelOptions
    planner: Any
    bonus_scale: float = 1.0  # c
    ridge: float = 1.0  # lambda
    samples_per_policy: int | None = None  # K; none: one episode
    draws: Literal["episodes", "iid"] = "episodes"
    fit_samples: int | None = None  # M; none: the samples of every policy so far
    covariance: Literal["on", "off"] = "on"
    eval_episodes: int = 100

    @property
    def task_name(self) -> str:
        return name_of(TASKS, self.task)

    @property
    def steps_per_iteration(self) -> float:
        """A draw from d_pi takes (H + 1) / 2 steps on average, whole episodes are rounded up."""
        assert self.samples_per_policy is not None
        drawn = (self.samples_per_policy, self.fit_samples or 0)
        horizon = self.task.horizon
        if self.draws == "iid":
            return sum(drawn) * (horizon + 1) / 2
        return float(sum(-(-n // horizon) * horizon for n in drawn))

    @property
    def num_iterations(self) -> int:
        return int(self.steps // self.steps_per_iteration)
