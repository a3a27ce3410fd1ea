"""`train --data`: a run that starts from a Minari dataset."""

import dataclasses
import io
import json
import shutil
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from minari.data_collector import EpisodeBuffer
from rich.console import Console
from same_run import assert_same_run

from pcmlp import DeepPCMLP, spaces
from pcmlp.algorithms.logged import absorb, split
from pcmlp.bonus import second_moment
from pcmlp.boundary import Layout
from pcmlp.choices import Choices
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.imagine import Unknown
from pcmlp.replay import Transitions
from pcmlp.runs.checkpoint import check_unchanged
from pcmlp.runs.config import build, from_json, resolve, seed_keys, to_json
from pcmlp.runs.dataset import find_data, load_data
from pcmlp.runs.episodes import read
from pcmlp.runs.logged import before_log, load_logged
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.run import Run
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train

NAME, SEEDS = "pcmlp/car-v0", (3,)
ENDS = np.array([False, False]), np.array([False, True])  # terminations and truncations of two steps
SMALL = ["task.horizon=10", "samples_per_policy=20", "replay_size=70", "eval_episodes=2", "num_starts=16", "rounds=1"]
SMALL += ["features.sizes=16,16", "model.sizes=16,16", "model.steps=20", "model.batch=16", "planner.updates=1"]
SMALL += ["planner.streams=8", "planner.length=10", "planner.policy_sizes=8", "planner.value_sizes=8"]
SMALL += ["planner.value_batch=20"]
LOW, HIGH = np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)


@pytest.fixture(scope="module", autouse=True)
def datasets(tmp_path_factory):
    """Minari's folder, with a dataset of mountain-car."""
    folder = tmp_path_factory.mktemp("datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        write(NAME, episodes())
        yield folder


def episodes(seed=0, lengths=(10, 7, 10, 10, 4, 9, *[10] * 8), size=2, actions=1):
    """Return 130 steps of random numbers; the second episode reaches its end, the fifth was cut off."""
    rng = np.random.default_rng(seed)
    made = []
    for i, steps in enumerate(lengths):
        observations = rng.uniform(-0.06, 0.06, (steps + 1, size)).astype(np.float32)
        ended, stopped = np.zeros(steps, bool), np.zeros(steps, bool)
        ended[-1], stopped[-1] = i == 1, i not in (1, 4)
        taken = rng.uniform(-1, 1, (steps, actions)).astype(np.float32)
        made.append((observations, taken, rng.normal(size=steps), ended, stopped))
    return made


def write(name, made, states=None, actions=None):
    """Write a dataset."""
    buffers = [
        EpisodeBuffer(
            observations=list(observations) if isinstance(observations, np.ndarray) else observations,
            actions=list(taken) if isinstance(taken, np.ndarray) else taken,
            rewards=list(rewards),
            terminations=list(ended),
            truncations=list(stopped),
        )
        for observations, taken, rewards, ended, stopped in made
    ]
    with warnings.catch_warnings(action="ignore"):  # Minari misses an author
        return minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=states or Box(LOW, HIGH),
            action_space=actions or Box(-1, 1, (1,)),
        )


def car(steps=60, name=NAME, algo="pcmlp", settings=SMALL, task="mountain-car"):
    config = resolve(task, algo, seeds=SEEDS, steps=steps, settings=settings)
    return dataclasses.replace(config, data=find_data(name))


def learn(out, config, **options):
    said = io.StringIO()
    train(config, out, console=Console(file=said, width=200), **options)
    return said.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "car"
    out.with_suffix(".txt").write_text(learn(out, car()))
    return out


def test_rows_are_the_steps_of_the_dataset():
    mdp = build(car())[0].world.mdp
    rows = load_data(find_data(NAME), dataclasses.replace(mdp, reward=Unknown()), "mountain-car", 2.0).rows
    made = episodes()
    assert rows.reward.shape == (130,)
    first = 0
    for observations, taken, rewards, ended, _ in made:
        part = slice(first, first := first + len(rewards))
        np.testing.assert_array_equal(rows.state[part], observations[:-1])
        np.testing.assert_array_equal(rows.next_state[part], observations[1:])
        np.testing.assert_array_equal(rows.action[part], taken)
        np.testing.assert_allclose(rows.reward[part], 2.0 * rewards, rtol=1e-6)  # as the world scales its own
        np.testing.assert_array_equal(rows.terminal[part], ended)
        assert rows.last[part].tolist() == [False] * (len(rewards) - 1) + [True]  # ended, stopped or cut off
    assert rows.valid.all()
    assert rows.terminal.sum() == 1
    known = load_data(find_data(NAME), mdp, "mountain-car", 1.0).rows
    steps = zip(rows.state, rows.action, rows.next_state, strict=True)
    paid = [float(mdp.reward(*map(jnp.asarray, row))) for row in steps]
    np.testing.assert_allclose(known.reward, paid, rtol=1e-5, atol=1e-6)  # the task knows what it pays


