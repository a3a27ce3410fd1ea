"""Copies of one Gymnasium environment, made when needed and stepped together, with their faults.

A fault ends its episode, and the copy is made again when its lane begins the next one. Faults are counted; too many
raise `EnvironmentFault`.
"""

import pickle
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from pcmlp.boundary import bound_actions, bounds_of, with_bounds
from pcmlp.errors import ConfigError, first_line
from pcmlp.observed import Fault, Faults, ObservationCheck, Observed
from pcmlp.tasks.action_spaces import choices_of, random_action
from pcmlp.tasks.checks import Samples, import_gymnasium
from pcmlp.tasks.environment_checks import check_environment, find_layout, same_steps
from pcmlp.tasks.making import check_scale, make_first
from pcmlp.workers import Copies, Order, Workers

_MAX_COPIES = 128  # most copies at a time: a robot's simulator takes some megabytes
_SAMPLES = 32  # number of random steps to check reward and terminal functions with
_MAX_IN_A_ROW = 5  # most faults of a lane without a complete episode between them
_MAIN_GUARD = "a script that uses workers has to call this under if __name__ == '__main__':"


class Environments:
    """The environments of all lanes, compared by identity, so that they can be a static field of a compiled input."""

    def __init__(
        self, first: Any, make: Callable[[], Any] | str, copies: Copies | Workers, notes: list[str], max_faults: int
    ):
        """Store `make`, which makes another environment like `first`, or is a string that says why none can be made."""
        self.first = first
        self.limit = 1 if isinstance(make, str) else _MAX_COPIES  # most copies at a time
        self.faults = Faults()
        self.notes = notes  # for the user, one line each
        self.physics_s = 0.0  # seconds spent in resets and steps so far
        self.policy_s = 0.0  # seconds spent waiting for actions so far
        self._make = make
        self._copies = copies
        self._max_faults = max_faults
        self.layout = find_layout(first)  # makes an observation into a vector
        self.bounds = bounds_of(first.observation_space)  # of the vector
        self.reports_success = False  # whether steps report if the goal is reached
        self._check = ObservationCheck(*self.bounds, self.layout.names)
        self._choices = choices_of(first.action_space)  # None where actions are a box
        self._used: set[int] = set()  # lanes that have had a copy
        self._steps = np.zeros(0, int)  # steps of each lane's current episode
        self._in_a_row: Counter[int] = Counter()  # lane -> faults in a row
        self._seeds: dict[int, tuple[int, int]] = {}  # lane -> the last given seed, and the number of its replacements

    @staticmethod
    def of(
        make: Any,
        seeds: int,
        workers: int = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
        action_scale: float | None = None,
    ) -> "Environments":
        """Check `make`, an environment or a function that makes one, and make a copy for each seed."""
        for good, line in (
            (workers >= 0, f"workers={workers}: give the number of worker processes, or 0 to use this process"),
            (timeout > 0, f"timeout={timeout}: give the most seconds that a step may take, more than 0"),
            (max_faults >= 0, f"max_faults={max_faults}: give the number of faults that a run may survive, 0 or more"),
        ):
            if not good:
                raise ConfigError(line)
        bare, make = make_first(make)
        first, given = bare, make is None
        if action_scale is not None:
            check_scale(first, action_scale)
            first = with_bounds(first, action_scale)
        notes = check_environment(first)
        maker = make or _maker_like(bare, repeats=not notes)
        if action_scale is not None and callable(maker):
            maker = partial(bound_actions, maker, action_scale)
        layout = find_layout(first)
        if workers:
            copies = Workers(_pickle(first, maker, workers), layout, workers, timeout)
        else:
            copies = Copies(maker if callable(maker) else lambda: first, layout, first, keep=given)
        environments = Environments(first, maker, copies, notes, max_faults)
        environments.prepare(seeds)
        return environments

    def prepare(self, count: int) -> None:
        """Make the first `count` copies; a failure here is bad input and not a fault."""
        self._reserve(count)
        made = self._make_copies([lane for lane in range(count) if lane not in self._copies.ready])
        for row in np.flatnonzero((made.fault != Fault.NONE) & (made.fault != Fault.LOST)).tolist():
            remedy = f"; {_MAIN_GUARD}" if made.fault[row] == Fault.DIED else ""
            raise ConfigError(f"environment {self.first}: cannot be made a second time: {made.messages[row]}{remedy}")
        self._used.update(range(count))

    def reset(self, lanes: np.ndarray, seeds: np.ndarray | None = None, *, fixed: bool = False) -> np.ndarray:
        """Return the first observations of the marked `lanes`, [seeds, width, ...], and zeros elsewhere.

        Without `seeds`, environments continue with their own random numbers. A copy that fails is made again and reset
        with another seed, or with the same one if seeds are `fixed`.
        """
        self._reserve(lanes.size)
        observation = np.zeros((lanes.size, *self._check.shape), np.float32)
        waiting: dict[int, int | None] = {}  # lanes to reset, and their seeds
        for lane in np.flatnonzero(lanes).tolist():
            if self._steps[lane] and lane in self._copies.ready:
                del self._in_a_row[lane]  # the last episode was complete
            self._steps[lane] = 0
            if seeds is not None:
                waiting[lane] = int(seeds.flat[lane])
                self._seeds[lane] = int(seeds.flat[lane]), 0
            else:  # a new copy has no random state to continue from
                waiting[lane] = None if lane in self._copies.ready else self._replace_seed(lane)
        while waiting:
            observed = self._begin(waiting)
            for row, lane in enumerate(list(waiting)):
                if not observed.fault[row]:
                    observation[lane] = observed.observation[row]
                    del waiting[lane]
                    continue
                self._reject(lane, observed, row)
                if not fixed:
                    waiting[lane] = self._replace_seed(lane)
        return observation.reshape(*lanes.shape, -1)

    def step(self, actions: np.ndarray, lanes: np.ndarray) -> Observed:
        """Step the marked `lanes`, [seeds, width]; the result has their shape, with zeros elsewhere and in faulty rows.
        Messages are indexed by the flat lane number."""
        actions = self._executed(actions.reshape(lanes.size, -1))
        chosen, ready = np.flatnonzero(lanes).tolist(), self._copies.ready
        present = [lane for lane in chosen if lane in ready]
        if len(present) == lanes.size:
            observed = self._ask("step", present, actions)
        else:
            observed = Observed.blank(lanes.size, self._check.shape)
            observed.fault[chosen] = Fault.LOST  # overwritten if the lane is stepped
            observed.put(present, self._ask("step", present, actions[present]))
        self._steps[: lanes.size] += lanes.ravel() & (observed.fault != Fault.LOST)
        for lane in np.flatnonzero(observed.fault).tolist():
            for values in observed[:4]:
                values[lane] = 0
            self._reject(lane, observed, lane)
        return observed.reshape(lanes.shape)

    def sample(self) -> tuple[Samples, np.ndarray, np.ndarray]:
        """Return real transitions of random actions, with their rewards and whether they ended the episode."""
        rng, space, lane = np.random.default_rng(0), self.first.action_space, np.ones((1, 1), bool)
        rows, paid, state = [], [], self.reset(lane, np.zeros((1, 1), int))
        while len(rows) < _SAMPLES:
            action = random_action(rng, space)
            action = action.astype(np.float32) if self._choices is None else self._choices.to_vectors(action)
            action = action[None, None]
            observed = self.step(action, lane)
            if not observed.fault.any():
                rows.append((state[0, 0], action[0, 0], observed.observation[0, 0]))
                paid.append((float(observed.reward[0, 0]), bool(observed.terminated[0, 0])))
                self.reports_success |= bool(observed.success[0, 0] >= 0)
            over = observed.terminated | observed.truncated | (observed.fault != Fault.NONE)
            state = self.reset(lane) if over.any() else observed.observation
        states, actions, next_states = (jnp.asarray(np.stack(x)) for x in zip(*rows, strict=True))
        rewards, ends = zip(*paid, strict=True)
        return (states, actions, next_states), np.array(rewards), np.array(ends)

    def forget_faults(self) -> None:
        """Count faults from 0 again, for another run."""
        self.faults = Faults()
        self._in_a_row.clear()

    def starts(self, count: int) -> np.ndarray:
        """Return the first observations of `count` episodes."""
        lane = np.ones((1, 1), bool)
        return np.stack([self.reset(lane, np.full((1, 1), seed))[0, 0] for seed in range(count)])

    def close(self) -> None:
        """End workers and close copies, except an environment that the user gave; new copies are made when needed."""
        self._copies.close()

    def _executed(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions that the environment takes for vectors, one in each row."""
        if self._choices is not None:
            return np.asarray(self._choices.to_integers(actions))
        space = self.first.action_space
        # Clip in the precision of the space: a bound rounded to 32 bits may lie outside. `np.clip` is slower.
        return np.minimum(np.maximum(actions.astype(space.dtype), space.low), space.high)

    def _reserve(self, count: int) -> None:
        self._steps = np.pad(self._steps, (0, max(0, count - self._steps.size)))
        if count > 1 and isinstance(self._make, str):
            raise ConfigError(
                f"environment {self.first}: {count} seeds need as many copies of it, and {self._make}; "
                "give a function that makes it, such as lambda: gymnasium.make(ID)"
            )

    def _begin(self, waiting: dict[int, int | None]) -> Observed:
        """Make missing copies, then reset; one row per lane in `waiting`."""
        lanes = list(waiting)
        observed = Observed.blank(len(lanes), self._check.shape, Fault.LOST)
        missing = [row for row, lane in enumerate(lanes) if lane not in self._copies.ready]
        observed.put(missing, self._make_copies([lanes[row] for row in missing]))
        made = {lanes[row] for row in missing if not observed.fault[row]}
        self.faults.restarts += len(made & self._used)
        self._used |= made
        # A process that dies while it makes one copy loses all its other copies.
        present = [row for row, lane in enumerate(lanes) if lane in self._copies.ready]
        there = [lanes[row] for row in present]
        observed.put(present, self._ask("reset", there, [waiting[lane] for lane in there]))
        return observed

    def _ask(self, order: Order, lanes: list[int], arguments: Any) -> Observed:
        begun = time.perf_counter()
        observed = self._copies.ask(order, lanes, arguments)
        self.physics_s += time.perf_counter() - begun
        return self._check(order, observed)

    def _make_copies(self, lanes: list[int]) -> Observed:
        made = self._copies.ask("make", lanes, [None] * len(lanes))
        for row in np.flatnonzero(made.fault == Fault.SHARED).tolist():
            raise ConfigError(f"environment {self.first}: {made.messages[row]}; let it make a new one at each call")
        return made

    def _reject(self, lane: int, observed: Observed, row: int) -> None:
        """Count a fault and the lost episode; raise if there are too many faults."""
        steps, self._steps[lane] = int(self._steps[lane]), 0
        self.faults.rejected += steps
        self._copies.ready.discard(lane)
        fault = Fault(observed.fault[row])
        if fault == Fault.LOST:
            return
        self.faults.add(fault, observed.messages[row] + (f", at step {steps} of an episode" if steps else ""))
        self._in_a_row[lane] += 1
        if self._in_a_row[lane] >= _MAX_IN_A_ROW:
            raise self.faults.error(self.first, fault, f"failed {_MAX_IN_A_ROW} times in a row, each from a new start")
        if self.faults.total > self._max_faults:
            reason = f"failed {self.faults.total} times, with max_faults={self._max_faults}"
            raise self.faults.error(self.first, fault, reason, ", or give a larger max_faults")

    def _replace_seed(self, lane: int) -> int:
        """Return a new seed for a lane whose seed has failed."""
        seed, count = self._seeds.get(lane, (0, 0))
        self._seeds[lane] = seed, count + 1
        return derive_seed(seed, count + 1)


def derive_seed(*numbers: int) -> int:
    """Return a seed that is a function of `numbers`."""
    return int(np.random.default_rng(numbers).integers(2**31))


def _pickle(first: Any, make: Callable[[], Any] | str, workers: int) -> bytes:
    """Return the pickled function with which worker processes make environments."""
    remedy = (
        "give a function or a class from the top level of a module, such as "
        "functools.partial(gymnasium.make, ID), or workers=0"
    )
    if isinstance(make, str):
        raise ConfigError(f"workers={workers}: each worker has to make the environment {first}, but {make}; {remedy}")
    try:
        return pickle.dumps(make)
    except Exception as error:  # pickle's own errors, and anything an object's methods may raise
        raise ConfigError(
            f"workers={workers}: the function that makes {first} cannot be sent to a process "
            f"({first_line(error)}); {remedy}"
        ) from error


def _maker_like(env: Any, repeats: bool) -> Callable[[], Any] | str:
    """Return a function that makes environments like `env`, or a string that says why there is none. A new environment
    is compared with `env`, unless `env` is not reproducible."""
    gymnasium = import_gymnasium()
    if env.spec is None:
        return "it is not registered with Gymnasium"
    spec = deepcopy(env.spec)
    spec.kwargs.pop("render_mode", None)  # a copy needs no window
    try:
        copy = gymnasium.make(spec)
        same = spec.nondeterministic or not repeats or same_steps(env, copy)
        copy.close()
    except Exception as error:  # anything the environment or a wrapper may raise
        return f"its spec does not make one ({first_line(error)})"
    if not same:
        return "the environment that its spec makes behaves differently"  # `env` was changed after it was made
    return partial(gymnasium.make, spec)
