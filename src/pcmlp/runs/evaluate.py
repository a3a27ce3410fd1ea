"""Returns of policies in the world: the deterministic policy, the task reward, random numbers fixed by the seed."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.baselines.random import decided
from pcmlp.runs.aim import Functions, aimed
from pcmlp.runs.arrays import named_arrays
from pcmlp.runs.config import RunConfig
from pcmlp.runs.durable import write_text
from pcmlp.runs.policy import SavedRun
from pcmlp.runs.summary import device, versions
from pcmlp.types import AbstractPolicy, AbstractWorld, Action, ConfigError, State

_MOST_EPISODES = 100_000
_EVALUATION = 2**31  # folded into a seed's key, where iterations fold in their own number


def evaluation_keys(keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
    return jax.vmap(lambda key: jr.fold_in(key, _EVALUATION))(keys)


@dataclass
class Judge:
    """Evaluates the policies of all seeds, anew only when one of them is another policy."""

    world: AbstractWorld
    keys: Array
    episodes: int
    judged_episodes: int = 0  # of each seed
    _judged: dict[str, np.ndarray] | None = None
    _returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def returns(self, policies: AbstractPolicy) -> np.ndarray:
        """[seeds, episodes]"""
        arrays = named_arrays(policies)
        if self._judged is None or any(not np.array_equal(arrays[name], old) for name, old in self._judged.items()):
            self._returns = np.asarray(self.world.evaluate(self.keys, decided(policies), self.episodes))
            self._judged = arrays
            self.judged_episodes += self.episodes
        return self._returns


def scores(returns: np.ndarray, success_return: float | None) -> dict[str, float | None]:
    """What is written of the returns of one seed."""
    success = None if success_return is None else float(np.mean(returns >= success_return))
    return {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)), "success": success}


def measure(saved: SavedRun, episodes: int, seed: int | None = None) -> list[dict[str, Any]]:
    """What the deployed policy of each seed gets in the world, `episodes` times."""
    keys = _keys(saved.config, seed)
    returns = np.asarray(saved.task.world.evaluate(keys, saved.policies, episodes))
    return [
        {"seed": number, **scores(of_seed, saved.task.success_return), **share}
        for number, of_seed, share in zip(saved.config.seeds, returns, successes(saved, keys, episodes), strict=True)
    ]


def evaluate_run(saved: SavedRun, episodes: int, seed: int | None = None) -> dict[str, Any]:
    """The deployed policies, measured; also as `eval.json` in the folder of the run or plan."""
    if not 1 <= episodes <= _MOST_EPISODES:
        raise ConfigError(f"episodes={episodes}: give 1 to {_MOST_EPISODES}")
    result = {
        "task": saved.config.task_name,
        "algo": saved.config.algo,
        **({"aim": dataclasses.asdict(saved.aim)} if saved.aim else {}),
        "policy": f"deployed ({type(saved.policies).__name__})",
        "episodes": episodes,
        "evaluation_seed": seed,
        "seeds": measure(saved, episodes, seed),
        "device": device(),
        "versions": versions(),
    }
    write_text(saved.path / "eval.json", json.dumps(result, indent=2) + "\n")
    return result


def successes(saved: SavedRun, keys: Key[Array, " seeds"], episodes: int) -> list[dict[str, float]]:
    """The share of each seed's episodes with a step at which the plan's predicate holds, where it has one.

    They are walked once more, with the predicate as their reward: the same keys lead the same way, whatever it pays.
    """
    if saved.functions.success is None:
        return [{} for _ in saved.config.seeds]
    world = aimed(saved.task, Functions(reward=Held(saved.functions.success)), None).world
    held = np.asarray(world.evaluate(keys, saved.policies, episodes)) > 0
    return [{"success": float(share)} for share in held.mean(axis=1)]


class Held(eqx.Module):
    """1 where the predicate holds, else 0."""

    predicate: Callable

    def __call__(self, state: State, action: Action, next_state: State) -> Float[Array, ""]:
        return self.predicate(state, action, next_state).astype(jnp.float32)


def filmed_episode(saved: SavedRun, seed: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, one more than there are steps, actions and rewards of an episode of the first seed's policy."""
    first, rest = eqx.partition(saved.policies, eqx.is_array)
    policy = eqx.combine(jax.tree.map(lambda x: x[0], first), rest).deterministic()
    alone = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, policy)
    rows, _ = saved.task.world.collect(_keys(saved.config, seed)[:1], alone, 1)
    length = 1 + int(np.argmax(rows.last[0]))
    states = np.concatenate([rows.state[0, :length], rows.next_state[0, length - 1 : length]])
    return states, np.asarray(rows.action[0, :length]), np.asarray(rows.reward[0, :length])


def _keys(config: RunConfig, seed: int | None) -> Key[Array, " seeds"]:
    """Those of the run's own evaluations, or those of a seed for all policies."""
    if seed is not None and not 0 <= seed < 2**32:
        raise ConfigError(f"seed={seed}: give a number from 0 to {2**32 - 1}")
    return evaluation_keys(jnp.stack([jr.key(number if seed is None else seed) for number in config.seeds]))
