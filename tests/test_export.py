"""`pcmlp export --minari`: the dataset, read by Minari, is the log; what cannot be exported is refused in a line."""

import importlib.util
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.planners import UniformPolicy
from pcmlp.replay import Transitions
from pcmlp.runs import export as exporting
from pcmlp.runs.config import build_problem, resolve, to_json
from pcmlp.runs.episodes import EpisodeLog, log_path, read

NAME = "pcmlp/test-v0"
# the configuration of tests/test_cli.py
TRAIN = "train combination-lock --seeds 0 7 --steps 60 --set task.horizon=3 task.actions=2 eval_episodes=4"
SEEDS = (3, 5)
TASKS = {
    "mountain-car": ("task.horizon=10",),
    "mountain-car on Gymnasium": ("task.horizon=10", "task.simulator=gymnasium"),
    "acrobot": ("task.horizon=10",),
    "pendulum": ("task.horizon=10",),
    "point-umaze": ("task.horizon=10",),
    "knr-lds": (),
    "combination-lock": ("task.horizon=4", "task.actions=2"),
}


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    """Minari's folder."""
    monkeypatch.setenv("PCMLP_CACHE", "off")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def begin(run, task="mountain-car", settings=("task.horizon=4",)):
    config = resolve(task, seeds=SEEDS, settings=settings)
    run.mkdir()
    (run / "config.json").write_text(to_json(config))
    return config


def walk(run, config):
    """Two iterations of uniform play."""
    world = build_problem(config.task).world
    uniform = UniformPolicy(world.mdp.actions)
    with EpisodeLog(run / "episodes") as log:
        for n in (1, 2):
            keys = jnp.stack([jr.fold_in(jr.key(seed), n) for seed in SEEDS])
            log.append(n, SEEDS, world.collect(keys, uniform, 2 * world.mdp.horizon)[1])
    return world


def export(run, name=NAME):
    assert main(["export", str(run), "--minari", name]) == 0
    return minari.load_dataset(name)


