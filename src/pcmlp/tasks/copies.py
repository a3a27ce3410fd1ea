"""Copies of one Gymnasium environment, made as they are needed and stepped together, whatever they do.

An episode with a fault in it is spoilt: `step` says so, and the copy is made anew when its lane begins the next one.
Faults are counted, and too many of them end it with an `EnvironmentFault`.
"""

import pickle
import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pcmlp.tasks.checks import Samples, alike, check_environment, first_line, import_gymnasium, trial
from pcmlp.tasks.faults import Faults, Sight, too_many
from pcmlp.tasks.steppers import Steppers, most_workers
from pcmlp.types import ConfigError
from pcmlp.workers import DIED, LOST, SHARED, Answer, Copies, Workers

_MOST = 128  # copies at a time: a simulator of a robot takes some megabytes
_SAMPLES = 32  # steps of random play
_IN_A_ROW = 5  # faults of a lane, with no good episode between: it has then been made anew four times
_NOBODY = Answer(fault=LOST)
_GUARD = "a script that uses workers has to call this under if __name__ == '__main__':"


class Stepped(NamedTuple):
    """What a step of some lanes led to."""

    state: np.ndarray
    reward: np.ndarray  # the environment's own
    terminated: np.ndarray
    truncated: np.ndarray
    spoilt: np.ndarray  # whether their episode is


