"""The records everything else is made of (paper: section 3).

The world and the imagination are the same type, `MDP`: the imagined one has the learned model as its transition and
reward + bonus as its reward, so a planner never knows which of the two it was given.
"""

import abc
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped

if TYPE_CHECKING:  # the tasks are made of what is here
    from pcmlp.tasks.maps import Map

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
    horizon: int = eqx.field(static=True)


class Transitions(eqx.Module):
    """Samples (s, a, r, s') with a leading axis; rows that are not `valid` are padding."""

    state: Shaped[Array, "n *state"]
    action: Shaped[Array, "n *action"]
    reward: Float[Array, " n"]
    next_state: Shaped[Array, "n *state"]
    terminal: Bool[Array, " n"]  # the MDP ended here
    last: Bool[Array, " n"]  # the episode ended here, by the MDP or by its horizon
    valid: Bool[Array, " n"]


class AbstractPolicy(eqx.Module):
    """A map from states to actions that may remember something within an episode."""

    searches: ClassVar[bool] = False  # whether an action takes a plan, which is work for an accelerator

    @abc.abstractmethod
    def init(self) -> Carry: ...

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], carry: Carry, state: State) -> tuple[Carry, Action]: ...

    @abc.abstractmethod
    def deterministic(self) -> "AbstractPolicy":
        """The same policy without its exploration noise: what is evaluated and deployed."""


class AbstractModel(eqx.Module):
    """A transition that can be learned: an element of the class P, and the way to choose another one from data."""

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], state: State, action: Action) -> State: ...

    @abc.abstractmethod
    def fit(self, key: Key[Array, ""], data: Transitions) -> "tuple[AbstractModel, Metrics]": ...


