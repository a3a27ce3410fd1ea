"""`pcmlp plan RUN --reward FILE.py:NAME`: a new reward in the model that a run has learned, with no new sample.

The run's last checkpoint has model and seen box, its episode log the replay. What is planned there goes to a folder of
its own, `config.json`, `plan.json` and `policy/`, which `pcmlp eval` measures in the real world under that reward.
Everything is checked before anything long begins.
"""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcmlp.deep import Deep, DeepLearner
from pcmlp.replan import Ahead, Search, replan, search
from pcmlp.runs.aim import FILE, Aim, Functions, aimed, check_functions
from pcmlp.runs.build import build
from pcmlp.runs.config import RunConfig, load_config, to_json
from pcmlp.runs.durable import write_text
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import RunFolder, check_free
from pcmlp.runs.options import PLANNERS, CEMOptions, DeepConfig, MPPIOptions, SACOptions, name_of
from pcmlp.runs.policy import check_trusted, save_policies
from pcmlp.runs.presets import DEEP_PRESETS
from pcmlp.runs.resume import left_off
from pcmlp.runs.run import seed_keys
from pcmlp.runs.summary import device, versions
from pcmlp.tasks.checks import Samples
from pcmlp.types import AbstractPolicy, ConfigError, RunStopped, Task

MODELLED = [algo for algo in DEEP_PRESETS if algo != "random"]  # whose runs hold a model that can be planned in
_AHEAD = Ahead()


class Learned(NamedTuple):
    """A run, as it was after its last checkpoint."""

    path: Path
    config: RunConfig
    task: Task
    algo: Deep
    learner: DeepLearner
    keys: Array
    iteration: int

    @property
    def env_steps(self) -> float:
        return float(np.mean(np.asarray(self.learner.env_steps)))


class Planned(NamedTuple):
    task: Task  # the world under the new reward
    policies: AbstractPolicy  # with a leading axis of seeds
    values: np.ndarray  # [seeds, attempts, rounds], imagined returns


def load_learned(run: Path, seeds: Sequence[int] = (), *, trust_code: bool = False) -> Learned:
    """What the run has learned, of these seeds, or of all."""
    config = load_config(run)
    if not isinstance(config, DeepConfig) or config.algo not in MODELLED:
        raise ConfigError(
            f"{run}: of {config.algo}, which has no model that a new reward can be planned in; "
            f"give a run of {' or '.join(MODELLED)}"
        )
    chosen = _chosen_seeds(run, config, seeds)
    check_trusted(run, config, None, trust_code)
    task, algo = build(config)
    assert isinstance(algo, Deep)
    keys = seed_keys(config)
    point = left_off(config, algo, keys, run)
    if point is None:
        raise ConfigError(f"{run}: has no checkpoint, so no model; train it for an iteration first")
    assert isinstance(point.learner, DeepLearner)
    rows = jnp.array([config.seeds.index(seed) for seed in chosen])
    learner = jax.tree.map(lambda x: x[rows] if eqx.is_array(x) else x, point.learner)
    return Learned(
        run, dataclasses.replace(config, seeds=chosen), task, algo, learner, keys[rows], point.facts.iteration
    )


def _chosen_seeds(run: Path, config: RunConfig, seeds: Sequence[int]) -> tuple[int, ...]:
    strange = [seed for seed in seeds if seed not in config.seeds]
    if strange or len(set(seeds)) != len(seeds):
        what = f"seeds={' '.join(map(str, seeds))}"
        raise ConfigError(f"{what}: {run} has {' '.join(map(str, config.seeds))}; give some of these, each once")
    return tuple(seeds) or config.seeds


def collected(learned: Learned) -> Samples:
    """Every step of the log that is made of numbers, all seeds together."""
    parts: list[list[np.ndarray]] = [[], [], []]
    for record in read(learned.path / "episodes"):
        rows = [record.arrays[name] for name in ("state", "action", "next_state")]
        known = [np.isfinite(x).all(axis=-1) for x in rows]
        good = record.arrays["valid"] & np.logical_and.reduce(known)
        for part, x in zip(parts, rows, strict=True):
            part.append(x[good])
    state, action, next_state = (jnp.asarray(np.concatenate(part)) for part in parts)
    return state, action, next_state


def usual_rounds(config: RunConfig) -> int:
    """Twenty thousand of SAC's small steps, which ours takes two hundred of in a round and MBPO thousands; five times
    forty of TRPO's large ones."""
    return max(1, 20_000 // config.planner.updates) if isinstance(config.planner, SACOptions) else 5


def plan(
    learned: Learned,
    functions: Functions,
    success_return: float | None = None,
    how: Ahead | Search = _AHEAD,
) -> Planned:
    """Policies for the reward, in the model; a program that is compiled once for rewards that differ in arrays only."""
    task = aimed(learned.task, functions, success_return)
    algo = dataclasses.replace(learned.algo, world=task.world)
    if isinstance(how, Search):
        policies, values = search(learned.keys, algo, learned.learner, how)
    else:
        rounds = usual_rounds(learned.config) if how.rounds is None else how.rounds
        policies, values = replan(learned.keys, algo, learned.learner, how.attempts, rounds)
    known = np.nan_to_num(np.asarray(values), nan=-np.inf)
    if not np.isfinite(known).any(axis=(1, 2)).all():
        raise RunStopped("no imagined return was a number, so nothing was kept; look for a reward that grows huge")
    return Planned(task, policies, known)


def how_asked(run: Path, searches: bool, counts: Mapping[str, int]) -> Ahead | Search:
    """The way to plan in the run's model that these numbers belong to."""
    kind = Search if searches else Ahead
    for name, count in counts.items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            owner, remedy = ("a plan ahead", "leave it out") if searches else ("a search", "give --search as well")
            raise ConfigError(f"{name}={count}: belongs to {owner}; {remedy}")
    if searches and isinstance(planner := load_config(run).planner, CEMOptions | MPPIOptions):
        raise ConfigError(f"search: {run} plans by {name_of(PLANNERS, planner)}, at every step anyway; leave it out")
    return kind(**counts)


def plan_run(learned: Learned, aim: Aim, out: Path, how: Ahead | Search = _AHEAD, command: str = "") -> dict[str, Any]:
    """Into the folder `out`, and what `plan.json` says of it; bad input writes nothing."""
    began = time.perf_counter()
    check_free(out)
    aim = aim.with_hash()
    functions = aim.load()
    check_functions(functions, learned.task.world, collected(learned))
    planned = plan(learned, functions, aim.success_return, how)
    searches = isinstance(how, Search)
    _, attempts, rounds = planned.values.shape
    record = {
        "aim": dataclasses.asdict(aim),
        "task": learned.config.task_name,
        "algo": learned.config.algo,
        "run": learned.path.name,
        "iteration": learned.iteration,
        "search": dataclasses.asdict(how) if searches else None,
        "attempts": None if searches else attempts,
        "rounds": None if searches else rounds,
        "command": command,
        "seeds": [
            {"seed": seed, "imagined_return": max(tried), "by_attempt": tried}
            for seed, tried in zip(learned.config.seeds, planned.values.max(axis=2).tolist(), strict=True)
        ],
        "wall_s": round(time.perf_counter() - began, 3),
        "device": device(),
        "versions": versions(),
    }
    folder, lock = RunFolder.create(out, to_json(learned.config))
    with lock:
        save_policies(folder.policy, planned.policies, learned.config)
        write_text(out / FILE, json.dumps(record, indent=2) + "\n")
    return record