class Environments:
    """A lane is a copy. Compared by identity, so that it can be a static part of a compiled program's input."""

    def __init__(
        self,
        first: Any,
        make: Callable[[], Any] | str,
        steppers: Steppers,
        notes: list[str],
        max_faults: int,
    ):
        """`make` gives another one, or says why there is none."""
        self.first = first
        self.limit = 1 if isinstance(make, str) else _MOST
        self.faults = Faults()
        self.notes = notes  # what to know of a run in them
        self.steppers = steppers
        self._make = make
        self._max_faults = max_faults
        self._sight = Sight(first.observation_space)
        self._actions = first.action_space.dtype, first.action_space.low, first.action_space.high
        self._begun: set[int] = set()  # lanes that ever had a copy
        self._steps = np.zeros(0, int)  # of each lane's episode
        self._in_a_row: Counter[int] = Counter()
        self._seeds: dict[int, tuple[int, int]] = {}  # a lane's last seed, and how many were made of it since

    @staticmethod
    def of(
        make: Any, seeds: int, workers: int | None = 0, timeout: float = 60.0, max_faults: int = 100
    ) -> "Environments":
        """Of a function that makes one, or of one, where it has a spec that makes others like it; checked."""
        _check_numbers(workers, timeout, max_faults)
        gymnasium = import_gymnasium()
        given = isinstance(make, gymnasium.Env) or not callable(make)
        first = make if given else _made(make)
        notes = check_environment(first)
        maker = _copier(first, repeats=not notes) if given else make
        if workers:
            copies = Workers(_pickled(first, maker, workers), workers, timeout)
        else:
            copies = Copies(maker if callable(maker) else lambda: first, first, keep=given)
        steppers = Steppers(copies, _others(first, maker, timeout) if workers is None else None)
        environments = Environments(first, maker, steppers, notes, max_faults)
        environments.ready(seeds)
        return environments

    def ready(self, count: int) -> None:
        """At least `count` copies: what cannot be made at all is bad input, and no fault."""
        self._allow(count)
        missing = [lane for lane in range(count) if lane not in self.steppers.whole]
        for answer in self._renew(missing):
            if answer.fault:
                remedy = f"; {_GUARD}" if answer.fault == DIED else ""
                raise ConfigError(f"environment {self.first}: another one cannot be made: {answer.said}{remedy}")
        self._begun.update(range(count))

    def _allow(self, count: int) -> None:
        self._steps = np.pad(self._steps, (0, max(0, count - self._steps.size)))
        if count > 1 and isinstance(self._make, str):
            raise ConfigError(
                f"environment {self.first}: {count} seeds need as many copies of it, and {self._make}; "
                "give a function that makes it, such as lambda: gymnasium.make(ID)"
            )

    def reset(self, lanes: np.ndarray, seeds: np.ndarray | None = None, *, fixed: bool = False) -> np.ndarray:
        """The first observations of those `lanes`, [seeds, width, ...]; zero elsewhere. Without a seed, the
        environment's own random numbers go on. What fails is made anew and reset with another seed, or with the same
        one where it is `fixed`."""
        self._allow(lanes.size)
        if seeds is not None and self.steppers.change():  # at the start of a walk the copies may be others
            self._begun = set()
        states = np.zeros((lanes.size, *self._sight.shape), np.float32)
        waiting: dict[int, int | None] = {}
        for lane in map(int, np.flatnonzero(lanes)):
            if self._walked(lane) and lane in self.steppers.whole:
                del self._in_a_row[lane]  # it got through an episode
            if seeds is not None:
                self._seeds[lane] = int(seeds.flat[lane]), 0
                waiting[lane] = int(seeds.flat[lane])
            else:  # a new copy would have random numbers of nobody's choice
                waiting[lane] = None if lane in self.steppers.whole else self._another(lane)
        while waiting:
            for lane, (answer, seen) in self._begin(waiting).items():
                if not answer.fault:
                    states[lane] = seen
                    del waiting[lane]
                    continue
                self._reject(lane, answer)
                if not fixed:
                    waiting[lane] = self._another(lane)
        return states.reshape(*lanes.shape, -1)

    def step(self, actions: np.ndarray, lanes: np.ndarray) -> "Stepped":
        """Of those `lanes`; zero elsewhere."""
        kind, low, high = self._actions
        # In the space's own precision: a bound rounded to 32 bits may lie outside of it. Not by `clip`, which takes
        # longer for so few numbers.
        actions = np.minimum(np.maximum(actions.astype(kind), low), high).reshape(lanes.size, -1)
        states = np.zeros((lanes.size, *self._sight.shape), np.float32)
        reward = np.zeros(lanes.size, np.float32)
        terminated, truncated, spoilt = np.zeros((3, lanes.size), bool)
        chosen, whole = np.flatnonzero(lanes).tolist(), self.steppers.whole
        there = [lane for lane in chosen if lane in whole]
        index = slice(None) if len(there) == lanes.size else there  # a slice of all takes less time than a list
        rows = self._sight.judged("step", self.steppers.step(there, actions[index]))
        faults = {there[i]: answer for i, answer in rows.faults.items()}
        faults |= dict.fromkeys(set(chosen).difference(there), _NOBODY)
        states[index], reward[index] = rows.observation, rows.reward
        terminated[index], truncated[index] = rows.terminated, rows.truncated
        self._steps[: lanes.size][index] += 1
        for lane, answer in sorted(faults.items()):
            spoilt[lane] = True
            self._steps[lane] -= lane in there and answer.fault == LOST  # it was not taken
            for of_lane in (states, reward, terminated, truncated):
                of_lane[lane] = 0
            self._reject(lane, answer)
        rest = (x.reshape(lanes.shape) for x in (reward, terminated, truncated, spoilt))
        return Stepped(states.reshape(*lanes.shape, -1), *rest)

    def sample(self) -> Samples:
        """Real transitions by random actions."""
        rng, space, lane = np.random.default_rng(0), self.first.action_space, np.ones((1, 1), bool)
        rows, state = [], self.reset(lane, np.zeros((1, 1), int))
        while len(rows) < _SAMPLES:
            action = rng.uniform(space.low, space.high)[None, None].astype(np.float32)
            step = self.step(action, lane)
            if not step.spoilt.any():
                rows.append((state[0, 0], action[0, 0], step.state[0, 0]))
            over = step.terminated | step.truncated | step.spoilt
            state = self.reset(lane) if over.any() else step.state
        states, actions, next_states = (jnp.asarray(np.stack(x)) for x in zip(*rows, strict=True))
        return states, actions, next_states

    def starts(self, count: int) -> np.ndarray:
        """Observations at resets, which are no steps."""
        lane = np.ones((1, 1), bool)
        return np.stack([self.reset(lane, np.full((1, 1), seed))[0, 0] for seed in range(count)])

    def close(self) -> None:
        """Ends workers and closes copies, but for an environment that was handed in; a later walk makes new ones."""
        self.steppers.close()

    def _renew(self, lanes: list[int]) -> list[Answer]:
        answers = self.steppers.make(lanes)
        for answer in answers:
            if answer.fault == SHARED:
                raise ConfigError(f"environment {self.first}: {answer.said}; let it make a new one at each call")
        return answers

    def _walked(self, lane: int) -> int:
        """The steps of a lane's episode, which is over."""
        steps, self._steps[lane] = int(self._steps[lane]), 0
        return steps

    def _begin(self, waiting: dict[int, int | None]) -> dict[int, tuple[Answer, Any]]:
        """What resetting gave and what is seen then, after making what there is none of."""
        absent = [lane for lane in waiting if lane not in self.steppers.whole]
        made = dict(zip(absent, self._renew(absent), strict=True))
        self.faults.restarts += sum(not answer.fault and lane in self._begun for lane, answer in made.items())
        self._begun.update(lane for lane, answer in made.items() if not answer.fault)
        # A worker that died while it made one has taken with it those it made before.
        there = [lane for lane in waiting if lane in self.steppers.whole]
        rows = self._sight.judged("reset", self.steppers.reset(there, [waiting[lane] for lane in there]))
        begun = {lane: (rows.faults.get(i, Answer()), rows.observation[i]) for i, lane in enumerate(there)}
        for lane in waiting:
            if lane not in begun:
                begun[lane] = made[lane] if lane in made and made[lane].fault else _NOBODY, None
        return begun

    def _reject(self, lane: int, answer: Answer) -> None:
        """Counts a fault and the episode it spoils, and says when it is enough."""
        steps = self._walked(lane)
        self.faults.rejected += steps
        self.steppers.forget(lane)
        if answer.fault == LOST:
            return
        self.faults.add(answer.fault, answer.said + (f", at step {steps} of an episode" if steps else ""))
        self._in_a_row[lane] += 1
        if self._in_a_row[lane] >= _IN_A_ROW:
            why = f"failed {_IN_A_ROW} times in a row, begun anew each time"
            raise too_many(self.first, self.faults, answer.fault, why)
        if self.faults.total > self._max_faults:
            why = f"failed {self.faults.total} times, with max_faults={self._max_faults}"
            raise too_many(self.first, self.faults, answer.fault, why, ", or give a larger max_faults")

    def _another(self, lane: int) -> int:
        """A seed for a lane that has used its own."""
        seed, count = self._seeds.get(lane, (0, 0))
        self._seeds[lane] = seed, count + 1
        return another_seed(seed, count + 1)


