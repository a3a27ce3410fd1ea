"""Any Gymnasium environment as a world: real steps in Python, on the host, in lockstep.

Every parallel copy of the environment is a lane, [seeds, width] of them. One step of all lanes is a compiled call for
their actions, the environments' own steps, and a compiled call for the task's ends, if it has any; its rewards are
computed for all steps at once. Where there are more episodes than copies, they are walked in waves. All randomness
comes from the keys: a lane's own gives its environment's seed and its policy's noise, so neither the other lanes nor
what was walked before matter.

An episode that the environment spoils (it raises, gives what is no observation, hangs or dies: `copies.py`) leaves no
valid row, and its lane begins another. A lane that has nothing to show is walked again.

Observations are seen as 32-bit floats. An action is clipped to the environment's bounds before the step, and recorded
as the policy gave it, as in `JaxWorld`.
"""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.imagine import Starts
from pcmlp.tasks import acting
from pcmlp.tasks.acting import beside_simulator, compiled
from pcmlp.tasks.checks import check_reward, check_terminal
from pcmlp.tasks.copies import Environments
from pcmlp.tasks.faults import Faults
from pcmlp.tasks.lanes import Lanes, Step
from pcmlp.types import (
    MDP,
    AbstractPolicy,
    AbstractWorld,
    Action,
    Box,
    ConfigError,
    State,
    Transitions,
    never,
    unknown,
)

_STARTS = 64  # observed resets that imagined episodes begin at


def no_transition(key: Key[Array, ""], state: State, action: Action) -> State:
    raise ConfigError(
        "this world is a simulator on the host, which no compiled planner can enter; "
        "plan in a learned model, or choose a task in pure JAX"
    )


