"""The expected time of a run, so that the user learns of a slow run before it starts.

    seconds = seeds * (floating-point operations of one seed) / (share * peak)

The operations are counted from the settings: the networks that imagined steps, fits and updates of SAC evaluate. The
peak is that of a matrix product on this machine, measured when it is asked for. The shares of the peak come from
benchmarks/cpu-2-cores.json: a paper round and a large MPPI plan reach 0.55, updates of SAC with 256 rows about 0.1.
Compiling is not included. docs/not-solved.md compares the estimate with measured runs.
"""

import itertools
import time

import jax
import numpy as np

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.planners import SAC
from pcmlp.runs.callbacks import show_time
from pcmlp.runs.config import RunConfig
from pcmlp.runs.evaluate import count_evaluations
from pcmlp.settings import walk
from pcmlp.spaces import Finite
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import World

_LARGE, _SMALL = 0.5, 0.1  # shares of the peak: many rows at once, updates of SAC
_STEP = 15_000  # operations of an imagined step apart from its networks
_HOST_S = 2e-4  # seconds of a step in a simulator on the host
_CRITICS = 17  # evaluations of a critic that an update of SAC costs for each of its rows, gradients included
_WORTH_S = 180.0  # a shorter run needs no warning
_SIZE = 1024  # rows and columns of the matrices that measure the peak


def describe_time(config: RunConfig, world: World, todo: int) -> str | None:
    """Return a line about how long `todo` iterations take; None if that is short or cannot be estimated."""
    if jax.default_backend() != "cpu":
        return None
    try:
        learning, evaluating = count_operations(config, world)
    except (KeyError, TypeError):  # a part of the user may lack a setting, or mean something else by its name
        return None
    scale = todo / config.num_iterations / measure_peak()
    seconds = (learning + evaluating) * scale
    if isinstance(world, GymnasiumWorld):
        seconds += _HOST_S * len(config.seeds) * (config.steps + evaluated_steps(config)) * todo / config.num_iterations
    if seconds < _WORTH_S:
        return None
    rate = seconds * config.num_iterations / todo / config.steps
    shown = f"{rate:.2g}" if rate < 10 else f"{rate:.0f}"
    line = f"about {show_time(seconds)} on this machine ({shown} s per env step, all seeds together)"
    if evaluating > learning and config.eval_episodes > 1:
        fewer = (learning + evaluating / config.eval_episodes) * scale
        line += f"; --set eval_episodes=1 reduces this to {show_time(fewer)}"
    return line


def count_operations(config: RunConfig, world: World) -> tuple[float, float]:
    """Return the operations of learning and of evaluating, of all seeds, divided by their share of the peak."""
    states, actions = world.mdp.states, world.mdp.actions
    if isinstance(states, Finite) or isinstance(actions, Finite):
        return 0.0, 0.0
    algorithm, settings = config.algorithm, {key: value for key, _, value in walk(config.algorithm)}
    inputs, seeds = states.size + actions.size, len(config.seeds)
    rounds, batch = settings.get("rounds", 1), settings.get("planner.batch", 0)
    plans = algorithm.plans if isinstance(algorithm, Deep) else 1
    per_action, per_plan = algorithm.imagined_steps(config.task.horizon)
    step = _STEP
    learning = 0.0
    if "model.sizes" in settings:
        model = network(inputs, *settings["model.sizes"], states.size)
        step += model
        rows = settings["model.steps"] * settings["model.batch"] * settings["model.members"]
        learning += config.num_iterations * rounds * rows * settings.get("model.unroll", 1) * 3 * model
    if "features.sizes" in settings or "features.dim" in settings:
        sizes = settings.get("features.sizes") or (settings["features.dim"],)
        step += network(inputs, *sizes) + 2 * sizes[-1] ** 2  # and the product with the covariance
    if isinstance(settings.get("planner.name"), SAC):
        updates = config.num_iterations * plans * settings["planner.updates"]
        if isinstance(algorithm, ModelFree):
            updates = config.steps * settings["updates_per_step"]
        critic = network(inputs, *settings["planner.sizes"], 1)
        learning += updates * batch * _CRITICS * critic * _LARGE / _SMALL
    searching = 1 - settings.get("planner.random_first", False) / config.num_iterations  # share of the steps
    learning += step * (searching * config.steps * per_action + config.num_iterations * per_plan)
    evaluating = step * per_action * searching * evaluated_steps(config)
    return seeds * learning / _LARGE, seeds * evaluating / _LARGE


def network(*sizes: int) -> int:
    """Return the operations of a network for one row."""
    return 2 * sum(a * b for a, b in itertools.pairwise(sizes))


def evaluated_steps(config: RunConfig) -> float:
    """Return the steps of all evaluations of one seed."""
    share = 1.2 if config.algorithm.evaluates_exploring else 1.0
    return share * count_evaluations(config) * config.eval_episodes * config.task.horizon


def measure_peak() -> float:
    """Return the operations per second of a matrix product: the best of as many as a third of a second allows."""
    matrix = np.ones((_SIZE, _SIZE), np.float32)
    times: list[float] = []
    while sum(times) < 0.3:
        began = time.perf_counter()
        np.dot(matrix, matrix)
        times.append(time.perf_counter() - began)
    return 2 * _SIZE**3 / min(times)
