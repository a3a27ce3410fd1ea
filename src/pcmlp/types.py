"""The records and interfaces that everything else is made of (paper: section 3).

The world and the imagination are both an `MDP`. Parts are records of settings; what they learn is a separate pytree.
"""

import abc
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped

from pcmlp.errors import ConfigError
from pcmlp.maps import Map
from pcmlp.replay import Replay, Transitions
from pcmlp.settings import Part, setting
from pcmlp.spaces import Box, Finite, Space, Vectors
from pcmlp.successes import Groups

State = Shaped[Array, "*state"]  # what the agent observes: an integer in a finite MDP, a vector elsewhere
Action = Shaped[Array, "*action"]
Carry = PyTree  # what a policy remembers within an episode: a clock, a plan
Metrics = dict[str, Float[Array, ""]]
Features = Callable[[State, Action], Float[Array, " d"]]  # phi, with norm at most 1


class MDP(eqx.Module):
    """An episodic MDP as functions of one state; callers `vmap`."""

    initial: Callable  # key -> s
    transition: Callable  # key, s, a -> s'
    reward: Callable  # s, a, s' -> r    paper: r(s, a) / here: of s' as well; r + V is still in [0, H]
    terminal: Callable  # s, a, s' -> bool
    states: Box | Finite
    actions: Space
    horizon: int = eqx.field(static=True)

    @property
    def boxes(self) -> tuple[Box, Vectors]:
        """The spaces of states and actions where both are vectors; a `ConfigError` elsewhere."""
        if isinstance(self.states, Box) and isinstance(self.actions, Vectors):
            return self.states, self.actions
        raise ConfigError("needs states and actions that are vectors; use pcmlp-linear for a finite MDP")


class Policy(eqx.Module):
    """A map from states to actions that may remember something within an episode."""

    searches: ClassVar[bool] = False  # whether each action takes a search, which is work for an accelerator

    def init(self) -> Carry:
        """Return the memory at the start of an episode."""
        return ()

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]:
        """Return the new memory and the action."""

    def deterministic(self) -> "Policy":
        """Return the policy as it is evaluated and deployed: without exploration noise. A search stays random."""
        return self

    def without_bonus(self) -> "Policy":
        """Return the policy to deploy: one that searches must no longer search for a bonus."""
        return self

    def resolve(self) -> "Policy":
        """Return a cheaper policy that acts the same. Asked outside of compiled programs, for all seeds at once."""
        return self


class FittedModel(eqx.Module):
    """A transition that was fitted to data: an element of the class P."""

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State:
        """Draw the next state."""

    def expected(self) -> "FittedModel":
        """Return the most likely model where this one is a draw from several, to exploit rather than to explore."""
        return self

    def complete(self, mdp: MDP) -> MDP:
        """Return the MDP with the reward and terminal functions that this model has learned, if it has."""
        return mdp

    def measure(self, mdp: MDP, rows: Transitions) -> Metrics:
        """Return the errors on rows that the model has not seen, if it measures them; NaN before it is fitted."""
        return {}


class FittedBonus(eqx.Module):
    """A bonus for pairs (s, a) that are new, before it is scaled by c and capped at H."""

    features: eqx.AbstractVar[Features]

    @abc.abstractmethod
    def __call__(self, state: State, action: Action) -> Float[Array, ""]:
        """Return the bonus of one pair."""


class FeatureMap(Part):
    """A way to draw phi, with norm at most 1 over the task's states."""

    @abc.abstractmethod
    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> Features:
        """Return phi, in the units of the spaces or, where those have no bounds, of the first `samples`."""


class Model(Part):
    """A class P of transitions and the way to choose one from data."""

    randomised: ClassVar[bool] = False  # whether a fitted model is a draw; `expected` is then the most likely one
    remembers: ClassVar[bool] = False  # whether training adds to earlier data, so that each row is given once

    def bind(self, problem: "Problem", phi: Features) -> "Model":
        """Return the class with what Algorithm 1 takes from the problem, such as phi and the size of the noise."""
        return self

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], mdp: MDP) -> FittedModel:
        """Return a model that nothing was fitted to."""

    @abc.abstractmethod
    def train(self, key: Key[Array, ""], mdp: MDP, model: FittedModel, replay: Replay) -> tuple[FittedModel, Metrics]:
        """Fit the model to the replay, starting from `model`."""


class Bonus(Part):
    """A way to pay for novelty."""

    pays: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], features: Features, covariance: Float[Array, "d d"]) -> FittedBonus:
        """Return the bonus before there are any data."""

    def update(
        self, key: Key[Array, ""], old: FittedBonus, features: Features, covariance: Float[Array, "d d"], replay: Replay
    ) -> FittedBonus:
        """Return the bonus of an iteration, given the last one, Sigma_n and the data; by default Sigma_n decides it."""
        return self.init(key, features, covariance)


