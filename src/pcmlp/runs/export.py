"""The episodes of a run as a Minari dataset, in Minari's own local folder (`MINARI_DATASETS_PATH`).

    s_0 ... s_n,  a_0 ... a_{n-1} as executed,  r_0 ... r_{n-1} of the task, before its `reward_scale`

An episode's last step is a termination if the MDP ended there, and a truncation otherwise: at the horizon, or earlier
if no more steps were collected.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pcmlp.choices import Choices
from pcmlp.errors import ConfigError, first_line
from pcmlp.runs.checkpoint import check_unchanged
from pcmlp.runs.config import build_problem
from pcmlp.runs.config_file import load_task
from pcmlp.runs.dataset import check_name
from pcmlp.runs.durable import Damaged
from pcmlp.runs.episodes import Record, log_path, read
from pcmlp.runs.summary import read_summary
from pcmlp.spaces import Box, Finite, Space
from pcmlp.tasks.action_spaces import space_of
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import World

_PER_EPISODE = 20_000  # bytes of HDF5 overhead per episode
_PADDING = 1.5  # factor by which HDF5 enlarges the numbers


class Episode(NamedTuple):
    """One episode of a seed."""

    seed: int
    iteration: int
    observations: np.ndarray  # one more than there are steps
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def export(run: Path, name: str, *, trust_code: bool = False, say: Callable[[str], object] = lambda line: None) -> Any:
    """Write the dataset and return it; bad input writes nothing. `say` is called with a line about a damaged log, of
    which only the beginning is exported."""
    check_name("minari", name)
    task, record = load_task(run, trust_code=trust_code)
    world, folder = build_problem(task).world, run / "episodes"
    mdp = world.mdp
    log = log_path(folder)
    try:
        manifest = check_unchanged(run)
    except (Damaged, OSError) as error:
        raise ConfigError(f"{run}: {first_line(error)}; restore the file, or train the run again") from error
    damage = manifest.find_damage(folder) if manifest else None
    records = [] if damage and damage.is_edited else list(read(folder, manifest.log_bytes if manifest else None))
    wanted = [() if isinstance(space, Finite) else (space.size,) for space in (mdp.states, mdp.actions)]
    if any([each.rows.state.shape[2:], each.rows.action.shape[2:]] != wanted for each in records):
        raise ConfigError(f"{log}: not the episodes of the configuration beside it; train the run again")
    episodes = [episode for each in records for episode in episodes_of(each, mdp.actions, task.reward_scale)]
    if not episodes:
        remedy = "train the run first, with resume=True if it was cut off"
        raise ConfigError(damage.line if damage else f"{log}: it has no whole episode; {remedy}")
    if damage:
        say(damage.line)
    about = {"task": record["task"]["name"], "algo": record["algo"], "seeds": record["seeds"], "horizon": task.horizon}
    if (run / "summary.json").exists():
        summary = read_summary(run)
        about |= {"command": summary.get("command", ""), "versions": summary.get("versions", {})}
    return write(name, episodes, world, about)


def episodes_of(record: Record, actions: Space, reward_scale: float) -> Iterator[Episode]:
    """Yield the episodes of every seed; no episode continues in another record."""
    for i, seed in enumerate(record.seeds):
        state, action, reward, next_state, terminal, last, valid = (x[i] for x in jax.tree.leaves(record.rows))
        if isinstance(actions, Box):  # the log has the actions before clipping
            action = np.clip(action, *actions.bounds)
        elif isinstance(actions, Choices):
            action = np.asarray(actions.to_integers(action))
        reward = reward / np.float32(reward_scale)  # a run that starts from the dataset has a scale of its own
        walked = np.flatnonzero(valid)
        for rows in np.split(walked, np.flatnonzero(last[walked]) + 1):
            if rows.size == 0:
                continue
            observations = np.concatenate([state[rows], next_state[rows[-1:]]])
            truncations = np.zeros(rows.size, bool)
            truncations[-1] = not terminal[rows[-1]]
            yield Episode(seed, record.iteration, observations, action[rows], reward[rows], terminal[rows], truncations)


def write(name: str, episodes: list[Episode], world: World, about: dict[str, Any]) -> Any:
    """Write the episodes as a Minari dataset and return it."""
    import minari
    from minari.data_collector import EpisodeBuffer

    place = free_place(name)
    check_room(episodes, place, name)
    buffers = [
        EpisodeBuffer(
            seed=episode.seed,
            observations=list(episode.observations),
            actions=list(episode.actions),
            rewards=list(episode.rewards),
            terminations=list(episode.terminations),
            truncations=list(episode.truncations),
        )
        for episode in episodes
    ]
    description = (
        f"Every real step that the algorithm {about['algo']} took to learn {about['task']}, in order. The seed of an "
        "episode is that of its learner, its iteration the one that collected it. An episode that was "
        f"truncated before its horizon of {about['horizon']} steps was cut off there: no more were collected."
    )
    try:
        with warnings.catch_warnings(action="ignore"):  # Minari warns about missing metadata, such as an e-mail address
            dataset = minari.create_dataset_from_buffers(
                name,
                buffers,
                algorithm_name=about["algo"],
                author="pcmlp",
                observation_space=enclose(world.mdp.states, [episode.observations for episode in episodes]),
                action_space=actions_of(world, episodes),
                description=description,
            )
        dataset.storage.update_metadata(about)
        dataset.storage.update_episode_metadata({"iteration": episode.iteration} for episode in episodes)
    except BaseException as error:
        # Another process was faster, so the folder belongs to it. Minari raises either of two errors.
        if isinstance(error, FileExistsError) or isinstance(error, ValueError) and "already exists" in str(error):
            raise ConfigError(f"minari={name}: {error}") from error
        shutil.rmtree(place, ignore_errors=True)  # Minari would load half a dataset as a whole one
        if isinstance(error, OSError):
            raise unwritable(name, error.strerror or error) from error
        raise
    return dataset


def free_place(name: str) -> Path:
    """Return the folder that Minari will write to; an existing dataset is never overwritten."""
    from minari.storage import get_dataset_path

    try:
        place = get_dataset_path(name)
    except OSError as error:
        raise unwritable(name, error.strerror or error) from error
    if place.exists():
        raise ConfigError(f"minari={name}: {place} exists and is not overwritten; give another name or version")
    return place


def check_room(episodes: list[Episode], place: Path, name: str) -> None:
    """Raise if the disk is too full, before anything is written: HDF5 crashes on a full disk."""
    numbers = sum(array.nbytes for episode in episodes for array in episode[2:])
    needed = _PADDING * numbers + _PER_EPISODE * len(episodes)
    folder = next(parent for parent in place.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise unwritable(name, f"no space: {needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free")


def unwritable(name: str, why: object) -> ConfigError:
    """Return the error about a dataset that cannot be written."""
    return ConfigError(f"minari={name}: cannot be written ({why}); MINARI_DATASETS_PATH names another folder")


def actions_of(world: World, episodes: list[Episode]) -> Any:
    """Return the Gymnasium space of actions; for choices, it is the environment's own space."""
    if not isinstance(world.mdp.actions, Choices):
        return enclose(world.mdp.actions, [episode.actions for episode in episodes])
    own = isinstance(world, GymnasiumWorld)
    return world.environments.first.action_space if own else space_of(world.mdp.actions)


def enclose(space: Space, values: list[np.ndarray]) -> Any:
    """Return the space for Gymnasium, widened where noise or rounding exceeds its bounds."""
    from gymnasium import spaces

    if not isinstance(space, Box):
        return spaces.Discrete(space.size)
    low = np.min([space.bounds[0], *(each.min(axis=0) for each in values)], axis=0)
    high = np.max([space.bounds[1], *(each.max(axis=0) for each in values)], axis=0)
    return spaces.Box(low, high, dtype=np.float32)
