"""Deep PC-MLP in a few lines, with the conventions of stable-baselines3.

    agent = DeepPCMLP(env, reward=reward, terminal=terminal)    # a Gymnasium environment, or the name of a task
    agent.learn(2_000)
    action, _ = agent.predict(observation, deterministic=True)
    agent.save("agent.safetensors");  agent = DeepPCMLP.load("agent.safetensors", env, reward=reward, terminal=terminal)

A planner in a model has to compute rewards and ends, so `reward` and `terminal` are functions of (s, a, s') written in
jax.numpy; a function that is not given is learned. The policy to deploy is planned without the bonus.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.progress import track

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.errors import ConfigError
from pcmlp.parts import find_method
from pcmlp.runs.arrays import Damaged, load_facts_and_arrays, restore_tree, save_tree
from pcmlp.runs.callbacks import Callback, listening, notify
from pcmlp.runs.config import RunConfig, build, configure, resolve, settings_of_record, split_settings, to_json
from pcmlp.runs.evaluate import evaluation_keys
from pcmlp.settings import flatten, show
from pcmlp.tasks.checks import import_gymnasium
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tasks.registered import PREFIX, GymnasiumTask, find_registered
from pcmlp.trees import take
from pcmlp.types import Policy, Problem
from pcmlp.usercode import check_code, check_unchanged, hash_code

_FORMAT = "pcmlp agent 2"
_ENDLESS = 10**9  # env steps in the configuration; the real number is given to `learn`
_HOST_DEFAULTS = (0, 60.0, 100)  # workers, timeout, max_faults

Settings = Sequence[str] | Mapping[str, Any]  # ("bonus_scale=0.1", ...) as `--set` takes them, or a dict


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
        settings: Settings = (),
        workers: int = 0,  # processes that step the environment; see `GymnasiumWorld.of`
        timeout: float = 60.0,
        max_faults: int = 100,
    ):
        """Check all arguments before anything is compiled. A reward or an end of episodes that is not given as a
        function is learned from samples of the environment."""
        if isinstance(env, str) and env.startswith(PREFIX):
            find_registered(env.removeprefix(PREFIX))
            env = partial(import_gymnasium().make, env.removeprefix(PREFIX))
        host = workers, timeout, max_faults
        if isinstance(env, str):
            self.config, problem = _of_task(env, reward, terminal, algo, horizon, seed, settings)
            if isinstance(problem.world, GymnasiumWorld) and host != _HOST_DEFAULTS:
                raise ConfigError(f"env={env}: give workers, timeout, max_faults as settings, such as task.workers=2")
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
            self.config, problem = _of_world(world, algo, seed, settings), Problem(world)
        algorithm = self.config.algorithm.bind(problem)
        assert isinstance(algorithm, Deep)
        self.algorithm = algorithm
        self.world, self.success_return = algorithm.explored_world(problem), problem.success_return
        self.keys = jr.key(seed)[None]
        self.learner: DeepLearner = algorithm.start(self.keys, self.world.mdp, self.config.num_iterations)
        self.iteration = 0
        self._generator = np.random.default_rng(seed)

    @property
    def num_timesteps(self) -> int:
        """Env steps taken so far."""
        return int(self.learner.env_steps[0])

    def learn(self, steps: int, *, progress_bar: bool = False, callback: Callback | None = None) -> "DeepPCMLP":
        """Take `steps` more env steps, in whole iterations. `callback(agent, metrics)` is called after each iteration
        and ends learning if it returns False."""
        each = int(self.config.steps_per_iteration)
        if steps < each:
            raise ConfigError(
                f"steps={steps}: less than one iteration, which takes {each} env steps; give {each} or more"
            )
        callbacks = [] if callback is None else [callback]
        with listening(callbacks):
            for _ in track(range(steps // each), "learning", disable=not progress_bar):
                # Counted only when it is complete: after a fault of the environment, the agent is unchanged.
                iteration = self.algorithm.iterate(self.keys, self.world, self.learner, self.iteration + 1)
                assert isinstance(iteration.learner, DeepLearner)
                self.learner, self.iteration = iteration.learner, self.iteration + 1
                metrics = {name: float(values[0]) for name, values in iteration.metrics.items()}
                metrics |= {"iteration": float(self.iteration), "env_steps": float(self.num_timesteps)}
                if not notify(callbacks, self, metrics):
                    break
        return self

    def policy(self, *, explore: bool = False) -> Policy:
        """Return the policy to deploy, or the one that explores."""
        return take(self.learner.policy if explore else self.learner.deployed(), 0)

    def predict(
        self,
        observation: Any,  # array-like
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """Return the action for an observation, or for each of a batch, and the policy's memory for the next step.

        `state` is the memory that the last call returned, None at an episode's start; a planner such as MPPI keeps its
        plan there.
        """
        observed = np.asarray(observation, np.float32)
        states, actions = self.world.mdp.boxes
        if observed.ndim not in (1, 2) or observed.shape[-1] != states.size:
            size = states.size
            raise ConfigError(f"observation of shape {observed.shape}: give ({size},), or (n, {size}) for a batch")
        batch = np.atleast_2d(observed)
        starts = np.ones(len(batch), bool) if state is None else np.zeros(len(batch), bool)
        starts = starts if episode_start is None else starts | np.asarray(episode_start, bool)
        keys = jax.vmap(jr.key)(self._noise(batch, deterministic))
        policy = self.policy()
        memory = _new_memory(policy, len(batch)) if state is None else state
        memory, action = _act(policy, keys, memory, jnp.asarray(starts), jnp.asarray(batch), deterministic)
        action = np.clip(np.asarray(action), *actions.bounds)
        return (action if observed.ndim == 2 else action[0]), memory

    def _noise(self, batch: np.ndarray, deterministic: bool) -> np.ndarray:
        """Return a seed for each row. A planner that searches needs random numbers even if it must be deterministic;
        then they depend only on the observation."""
        if deterministic:
            return np.array([zlib.crc32(row.tobytes()) for row in batch], np.uint32)
        return self._generator.integers(2**32, size=len(batch), dtype=np.uint32)

    def evaluate(self, episodes: int = 20) -> tuple[float, float]:
        """Return the mean and standard deviation of the return of the policy to deploy, without its noise."""
        if episodes < 1:
            raise ConfigError(f"episodes={episodes}: give 1 or more")
        returns = self.world.evaluate(evaluation_keys(self.keys), self.learner.deployed().resolve(), episodes)
        return float(np.mean(returns)), float(np.std(returns))

    def save(self, path: str | Path) -> None:
        """Write everything that learning needs to continue as one safetensors file; loading it executes no code."""
        facts = {"format": _FORMAT, "config": json.loads(to_json(self.config)), "iteration": self.iteration}
        try:
            save_tree(Path(path), self.learner, facts)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from error

    @staticmethod
    def load(
        path: str | Path,
        env: Any,
        *,
        reward: Callable | None = None,
        terminal: Callable | None = None,
        trust_code: bool = False,
    ) -> "DeepPCMLP":
        """Load an agent that `save` wrote. Give the same environment and functions, which the file does not contain.
        Code that the agent's settings name is imported only if it is trusted."""
        facts, arrays = _read(Path(path))
        record = facts["config"]
        task, named = record.pop("task"), isinstance(env, str) and not env.startswith(PREFIX)
        name, horizon = task.pop("name"), task.pop("horizon")
        if named and env != name:
            raise ConfigError(f"{path}: an agent for {name}, not for {env}; give its own env")
        hashes = record.pop("code", {})
        settings = settings_of_record({**record, "task": task} if named else record)
        check_code({"algo": record["algo"], **settings}, hashes, trust_code, str(path))
        check_unchanged({file: hashes.get(file, "") for file in hash_code({"task": name})}, str(path))
        agent = DeepPCMLP(
            env,
            reward=reward,
            terminal=terminal,
            algo=record["algo"],
            horizon=horizon,
            seed=record["seeds"][0],
            settings=settings,
        )
        if agent.config.task_name != name:
            raise ConfigError(f"{path}: an agent for {name}, not for {agent.config.task_name}; give its own env")
        try:
            agent.learner = restore_tree(arrays, eqx.filter_eval_shape(lambda: agent.learner))
        except ValueError as error:
            raise ConfigError(
                f"{path}: does not fit the environment ({error}); give the one it was saved with"
            ) from error
        agent.iteration = int(facts["iteration"])
        return agent


