"""The whole configuration of a run as frozen records; what each means to the algorithm is in `framework` and `deep`."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask


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
    action_weight: float = 1.0  # how much an action counts beside a state
    dims: tuple[int, ...] | None = None  # the coordinates of the state that phi looks at; none: all


@dataclass(frozen=True)
class RandomNetworkFeatures:
    sizes: tuple[int, ...] = (500, 500)  # of its hidden layers; phi is the last one
    norm: float = 1.0  # the largest |phi| over the task's states
    action_weight: float = 1.0
    dims: tuple[int, ...] | None = None  # the coordinates of the state that phi looks at; none: all


@dataclass(frozen=True)
class NoFeatures:
    """Of who has no bonus."""


@dataclass(frozen=True)
class NoModel:
    """Of who learns from real steps alone."""


@dataclass(frozen=True)
class TaskModel:
    """The task's own class, as it is: counts, or a finite class with maximum likelihood."""


@dataclass(frozen=True)
class KNRModel:
    method: Literal["exact", "sgd", "sgd-corrected"] = "exact"
    radius: float | None = None  # F; none: the task's own


@dataclass(frozen=True)
class NeuralModel:
    sizes: tuple[int, ...] = (500, 500)
    members: int = 1  # nets that each imagined step takes one of
    steps: int = 100  # C, SGD steps of a round
    batch: int = 128
    unroll: int = 2  # L
    rate: float = 1e-3
    decay: float = 1e-5
    clip: float = 2.0  # of the gradient's norm


@dataclass(frozen=True)
class ProbabilisticModel:
    sizes: tuple[int, ...] = (200, 200, 200, 200)
    members: int = 5
    elites: int | None = None  # those of them that predict, the best; none: all
    steps: int = 1_000  # of a round, for each member
    batch: int = 32
    rate: float = 1e-3
    decay: float = 1e-4  # of the weights


@dataclass(frozen=True)
class WorldModel:
    """The world's own transition: nothing is learned."""


@dataclass(frozen=True)
class ThompsonModel:
    """A regulator of the features, drawn from its posterior."""

    ridge: float = 0.1  # of the regression
    sigma: float | None = None  # of the noise, in units of the differences' spread; none: that of the residuals


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
    truncated: bool = False  # independent noise within two std, the nearer bound being no nearer
    smoothing: float = 0.0  # the share of an update's last mean and variance in its next
    warmup: int = 10  # refinements of the plan that an episode begins with
    restarts: int = 0  # random plans refined beside the last one


@dataclass(frozen=True)
class MPPIOptions:
    num_plans: int = 200
    plan_length: int | None = None
    temperature: float = 0.2
    noise_cov: float = 0.3
    correlation: float = 0.0  # of the noise at consecutive steps
    least_noise: float = 1.0  # of a plan, as a share of the most; below 1 plans differ in how much they have
    particles: int = 1
    warmup: int = 10
    restarts: int = 0


@dataclass(frozen=True)
class TRPOOptions:
    updates: int = 40  # of a round
    streams: int = 80  # imagined side by side
    length: int = 50  # steps of each in an update
    discount: float = 0.99
    trace: float = 0.95  # lambda of the advantages
    kl_bound: float = 0.01
    damping: float = 0.1
    conjugate_steps: int = 10
    policy_sizes: tuple[int, ...] = (32, 32)
    value_sizes: tuple[int, ...] = (64, 64)
    value_rate: float = 3e-3
    value_epochs: int = 5
    value_batch: int = 256
    entropy: float = 0.0  # its weight in the objective


@dataclass(frozen=True)
class SACOptions:
    updates: int = 200  # of a round
    streams: int = 1000  # imagined side by side
    length: int = 5  # steps of each in a round
    batch: int = 256
    discount: float = 0.99
    rate: float = 3e-4
    slowness: float = 0.005  # how much of the critics goes into their slow copies at every step
    entropy: float = -0.5  # what the policy keeps, for each dimension of actions
    sizes: tuple[int, ...] = (256, 256)
    normed: bool = True  # layers of the critics, which keeps their values from growing without bounds


@dataclass(frozen=True)
class RealTRPOOptions:
    """TRPO's update on real steps, with the settings of sb3-contrib, whose KL is a mean over dimensions of actions."""

    discount: float = 0.99
    trace: float = 0.95  # lambda of the advantages
    kl_bound: float = 0.01  # for each dimension of actions
    damping: float = 0.1  # for each dimension of actions
    conjugate_steps: int = 15
    policy_sizes: tuple[int, ...] = (64, 64)
    value_sizes: tuple[int, ...] = (64, 64)
    value_rate: float = 1e-3
    value_epochs: int = 10
    value_batch: int = 128


@dataclass(frozen=True)
class RealSACOptions:
    """SAC's updates on a replay of real steps, with the settings of stable-baselines3."""

    updates_per_step: float = 1.0
    batch: int = 256
    discount: float = 0.99
    rate: float = 3e-4
    slowness: float = 0.005  # how much of the critics goes into their slow copies at every step
    entropy: float = -1.0  # what the policy keeps, for each dimension of actions
    sizes: tuple[int, ...] = (256, 256)
    normed: bool = False  # layers of the critics


@dataclass(frozen=True)
class UniformOptions:
    pass


