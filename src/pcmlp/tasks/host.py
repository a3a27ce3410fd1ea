"""Any Gymnasium environment as a world, stepped on the host in lockstep.

Every parallel copy of the environment is a lane; there are [seeds, width] lanes. A step of all lanes is one compiled
call for the actions, the environments' own steps, and one compiled call for the task's ends, if it has any. The task's
rewards are computed for all steps at once. If there are more episodes than copies, they are collected in waves. All
randomness comes from the keys: each lane's key gives its environment's seed and its policy's noise, so neither the
other lanes nor earlier episodes change an episode.

The rows of an episode with a fault (`observed.py`) are not valid, and its lane begins another episode. A lane without
any complete episode is repeated.

Observations are 32-bit floats. An action is clipped to the environment's bounds before the step, but recorded
before clipping, as in `JaxWorld`; choices are sent as integers.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.boundary import Layout
from pcmlp.errors import ConfigError
from pcmlp.imagine import Starts, Unknown
from pcmlp.observed import Faults
from pcmlp.replay import Transitions
from pcmlp.spaces import NOTHING_DECLARED, Box, Coordinates
from pcmlp.successes import Score
from pcmlp.tasks import acting
from pcmlp.tasks.acting import to_host
from pcmlp.tasks.action_spaces import choices_of
from pcmlp.tasks.checks import check_reward, check_terminal
from pcmlp.tasks.environment_checks import check_horizon
from pcmlp.tasks.environments import Environments, derive_seed
from pcmlp.tasks.goals import brought_functions, declared_goals
from pcmlp.tasks.recording import LAST, blank, erase, steps_at, write
from pcmlp.types import MDP, Action, Policy, State, World, never
from pcmlp.world import flatten

_STARTS = 64  # number of observed resets that imagined episodes begin at
_flatten = jax.jit(jax.vmap(flatten))  # [seeds, lanes, steps, ...] -> [seeds, rows, ...]


class Lanes(NamedTuple):
    """The episodes to collect: the random numbers of each lane, and its last step."""

    keys: Key[Array, " seeds"]  # keys of the policies, into which a lane folds its number
    number: np.ndarray  # [lanes]
    seed: np.ndarray  # [seeds, lanes], the seed of the environment
    final: np.ndarray  # [seeds, lanes], the last step to take
    restart: bool  # whether a new episode begins when one ends before the final step
    fixed: bool  # whether an episode with a fault is repeated with the same seed

    @staticmethod
    def of(keys: Key[Array, " seeds"], count: int, horizon: int, *, draws=False, restart=False, fixed=False) -> "Lanes":
        """Return `count` lanes for each key, which end at the horizon or, with `draws`, at a random time before it.

        NumPy draws seeds and times, so that nothing is compiled again for another `count`.
        """
        generators = [np.random.default_rng(words) for words in np.asarray(jr.key_data(keys))]
        seed, time = (np.stack([rng.integers(high, size=count) for rng in generators]) for high in (2**31, horizon))
        return Lanes(keys, np.arange(count), seed, time if draws else np.full_like(time, horizon - 1), restart, fixed)

    def select(self, chosen: np.ndarray) -> "Lanes":
        """Return some of the lanes."""
        return self._replace(number=self.number[chosen], seed=self.seed[:, chosen], final=self.final[:, chosen])

    def reseed(self, attempt: int) -> "Lanes":
        """Return the lanes with seeds for another attempt, unless their seeds are fixed."""
        if attempt == 0 or self.fixed:
            return self
        seeds = [derive_seed(int(seed), 0, attempt) for seed in self.seed.flat]
        return self._replace(seed=np.reshape(seeds, self.seed.shape))


class GymnasiumWorld(World):
    """A Gymnasium environment as a world; create one with `GymnasiumWorld.of`."""

    mdp: MDP  # has a transition only if the simulator can be set to any state
    environments: Environments = eqx.field(static=True)
    reward_scale: float = eqx.field(static=True, default=1.0)  # factor of the environment's own rewards

    @staticmethod
    def of(
        make: Any,  # () -> gymnasium.Env, or one environment
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        transition: Callable | None = None,
        horizon: int | None = None,
        seeds: int = 1,
        workers: int = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
        action_scale: float | None = None,
        coordinates: Coordinates = NOTHING_DECLARED,
    ) -> "GymnasiumWorld":
        """Make a world from a function that makes the environment, or from one environment, which is copied
        by its spec if there are several seeds.

        A planner needs a reward and an end that it can compute: those that are not given are learned from samples. An
        episode ends by the environment's own termination or by `terminal`. `horizon` is by default the time limit that
        the environment is registered with. The environment is first tried out in this process, by resets and some
        hundred steps, which are not used for learning.

        `workers` is the number of processes that step the environment, each with its own copies: `make` has to be
        picklable, and a script has to call this under `if __name__ == "__main__":`. Results do not depend on it. A step
        or reset in a worker that takes more than `timeout` seconds is a fault, and so is a worker that dies; without
        workers, an environment that hangs or crashes also hangs or crashes the run. A lane's fifth fault in a row, or
        more than `max_faults` in all, raises `EnvironmentFault`. `coordinates` say what the observation is made of.
        Actions that have no bounds lie between -`action_scale` and `action_scale`.
        """
        environments = Environments.of(make, seeds, workers, timeout, max_faults, action_scale)
        env, layout = environments.first, environments.layout
        horizon = check_horizon(env, horizon)
        samples, rewards, ends = environments.sample()
        if goals := declared_goals(layout, samples):
            coordinates = dataclasses.replace(coordinates, goals=goals)
        states = _box(*environments.bounds, coordinates, None if layout.is_vector else layout)
        actions = choices_of(env.action_space) or _box(env.action_space.low, env.action_space.high)
        if reward is None:
            brought = brought_functions(env, layout, samples, rewards, ends)
            environments.notes.extend(brought.notes)
            reward, terminal = brought.reward, terminal or brought.terminal
        if reward is not None:
            check_reward(reward, states, actions, samples)
        if terminal is not None:
            check_terminal(terminal, states, actions, samples)
        starts = Starts(jnp.asarray(environments.starts(_STARTS)))
        functions = starts, transition or no_transition, reward or Unknown(), terminal or Unknown()
        return GymnasiumWorld(MDP(*functions, states, actions, horizon), environments)

    @property
    def faults(self) -> Faults:
        """The faults of the environments so far."""
        return self.environments.faults

    @property
    def notes(self) -> list[str]:
        """Notes about this world, which a run prints before it starts."""
        return self.environments.notes

    def close(self) -> None:
        """End workers and close environments that this world made."""
        self.environments.close()

    def collect(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Collect streams of H steps, at least `n` steps in all; both results are the same rows."""
        policies, keys = acting.inference_policies(policies, keys)
        lanes = Lanes.of(keys, -(-n // self.mdp.horizon), self.mdp.horizon, restart=True)
        rows = _flatten(self._record(lanes, policies))
        return rows, rows

    def draw(self, keys: Key[Array, " seeds"], policies: Policy, n: int) -> tuple[Transitions, Transitions]:
        """Draw `n` independent samples from d_pi; return them and all steps that were taken to reach them."""
        policies, keys = acting.inference_policies(policies, keys)
        lanes = Lanes.of(keys, n, self.mdp.horizon, draws=True)
        walked = self._record(lanes, policies)
        return _flatten(steps_at(walked, lanes.final)), _flatten(walked)

    def evaluate(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Float[Array, "seeds episodes"]:
        """Return the returns of the deterministic policies."""
        return to_host(self.score(keys, policies, episodes).returns)

    def score(self, keys: Key[Array, " seeds"], policies: Policy, episodes: int) -> Score:
        """Return the returns of the deterministic policies, and the episodes in which a step reports success."""
        policies, keys = acting.inference_policies(policies, keys)
        policies, lanes = acting.deterministic(policies), Lanes.of(keys, episodes, self.mdp.horizon, fixed=True)
        returns, succeeded = np.zeros(lanes.seed.shape, np.float32), np.zeros(lanes.seed.shape, bool)
        at_once = max(1, self.environments.limit // lanes.seed.shape[0])  # recordings are large
        for start in range(0, episodes, at_once):
            part = lanes.select(np.arange(start, min(start + at_once, episodes)))
            reached = np.zeros((*part.seed.shape, self.mdp.horizon), bool)
            returns[:, part.number] = self._record(part, policies, reached).reward.sum(axis=2, dtype=np.float64)
            succeeded[:, part.number] = reached.any(axis=2)
        return Score(returns, succeeded if self.environments.reports_success else None)

    def _record(self, lanes: Lanes, policies: Policy, reached: np.ndarray | None = None) -> Transitions:
        """Step all lanes and return their steps. Steps that were not taken, or lie in an episode with a fault, are not
        valid. Mark in `reached` the steps that report success."""
        shape = (*lanes.seed.shape, self.mdp.horizon)
        recording = blank(shape, self.mdp.states.size, self.mdp.actions.size)
        fields = [np.zeros(shape, bool) if reached is None else reached, *jax.tree.leaves(recording)]
        self._walk(lanes, policies, fields)
        if isinstance(self.mdp.reward, Unknown):
            scaled = recording.reward * np.float32(self.reward_scale)
            return eqx.tree_at(lambda t: t.reward, recording, scaled)
        inputs = to_host((recording.state, recording.action, recording.next_state))
        rewards = np.asarray(acting.bind(acting.map_steps, self.mdp.reward)(*inputs))
        return eqx.tree_at(lambda t: t.reward, recording, np.where(recording.valid, rewards, np.float32(0.0)))

    def _walk(self, lanes: Lanes, policies: Policy, recorded: list[np.ndarray]) -> None:
        """Step lanes in waves, limited by the number of copies, until every lane has a complete episode."""
        seeds, count = lanes.seed.shape
        waves = -(-count // max(1, self.environments.limit // seeds))
        width = -(-count // waves)
        incomplete = np.ones(lanes.seed.shape, bool)
        # This ends: after the first attempt, only lanes with faults are incomplete, and too many faults raise.
        for attempt in itertools.takewhile(lambda _: incomplete.any(), itertools.count()):
            seeded = lanes.reseed(attempt)
            for start in range(0, count, width):
                # All waves have the same compiled shape, so some lanes of the last wave may be idle.
                chosen, here = np.minimum(np.arange(start, start + width), count - 1), min(width, count - start)
                live = (np.arange(width) < here) & incomplete[:, chosen]
                fields = [field[:, start : start + here] for field in recorded]
                self._walk_wave(seeded.select(chosen), policies, live, fields)
            incomplete[:] = ~recorded[LAST].any(axis=2)

    def _walk_wave(self, lanes: Lanes, policies: Policy, live: np.ndarray, fields: list[np.ndarray]) -> None:
        """Step the `live` lanes, each up to its final step or, unless lanes restart, to the end of its episode. The
        steps are written into `fields`, those of a recording."""
        if not live.any():
            return
        act = acting.bind(acting.act, policies)
        terminal = self.mdp.terminal
        known = not isinstance(terminal, Unknown) and terminal is not never  # spares a call of what is always False
        ends = acting.bind(acting.map_lanes, terminal) if known else None
        noise = self._sample_noise(lanes, policies)
        memory = acting.bind(acting.init_memory, policies)(live)
        begins, begun = np.zeros_like(live), np.zeros(live.shape, int)
        state = self.environments.reset(live, lanes.seed, fixed=lanes.fixed)
        for t in range(int(lanes.final.max()) + 1):
            asked = time.perf_counter()
            memory, action = act([values[t] for values in noise], memory, begins, state)
            played = np.asarray(action)
            self.environments.policy_s += time.perf_counter() - asked
            observed = self.environments.step(played, live)
            next_state, faulty = observed.observation, observed.fault != 0
            good, terminal = live & ~faulty, observed.terminated
            if ends is not None:
                terminal = terminal | (good & np.asarray(ends(state, action, next_state)))
            last = terminal | observed.truncated | (good & (t == lanes.final))
            write(fields, t, good, observed.success > 0, state, played, observed.reward, next_state, terminal, last)
            if faulty.any():
                erase(fields, faulty, begun, t)
            over = last | faulty
            begins = over & (t < lanes.final) if lanes.restart else begins
            live = live & (~over | begins)
            if not live.any():
                return
            state = next_state
            if begins.any():
                begun = np.where(begins, t + 1, begun)
                state = np.where(begins[..., None], self.environments.reset(begins), next_state)

    def _sample_noise(self, lanes: Lanes, policies: Policy) -> list[np.ndarray]:
        """Return the policies' noise at every time, [horizon, seeds, width, ...]: drawing it step by step would take
        as long as acting."""
        horizon = self.mdp.horizon
        numbers = np.arange(horizon, dtype=np.uint32)[:, None] + np.uint32(lanes.number * horizon)
        return [np.asarray(values) for values in acting.bind(acting.sample_noise, policies)(lanes.keys, numbers)]


def no_transition(key: Key[Array, ""], state: State, action: Action) -> State:
    """Raise: this world has no transition that a planner can use."""
    raise ConfigError(
        "this world is a simulator on the host, which a compiled planner cannot use; "
        "plan in a learned model, or choose a task in pure JAX"
    )


def _box(
    low: np.ndarray, high: np.ndarray, coordinates: Coordinates = NOTHING_DECLARED, layout: Layout | None = None
) -> Box:
    with np.errstate(over="ignore"):  # the largest 64-bit float is infinite in 32 bits
        return Box(low, high, coordinates, layout)