def refused(run, capsys, name=NAME):
    assert main(["export", str(run), "--minari", name]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize("task", TASKS)
def test_what_minari_loads_is_what_was_walked(tmp_path, task):
    run = tmp_path / "run"
    world = walk(run, begin(run, task.split()[0], TASKS[task]))
    dataset = export(run)
    records = list(read(run / "episodes"))
    valid = [record.rows.valid for record in records]
    assert dataset.total_steps == sum(map(np.sum, valid))
    assert dataset.total_episodes == sum(np.sum(record.rows.last) for record in records)

    episodes = list(dataset.iterate_episodes())
    for field, name in (("state", "observations"), ("reward", "rewards"), ("action", "actions")):
        walked = np.concatenate(
            [getattr(record.rows, field)[kept] for record, kept in zip(records, valid, strict=True)]
        )
        told = np.concatenate([getattr(episode, name)[: len(episode)] for episode in episodes])
        np.testing.assert_array_equal(told, walked)

    def judged(function, episode):
        steps = episode.observations[:-1], episode.actions, episode.observations[1:]
        return jax.vmap(function)(*map(jnp.asarray, steps))

    for episode in episodes:
        assert len(episode.observations) == len(episode) + 1
        assert all(value in dataset.observation_space for value in episode.observations)
        assert all(value in dataset.action_space for value in episode.actions)
        np.testing.assert_allclose(episode.rewards, judged(world.mdp.reward, episode), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(episode.terminations, judged(world.mdp.terminal, episode))
        ends = episode.terminations | episode.truncations
        assert ends.tolist() == [False] * (len(episode) - 1) + [True]
        assert not (episode.terminations & episode.truncations).any()


def test_rewards_have_the_unit_of_the_environment(tmp_path):
    """Whoever starts from the dataset scales them again."""
    run = tmp_path / "run"
    walk(run, begin(run, settings=("task.horizon=4", "task.reward_scale=0.25")))
    logged = np.concatenate([record.rows.reward[record.rows.valid] for record in read(run / "episodes")])
    told = np.concatenate([episode.rewards for episode in export(run).iterate_episodes()])
    assert np.any(logged != 0)
    np.testing.assert_array_equal(told, 4 * logged)


def rows(last, terminal, valid):
    """Both seeds walk from 0 by 0.1; what is not valid is padding."""
    count = len(last)
    place = jnp.linspace(0.0, 0.1 * (count - 1), count)
    state = jnp.stack([place, jnp.zeros(count)], axis=1)
    action = jnp.full((count, 1), 1.5).at[0].set(-0.5)
    flags = [jnp.array(flag, bool) for flag in (terminal, last, valid)]
    steps = Transitions(state, action, 10.0 * place, state.at[:, 0].add(0.1), *flags)
    return jax.tree.map(lambda x: jnp.stack([x, x]), steps)


def test_ends_and_padding(tmp_path):
    """An episode that the MDP ends, one that is spoilt, one up to the horizon, one that is cut off."""
    begin(tmp_path / "run")
    with EpisodeLog(tmp_path / "run" / "episodes") as log:
        last = [0, 1, 0, 0, 0, 0, 0, 1, 1]
        terminal = [0, 1, 0, 0, 0, 0, 0, 0, 0]
        valid = [1, 1, 0, 0, 1, 1, 1, 1, 1]
        log.append(7, SEEDS, rows(last, terminal, valid))
    dataset = export(tmp_path / "run")
    told = list(dataset.iterate_episodes())
    assert [len(episode) for episode in told] == [2, 4, 1] * 2
    assert [bool(episode.terminations[-1]) for episode in told] == [True, False, False] * 2
    assert [bool(episode.truncations[-1]) for episode in told] == [False, True, True] * 2
    np.testing.assert_allclose(told[1].observations[:, 0], [0.4, 0.5, 0.6, 0.7, 0.8], rtol=1e-6)
    np.testing.assert_allclose(told[1].rewards, [4.0, 5.0, 6.0, 7.0], rtol=1e-6)
    np.testing.assert_allclose(told[0].actions[:, 0], [-0.5, 1.0])  # as the world took it
    assert dataset.action_space == Box(-1.0, 1.0, (1,))
    # the car's own space ends at 0.6
    np.testing.assert_allclose(dataset.observation_space.high, [0.9, 0.07], rtol=1e-6)
    np.testing.assert_allclose(dataset.observation_space.low, [-1.2, -0.07], rtol=1e-6)
    metadata = list(dataset.storage.get_episode_metadata(range(6)))
    assert [each["seed"] for each in metadata] == [3, 3, 3, 5, 5, 5]
    assert {each["iteration"] for each in metadata} == {7}


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lock"
    assert main([*TRAIN.split(), "--out", str(out)]) == 0
    return out


def test_a_run_from_training_to_minari(lock, datasets, capsys):
    dataset = export(lock, "lock-v2")
    assert capsys.readouterr().out.splitlines() == [
        f"lock-v2: 40 episodes, 120 steps, in {datasets}/lock-v2/data",
        "to load it: minari.load_dataset('lock-v2')",
    ]
    assert "lock-v2" in minari.list_local_datasets()
    assert dataset.action_space == Discrete(2)
    told = dataset.storage.metadata
    assert (told["algorithm_name"], told["author"], told["task"]) == ("pcmlp-linear", {"pcmlp"}, "combination-lock")
    assert (told["seeds"], told["horizon"]) == ([0, 7], 3)
    assert told["command"].startswith("pcmlp train combination-lock --seeds 0 7")
    assert "jax" in told["versions"]
    metadata = list(dataset.storage.get_episode_metadata(range(40)))
    assert [each["iteration"] for each in metadata] == [n for n in range(1, 21) for _ in (0, 7)]
    assert [each["seed"] for each in metadata] == [0, 7] * 20


def test_a_dataset_is_never_written_over(lock, datasets, capsys):
    export(lock)
    before = {file: file.read_bytes() for file in datasets.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert "exists and is not overwritten; give another name or version" in refused(lock, capsys)
    assert {file: file.read_bytes() for file in datasets.rglob("*") if file.is_file()} == before
    assert export(lock, "pcmlp/test-v1").total_episodes == 40


@pytest.mark.fault("the episode log ends in half a record", "`pcmlp export` has everything before it")
def test_a_log_that_was_cut_off(tmp_path):
    run = tmp_path / "run"
    walk(run, begin(run))
    log = log_path(run / "episodes")
    log.write_bytes(log.read_bytes()[:-5])
    dataset = export(run)
    assert {each["iteration"] for each in dataset.storage.get_episode_metadata(range(dataset.total_episodes))} == {1}
    assert "command" not in dataset.storage.metadata  # a run that was cut off has told none


def test_a_run_without_episodes(tmp_path, datasets, capsys):
    run = tmp_path / "run"
    begin(run)
    assert "log: it has no whole episode; train the run first" in refused(run, capsys)
    (run / "episodes").mkdir()
    log_path(run / "episodes").write_bytes(b"PCEP")
    assert "log: it has no whole episode; train the run first" in refused(run, capsys)
    assert not datasets.exists()


def test_episodes_of_another_task(tmp_path, datasets, capsys):
    run = tmp_path / "run"
    walk(run, begin(run))
    (run / "config.json").write_text(to_json(resolve("acrobot", seeds=SEEDS)))
    assert "not the episodes of the configuration beside it" in refused(run, capsys)
    assert not datasets.exists()


@pytest.mark.parametrize("package", ["minari", "h5py"])
@pytest.mark.fault("Minari is not installed", "`pcmlp export` says how to get it, exit code 2")
def test_a_missing_package_is_named(lock, capsys, monkeypatch, package):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else there(name))
    assert refused(lock, capsys) == f"pcmlp: --minari: needs {package}; pip install 'pcmlp[minari]'\n"


@pytest.mark.fault("Minari's folder cannot be written", "`pcmlp export` says so in a line, exit code 2")
def test_a_folder_that_cannot_be_written(lock, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "file"))
    assert "cannot be written (File exists); MINARI_DATASETS_PATH names another folder" in refused(lock, capsys)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "pcmlp").touch()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    assert "cannot be written (Not a directory)" in refused(lock, capsys)