FEATURES = {
    "none": NoFeatures,
    "task": TaskFeatures,
    "one-hot": OneHotFeatures,
    "polynomial": PolynomialFeatures,
    "fourier": FourierFeatures,
    "random-network": RandomNetworkFeatures,
}
MODELS = {
    "none": NoModel,
    "task": TaskModel,
    "knr": KNRModel,
    "neural": NeuralModel,
    "probabilistic": ProbabilisticModel,
    "thompson": ThompsonModel,
    "world": WorldModel,
}
PLANNERS = {
    "value-iteration": ValueIterationOptions,
    "cem": CEMOptions,
    "mppi": MPPIOptions,
    "trpo": TRPOOptions,
    "sac": SACOptions,
    "real-trpo": RealTRPOOptions,
    "real-sac": RealSACOptions,
    "uniform": UniformOptions,
}
GROUPS: dict[str, dict[str, type]] = {"task": TASKS, "features": FEATURES, "model": MODELS, "planner": PLANNERS}
NO_BONUS = (
    "slbo",
    "lc3",
    "pets",
    "pets-gt",
    "mbpo",
)  # rivals in the loop of Algorithm 2 that plan for the reward alone
ONE_PLAN = ("pets", "pets-gt")  # of those: who explores and who is deployed search in one model for one reward
COMMAND_LINE = ("task", "algo", "seeds", "steps")  # what has a flag of its own


def name_of(names: dict[str, type], options: Any) -> str:
    if isinstance(options, GymnasiumTask):
        return f"{PREFIX}{options.id}"
    return next(name for name, made in names.items() if type(options) is made)


@dataclass(frozen=True)
class RunConfig(abc.ABC):
    """What all algorithms have in common."""

    task: Any  # the task's own options: one of the records in TASKS
    algo: str
    seeds: tuple[int, ...]
    steps: int  # env steps of each seed
    features: Any
    model: Any
    planner: Any
    preset: Literal["ours", "dense", "paper"] = "ours"  # dense: where every step pays
    bonus_scale: float = 1.0  # c
    ridge: float = 1.0  # lambda
    samples_per_policy: int | None = None  # K; none: one episode
    covariance: Literal["on", "off"] = "on"
    eval_episodes: int = 100

    absent: ClassVar[tuple[str, ...]] = ()  # of the fields above: what means nothing to the algorithm

    @property
    def task_name(self) -> str:
        return name_of(TASKS, self.task)

    @property
    @abc.abstractmethod
    def steps_per_iteration(self) -> float: ...

    @property
    def num_iterations(self) -> int:
        return int(self.steps // self.steps_per_iteration)

    def _episodes(self, samples: int | None) -> int:
        """Env steps of whole episodes with at least so many samples."""
        horizon = self.task.horizon
        return -(-(samples or 0) // horizon) * horizon


@dataclass(frozen=True)
class FrameworkConfig(RunConfig):
    """Algorithm 1."""

    draws: Literal["episodes", "iid"] = "episodes"
    fit_samples: int | None = None  # M; none: the samples of every policy so far

    @property
    def steps_per_iteration(self) -> float:
        """A draw from d_pi takes (H + 1) / 2 steps on average, whole episodes are rounded up."""
        drawn = (self.samples_per_policy, self.fit_samples)
        if self.draws == "iid":
            return sum(n or 0 for n in drawn) * (self.task.horizon + 1) / 2
        return float(sum(map(self._episodes, drawn)))


@dataclass(frozen=True)
class DeepConfig(RunConfig):
    """Algorithm 2."""

    rounds: int = 2  # of model and planner updates in an iteration
    fresh: bool = True  # every iteration plans from a new policy, not from the last one
    replay_size: int = 30_000
    num_starts: int = 1024  # states that imagined episodes of an iteration begin at
    replay_starts: float = 0.5  # the share of imagined episodes that begin at a state of the replay
    margin: float = 3.0  # how far imagined states may leave what was seen, in ranges of that
    bounded: bool = True  # whether imagined states have bounds at all
    reward_free: bool = False  # explore with no task reward
    keeps_better: bool = False  # deploy the last iteration's policy where the new one is imagined to be worse
    noise: float = 0.0  # of the actions of real samples, Ornstein-Uhlenbeck, a step's in units of half their range
    rnd_steps: int | None = None  # of distilling a random network in an iteration; none: the bonus is elliptical

    @property
    def steps_per_iteration(self) -> float:
        return float(self._episodes(self.samples_per_policy))


@dataclass(frozen=True)
class FreeConfig(RunConfig):
    """Model-free: no model, no bonus."""

    replay_size: int | None = None  # rows; none where there is no replay
    normalise: bool = True  # states in units of all that was seen

    absent: ClassVar[tuple[str, ...]] = ("bonus_scale", "ridge", "covariance")

    @property
    def steps_per_iteration(self) -> float:
        return float(self._episodes(self.samples_per_policy))


@dataclass(frozen=True)
class CoverConfig(RunConfig):
    """Model-free, with a bonus and a cover of policies (PC-PG)."""

    updates: int = 4  # of the policy in an iteration
    batch_steps: int = 2_000  # walked for each of them, in whole episodes
    fresh: bool = False  # every iteration begins with a new policy, not with the last one
    normalise: bool = True
    reward_free: bool = False  # explore with no task reward

    @property
    def steps_per_iteration(self) -> float:
        return float(self._episodes(self.samples_per_policy) + self.updates * self._episodes(self.batch_steps))


RECORDS: dict[str, type[RunConfig]] = {"trpo": FreeConfig, "sac": FreeConfig, "pc-pg": CoverConfig}  # of an algorithm