def _as_texts(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={show(value)}" for key, value in flatten(settings).items()]
    return list(settings)


def _of_task(
    env: str,
    reward: Callable | None,
    terminal: Callable | None,
    algo: str,
    horizon: int | None,
    seed: int,
    settings: Settings,
) -> tuple[RunConfig, Problem]:
    """Return the configuration and the problem of a task by name."""
    if reward is not None or terminal is not None:
        raise ConfigError(f"env={env}: a task with a reward of its own; leave reward and terminal out, or give an env")
    length = () if horizon is None else (f"task.horizon={horizon}",)
    _check_method(algo)
    config = resolve(env, algo, (seed,), _ENDLESS, (*_as_texts(settings), *length))
    return config, build(config)[0]


def _check_method(algo: str) -> None:
    """Raise unless an agent can learn by the method."""
    if not isinstance(find_method(algo).algorithm, Deep):
        agents = " or ".join(name for name, method in METHODS.items() if isinstance(method.algorithm, Deep))
        raise ConfigError(f"algo={algo}: not for an agent; give {agents}, or run it by `pcmlp train`")


def _of_world(world: GymnasiumWorld, algo: str, seed: int, settings: Settings) -> RunConfig:
    """Return the configuration for an environment that the user gave."""
    env, horizon = world.environments.first, world.mdp.horizon
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    given = split_settings(_as_texts(settings))
    if task_keys := [key for key in given if key.startswith("task.")]:
        key = task_keys[0]
        raise ConfigError(f"{key}={given[key]}: {name} is not a task by name; give it as an argument beside env")
    _check_method(algo)
    return configure(GymnasiumTask(id=name, horizon=horizon), f"{PREFIX}{name}", algo, (seed,), _ENDLESS, given)


@eqx.filter_jit
def _new_memory(policy: Policy, count: int) -> Any:
    return eqx.filter_vmap(lambda _: policy.init())(jnp.arange(count))


@eqx.filter_jit
def _act(policy: Policy, keys: Any, memory: Any, starts: Any, batch: Any, deterministic: bool) -> Any:
    policy = policy.deterministic() if deterministic else policy

    def one(key, memory, begins, observation):
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), policy.init(), memory)
        return policy(key, memory, observation)

    return jax.vmap(one)(keys, memory, starts, batch)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        facts, arrays = load_facts_and_arrays(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error}); give a file that `save` wrote"
        ) from error
    except Damaged as error:
        raise ConfigError(f"{path}: {error}, or not a saved agent; give a file that `save` wrote") from error
    if facts.get("format") != _FORMAT:
        raise ConfigError(f"{path}: not an agent that this version saved; give a file that `save` wrote")
    return facts, arrays
