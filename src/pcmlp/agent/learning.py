"""What surrounds the iterations of `DeepPCMLP.learn`: checks, evaluation, the folder for TensorBoard, first lines."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console

from pcmlp.agent.callbacks import Logger
from pcmlp.agent.setup import Absent, Made
from pcmlp.algorithms.deep import Deep, DeepLearner
from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.runs.callbacks import Callback, say, show_progress
from pcmlp.runs.compiling import Compiling
from pcmlp.runs.config import MOST_EPISODES, RunConfig
from pcmlp.runs.dataset import find_data
from pcmlp.runs.evaluate import Evaluator, evaluation_keys
from pcmlp.runs.findings import may_be_unseen
from pcmlp.runs.logged import begin, load_logged
from pcmlp.runs.train import world_notes
from pcmlp.settings import parse_int
from pcmlp.types import Iteration, Problem
from pcmlp.world import JaxWorld

_EVALUATED = 20  # episodes of an evaluation, where they are cheap


def count_iterations(config: RunConfig, problem: Problem, total_timesteps: int | float) -> int:
    """Return the number of iterations, or raise if nothing can be learned."""
    if isinstance(problem.world, Absent):
        raise problem.world.error()
    steps, each = parse_int("total_timesteps", str(total_timesteps)), int(config.steps_per_iteration)
    if steps < each:
        raise ConfigError(
            f"total_timesteps={steps}: less than one iteration, which takes {each} env steps; give {each} or more"
        )
    return steps // each


def start_from(made: Made, iteration: int, name: str) -> tuple[DeepLearner, int]:
    """Return the learner of an agent that starts from a Minari dataset, and the number of its steps."""
    if iteration > 0:
        raise ConfigError(f"data={name}: this agent has learned already; start from data before the first learn(...)")
    config = dataclasses.replace(made.config, data=find_data(name))
    logged = load_logged(config, made.algorithm, made.world.mdp)
    learner = begin(made.algorithm, made.world.mdp, config, logged)
    assert isinstance(learner, DeepLearner)
    return learner, 0 if config.data is None else config.data.steps


def check_count(name: str, value: Any, least: int) -> int:
    """Return the value as a whole number; raise if it is not one, or out of range."""
    number = parse_int(name, str(value))
    if not least <= number <= MOST_EPISODES:
        raise ConfigError(f"{name}={value}: give {least} or more, at most {MOST_EPISODES}")
    return number


def open_progress(made: Made, done: int, number: int, every: int | None) -> list[Callback]:
    """Print the first lines; return the callbacks that show the compilation and `number` iterations after `done`."""
    config, world, console = made.config, made.problem.world, Console()
    size = f"{number} iteration{'s' if number > 1 else ''} of {config.steps_per_iteration:g} env steps"
    for line in (f"{config.task_name}, {config.algo}: learning for {size}", *world_notes(world)):
        say(console, line)
    compiling = Compiling(config, "agent", world.mdp.reward, world.mdp.terminal)
    return [compiling, show_progress(console, done + number, done, compiling.announce(), every)]


def open_listeners(agent: Any, number: int, log_interval: int, tb_log_name: str, progress_bar: bool) -> list[Callback]:
    """Return the callbacks of an agent that show progress and write for TensorBoard."""
    callbacks: list[Callback] = []
    if progress_bar or agent.verbose:
        callbacks += open_progress(agent.made, agent.iteration, number, None if progress_bar else log_interval)
    if agent.tensorboard_log is not None:
        agent.log_folder = agent.log_folder or next_log_folder(Path(agent.tensorboard_log), tb_log_name)
        agent.logger = Logger(agent.log_folder)
        callbacks.append(write_log(agent.logger, log_interval))
    return callbacks


def choose_evaluator(
    problem: Problem, algorithm: Deep, keys: Key[Array, " seeds"], episodes: int | None, is_heard: bool
) -> Evaluator | None:
    """Return the evaluator of every iteration, or None if there is no evaluation."""
    if episodes is None:
        is_cheap = isinstance(problem.world, JaxWorld) and not algorithm.planner.searches
        episodes = _EVALUATED if is_cheap and is_heard else 0
    episodes = check_count("eval_episodes", episodes, 0)
    return Evaluator(problem.world, evaluation_keys(keys), episodes) if episodes else None


def score(evaluator: Evaluator | None, learner: DeepLearner, success_return: float | None) -> dict[str, float]:
    """Evaluate the policy to deploy and return the columns `eval_*`; return none of them without an evaluator."""
    if evaluator is None:
        return {}
    columns = evaluator.scores(0, evaluator.returns(learner.deployed()), success_return)
    return {f"eval_{name}": value for name, value in columns.items() if value is not None}


def measure(iteration: Iteration) -> dict[str, float]:
    """Return the metrics of an iteration of one seed, without the errors that cannot be measured yet."""
    measured = {name: float(values[0]) for name, values in iteration.metrics.items()}
    return {name: value for name, value in measured.items() if not may_be_unseen(name) or np.isfinite(value)}


def take_steps(iteration: Iteration) -> Transitions:
    """Return the real steps of an iteration of one seed, on the host."""
    walked = jax.tree.map(lambda *parts: np.concatenate([np.asarray(part)[0] for part in parts]), *iteration.walked)
    return jax.tree.map(lambda values: values[walked.valid], walked)


def next_log_folder(root: Path, name: str) -> Path:
    """Return a new folder for TensorBoard, such as ROOT/NAME_1."""
    numbers = [path.name.rpartition("_")[2] for path in root.glob(f"{name}_*")]
    return root / f"{name}_{1 + max((int(number) for number in numbers if number.isdigit()), default=0)}"


def write_log(logger: Logger, interval: int) -> Callback:
    """Return a callback that writes the metrics of every `interval` iterations for TensorBoard."""

    def write(agent: Any, metrics: dict[str, float]) -> None:
        if int(metrics["iteration"]) % interval == 0:
            for name, value in metrics.items():
                logger.record(name, value)
            logger.dump(agent.num_timesteps)

    return write
