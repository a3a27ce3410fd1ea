"""The configuration of a run: a task, a method with its presets, and `--set key=value`; and the same as JSON.

Settings belong to the classes that use them (`settings`), so this module only finds the parts, applies presets and
given values, and checks conditions that involve several parts. All of it happens before anything is compiled.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.method import Method
from pcmlp.errors import ConfigError
from pcmlp.parts import NAMES, find_known, find_method, methods_for
from pcmlp.runs.dataset import Data
from pcmlp.runs.durable import Damaged, check_type, from_record, parse_json
from pcmlp.runs.keys import (
    FLAGS,
    check_choices,
    check_known,
    check_used,
    parse_seeds,
    round_up_samples,
    show_changed,
    split_settings,
    unused_reason,
)
from pcmlp.settings import Part, flatten, overlay, parse_int, show, tiny_settings, to_record, walk
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import find_environment
from pcmlp.tasks.scaled import scale_reward
from pcmlp.types import Algorithm, Problem, Task
from pcmlp.usercode import check_code, check_unchanged, hash_code, is_place

_LARGEST_SEED = 2**32 - 1
_LARGEST_STEPS = 2**31 - 1  # steps are counted in 32 bits
DEFAULT_STEPS, DEFAULT_EPISODES, MOST_EPISODES = 2_000, 100, 100_000
# Env steps between evaluations by kind of task, a tenth of the presets' budgets: an evaluation on a simulator takes
# more steps than an iteration. Elsewhere, every iteration is evaluated.
DEFAULT_EVERY = {"robot": 20_000, "gym": 3_000}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    task: Task
    algo: str
    algorithm: Algorithm
    seeds: tuple[int, ...]
    steps: int  # env steps per seed
    preset: str = "ours"
    eval_episodes: int = DEFAULT_EPISODES
    eval_every: int = 0  # env steps between evaluations; 0: every iteration is evaluated
    data: Data | None = None  # the dataset that the run starts from
    code: Mapping[str, str] = field(default_factory=dict)  # files of the user's code that the run uses -> SHA-256

    @property
    def task_name(self) -> str:
        """The name of the task."""
        return NAMES.name_of(self.task) or type(self.task).__name__

    @property
    def method(self) -> Method:
        """The method that the algorithm belongs to."""
        return find_method(self.algo)

    @property
    def steps_per_iteration(self) -> float:
        """The env steps of one iteration."""
        return self.algorithm.steps_per_iteration(self.task.horizon)

    @property
    def num_iterations(self) -> int:
        """The number of iterations that fit into the steps."""
        return int(self.steps // self.steps_per_iteration)

    def part_names(self) -> dict[str, str]:
        """Return the names of the algorithm's parts by group, such as {"planner": "trpo"}."""
        record = flatten(to_record(self.algorithm, NAMES))
        return {key.removesuffix(".name"): name for key, name in record.items() if key.endswith(".name")}


def seed_keys(seeds: Iterable[int]) -> Key[Array, " seeds"]:
    """Return the key of each seed."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def resolve(
    task: str,
    algo: str | None = None,
    seeds: Sequence[int | str] = (0, 1, 2, 3),
    steps: int | str | None = None,
    settings: Iterable[str] = (),
) -> RunConfig:
    """Return the checked configuration for a task and a method by name, with presets and `key=value` settings."""
    given = split_settings(settings)
    chosen = choose_task(task, given)
    algo = algo or next(iter(methods_for(task, chosen.kind)), "pcmlp")
    return configure(chosen, task, algo, seeds, steps, given)


def configure(
    task: Task,
    task_name: str,
    algo: str,
    seeds: Sequence[int | str],
    steps: int | str | None,
    given: Mapping[str, str],
) -> RunConfig:
    """Return the checked configuration of a method on a task, with given settings that override the method's preset."""
    method, name = find_method(algo), given.get("preset", "ours")
    preset = choose_preset(method, algo, name, task_name, task)
    check_used(given, algo, method.unused_reason)  # before a part may be replaced by one without the setting
    algorithm = overlay(overlay(method.algorithm, preset, NAMES), given, NAMES)
    assert isinstance(algorithm, Algorithm)
    check_used(given, algo, partial(unused_reason, method, task, algorithm))
    check_known(given, task, algo, algorithm)
    check_choices(given, method, algo)
    algorithm = round_up_samples(algorithm, given, task.horizon)
    usual = {"eval_episodes": DEFAULT_EPISODES, "eval_every": DEFAULT_EVERY.get(task.kind, 0), **preset, **given}
    config = RunConfig(
        task=task,
        algo=algo,
        algorithm=algorithm,
        seeds=parse_seeds(seeds),
        steps=parse_int("steps", str(preset.get("steps", DEFAULT_STEPS) if steps is None else steps)),
        preset=name,
        eval_episodes=parse_int("eval_episodes", str(usual["eval_episodes"])),
        eval_every=parse_int("eval_every", str(usual["eval_every"])),
        code=hash_code({"task": task_name, "algo": algo, **given}),
    )
    _check_run(config)
    return config


