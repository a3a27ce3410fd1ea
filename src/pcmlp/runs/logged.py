"""The logged steps of a run. The dataset that its configuration names is checked before anything is written."""

from collections.abc import Iterable
from pathlib import Path

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.learner import DeepLearner
from pcmlp.algorithms.logged import absorb, in_blocks
from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.runs.config import RunConfig, seed_keys
from pcmlp.runs.dataset import Logged, changed, load_data
from pcmlp.runs.durable import Damaged, read_json
from pcmlp.types import MDP, Algorithm, Learner


def load_logged(config: RunConfig, algorithm: Algorithm, mdp: MDP) -> Logged | None:
    """Return the logged steps of a run for its task; None if it starts without data."""
    if config.data is None:
        return None
    if not isinstance(algorithm, Deep):
        able = " or ".join(name for name, method in METHODS.items() if isinstance(method.algorithm, Deep))
        raise ConfigError(
            f"data={config.data.name}: {config.algo} cannot start from data; leave it out, or give {able}"
        )
    return load_data(config.data, mdp, config.task_name, config.task.reward_scale)


def check_same_data(config: RunConfig, run: Path) -> None:
    """Raise if a run that exists was started with other contents of the same dataset."""
    try:
        before = read_json(run / "config.json").get("data")
    except (Damaged, OSError):  # `checkpoint.check_same` says what is wrong
        return
    data, old = config.data, before if isinstance(before, dict) else {}
    if data is not None and old.get("name") == data.name and old.get("sha256") != data.sha256:
        raise changed(data)


def begin(algorithm: Algorithm, mdp: MDP, config: RunConfig, logged: Logged | None) -> Learner:
    """Return the learner before the first real step."""
    keys = seed_keys(config.seeds)
    learner = algorithm.start(keys, mdp, config.num_iterations)
    if logged is None:
        return learner
    assert isinstance(algorithm, Deep)
    assert isinstance(learner, DeepLearner)
    return absorb(algorithm, keys, mdp, learner, logged.rows)


def before_log(algorithm: Algorithm, mdp: MDP, config: RunConfig, logged: Logged | None) -> Iterable[Transitions]:
    """Return the rows that were in the replay before the first real step, for each seed."""
    if logged is None:
        return ()
    assert isinstance(algorithm, Deep)
    return in_blocks(algorithm, mdp, logged.rows, len(config.seeds))


def describe_logged(config: RunConfig, logged: Logged | None) -> list[str]:
    """Return the line that a run prints about its data, if it has any."""
    data, rows = config.data, config.algorithm.replay_rows
    if data is None or logged is None:
        return []
    of = f" of {logged.recorded}" if logged.recorded else ""
    kept = f"; the replay holds the newest {rows:,} of them (replay_size)" if rows and rows < data.steps else ""
    counted = "which do not count as env steps"
    return [f"data: starts from {data.steps:,} steps in {logged.episodes:,} episodes{of}, {counted}{kept}"]