class Planner(Part):
    """The planning oracle OP(Pi, r, P): it sees an `MDP`, real or imagined."""

    searches: ClassVar[bool] = False  # whether its policies search at every step
    reward_size: ClassVar[float] = 100.0  # the largest reward of a step that its constants are tuned to

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], mdp: MDP) -> Policy:
        """Return pi_1, with the structure of what `plan` returns (paper: any / here: uniform play, or replanning)."""

    @abc.abstractmethod
    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[Policy, Metrics]:
        """Return a better policy for the MDP, starting from `policy`."""

    def check_model(self, mdp: MDP, model: Model) -> None:
        """Raise a `ConfigError` if Algorithm 1 cannot plan in this class of models; by default it always can."""
        return

    def renormalise(self, mdp: MDP, policy: Policy, replay: Replay) -> Policy:
        """Return the same policy with its networks in the units of the replay's states; by default there are none."""
        return policy

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""] | None:
        """Return max_pi J(pi; r, P), or an estimate of J(policy; r, P) if `plan` does not find the maximum; or None."""
        return None

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one plan."""
        return 0, 0


class World(eqx.Module):
    """A world to act in. Keys, policies and results have a leading axis of seeds, which a world steps together."""

    mdp: eqx.AbstractVar[MDP]  # what is known about it; its transition is P* where that can be computed

    @abc.abstractmethod
    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Walk streams of H steps, at least `n` steps in all; return the samples to learn from and all steps."""

    @abc.abstractmethod
    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Draw `n` independent samples from d_pi; return them and every step that was walked to reach them."""

    @abc.abstractmethod
    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Float[Array, "seeds n"]:
        """Return the returns of the deterministic policies."""


class Learner(eqx.Module):
    """Everything of an algorithm that changes from one iteration to the next, with a leading axis of seeds."""

    policy: eqx.AbstractVar[Policy]  # the one that collects next
    env_steps: eqx.AbstractVar[Int[Array, "*seeds"]]

    @abc.abstractmethod
    def deployed(self) -> Policy:
        """Return the policy of each seed to evaluate and to save."""


class Problem(eqx.Module):
    """A task that was built: a world, and what Algorithm 1 and the reports are told about it."""

    world: World
    features: Features | None = None  # the phi under which the setting is proved
    model: Model | None = None  # the class P of the setting
    success_return: float | None = None  # an episode with at least this return succeeded
    map: Map | None = None  # the ground, where a task is judged by how much of it was entered
    groups: Groups | None = None  # of episodes, whose success is told apart
    goal_ends: bool = eqx.field(static=True, default=False)  # whether only reaching the goal ends an episode early
    pays_for_moving: bool = eqx.field(static=True, default=False)  # and for nothing else, wherever that leads


class Task(Part):
    """A task as the user chooses it: settings that are built into a `Problem`."""

    kind: ClassVar[str]  # presets are chosen by it: finite, regulator, small, robot or gym
    horizon: int = setting(200, "steps of an episode", least=1, tiny=20)
    reward_scale: float = setting(1.0, "factor of all rewards", least=1e-6, most=1e6)

    @property
    def learns_outcome(self) -> bool:
        """Whether reward or end have to be learned, because the task has no function for them."""
        return False

    @abc.abstractmethod
    def build(self) -> Problem:
        """Return the world of the task, after checking what only it can check."""


class Iteration(NamedTuple):
    """The outcome of one iteration of all seeds."""

    learner: Learner
    metrics: dict[str, Float[Array, " seeds"]]
    samples: Transitions  # the policy's own K samples
    walked: list[Transitions]  # every real step that was taken, in order


class Algorithm(Part):
    """A loop of iterations in a world, for one key per seed."""

    samples_per_policy: eqx.AbstractVar[int]  # real steps of one iteration

    @property
    def draws_episodes(self) -> bool:
        """Whether the samples of a policy are whole episodes."""
        return True

    @property
    def replay_rows(self) -> int | None:
        """The rows of the replay buffer, which has to hold an episode; None where there is no buffer."""
        return None

    @property
    def evaluates_exploring(self) -> bool:
        """Whether a run evaluates the exploring policy beside the deployed one."""
        return False

    def bind(self, problem: Problem) -> "Algorithm":
        """Return the algorithm with what it takes from the problem, or raise a `ConfigError` if it does not fit."""
        return self

    @abc.abstractmethod
    def start(self, keys: Key[Array, " seeds"], mdp: MDP, num_iterations: int) -> Learner:
        """Return the learner before the first iteration."""

    @abc.abstractmethod
    def iterate(self, keys: Key[Array, " seeds"], world: World, learner: Learner, n: int) -> Iteration:
        """Run iteration n, from 1 on, with random numbers from `keys` and `n` only. It may use up `learner`."""

    def steps_per_iteration(self, horizon: int) -> float:
        """Return the env steps of one iteration, the expected number where it varies."""
        return float(-(-self.samples_per_policy // horizon) * horizon)  # whole episodes

    def explored_world(self, problem: Problem) -> World:
        """Return the world to collect in; evaluation is always in the problem's own."""
        return problem.world

    def imagined_steps(self, horizon: int) -> tuple[int, int]:
        """Return the imagined steps of one real action and of one iteration."""
        return 0, 0

    def without_replay(self, learner: Learner) -> Learner:
        """Return what a checkpoint holds: the learner without rows that the log of all steps has anyway."""
        return learner

    def restore_replay(self, learner: Learner, mdp: MDP, walked: Iterable[Transitions]) -> Learner:
        """Return the learner of a checkpoint with its rows, given every step that was walked for it."""
        return learner


def never(state: State, action: Action, next_state: State) -> Bool[Array, ""]:
    """Return False: the terminal function of an MDP that only its horizon ends."""
    return jnp.array(False)