def choose_task(name: str, given: Mapping[str, str]) -> Task:
    """Return the task by name, gym:ID or FILE.py:NAME, with its given settings."""
    task: Part | None = find_environment(name)
    if task is not None:
        if task.time_limit is None and "task.horizon" not in given:
            raise ConfigError(f"task={name}: has no time limit; give the steps of an episode, task.horizon=INT")
    elif is_place(name):
        task = NAMES.find("task", Task, name)()
    else:
        task = TASKS[find_known("task", name, TASKS, "pcmlp list shows them all")]()
    task = overlay(task, given, NAMES, "task.")
    assert isinstance(task, Task)
    return task


def choose_preset(method: Method, algo: str, name: str, task_name: str, task: Task) -> dict[str, Any]:
    """Return the settings of a preset, or raise if the method has none for the task."""
    settings = method.preset(name, task_name, task.kind, task.horizon)
    if settings is not None:
        return settings
    if name == "ours":
        works = " or ".join(methods_for(task_name, task.kind)) or "a method with a preset for its kind"
        raise ConfigError(f"algo={algo}: cannot be used with {task_name}; give algo={works}")
    presets = sorted({known for other in METHODS.values() for known in other.presets})
    find_known("preset", name, presets, f"one of {', '.join(presets)}")
    raise ConfigError(f"preset={name}: {algo} has none for {task_name}; leave it out")