def another_seed(*numbers: int) -> int:
    return int(np.random.default_rng(numbers).integers(2**31))


def _made(make: Callable[[], Any]) -> Any:
    gymnasium = import_gymnasium()
    try:
        with warnings.catch_warnings(action="ignore"):  # such as that there is a newer version of it
            return make()
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment: cannot be made: {first_line(error)}") from error
    except Exception as error:  # of the environment
        raise ConfigError(f"environment: cannot be made: {type(error).__name__}: {first_line(error)}") from error


def _others(first: Any, make: Callable[[], Any] | str, timeout: float) -> Callable[[], Workers] | None:
    """Processes for all cores, where there are some and what makes the environment can be sent to them."""
    count = most_workers()
    try:
        factory = _pickled(first, make, count)
    except ConfigError:
        return None
    return partial(Workers, factory, count, timeout) if count > 1 else None


def _check_numbers(workers: int | None, timeout: float, max_faults: int) -> None:
    if workers is not None and workers < 0:
        raise ConfigError(f"workers={workers}: give how many processes step the environment, or 0 for none but this")
    if not timeout > 0:
        raise ConfigError(f"timeout={timeout}: give the seconds that a step may take, more than 0")
    if max_faults < 0:
        raise ConfigError(f"max_faults={max_faults}: give how many faults a run may survive, 0 or more")


def _pickled(first: Any, make: Callable[[], Any] | str, workers: int) -> bytes:
    """What a worker makes its environments with."""
    remedy = (
        "give a function or a class from the top level of a module, such as "
        "functools.partial(gymnasium.make, ID), or workers=0"
    )
    if isinstance(make, str):
        raise ConfigError(f"workers={workers}: each makes the environment {first} for itself, and {make}; {remedy}")
    try:
        return pickle.dumps(make)
    except Exception as error:  # pickle's own kinds, and whatever an object's own methods raise
        raise ConfigError(
            f"workers={workers}: what makes the environment {first} cannot be sent to a process "
            f"({first_line(error)}); {remedy}"
        ) from error


def _copier(env: Any, repeats: bool) -> Callable[[], Any] | str:
    """What makes others like `env`, or why nothing does; what does not repeat itself cannot be compared."""
    gymnasium = import_gymnasium()
    if env.spec is None:
        return "it is not registered with Gymnasium"
    spec = deepcopy(env.spec)
    spec.kwargs.pop("render_mode", None)  # one window is enough
    try:
        copy = gymnasium.make(spec)
        same = spec.nondeterministic or not repeats or alike(trial(env), trial(copy))
        copy.close()
    except Exception as error:  # of a wrapper or of the environment
        return f"its spec makes none ({first_line(error)})"
    if not same:
        return "what its spec makes moves differently"  # it was changed after it was made
    return partial(gymnasium.make, spec)