def test_discrete_actions_and_parts_of_an_observation_become_vectors():
    states = Dict(goal=Discrete(3, start=-1), place=Box(-1, 1, (2, 1)))
    made = [({"goal": np.array([-1, 1, 0]), "place": np.full((3, 2, 1), 0.5)}, np.array([2, 0]), np.ones(2), *ENDS)]
    write("pcmlp/parts-v0", made, states, Discrete(3))
    space = spaces.Box([-1.0] * 5, [1.0] * 5, layout=Layout.of(states))
    mdp = dataclasses.replace(build(car())[0].world.mdp, states=space, actions=Choices((3,)))
    rows = load_data(find_data("pcmlp/parts-v0"), mdp, "parts", 1.0).rows
    np.testing.assert_array_equal(rows.state, [[1, 0, 0, 0.5, 0.5], [0, 0, 1, 0.5, 0.5]])
    np.testing.assert_array_equal(rows.next_state[-1], [0, 1, 0, 0.5, 0.5])
    np.testing.assert_array_equal(rows.action, [[0, 0, 1], [1, 0, 0]])
    with pytest.raises(ConfigError, match="actions are choices of 3 options, those of parts are choices of 2 options"):
        load_data(find_data("pcmlp/parts-v0"), dataclasses.replace(mdp, actions=Choices((2,))), "parts", 1.0)
    with pytest.raises(ConfigError, match=r"of 5 numbers \(goal: 3, place: 2\), those of car are vectors of 2 number"):
        load_data(find_data("pcmlp/parts-v0"), build(car())[0].world.mdp, "car", 1.0)
    other = spaces.Box([-1.0] * 5, [1.0] * 5, layout=Layout.of(Dict(goal=Discrete(2), place=Box(-1, 1, (3,)))))
    with pytest.raises(ConfigError, match=r"\(goal: 3, place: 2\), those of parts are .* \(goal: 2, place: 3\)"):
        load_data(find_data("pcmlp/parts-v0"), dataclasses.replace(mdp, states=other), "parts", 1.0)


def test_vectors_are_what_an_export_has_made_of_parts():
    problem, _ = build(car())
    states = dataclasses.replace(problem.world.mdp.states, layout=Layout.of(Dict(place=Box(LOW, HIGH))))
    logged = load_data(find_data(NAME), dataclasses.replace(problem.world.mdp, states=states), "parts", 1.0)
    np.testing.assert_array_equal(logged.rows.state[:10], episodes()[0][0][:-1])


def test_data_fill_sigma_the_replay_and_the_model():
    config = car()
    problem, algorithm = build(config)
    mdp, keys = problem.world.mdp, seed_keys(SEEDS)
    logged = load_logged(config, algorithm, mdp)
    fresh = algorithm.start(keys, mdp, 3)
    learner = absorb(algorithm, keys, mdp, algorithm.start(keys, mdp, 3), logged.rows)
    pieces = split(algorithm, mdp, logged.rows)
    assert pieces.reward.shape == (7, 20)
    assert learner.env_steps.tolist() == [0]
    assert not learner.trial.walks.any()
    phi = jax.tree.map(lambda x: x[0] if hasattr(x, "shape") else x, learner.features)
    wanted = sum(second_moment(phi, jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), pieces)) for i in range(7))
    ridge = algorithm.ridge * np.eye(16)
    np.testing.assert_allclose(learner.covariance.matrix[0] - ridge, wanted, atol=1e-5)
    np.testing.assert_allclose(learner.seen.low[0], np.minimum(logged.rows.state, logged.rows.next_state).min(0))
    new, fitted = (jax.tree.map(lambda x: x[0], eqx.filter(each.model, eqx.is_array)) for each in (fresh, learner))
    assert not np.array_equal(jax.tree.leaves(new)[0], jax.tree.leaves(fitted)[0])

    kept = np.sort(np.asarray(learner.replay.data.reward[0]))
    whole = np.concatenate([logged.rows.reward, np.zeros(10, np.float32)])  # filled up to whole pieces
    np.testing.assert_array_equal(kept, np.sort(whole[-70:]))  # the newest
    light = algorithm.without_replay(learner)
    again = algorithm.restore_replay(light, mdp, before_log(algorithm, mdp, config, logged))
    jax.tree.map(np.testing.assert_array_equal, again.replay.data, learner.replay.data)