class AbstractPlanner(eqx.Module):
    """The planning oracle OP(Pi, r, P): all a planner sees is an `MDP`, real or imagined."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], mdp: MDP) -> AbstractPolicy:
        """pi_1: the policy before any planning, of the same structure as those that `plan` returns.

        paper: any / here: uniform play in a finite MDP, for shooting planners replanning in the untrained model.
        """

    @abc.abstractmethod
    def plan(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> tuple[AbstractPolicy, Metrics]: ...

    @abc.abstractmethod
    def promise(self, key: Key[Array, ""], mdp: MDP, policy: AbstractPolicy) -> Float[Array, ""] | None:
        """max_pi J(pi; r, P), as well as it is known once `policy` was planned in the MDP: exact where planning is,
        else an estimate of J(policy; r, P), which is at most that; none where nothing is planned."""


class AbstractWorld(eqx.Module):
    """What can be acted in. Keys, policies and results carry a leading axis of seeds, which a world steps together."""

    mdp: eqx.AbstractVar[MDP]  # what is known of it; its transition is P* where the dynamics are JAX
    states: eqx.AbstractVar["Space"]
    actions: eqx.AbstractVar["Space"]

    @abc.abstractmethod
    def collect(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        """Streams of H steps, at least `n` in all, to learn from; and again, as what was walked for it."""

    @abc.abstractmethod
    def draw(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        """`n` independent draws from d_pi to learn from; and every step that was walked to reach them."""

    @abc.abstractmethod
    def evaluate(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, episodes: int) -> Float[Array, "seeds n"]:
        """Returns of the deterministic policies."""


class AbstractLearner(eqx.Module):
    """Everything of an algorithm that changes from one iteration to the next, with a leading axis of seeds."""

    policy: eqx.AbstractVar[AbstractPolicy]  # the one that collects next
    env_steps: eqx.AbstractVar[Int[Array, "*seeds"]]

    @abc.abstractmethod
    def deployed(self) -> AbstractPolicy:
        """The policy to use, for each seed: what is evaluated and saved."""


class Iteration(NamedTuple):
    """What one iteration of all seeds gave."""

    learner: AbstractLearner
    metrics: dict[str, Float[Array, " seeds"]]
    samples: Transitions  # what the policy's own K samples were
    walked: list[Transitions]  # every real step that was taken, in order


class AbstractAlgorithm(eqx.Module):
    """A loop of iterations over a world, for one key per seed."""

    world: eqx.AbstractVar[AbstractWorld]
    num_iterations: eqx.AbstractVar[int]
    judges_exploring: ClassVar[bool] = False  # whether a run evaluates `policy` as well as `deployed()`

    @abc.abstractmethod
    def start(self, keys: Key[Array, " seeds"]) -> AbstractLearner: ...

    @abc.abstractmethod
    def iterate(self, keys: Key[Array, " seeds"], learner: AbstractLearner, n: int) -> Iteration:
        """Iteration n, from 1 on. All its randomness comes from `keys` and `n`, so that a run can be resumed."""

    @abc.abstractmethod
    def lightened(self, learner: AbstractLearner) -> AbstractLearner:
        """The learner without what a log of all that was walked has anyway: what a checkpoint holds."""

    @abc.abstractmethod
    def refilled(self, learner: AbstractLearner, walked: Iterable[Transitions]) -> AbstractLearner:
        """A lightened learner, whole again from all that was walked for it."""


@runtime_checkable
class DrawsAhead(Protocol):
    """A policy whose random numbers do not depend on what it meets: they can be drawn for many steps at once."""

    def acting(self) -> "AbstractPolicy":
        """Itself without what only learning needs."""
        ...

    def drawn(self, key: Key[Array, ""]) -> PyTree: ...

    def act(self, drawn: PyTree, carry: Carry, state: State) -> tuple[Carry, Action]:
        """`policy(key, carry, state)` with what is drawn by the key."""
        ...


@runtime_checkable
class FiniteTransition(Protocol):
    """A transition between finitely many states: what exact planning needs to know of it."""

    def probabilities(self) -> Float[Array, "S A S"]: ...


@runtime_checkable
class MeanTransition(Protocol):
    """A transition with zero-mean noise around a known function."""

    def mean(self, state: State, action: Action) -> State: ...


@runtime_checkable
class EnsembleTransition(Protocol):
    """Several transitions, of which every call draws one and a rollout may stay with one."""

    @property
    def size(self) -> int: ...

    def member(self, index: Int[Array, ""] | int) -> Callable: ...


class Finite(eqx.Module):
    """The integers 0 ... size - 1."""

    size: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return jr.randint(key, (), 0, self.size)


class Box(eqx.Module):
    """Vectors between two bounds."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]

    @staticmethod
    def of(bound: float, size: int) -> "Box":
        return Box(jnp.full(size, -bound, jnp.float32), jnp.full(size, bound, jnp.float32))

    @property
    def size(self) -> int:
        return self.low.shape[-1]

    @property
    def middle(self) -> Float[Array, " n"]:
        return 0.5 * (self.low + self.high)

    def bounded(self) -> bool:
        """Whether all ranges are finite, which between the two largest numbers they are not; to be asked before
        anything is traced."""
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.asarray(self.high) - np.asarray(self.low)).all())

    def sample(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        return jr.uniform(key, self.low.shape, minval=self.low, maxval=self.high)

    def clip(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.clip(x, self.low, self.high)

    def at(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The vector that is as far from the middle as u in [-1, 1] is from 0."""
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return middle + half * u

    def where(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """The u with `at(u)` = x."""
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return (x - middle) / half


Space = Finite | Box


class Task(eqx.Module):
    """A world and what Algorithm 1 is given about it; deep algorithms bring their own features and model."""

    world: AbstractWorld
    features: Features | None = None  # the phi under which the setting is proved
    model: AbstractModel | None = None  # the class P, as an element that nothing was fitted to
    success_return: float | None = None  # an episode with at least this return succeeded
    map: "Map | None" = None  # the ground it is on, where it is judged by how much of that was entered
    goal_ends: bool = eqx.field(static=True, default=False)  # whether all that ends an episode early is its goal
    for_moving: bool = eqx.field(static=True, default=False)  # whether it pays for moving alone, wherever that leads


class ConfigError(ValueError):
    """Bad input: one line that names what is wrong and what to do; the command line exits with code 2."""


class RunStopped(RuntimeError):
    """A run that cannot go on, by no fault of its input: one line that says why and what to do. Its last checkpoint is
    whole; the command line exits with code 1."""


class EnvironmentFault(RunStopped):
    """An environment misbehaved too often: one line that names it, what went wrong last and how often, and what to do.
    No data of a spoilt episode was given to anyone."""


def never(state: State, action: Action, next_state: State) -> Bool[Array, ""]:
    """The terminal function of an MDP that only its horizon ends."""
    return jnp.array(False)


def unknown(state: State, action: Action, next_state: State) -> Array:
    """The reward or terminal function of a world that pays or ends by rules of its own, known by samples alone."""
    raise ConfigError(
        "reward or terminal: unknown in this world, so only a model that learns it can be planned in; give a function"
    )