class GymnasiumWorld(AbstractWorld):
    mdp: MDP  # all but its transition
    states: Box
    actions: Box
    environments: Environments = eqx.field(static=True)
    answers: acting.Answers = eqx.field(static=True, default_factory=acting.Answers)

    @staticmethod
    def of(
        make: Any,  # () -> gymnasium.Env, or one environment
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        horizon: int | None = None,
        seeds: int = 1,
        workers: int | None = 0,
        timeout: float = 60.0,
        max_faults: int = 100,
    ) -> "GymnasiumWorld":
        """Of a function that makes the environment, or of one environment; several seeds then copy it by its spec.

        A planner needs a reward and an end that it can compute: where they are not given, those of the environment are
        to be learned from samples. Its own terminations end episodes beside those of a `terminal` that is given.
        `horizon` is by default the time limit it is registered with. Trying the environment out, in this process, takes
        resets and some hundred steps, which nothing learns from.

        With `workers`, copies are stepped in so many processes, each of which makes its own: the function has to be one
        that can be pickled, and a script has to call this under `if __name__ == "__main__":`. With None, they are once
        the environment has taken long. No result depends on it. A step or reset of more than `timeout` seconds in a
        worker is a fault, and so is a process that dies; without workers, what hangs hangs the run and what crashes
        ends it. A lane's fifth fault in a row, or more than `max_faults` of all of them together, raise
        `EnvironmentFault`.
        """
        environments = Environments.of(make, seeds, workers, timeout, max_faults)
        env = environments.first
        horizon = _horizon(env, horizon)
        states, actions = _box(env.observation_space), _box(env.action_space)
        samples = environments.sample()
        if reward is not None:
            check_reward(reward, states, actions, samples)
        if terminal is not None:
            check_terminal(terminal, states, actions, samples)
        starts = Starts(jnp.asarray(environments.starts(_STARTS)))
        mdp = MDP(starts, no_transition, reward or unknown, terminal or unknown, horizon)
        return GymnasiumWorld(mdp, states, actions, environments)

    @property
    def faults(self) -> Faults:
        """What went wrong with the environments so far."""
        return self.environments.faults

    @property
    def notes(self) -> list[str]:
        """What to know of a run in this world, a line each."""
        return self.environments.notes

    def close(self) -> None:
        self.environments.close()

    def collect(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        policies, keys = acting.near(policies, keys)
        lanes = Lanes.of(keys, -(-n // self.mdp.horizon), self.mdp.horizon)
        rows = _transitions(self._record(lanes, policies, self._to_the_end(lanes), restart=True))
        return rows, rows

    def draw(self, keys: Key[Array, " seeds"], policies: AbstractPolicy, n: int) -> tuple[Transitions, Transitions]:
        policies, keys = acting.near(policies, keys)
        lanes = Lanes.of(keys, n, self.mdp.horizon)
        walked = self._record(lanes, policies, lanes.time, restart=False)
        seed, lane = np.indices(lanes.time.shape)
        rows = Step(*(values[seed, lane, lanes.time][:, :, None] for values in walked))
        return _transitions(rows._replace(last=np.ones_like(rows.last))), _transitions(walked)

    def evaluate(
        self, keys: Key[Array, " seeds"], policies: AbstractPolicy, episodes: int
    ) -> Float[Array, "seeds episodes"]:
        policies, keys = acting.near(policies, keys)
        lanes, policies = Lanes.of(keys, episodes, self.mdp.horizon, fixed=True), acting.deterministic(policies)
        returns = np.zeros(lanes.seed.shape, np.float32)
        at_once = max(1, self.environments.limit // lanes.seed.shape[0])  # whole episodes are large
        for start in range(0, episodes, at_once):
            part = lanes.part(np.arange(start, min(start + at_once, episodes)))
            steps = self._record(part, policies, self._to_the_end(part), restart=False)
            returns[:, part.number] = steps.reward.sum(axis=2, dtype=np.float64)
        return beside_simulator(returns)

    def _to_the_end(self, lanes: Lanes) -> np.ndarray:
        return np.full(lanes.seed.shape, self.mdp.horizon - 1)

    def _record(self, lanes: Lanes, policies: AbstractPolicy, final: np.ndarray, restart: bool) -> Step:
        """All steps of a horizon; those that were not taken, or were spoilt, are not valid."""
        steps = Step.nothing((*final.shape, self.mdp.horizon), self.states.size, self.actions.size)
        self._walk(lanes, policies, final, restart, steps)
        return steps if self.mdp.reward is unknown else steps._replace(reward=self._paid(steps))

    def _paid(self, steps: Step) -> np.ndarray:
        """The task's rewards."""
        near = beside_simulator((steps.state, steps.action, steps.next_state))
        return np.where(steps.valid, np.asarray(compiled(acting.each_step, self.mdp.reward)(*near)), np.float32(0.0))

    def _walk(self, lanes: Lanes, policies: AbstractPolicy, final: np.ndarray, restart: bool, steps: Step) -> None:
        """Into `steps`, in waves of as many lanes as there may be copies."""
        seeds, count = final.shape
        waves = -(-count // max(1, self.environments.limit // seeds))
        width = -(-count // waves)
        missing = np.ones(final.shape, bool)  # lanes of which no episode has ended as it should
        # It ends: a lane can only be missing again after a fault, and too many of them raise.
        for attempt in itertools.takewhile(lambda _: missing.any(), itertools.count()):
            tried = lanes.again(attempt)
            for start in range(0, count, width):
                # The end of the last wave may be idle: all waves have one compiled shape.
                chosen, here = np.minimum(np.arange(start, start + width), count - 1), min(width, count - start)
                live = (np.arange(width) < here) & missing[:, chosen]
                part = steps.part(slice(start, start + here))
                self._wave(tried.part(chosen), policies, final[:, chosen], live, restart, part)
            missing[:] = ~steps.last.any(axis=2)

    def _wave(
        self, lanes: Lanes, policies: AbstractPolicy, final: np.ndarray, live: np.ndarray, restart: bool, steps: Step
    ) -> None:
        """Into `steps`, those of the lanes that are `live`, each up to its `final` one or the end of its episode; where
        an episode ends before and there is a `restart`, the next one begins."""
        if not live.any():
            return
        act = self.answers.of(policies)
        ends = None if self.mdp.terminal in (never, unknown) else compiled(acting.each, self.mdp.terminal)
        drawn = self._drawn(lanes, policies)
        memory, begins, begun = compiled(acting.begin, policies)(live), np.zeros_like(live), np.zeros(live.shape, int)
        state = self.environments.reset(live, lanes.seed, fixed=lanes.fixed)
        for t in range(int(final.max()) + 1):
            memory, action, played = act([values[t] for values in drawn], memory, begins, state)
            next_state, own_reward, terminated, truncated, spoilt = self.environments.step(played, live)
            good = live & ~spoilt
            terminal = terminated if ends is None else terminated | (good & np.asarray(ends(state, action, next_state)))
            last = terminal | truncated | (good & (t == final))
            steps.record(t, Step(state, played, own_reward, next_state, terminal, last, good))
            if spoilt.any():
                steps.forget(spoilt, begun, t)
            over = last | spoilt
            begins = over & (t < final) if restart else begins
            live = live & (~over | begins)
            if not live.any():
                return
            state = next_state
            if begins.any():
                begun = np.where(begins, t + 1, begun)
                state = np.where(begins[..., None], self.environments.reset(begins), next_state)

    def _drawn(self, lanes: Lanes, policies: AbstractPolicy) -> list[np.ndarray]:
        """What is random about the policies at every time, [horizon, seeds, width, ...]: to draw it step by step takes
        as long as to act."""
        horizon = self.mdp.horizon
        numbers = np.arange(horizon, dtype=np.uint32)[:, None] + np.uint32(lanes.number * horizon)
        return [np.asarray(values) for values in compiled(acting.ahead, policies)(lanes.keys, numbers)]


@jax.jit
@jax.vmap
def _rows(steps):
    return Transitions(*(x.reshape(-1, *x.shape[2:]) for x in steps))


def _transitions(steps: Step) -> Transitions:
    return _rows(tuple(steps))


def _box(space: Any) -> Box:
    with np.errstate(over="ignore"):  # the largest 64-bit float is infinite in 32
        return Box(jnp.asarray(space.low.astype(np.float32)), jnp.asarray(space.high.astype(np.float32)))


def _horizon(env: Any, horizon: int | None) -> int:
    limit = None if env.spec is None else env.spec.max_episode_steps
    chosen = limit if horizon is None else horizon
    if chosen is None:
        raise ConfigError(f"horizon=None: environment {env} has no time limit of its own; give the steps of an episode")
    if chosen < 1:
        raise ConfigError(f"horizon={chosen}: an episode has at least 1 step; give 1 or more")
    if limit is not None and chosen > limit:
        raise ConfigError(
            f"horizon={chosen}: environment {env} stops after {limit} steps; give {limit} or less, "
            f"or make it with max_episode_steps={chosen}"
        )
    return chosen


__all__ = ["GymnasiumWorld", "no_transition"]