def test_a_run_from_data(run):
    summary, metrics = read_summary(run), read_metrics(run)
    assert summary["data_steps"] == 130
    assert max(metrics["env_steps"]) == 60
    assert metrics["env_steps"][:2] == [0, 20]
    assert summary["seeds"][0]["env_steps"] == 60
    said = run.with_suffix(".txt").read_text()
    assert "data: starts from 130 steps in 14 episodes, which do not count as env steps" in said
    assert "; the replay holds the newest 70 of them (replay_size)" in said
    assert sum(record.rows.valid.sum() for record in read(run / "episodes")) == 60  # real steps only
    config = from_json((run / "config.json").read_text())
    assert config.data == find_data(NAME)
    assert to_json(config) == (run / "config.json").read_text()
    assert check_unchanged(run) is not None  # its manifest is that of the configuration


def test_data_change_what_is_learned(run, tmp_path):
    learn(tmp_path / "nothing", dataclasses.replace(car(), data=None))
    with_data, without = read_metrics(run), read_metrics(tmp_path / "nothing")
    assert "data_steps" not in read_summary(tmp_path / "nothing")
    assert all(a > b for a, b in zip(with_data["info_gain"][1:2], without["info_gain"][1:2], strict=True))
    assert np.isnan(without["model_error"][1]) or np.isfinite(with_data["model_error"][1])


class Killed(BaseException):
    """The end of a process in which none of its own code runs."""


@pytest.mark.parametrize("after", [0, 2])
def test_a_run_that_was_killed_resumes_bit_for_bit(run, tmp_path, monkeypatch, after):
    record = Run.record

    def dies(self, n, metrics):
        record(self, n, metrics)
        if n == after + 1:
            raise Killed

    monkeypatch.setattr("pcmlp.runs.run.SAVING_SHARE", np.inf)
    monkeypatch.setattr(Run, "record", dies)
    with pytest.raises(Killed):
        learn(tmp_path / "car", car())
    monkeypatch.setattr(Run, "record", record)
    said = learn(tmp_path / "car", car(), resume=True)
    assert ("continuing after iteration" in said) == (after > 0)
    assert_same_run(run, tmp_path / "car")


def refused(words, capsys):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


TRAIN = ["train", "mountain-car", "--seeds", "3", "--steps", "60", "--set", *SMALL, "--data"]


@pytest.mark.parametrize(
    ("name", "states", "actions", "made", "said"),
    [
        (
            "wide-v0",
            Box(-1, 1, (3,)),
            None,
            {"size": 3},
            "observations are vectors of 3 numbers, those of",
        ),
        ("two-v0", None, Box(-1, 1, (2,)), {"actions": 2}, "actions are vectors of 2 numbers"),
        ("strong-v0", None, Box(-3, 3, (1,)), {}, "actions are from -3 to 3, those of mountain-car from -1 to 1"),
        ("fast-v0", Box(-2, 2, (2,)), None, {"scale": 20.0}, "observation 0 goes from"),
    ],
)
@pytest.mark.bad_input
def test_a_dataset_of_another_environment_is_refused(tmp_path, monkeypatch, capsys, name, states, actions, made, said):
    monkeypatch.chdir(tmp_path)
    scale = made.pop("scale", 1.0)
    walked = [(scale * observations, *rest) for observations, *rest in episodes(**made)]
    write(name, walked, states, actions)
    line = refused([*TRAIN, name], capsys)
    assert said in line
    assert line.endswith("give a dataset of mountain-car")
    assert not (tmp_path / "runs").exists()