def _check_run(config: RunConfig) -> None:
    seeds, shown, horizon = config.seeds, " ".join(map(str, config.seeds)), config.task.horizon
    repeated = [seed for seed in seeds if seeds.count(seed) > 1]
    rows, episodes, every = config.algorithm.replay_rows, config.eval_episodes, config.eval_every
    for good, line in (
        (seeds, f"seeds={shown}: there is no seed; give at least one, such as seeds=0"),
        (not repeated, f"seeds={shown}: {next(iter(repeated), None)} is repeated; give each seed once"),
        (all(0 <= s <= _LARGEST_SEED for s in seeds), f"seeds={shown}: give numbers from 0 to {_LARGEST_SEED}"),
        (config.steps <= _LARGEST_STEPS, f"steps={config.steps}: give at most {_LARGEST_STEPS}"),
        (1 <= episodes <= MOST_EPISODES, f"eval_episodes={episodes}: give 1 to {MOST_EPISODES}"),
        (0 <= every <= _LARGEST_STEPS, f"eval_every={every}: give env steps, or 0 to evaluate every iteration"),
        (rows is None or rows >= horizon, f"replay_size={rows}: give {horizon} (an episode) or more"),
    ):
        if not good:
            raise ConfigError(line)
    if config.num_iterations < 1:
        needed = int(-(-config.steps_per_iteration // 1))
        smaller = ", or a smaller samples_per_policy" if needed > horizon else ""
        short = f"less than one iteration, which takes {needed} env steps"
        raise ConfigError(f"steps={config.steps}: {short}; give {needed} or more{smaller}")


def build(config: RunConfig, problem: Problem | None = None) -> tuple[Problem, Algorithm]:
    """Return the problem and the algorithm bound to it, after the checks that need both."""
    check_unchanged(config.code)
    problem = problem or build_problem(config.task)
    try:
        algorithm = config.algorithm.bind(problem)
        if config.code:  # parts of the user have to fit before a folder is made
            keys, mdp = jax.random.key(0)[None], algorithm.explored_world(problem).mdp
            eqx.filter_eval_shape(lambda: algorithm.start(keys, mdp, config.num_iterations))
        return problem, algorithm
    except ConfigError as error:
        line = str(error)
        if line.startswith("features "):
            features = next(part for key, _, part in walk(config.algorithm) if key == "features.name")
            line = f"{show_changed(features, 'features')}: {line}"
        named = re.match(r"features|model|algo|[\w.]+=", line)
        raise ConfigError(line if named else f"algo={config.algo}: {line}") from error


def build_problem(task: Task) -> Problem:
    """Build a task; an error message includes the task's settings."""
    try:
        problem = task.build()
        if not isinstance(problem, Problem):
            raise TypeError(f"build() returned a {type(problem).__name__}; return a pcmlp.types.Problem")
        # classic tasks and mazes are scaled by 1 too: all their scales run one program
        changed = task.reward_scale != 1 or task.kind == "small"
        return scale_reward(problem, task.reward_scale) if changed else problem
    except (TypeError, ValueError) as error:  # a ConfigError, or an array of the wrong kind in a user's file
        line = str(error).splitlines()[0]
        named = isinstance(error, ConfigError) and line.startswith(("task.", "environment", "horizon="))
        raise ConfigError(line if named else f"{show_changed(task, 'task')}: {line}") from error


def tiny_overrides(config: RunConfig) -> list[str]:
    """Return the settings that make a run like this one take milliseconds, as `--set` takes them."""
    task, tiny = tiny_settings(config.task), tiny_settings(config.algorithm)
    episode = task.get("horizon", config.task.horizon)
    for key in {"samples_per_policy", "replay_size"} & set(tiny):
        tiny[key] = max(tiny[key], episode)
    tiny |= {f"task.{key}": value for key, value in task.items()}
    reason = partial(unused_reason, config.method, config.task, config.algorithm)
    return [*(f"{key}={show(value)}" for key, value in tiny.items() if reason(key) is None), "eval_episodes=2"]


def to_json(config: RunConfig) -> str:
    """Return the whole configuration; its keys are those of `--set`, without those that have no effect."""
    record = {
        "task": {"name": config.task_name, **to_record(config.task, NAMES)},
        "algo": config.algo,
        "preset": config.preset,
        "seeds": list(config.seeds),
        "steps": config.steps,
        "eval_episodes": config.eval_episodes,
        **({"eval_every": config.eval_every} if config.eval_every else {}),
        **drop_unused(to_record(config.algorithm, NAMES), config),
        **({"data": dataclasses.asdict(config.data)} if config.data else {}),
        **({"code": dict(config.code)} if config.code else {}),
    }
    return json.dumps(record, indent=2) + "\n"


def drop_unused(record: dict[str, Any], config: RunConfig, path: str = "") -> dict[str, Any]:
    """Return the JSON of an algorithm without settings that have no effect in this configuration."""
    kept: dict[str, Any] = {}
    for name, value in record.items():
        key = f"{path}{name}"
        if isinstance(value, dict):
            inside = drop_unused(value, config, f"{key}.")
            kept |= {name: inside} if inside else {}
        elif unused_reason(config.method, config.task, config.algorithm, key) is None:
            kept[name] = value
    return kept


def from_json(text: str, *, trust_code: bool = False, where: str = "this run") -> RunConfig:
    """Return the configuration that `to_json` wrote. Code that it names is imported only if it is trusted."""
    record = parse_record(text)
    task, algo, data = record["task"].pop("name"), record.pop("algo"), record.pop("data", None)
    hashes, flat = record.pop("code", {}), {"eval_every": "0", **settings_of_record(record)}
    check_code({"task": task, "algo": algo, **flat}, hashes, trust_code, where)
    config = resolve(task, algo, record["seeds"], record["steps"], [f"{key}={text}" for key, text in flat.items()])
    return dataclasses.replace(config, data=None if data is None else Data(**data))


def parse_record(text: str) -> dict[str, Any]:
    """Return the JSON of a configuration, in which the types of the values outside of settings are checked."""
    try:
        record = parse_json(text)
        for name, kind in (("task", dict), ("algo", str), ("seeds", list[int]), ("steps", int)):
            check_type(record.get(name), kind, name)
        check_type(record["task"].get("name"), str, "task.name")
        check_type(record.get("code", {}), dict[str, str], "code")
        if "data" in record:
            from_record(Data, record["data"])
        return record
    except Damaged as error:
        raise ConfigError(
            f"config.json: not the configuration of a run ({error}); restore it, or train the run again"
        ) from error


def settings_of_record(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a configuration's JSON by dotted key, as `--set` takes them."""
    return {key: show(value) for key, value in flatten(record).items() if key not in FLAGS}
