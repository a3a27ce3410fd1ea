"""Deep PC-MLP in a few lines, with the conventions of stable-baselines3.

    agent = DeepPCMLP(env, reward=reward, terminal=terminal)    # a Gymnasium environment, or the name of a task
    agent.learn(2_000)
    action, _ = agent.predict(observation, deterministic=True)
    agent.save("agent.safetensors");  agent = DeepPCMLP.load("agent.safetensors", env, reward=reward, terminal=terminal)

A planner that imagines has to know what it plans for, so `reward` and `terminal` are functions of (s, a, s') written in
jax.numpy; what is not given is learned. What is deployed is the policy planned without the bonus.
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.progress import track
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from pcmlp.deep import DeepLearner
from pcmlp.runs.arrays import from_bytes, named_arrays
from pcmlp.runs.build import build_deep, build_task
from pcmlp.runs.config import resolve, resolve_gymnasium, settings_in, to_json
from pcmlp.runs.durable import write_durably
from pcmlp.runs.evaluate import evaluation_keys
from pcmlp.runs.options import DeepConfig
from pcmlp.tasks.checks import import_gymnasium
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.registered import PREFIX, time_limit
from pcmlp.types import AbstractPolicy, Box, ConfigError, Task

Callback = Callable[["DeepPCMLP", dict[str, float]], bool | None]

_FORMAT = "pcmlp agent 1"
_ENDLESS = 10**9  # env steps of a configuration: how many it will be, `learn` is told


class DeepPCMLP:
    """An agent for one environment and one seed; `pcmlp train` runs many seeds at once."""

    def __init__(
        self,
        env: Any,  # a gymnasium.Env, a function that makes one, "gym:ID", or the name of a task such as "mountain-car"
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        algo: str = "pcmlp",
        horizon: int | None = None,
        seed: int = 0,
        settings: Sequence[str] = (),  # as `--set` takes them, such as ("bonus_scale=0.1", "model.sizes=64,64")
        workers: int = 0,  # processes that step the environment; `GymnasiumWorld.of` says more
        timeout: float = 60.0,
        max_faults: int = 100,
    ):
        """Everything is checked here, before anything is compiled. A reward or an end of episodes that is not given is
        learned from what the environment says."""
        if isinstance(env, str) and env.startswith(PREFIX):
            time_limit(env.removeprefix(PREFIX))  # it is there
            env = partial(import_gymnasium().make, env.removeprefix(PREFIX))
        if isinstance(env, str):
            self.config, task = _named(env, reward, terminal, algo, horizon, seed, settings)
            if isinstance(task.world, GymnasiumWorld) and (workers, timeout, max_faults) != (0, 60.0, 100):
                raise ConfigError(f"env={env}: takes them as settings, such as task.workers=2; give settings=(...)")
        else:
            world = GymnasiumWorld.of(
                env,
                reward=reward,
                terminal=terminal,
                horizon=horizon,
                workers=workers,
                timeout=timeout,
                max_faults=max_faults,
            )
            name = name_of_environment(world.environments.first)
            self.config = resolve_gymnasium(name, world.mdp.horizon, algo, seed, _ENDLESS, settings)
            task = Task(world)
        self.algo = build_deep(self.config, task)[1]
        self.world, self.success_return = task.world, task.success_return
        self.keys = jr.key(seed)[None]
        self.learner: DeepLearner = self.algo.start(self.keys)
        self.iteration = 0
        self._generator = np.random.default_rng(seed)

    @property
    def num_timesteps(self) -> int:
        """Env steps taken so far."""
        return int(self.learner.env_steps[0])

    def learn(self, steps: int, *, progress_bar: bool = False, callback: Callback | None = None) -> "DeepPCMLP":
        """`steps` more env steps, in whole iterations; `callback(agent, metrics)` after each, and False ends it."""
        each = int(self.config.steps_per_iteration)
        if steps < each:
            raise ConfigError(
                f"steps={steps}: less than one iteration, which takes {each} env steps; give {each} or more"
            )
        todo = range(steps // each)
        for _ in track(todo, "learning", disable=not progress_bar):
            # Counted when it is done: after an environment's fault the agent is what it was before.
            iteration = self.algo.iterate(self.keys, self.learner, self.iteration + 1)
            assert isinstance(iteration.learner, DeepLearner)
            self.learner, self.iteration = iteration.learner, self.iteration + 1
            metrics = {name: float(values[0]) for name, values in iteration.metrics.items()}
            if callback is not None and callback(self, metrics) is False:
                break
        return self

    def policy(self, *, explore: bool = False) -> AbstractPolicy:
        """The policy to deploy, or the one that explores."""
        chosen = self.learner.policy if explore else self.learner.deployed()
        return jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, chosen)

    def predict(
        self,
        observation: Any,  # array-like
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """The action for an observation, or for each of a batch, and what the policy remembers until the next step.

        `state` is what the last call returned, None at an episode's start; a planner such as MPPI keeps its plan there.
        """
        observed = np.asarray(observation, np.float32)
        size = self.world.states.size
        if observed.ndim not in (1, 2) or observed.shape[-1] != size:
            raise ConfigError(f"observation of shape {observed.shape}: give ({size},), or (n, {size}) for a batch")
        batch = np.atleast_2d(observed)
        starts = np.ones(len(batch), bool) if state is None else np.zeros(len(batch), bool)
        starts = starts if episode_start is None else starts | np.asarray(episode_start, bool)
        keys = jax.vmap(jr.key)(self._noise(batch, deterministic))
        policy = self.policy()
        memory = _remembered(policy, len(batch)) if state is None else state
        memory, action = _act(policy, keys, memory, jnp.asarray(starts), jnp.asarray(batch), deterministic)
        assert isinstance(self.world.actions, Box)
        action = np.clip(np.asarray(action), self.world.actions.low, self.world.actions.high)
        return (action if observed.ndim == 2 else action[0]), memory

    def _noise(self, batch: np.ndarray, deterministic: bool) -> np.ndarray:
        """A seed for each row. A planner that searches needs random numbers even where it may not be random: those are
        then the observation's own."""
        if deterministic:
            return np.array([zlib.crc32(row.tobytes()) for row in batch], np.uint32)
        return self._generator.integers(2**32, size=len(batch), dtype=np.uint32)

    def evaluate(self, episodes: int = 20) -> tuple[float, float]:
        """The mean and standard deviation of the return of the policy to deploy, without its noise."""
        if episodes < 1:
            raise ConfigError(f"episodes={episodes}: give 1 or more")
        returns = self.world.evaluate(evaluation_keys(self.keys), self.learner.deployed(), episodes)
        return float(np.mean(returns)), float(np.std(returns))

    def save(self, path: str | Path) -> None:
        """Everything that learning goes on from, as one safetensors file; nothing in it is ever executed."""
        about = {"format": _FORMAT, "config": to_json(self.config), "iteration": str(self.iteration)}
        arrays = named_arrays(self.learner)
        try:
            write_durably(Path(path), save(arrays, {**about, "sha256": _sha256(about, arrays)}))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from error

    @staticmethod
    def load(
        path: str | Path, env: Any, *, reward: Callable | None = None, terminal: Callable | None = None
    ) -> "DeepPCMLP":
        """What `save` wrote, in the same environment with the same functions, which no file can hold."""
        about, data = _read(Path(path))
        record = json.loads(about["config"])
        task, named = record.pop("task"), isinstance(env, str) and not env.startswith(PREFIX)
        name, horizon = task.pop("name"), task.pop("horizon")
        if named and env != name:
            raise ConfigError(f"{path}: an agent for {name}, not for {env}; give its own env")
        agent = DeepPCMLP(
            env,
            reward=reward,
            terminal=terminal,
            algo=record["algo"],
            horizon=horizon,
            seed=record["seeds"][0],
            settings=settings_in({**record, "task": task} if named else record),
        )
        if agent.config.task_name != name:
            raise ConfigError(f"{path}: an agent for {name}, not for {agent.config.task_name}; give its own env")
        like = eqx.filter_eval_shape(lambda: agent.learner)
        try:
            agent.learner = from_bytes(data, like)
        except ValueError as error:
            raise ConfigError(
                f"{path}: does not fit the environment ({error}); give the one it was saved with"
            ) from error
        agent.iteration = int(about["iteration"])
        return agent


