"""The Minari dataset that a run starts from (`--data`): its steps as rows, and checks that they fit the task.

    s_t, a_t, r_t, s_{t+1}    of an episode with observations s_0 ... s_n

Rewards are those of the task if it has a function for them. A row is `terminal` if the dataset marks it as a
termination. It is `last` if it is terminal, a truncation, or the end of an episode. `config.json` has the name and a
hash of all numbers, so a run is resumed with the same data.
"""

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from pcmlp.boundary import Layout, UnsupportedSpace, WrongStructure
from pcmlp.choices import Choices
from pcmlp.errors import ConfigError, first_line
from pcmlp.imagine import Unknown
from pcmlp.replay import Transitions
from pcmlp.spaces import Box
from pcmlp.tasks.action_spaces import choices_of
from pcmlp.types import MDP

_NEEDED = ("minari", "h5py")  # Minari needs h5py for its files
_TOLERANCE = 1e-3  # as a share of the width between two bounds
_SIGNALS = ("rewards", "terminations", "truncations")


@dataclass(frozen=True)
class Data:
    """The dataset of a run, as its configuration names it."""

    name: str
    sha256: str
    steps: int


class Logged(NamedTuple):
    """The rows of a dataset, and facts for the user."""

    rows: Transitions  # of NumPy arrays
    episodes: int
    recorded: str  # the environment or task that the dataset names


def check_name(argument: str, name: str) -> None:
    """Raise unless Minari is installed and accepts the name."""
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"{argument}: needs {package}; pip install 'pcmlp[minari]'")
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(name)
        named = "//" not in name  # Minari accepts "//" in a name, but then cannot find the dataset
    except (ValueError, TypeError):  # a TypeError where the version is missing
        named = False
    if not named:
        form = "letters, digits, - and _, at least two of them before the /, and a version"
        raise ConfigError(f"{argument}={name}: not a name for Minari; give one like pcmlp/mountain-car-v0: {form}")


