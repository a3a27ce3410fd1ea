"""`pcmlp plan RUN --reward FILE.py:NAME`: plan for a new reward in the model of a run, without a new sample.

The model comes from the run's last checkpoint, the replay from its episode log. The plan goes to a new folder with
`config.json`, `plan.json` and `policy/`, which `pcmlp eval` measures in the real world under that reward. All input is
checked before planning begins.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.console import Console

from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.algorithms.replan import Ahead, Search, replan, search
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.imagine import Unknown
from pcmlp.parts import NAMES
from pcmlp.runs.callbacks import say
from pcmlp.runs.checkpoint import ENDED, latest_checkpoint
from pcmlp.runs.config import RunConfig, build, seed_keys, to_json
from pcmlp.runs.config_file import load_config
from pcmlp.runs.durable import write_sealed
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import PLAN, RunFolder, check_free
from pcmlp.runs.logged import before_log, load_logged
from pcmlp.runs.policy import Aim, Functions, check_functions, load_run, save_policies, with_objective
from pcmlp.runs.summary import device, read_summary, versions
from pcmlp.spaces import Box
from pcmlp.tasks.checks import Samples
from pcmlp.trees import take
from pcmlp.types import MDP, Policy, Problem

_AHEAD = Ahead()
_SHOWN = 6  # coordinates whose range is shown


class LearnedRun(NamedTuple):
    """A run as it was after its last checkpoint."""

    path: Path
    config: RunConfig
    problem: Problem
    algorithm: Deep
    learner: DeepLearner
    keys: Array
    iteration: int
    log_bytes: int | None  # length of the part of the log that the model was learned from
    guide: int | None = None  # the iteration whose policies guide a search; None: the exploring policies do

    @property
    def env_steps(self) -> float:
        """The env steps that the model was learned from, averaged over seeds."""
        return float(np.mean(np.asarray(self.learner.env_steps)))


class Planned(NamedTuple):
    """The outcome of a plan."""

    problem: Problem  # with the new reward
    policies: Policy  # with a leading axis of seeds
    values: np.ndarray  # [seeds, attempts, rounds], imagined returns


def load_learned(run: Path, seeds: Sequence[int] = (), *, trust_code: bool = False) -> LearnedRun:
    """Load what a run has learned, for these seeds or for all."""
    config = load_config(run, trust_code=trust_code)
    if not isinstance(config.algorithm, Deep):
        raise ConfigError(
            f"{run}: a run of {config.algo}, which has no model in which to plan for a new reward; "
            "give a run of Deep PC-MLP or of a rival that learns a model, such as pcmlp or mbpo"
        )
    chosen = _choose_seeds(run, config, seeds)
    problem, algorithm = build(config)
    assert isinstance(algorithm, Deep)
    mdp = algorithm.explored_world(problem).mdp
    before = before_log(algorithm, mdp, config, load_logged(config, algorithm, mdp))
    point = latest_checkpoint(config, algorithm, mdp, run, before)
    if point is None:
        raise ConfigError(f"{run}: has no checkpoint, so no model; train it for an iteration first")
    summary = read_summary(run) if (run / "summary.json").exists() else {}
    if summary.get("status") in ENDED and summary.get("iterations") != point.facts.iteration:
        remedy = "remove summary.json and continue with resume=True, which makes it again"
        raise ConfigError(f"{run}: its last checkpoint is gone; {remedy}")
    assert isinstance(point.learner, DeepLearner)
    rows = jnp.array([config.seeds.index(seed) for seed in chosen])
    keys, learner = seed_keys(config.seeds)[rows], take(point.learner, rows)
    config = dataclasses.replace(config, seeds=chosen)
    return LearnedRun(run, config, problem, algorithm, learner, keys, point.facts.iteration, point.facts.log_bytes)


def _choose_seeds(run: Path, config: RunConfig, seeds: Sequence[int]) -> tuple[int, ...]:
    strange = [seed for seed in seeds if seed not in config.seeds]
    if strange or len(set(seeds)) != len(seeds):
        what = f"seeds={' '.join(map(str, seeds))}"
        raise ConfigError(f"{what}: {run} has {' '.join(map(str, config.seeds))}; give some of these, each once")
    return tuple(seeds) or config.seeds


def collected(learned: LearnedRun) -> Samples:
    """Return all finite steps of the log, of all seeds together."""
    parts: list[list[np.ndarray]] = [[], [], []]
    for record in read(learned.path / "episodes", learned.log_bytes):
        rows = [np.asarray(x) for x in (record.rows.state, record.rows.action, record.rows.next_state)]
        known = [np.isfinite(x).all(axis=-1) for x in rows]
        good = record.rows.valid & np.logical_and.reduce(known)
        for part, x in zip(parts, rows, strict=True):
            part.append(x[good])
    state, action, next_state = (jnp.asarray(np.concatenate(part)) for part in parts)
    return state, action, next_state


def describe_pay(functions: Functions, mdp: MDP, samples: Samples) -> str:
    """Return a line about the reward at the collected steps; a warning with the visited ranges, if the reward is the
    same at all of them; an empty string, if the reward is learned."""
    reward = functions.reward or mdp.reward
    if isinstance(reward, Unknown) or not len(samples[0]):
        return ""
    paid = np.asarray(jax.jit(jax.vmap(reward))(*samples))
    least, most = paid.min(), paid.max()
    if least < most:
        count = np.count_nonzero(paid)
        return f"the reward is {least:.4g} to {most:.4g} at {len(paid):,} visited states; not 0 at {count:,}"
    seen = np.concatenate([np.asarray(samples[0]), np.asarray(samples[2])])
    ends = zip(seen.min(axis=0), seen.max(axis=0), strict=True)
    own = mdp.states.names if isinstance(mdp.states, Box) else ()
    names = own or [f"state[{i}]" for i in range(seen.shape[1])]
    ranges = [f"{name} in [{low:.4g}, {high:.4g}]" for name, (low, high) in zip(names, ends, strict=True)]
    more = [f"and {len(ranges) - _SHOWN} more coordinates"] if len(ranges) > _SHOWN else []
    return (
        f"warning: the reward is {most:.4g} at all {len(paid):,} visited states: {', '.join(ranges[:_SHOWN] + more)}; "
        "compare its numbers with these ranges, or explore for more steps; planning continues, because the model may "
        "reach other states"
    )


def plan(
    learned: LearnedRun,
    functions: Functions,
    success_return: float | None = None,
    how: Ahead | Search = _AHEAD,
) -> Planned:
    """Plan policies for the reward in the model; rewards that differ only in arrays share one compiled program."""
    problem = with_objective(learned.problem, functions, success_return)
    algorithm, mdp = dataclasses.replace(learned.algorithm, reward_free=False), problem.world.mdp
    if isinstance(how, Search):
        policies, values = search(learned.keys, algorithm, mdp, learned.learner, how)
    else:
        policies, values = replan(learned.keys, algorithm, mdp, learned.learner, how)
    known = np.nan_to_num(np.asarray(values), nan=-np.inf)
    if not np.isfinite(known).any(axis=(1, 2)).all():
        raise RunStopped("no imagined return was finite, so nothing was kept; look for a reward that grows huge")
    return Planned(problem, policies, known)


def choose_way(learned: LearnedRun, searches: bool, counts: Mapping[str, int]) -> Ahead | Search:
    """Return the way to plan, with the given counts."""
    kind = Search if searches else Ahead
    for name, count in counts.items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            owner, remedy = (
                ("not for a search", "leave it out") if searches else ("only for a search", "give search=True as well")
            )
            raise ConfigError(f"{name}={count}: {owner}; {remedy}")
    planner = learned.algorithm.planner
    if searches and planner.searches:
        raise ConfigError(
            f"search: {learned.path} plans by {NAMES.name_of(planner)}, at every step anyway; leave it out"
        )
    return kind(**counts)


def choose_guide(
    learned: LearnedRun, searches: bool, iteration: int | str | None, *, trust_code: bool = False
) -> LearnedRun:
    """Return the run with the policies that an iteration has planned, in place of the exploring policies, as the guides
    of a search."""
    if iteration is None:
        return learned
    if not searches:
        raise ConfigError(
            f"iteration={iteration}: a plan begins from new policies, in the newest model; leave it out, or give "
            "search=True as well, which takes the actions of this iteration's policy"
        )
    saved = load_run(learned.path, iteration=iteration, trust_code=trust_code)
    guides = take(saved.policies, jnp.array([saved.config.seeds.index(seed) for seed in learned.config.seeds]))
    learner = eqx.tree_at(lambda learner: learner.policy, learned.learner, guides)
    return learned._replace(learner=learner, guide=saved.iteration)


def plan_run(
    learned: LearnedRun,
    aim: Aim,
    out: Path,
    how: Ahead | Search = _AHEAD,
    command: str = "",
    console: Console | None = None,
) -> dict[str, Any]:
    """Plan into the folder `out` and return the contents of `plan.json`; bad input writes nothing. Before it plans, it
    prints what the reward pays at the steps of the run's log."""
    began = time.perf_counter()
    check_free(out)
    aim = aim.with_hash()
    functions = aim.load(True, out)  # trusted: the user has just given the code by name
    mdp, samples = learned.problem.world.mdp, collected(learned)
    check_functions(functions, mdp, samples)
    if line := describe_pay(functions, mdp, samples):
        say(console or Console(), line)
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
        "guide": learned.guide,
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
        save_policies(folder.policy, planned.policies, learned.config, record["aim"])
        write_sealed(out / PLAN, record)
    return record
