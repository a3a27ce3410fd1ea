"""What is measured in the world: returns and coverage.

Evaluation is of deterministic policies, under the task's reward, with random numbers fixed by the seed. Coverage is the
share of a task's map that the real steps of learning have entered, by which reward-free exploration is judged:

    coverage_n = |free squares entered by the policies 1 ... n| / |free squares|        (paper: section 7.3, figure 1)
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from pcmlp.algorithms.stages import EVALUATION
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.maps import Map
from pcmlp.programs import program
from pcmlp.replay import Transitions
from pcmlp.runs.arrays import named_arrays
from pcmlp.runs.config import MOST_EPISODES, RunConfig, seed_keys
from pcmlp.runs.durable import write_json
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import Functions, SavedRun, with_objective
from pcmlp.runs.summary import device, versions
from pcmlp.successes import Score, summarise, summarise_groups
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.trees import join_seeds, split_seeds, take
from pcmlp.types import Action, Policy, State, World, never
from pcmlp.world import JaxWorld

COLUMN = "coverage"
_EPISODES = 20  # of `pcmlp eval`, for a task without groups of episodes

_FEWER = 5  # evaluation episodes of the deployed policy for each one of an exploring policy that searches


def evaluation_keys(keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
    """Return the keys for evaluation, which no iteration uses."""
    return jax.vmap(lambda key: jr.fold_in(key, EVALUATION))(keys)


@dataclass
class Evaluator:
    """An evaluator of all seeds' policies, which evaluates again only when one of them has changed."""

    world: World
    keys: Array
    episodes: int
    exploring: bool = False  # whether it evaluates exploring policies, which matter less than those to deploy
    evaluated_episodes: int = 0  # per seed, so far
    succeeded: np.ndarray | None = None  # [seeds, episodes] of the last evaluation, if the environment reports it
    _last: dict[str, np.ndarray] | None = None
    _returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def returns(self, policies: Policy) -> np.ndarray:
        """Return the returns, [seeds, episodes]."""
        if self._knows(arrays := named_arrays(policies)):
            return self._returns
        episodes = self._count(policies)
        return self._keep(arrays, *score(self.world, self.keys, policies.resolve(), episodes))

    def scores(self, i: int, returns: np.ndarray | None, success_return: float | None) -> dict[str, float | None]:
        """Return the columns of `metrics.csv` for the seed at place i, given the result of `returns`, if any."""
        reported = None if self.succeeded is None else self.succeeded[i]
        return scores(None if returns is None else returns[i], success_return, reported)

    def _knows(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Return whether these are the policies that were evaluated last."""
        last = self._last
        return last is not None and all(np.array_equal(arrays[name], old) for name, old in last.items())

    def _count(self, policies: Policy) -> int:
        """Return the number of episodes: fewer where they are expensive. Elsewhere as many, so that both evaluations
        are one compiled program."""
        expensive = policies.searches or not isinstance(self.world, JaxWorld)
        return -(-self.episodes // _FEWER) if self.exploring and expensive else self.episodes

    def _keep(self, arrays: dict[str, np.ndarray], returns: Any, succeeded: np.ndarray | None) -> np.ndarray:
        self._last, self._returns, self.succeeded = arrays, np.asarray(returns), succeeded
        self.evaluated_episodes += returns.shape[1]
        return self._returns

    @staticmethod
    def prepare(evaluators: Sequence["Evaluator"], policies: Sequence[Policy]) -> None:
        """Evaluate the policies of several runs at once, in the world of the first. Each evaluator then has the returns
        of its own."""
        arrays = [named_arrays(each) for each in policies]
        if any(each._knows(own) for each, own in zip(evaluators, arrays, strict=True)):
            return  # evaluators whose policies have changed evaluate them when they are asked
        first, keys = evaluators[0], join_seeds([each.keys for each in evaluators])
        returns, succeeded = score(first.world, keys, join_seeds(policies).resolve(), first._count(policies[0]))
        counts = [len(each.keys) for each in evaluators]
        parts = split_seeds(jnp.asarray(returns), counts)
        ends = [None] * len(counts) if succeeded is None else np.split(succeeded, np.cumsum(counts)[:-1])
        for each, own, part, reached in zip(evaluators, arrays, parts, ends, strict=True):
            each._keep(own, part, reached)


def is_due(config: RunConfig, n: int) -> bool:
    """Return whether iteration n is evaluated: the first and the last one, and those that complete another `eval_every`
    env steps. Nothing else decides it, so a killed run evaluates the same iterations."""
    return n in (0, config.num_iterations) or count_due(config, n) > count_due(config, n - 1)


def count_evaluations(config: RunConfig) -> int:
    """Return the number of iterations of a run that are evaluated."""
    return 2 + count_due(config, config.num_iterations - 1)  # the first and the last one, and those between them


def count_due(config: RunConfig, n: int) -> int:
    """Return how many of the iterations 1 to n complete another `eval_every` env steps."""
    return n if config.eval_every == 0 else min(n, int(n * config.steps_per_iteration // config.eval_every))


def scores(
    returns: np.ndarray | None, success_return: float | None, reported: np.ndarray | None = None
) -> dict[str, float | None]:
    """Return the columns of `metrics.csv` for one seed's returns; empty ones if there was no evaluation. An episode
    is a success by its return or, if the task defines no return of a success, if the environment has `reported` it."""
    if returns is None:
        return dict.fromkeys(("return_mean", "return_std", "success"))
    succeeded = reported if success_return is None else returns >= success_return
    success = None if succeeded is None else float(np.mean(succeeded))
    return {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)), "success": success}


def score(world: Any, keys: Any, policies: Policy, episodes: int) -> Score:
    """Return the returns of the deterministic policies and, if the environment reports them, the successes."""
    if isinstance(world, GymnasiumWorld):
        return world.score(keys, policies, episodes)
    return Score(np.asarray(world.evaluate(keys, policies, episodes)))


def measure(saved: SavedRun, episodes: int, seed: int | None = None) -> list[dict[str, Any]]:
    """Evaluate the policy of each seed in the world."""
    return _measure(saved, episodes, seed)[0]


def _measure(saved: SavedRun, episodes: int, seed: int | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the results of each seed's policy, and the success over the episodes of all seeds."""
    keys = _keys(saved.config, seed)
    returns, reported = score(saved.problem.world, keys, saved.policies.resolve(), episodes)
    succeeded, numbers = successes(saved, keys, returns, reported), group_numbers(saved, keys, episodes)

    def judge(chosen: Any) -> dict[str, Any]:
        own, groups = None if succeeded is None else succeeded[chosen].ravel(), saved.problem.groups
        parts = {} if groups is None else {"groups": summarise_groups(own, groups.names, numbers[chosen].ravel())}
        return {**summarise(own), **parts}

    rows = [
        {"seed": number, **scores(own, None), **judge(i)}
        for i, (number, own) in enumerate(zip(saved.config.seeds, returns, strict=True))
    ]
    return rows, judge(...)


def evaluate_run(saved: SavedRun, episodes: int | None = None, seed: int | None = None) -> dict[str, Any]:
    """Evaluate the policies; write the result to `eval.json` in the folder, and return it. By default, the number of
    episodes is enough to measure the success in the task's groups of episodes, or 20 if it has none."""
    if episodes is None:
        episodes = saved.problem.groups.episodes if saved.problem.groups else _EPISODES
    if not 1 <= episodes <= MOST_EPISODES:
        raise ConfigError(f"episodes={episodes}: give 1 to {MOST_EPISODES}")
    rows, together = _measure(saved, episodes, seed)
    chosen = "deployed" if saved.iteration is None else f"planned in iteration {saved.iteration}"
    result = {
        "task": saved.config.task_name,
        "algo": saved.config.algo,
        **({"aim": dataclasses.asdict(saved.aim)} if saved.aim else {}),
        "policy": f"{chosen} ({type(saved.policies).__name__})",
        "iteration": saved.iteration,
        "episodes": episodes,
        "evaluation_seed": seed,
        "seeds": rows,
        "all_seeds": together,
        "device": device(),
        "versions": versions(),
    }
    try:
        write_json(saved.path / "eval.json", result)
    except OSError as error:
        raise RunStopped(f"{saved.path}/eval.json: cannot be written ({error.strerror}); evaluate a copy") from error
    return result


def successes(
    saved: SavedRun, keys: Key[Array, " seeds"], returns: np.ndarray, reported: np.ndarray | None = None
) -> np.ndarray | None:
    """Return which episodes succeeded, [seeds, episodes]: by the plan's predicate, which holds at one of their steps,
    by their returns, or as the environment has `reported`; None if nothing says. A plan for another reward has another
    goal than the one that the environment reports.

    For a predicate the episodes are repeated, with it as their reward: the same keys give the same episodes.
    """
    if saved.functions.success is not None:
        world = with_objective(saved.problem, Functions(reward=Indicator(saved.functions.success)), None).world
        return np.asarray(world.evaluate(keys, saved.policies, returns.shape[1])) > 0
    least = saved.problem.success_return
    if least is None:
        return reported if saved.functions.reward is None else None
    return returns >= least


def group_numbers(saved: SavedRun, keys: Key[Array, " seeds"], episodes: int) -> np.ndarray:
    """Return the numbers of the episodes' groups, [seeds, episodes]; 0 for a task without groups.

    The first steps of the episodes are repeated, with the group of the state as their reward.
    """
    groups, world = saved.problem.groups, saved.problem.world
    if groups is None:
        return np.zeros((len(saved.config.seeds), episodes), int)
    beginning = dataclasses.replace(world.mdp, reward=GroupNumber(groups.number), terminal=never, horizon=1)
    numbers = dataclasses.replace(world, mdp=beginning).evaluate(keys, saved.policies.resolve(), episodes)
    return np.asarray(numbers).astype(int)


class Indicator(eqx.Module):
    """A reward of 1 where a predicate holds, else 0."""

    predicate: Callable

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        """Return the reward of one step."""
        return self.predicate(state, action, next_state).astype(jnp.float32)


class GroupNumber(eqx.Module):
    """A reward that is the number of the state's group."""

    number: Callable

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        """Return the number of the first of the two states."""
        return jnp.asarray(self.number(state), jnp.float32)


def film_episode(saved: SavedRun, seed: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play an episode with the first seed's policy; return its states (one more than steps), actions and rewards."""
    policy = take(saved.policies, 0).deterministic()
    alone = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, policy)
    rows, _ = saved.problem.world.collect(_keys(saved.config, seed)[:1], alone, 1)
    length = 1 + int(np.argmax(rows.last[0]))
    states = np.concatenate([rows.state[0, :length], rows.next_state[0, length - 1 : length]])
    return states, np.asarray(rows.action[0, :length]), np.asarray(rows.reward[0, :length])


def _keys(config: RunConfig, seed: int | None) -> Key[Array, " seeds"]:
    """Return the keys of the run's own evaluations, or those of one seed for all policies."""
    if seed is not None and not 0 <= seed < 2**32:
        raise ConfigError(f"seed={seed}: give a number from 0 to {2**32 - 1}")
    return evaluation_keys(seed_keys(config.seeds if seed is None else [seed] * len(config.seeds)))


@program
@eqx.filter_vmap(in_axes=(None, 0, 0))
def _enter(ground: Map, entered: Bool[Array, "rows columns"], steps: Transitions) -> Bool[Array, "rows columns"]:
    """Return the squares entered so far; next states count too, because no row begins at the end of an episode."""
    states = jnp.concatenate([steps.state, steps.next_state])
    places = states[:, jnp.array(ground.coordinates)]
    return entered | ground.entered(places, jnp.concatenate([steps.valid, steps.valid]))


class Entered:
    """The squares that each seed has entered so far; empty for a task without a map."""

    def __init__(self, ground: Map | None, seeds: int):
        self._map = ground
        self._entered = None if ground is None else jnp.zeros((seeds, *ground.free.shape), bool)

    def add(self, walked: Iterable[Transitions]) -> None:
        """Add real steps; every array has a leading axis of seeds."""
        if self._map is None:
            return
        for steps in walked:
            self._entered = _enter(self._map, self._entered, steps)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the coverage of each seed, by counting, so that it is the same on every machine."""
        if self._map is None:
            return {}
        entered, free = np.asarray(self._entered), np.asarray(self._map.free)
        return {COLUMN: (entered & free).sum(axis=(1, 2)) / free.sum()}


def read_coverage(run: Path) -> dict[int, float]:
    """Return the final coverage of each seed of a run."""
    metrics = read_metrics(run)
    if COLUMN not in metrics:
        raise ConfigError(
            f"{run}: has no coverage, because its task has no map; choose a run of point-umaze or ant-umaze"
        )
    return {int(seed): share for seed, share in zip(metrics["seed"], metrics[COLUMN], strict=True)}