@pytest.mark.bad_input
def test_data_that_cannot_be_used_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "--data pcmlp/none-v0: there is no" in refused([*TRAIN, "pcmlp/none-v0"], capsys)
    assert "--data car: not a name for Minari" in refused([*TRAIN, "car"], capsys)
    sac = ["train", "mountain-car", "--algo", "sac", "--data", NAME]
    assert "sac cannot start from data" in refused(sac, capsys)
    words = [{"place": observations} for observations, *_ in episodes()]
    named = [(each, *rest) for each, (_, *rest) in zip(words, episodes(), strict=True)]
    write("named-v0", named, Dict({"place": Box(LOW, HIGH)}))
    line = refused([*TRAIN, "named-v0"], capsys)
    assert "are vectors of 2 numbers (place: 2), those of mountain-car are vectors of 2 numbers;" in line
    parts = [(states, {"a": taken}, *rest) for states, taken, *rest in episodes()]
    write("dict-v0", parts, actions=Dict({"a": Box(-1, 1, (1,))}))
    assert "its actions are a Dict, which is not supported; give another dataset" in refused(
        [*TRAIN, "dict-v0"], capsys
    )
    steps = [(observations, np.zeros(len(taken), int), *rest) for observations, taken, *rest in episodes()]
    write("discrete-v0", steps, actions=Discrete(3))
    assert "actions are choices of 3 options, those of mountain-car are vectors of 1 number" in refused(
        [*TRAIN, "discrete-v0"], capsys
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.fault("the dataset that a run started from has changed or is gone", "--resume says so in a line")
def test_a_changed_dataset_is_refused(run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "datasets"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    resume = [*TRAIN, NAME, "--out", str(run), "--resume"]
    resume[3:4] = map(str, SEEDS)
    resume[resume.index("60")] = "80"
    assert "there is no" in refused(resume, capsys)
    write(NAME, episodes(1))
    assert "changed since this run was started; restore the dataset" in refused(resume, capsys)
    config = dataclasses.replace(car(), data=json_data(run))
    with pytest.raises(ConfigError, match="changed since this run was started"):
        learn(tmp_path / "other", config)  # the configuration names other contents


def json_data(run):
    return from_json((run / "config.json").read_text()).data


def test_the_hash_is_of_the_numbers(run, datasets):
    record = json.loads((run / "config.json").read_text())["data"]
    assert record == dataclasses.asdict(find_data(NAME))
    other = [
        (observations, taken, rewards + (i == 3) * 1e-9, *rest)
        for i, (observations, taken, rewards, *rest) in enumerate(episodes())
    ]
    write("other-v0", other)
    assert find_data("other-v0").sha256 != record["sha256"]


def test_an_export_is_read_back(run, tmp_path):
    """A run can start from the dataset that another run has exported."""
    assert main(["export", str(run), "--minari", "pcmlp/again-v0"]) == 0
    problem, _ = build(car())
    logged = load_data(find_data("pcmlp/again-v0"), problem.world.mdp, "mountain-car", 1.0)
    assert logged.recorded == "mountain-car"
    walked = [record.rows for record in read(run / "episodes")]
    total = sum(rows.valid.sum() for rows in walked)
    assert logged.rows.reward.shape == (total,)
    assert logged.rows.terminal.sum() == sum((rows.terminal & rows.valid).sum() for rows in walked)
    assert isinstance(logged.rows, Transitions)


def test_an_agent_starts_from_data(tmp_path):
    agent = DeepPCMLP("mountain-car", seed=3, settings=SMALL).start_from(NAME)
    assert (agent.data_steps, agent.num_timesteps, agent.iteration) == (130, 0, 0)
    heard = []
    agent.learn(20, callback=lambda agent, metrics: heard.append(metrics))
    assert (heard[0]["data_steps"], heard[0]["env_steps"]) == (130, 20)
    agent.save(tmp_path / "agent.safetensors")
    assert DeepPCMLP.load(tmp_path / "agent.safetensors").data_steps == 130
    with pytest.raises(ConfigError, match="before the first learn"):
        agent.start_from(NAME)


def test_a_damaged_record_of_data(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "copy")
    place = tmp_path / "copy" / "config.json"
    record = json.loads(place.read_text())
    place.write_text(json.dumps({**record, "data": {"name": 3}}))
    assert "not the configuration of a run" in refused(["eval", str(tmp_path / "copy")], capsys)