def find_data(name: str) -> Data:
    """Return the name, hash and number of steps of a dataset, for a configuration."""
    hashed, steps = hashlib.sha256(), 0
    for episode in _episodes(_open(name), name):
        steps += len(episode["rewards"])
        for each, array in episode.items():
            hashed.update(f"{each} {array.dtype} {array.shape} ".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
    if steps == 0:
        raise ConfigError(f"data={name}: has no steps; give another dataset")
    return Data(name, hashed.hexdigest(), steps)


def load_data(data: Data, mdp: MDP, task: str, reward_scale: float) -> Logged:
    """Return the steps of a dataset as rows for a task; raise if the dataset has changed or belongs to another
    environment."""
    if find_data(data.name) != data:
        raise changed(data)
    dataset = _open(data.name)
    _check_spaces(data.name, dataset, mdp, task)
    parts = [_rows_of(episode, reward_scale) for episode in _episodes(dataset, data.name)]
    rows = Transitions.of_arrays(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    _check_range(data.name, rows, mdp, task)
    if not isinstance(mdp.reward, Unknown):  # as a simulator's own rewards, those of the dataset may be others
        paid = jax.jit(jax.vmap(mdp.reward))(rows.state, rows.action, rows.next_state)
        rows = eqx.tree_at(lambda t: t.reward, rows, np.asarray(paid, np.float32))
    spec = dataset.env_spec
    return Logged(rows, len(parts), str(dataset.storage.metadata.get("task") or (spec.id if spec else "")))


def changed(data: Data) -> ConfigError:
    """Return the error about a dataset that has changed."""
    remedy = "restore the dataset, or give another out folder"
    return ConfigError(f"data={data.name}: changed since this run was started; {remedy}")


def _open(name: str) -> Any:
    """Return the dataset from Minari's local folder."""
    check_name("data", name)
    import minari
    from minari.storage import get_dataset_path

    folder = Path(get_dataset_path(name))
    if not folder.exists():
        remedy = f"get it with minari download {name}, or name its folder in MINARI_DATASETS_PATH"
        raise ConfigError(f"data={name}: there is no {folder}; {remedy}")
    try:
        return minari.load_dataset(name)
    except Exception as error:  # HDF5 and Minari raise many kinds
        raise ConfigError(f"data={name}: cannot be read ({first_line(error)}); restore the dataset") from error


def _episodes(dataset: Any, name: str) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of each episode with at least one step; observations and actions are vectors."""
    try:
        layout, choices = Layout.of(dataset.observation_space), choices_of(dataset.action_space)
    except UnsupportedSpace as error:
        raise ConfigError(f"data={name}: its observations are not supported: {error}; give another dataset") from error
    if choices is None and not hasattr(dataset.action_space, "low"):
        kind = type(dataset.action_space).__name__
        raise ConfigError(f"data={name}: its actions are a {kind}, which is not supported; give another dataset")
    try:
        for episode in dataset.iterate_episodes():
            actions = np.asarray(episode.actions)
            arrays = {
                "observations": layout.read_rows(episode.observations),
                "actions": actions.reshape(len(actions), -1) if choices is None else choices.to_vectors(actions),
                **{each: np.asarray(getattr(episode, each)) for each in _SIGNALS},
            }
            steps = len(arrays["rewards"])
            if any(len(array) != steps + (each == "observations") for each, array in arrays.items()):
                raise ConfigError(f"data={name}: an episode has arrays of different lengths; restore the dataset")
            if steps:
                yield arrays
    except (OSError, KeyError, AttributeError, TypeError, WrongStructure) as error:
        raise ConfigError(f"data={name}: cannot be read ({first_line(error)}); restore the dataset") from error


def _rows_of(episode: dict[str, np.ndarray], reward_scale: float) -> tuple[np.ndarray, ...]:
    """Return the fields of `Transitions` for one episode."""
    states, actions = (episode[each].astype(np.float32) for each in ("observations", "actions"))
    terminal = episode["terminations"].astype(bool)
    last = terminal | episode["truncations"].astype(bool)
    last[-1] = True  # also in an episode that was cut off
    rewards = (reward_scale * episode["rewards"]).astype(np.float32)
    return states[:-1], actions, rewards, states[1:], terminal, last, np.ones_like(last)


def _check_spaces(name: str, dataset: Any, mdp: MDP, task: str) -> None:
    """Raise if the dataset's spaces are not those of the task."""
    states, actions = mdp.boxes
    theirs, choices = Layout.of(dataset.observation_space), choices_of(dataset.action_space)
    ours, taken = states.layout or Layout.vector(states.size), choices or dataset.action_space
    if theirs.is_vector and not ours.is_vector:
        ours = Layout.vector(ours.size)  # `pcmlp export` makes a vector of an observation of any structure
    for what, found, wanted in (
        ("observations", _describe(theirs), _describe(ours)),
        ("actions", _describe_actions(taken), _describe_actions(actions)),
    ):
        if found != wanted:
            raise ConfigError(
                f"data={name}: {what} are {found}, those of {task} are {wanted}; give a dataset of {task}"
            )
    if choices is not None:
        return
    low, high = (np.ravel(bound) for bound in (dataset.action_space.low, dataset.action_space.high))
    for given, ours in ((low, actions.bounds[0]), (high, actions.bounds[1])):
        if not np.allclose(given, ours, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise ConfigError(
                f"data={name}: actions are from {_show(low)} to {_show(high)}, those of {task} from "
                f"{_show(actions.bounds[0])} to {_show(actions.bounds[1])}; give a dataset of {task}"
            )


def _check_range(name: str, rows: Transitions, mdp: MDP, task: str) -> None:
    """Raise if an observation is outside of the task's bounds, because then the dataset is of another environment."""
    assert isinstance(mdp.states, Box)
    low, high = mdp.states.bounds
    room = _TOLERANCE * np.where(np.isfinite(high - low), np.maximum(high - low, 1.0), 0.0)
    for states in (rows.state, rows.next_state):
        outside = (states < low - room) | (states > high + room)
        if outside.any():
            i = int(np.flatnonzero(outside.any(axis=0))[0])
            found = f"{states[:, i].min():.4g} to {states[:, i].max():.4g}"
            raise ConfigError(
                f"data={name}: observation {i} goes from {found}, in {task} from {low[i]:.4g} to {high[i]:.4g}; "
                f"give a dataset of {task}"
            )


def _describe(layout: Layout) -> str:
    """Return the size of observations, and the names and sizes of their parts."""
    vectors = f"vectors of {layout.size} numbers" if layout.size != 1 else "vectors of 1 number"
    parts = ", ".join(f"{name}: {where.stop - where.start}" for name, where in layout.index.items())
    return f"{vectors} ({parts})" if parts else vectors


def _describe_actions(space: Any) -> str:
    """Return the kind and size of a space of actions."""
    if isinstance(space, Choices):
        return "choices of " + ", ".join(map(str, space.sizes)) + " options"
    size = space.size if isinstance(space, Box) else int(np.prod(space.shape))
    return f"vectors of {size} numbers" if size != 1 else "vectors of 1 number"


def _show(bound: np.ndarray) -> str:
    return ",".join(f"{value:.4g}" for value in bound)