def _named(
    env: str,
    reward: Callable | None,
    terminal: Callable | None,
    algo: str,
    horizon: int | None,
    seed: int,
    settings: Sequence[str],
) -> tuple[DeepConfig, Task]:
    if reward is not None or terminal is not None:
        raise ConfigError(f"env={env}: a task with a reward of its own; leave reward and terminal out, or give an env")
    lasting = () if horizon is None else (f"task.horizon={horizon}",)
    config = resolve(env, algo, (seed,), _ENDLESS, (*settings, *lasting))
    if getattr(config.task, "workers", 0) is None:  # processes are for scripts that say so
        config = dataclasses.replace(config, task=dataclasses.replace(config.task, workers=0))
    if not isinstance(config, DeepConfig):
        raise ConfigError(f"env={env}: not a task of Deep PC-MLP; `pcmlp train {env}` runs it")
    return config, build_task(config)


def name_of_environment(env: Any) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


@eqx.filter_jit
def _remembered(policy: AbstractPolicy, count: int) -> Any:
    return eqx.filter_vmap(lambda _: policy.init())(jnp.arange(count))


@eqx.filter_jit
def _act(policy: AbstractPolicy, keys: Any, memory: Any, starts: Any, batch: Any, deterministic: bool) -> Any:
    policy = policy.deterministic() if deterministic else policy

    def one(key, memory, begins, observation):
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), policy.init(), memory)
        return policy(key, memory, observation)

    return jax.vmap(one)(keys, memory, starts, batch)


def _read(path: Path) -> tuple[dict[str, str], bytes]:
    try:
        with safe_open(path, "numpy") as file:
            about = file.metadata() or {}
        data = path.read_bytes()
        arrays = load(data)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error}); give a file that `save` wrote"
        ) from error
    except SafetensorError as error:
        raise ConfigError(
            f"{path}: not whole, or not a saved agent ({error}); give a file that `save` wrote"
        ) from error
    if about.get("format") != _FORMAT:
        raise ConfigError(f"{path}: not an agent that this version saved; give a file that `save` wrote")
    if about.pop("sha256", "") != _sha256(about, arrays):
        raise ConfigError(f"{path}: was edited; give a file as `save` wrote it")
    return about, data


def _sha256(about: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode() + save(arrays)).hexdigest()