@pytest.mark.fault("no room for a dataset", "`pcmlp export` says how much it needs and writes nothing, exit code 2")
def test_a_disk_that_is_full(lock, datasets, capsys, monkeypatch):
    usage = shutil.disk_usage(lock)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=100_000))
    assert "no space: 0.8 MB needed, 0.1 MB free" in refused(lock, capsys)
    assert list(datasets.iterdir()) == []


def test_no_dataset_is_larger_than_the_room_it_asks_for(lock, datasets, capsys, monkeypatch):
    export(lock)
    size = sum(file.stat().st_size for file in datasets.rglob("*") if file.is_file())
    usage = shutil.disk_usage(lock)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=size))
    capsys.readouterr()
    assert "no space" in refused(lock, capsys, "pcmlp/test-v1")


@pytest.mark.fault("a disk fails under a dataset", "`pcmlp export` says so and leaves no half of it, exit code 2")
def test_a_disk_that_fails(lock, datasets, capsys, monkeypatch):
    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minari.dataset._storages.hdf5_storage.HDF5Storage.update_episode_metadata", fails)
    assert "cannot be written (Input/output error)" in refused(lock, capsys)
    assert not (datasets / NAME).exists()


def test_an_interrupt_leaves_no_half(lock, datasets, monkeypatch):
    def stops(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("minari.dataset._storages.hdf5_storage.HDF5Storage.update_episode_metadata", stops)
    assert main(["export", str(lock), "--minari", NAME]) == 130
    assert not (datasets / NAME).exists()


def test_another_process_may_be_as_quick(lock, datasets, capsys, monkeypatch):
    theirs = datasets / NAME / "data"
    theirs.mkdir(parents=True)
    monkeypatch.setattr("pcmlp.runs.export.free_place", lambda name: Path(datasets / name))
    assert "already exists" in refused(lock, capsys)
    assert theirs.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"command": "x"})])
def test_a_damaged_summary_is_refused_and_a_missing_one_is_not(tmp_path, text):
    run = tmp_path / "run"
    walk(run, begin(run))
    (run / "summary.json").write_text(text)
    with pytest.raises(ConfigError, match="summary.json: .*; remove it"):
        exporting.export(run, NAME)
    (run / "summary.json").unlink()
    assert "versions" not in export(run).storage.metadata
