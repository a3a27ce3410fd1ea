"""`pcmlp eval`: the saved policies again, and an episode as a film; what is drawn of it."""

import importlib.util
import json
import subprocess

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.planners import UniformPolicy
from pcmlp.report.films import SCENES, Episode, check_filmed, find_pose, frames, write_video
from pcmlp.runs.config import resolve
from pcmlp.runs.evaluate import Evaluator, evaluate_run, film_episode, scores
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import SavedRun, load_run
from pcmlp.tasks import TASKS, PointUMaze
from pcmlp.tasks.mujoco.hand_egg import egg_in_hand
from pcmlp.tasks.mujoco.robots import RobotTask
from pcmlp.tasks.mujoco.simulator import Simulator
from pcmlp.types import Policy

# the configuration of tests/test_cli.py, so that it is compiled once
TRAIN = "train combination-lock --seeds 0 7 --steps 60 --set task.horizon=3 task.actions=2 eval_episodes=4"
ROBOTS = {name: task.robot for name, task in TASKS.items() if issubclass(task, RobotTask)}


@pytest.fixture(scope="module", autouse=True)
def _no_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCMLP_CACHE", "off")
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lock"
    assert main([*TRAIN.split(), "--out", str(out)]) == 0
    return out


def test_as_many_episodes_as_in_training_give_the_same_returns(run, capsys):
    assert main(["eval", str(run), "--episodes", "4"]) == 0
    assert "eval.json" in capsys.readouterr().out
    result = json.loads((run / "eval.json").read_text())
    assert (result["episodes"], result["task"], result["evaluation_seed"]) == (4, "combination-lock", None)
    assert result["policy"] == "deployed (FinitePolicy)"
    metrics = read_metrics(run)
    for i, seed in enumerate(result["seeds"]):
        assert seed["seed"] == metrics["seed"][i - 2]
        assert seed["return_mean"] == metrics["eval_return_mean"][i - 2]
        assert seed["success"] == metrics["eval_success"][i - 2]


def test_another_seed_is_said(run):
    assert evaluate_run(load_run(run), 4, 5)["evaluation_seed"] == 5


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--episodes 0", "episodes=0"),
        ("--episodes few", "episodes=few"),
        ("--seed -1", "seed=-1"),
        ("--video", "no pictures of combination-lock"),
    ],
)
def test_bad_input_is_one_line(run, words, named, capsys):
    before = (run / "eval.json").read_bytes() if (run / "eval.json").exists() else None
    assert main(["eval", str(run), *words.split()]) == 2
    shown = capsys.readouterr().err
    assert named in shown
    assert shown.count("\n") == 1
    assert before == ((run / "eval.json").read_bytes() if (run / "eval.json").exists() else None)


def test_a_run_that_has_no_policy_yet(run, tmp_path, capsys):
    assert main(["eval", str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    assert main(["eval", str(tmp_path)]) == 2
    line = capsys.readouterr().err
    assert "policy.safetensors: No such file or directory; remove summary.json, if there is one, and continue" in line
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.safetensors").write_bytes(b"\0" * 20)
    assert main(["eval", str(tmp_path)]) == 2
    assert (
        "policy.safetensors: truncated or edited; remove summary.json, if there is one, and continue the run"
        in capsys.readouterr().err
    )


class Constant(Policy):
    """The same action at every step."""

    action: jax.Array

    def init(self):
        return None

    def __call__(self, key, carry, state):
        return carry, self.action

    def deterministic(self):
        return self


def test_nothing_is_evaluated_twice():
    class World:
        def evaluate(self, keys, policies, episodes):
            return jnp.zeros((2, episodes))

    evaluator = Evaluator.__new__(Evaluator)  # a world that only counts is none for the type checker
    evaluator.__dict__.update(world=World(), keys=None, episodes=3, evaluated_episodes=0, _last=None)
    for action, count in ((1.0, 1), (1.0, 1), (2.0, 2), (1.0, 3)):
        assert evaluator.returns(Constant(jnp.full((2, 1), action))).shape == (2, 3)
        assert evaluator.evaluated_episodes == 3 * count


def test_scores():
    assert scores(np.array([0.0, 2.0]), 1.0) == {"return_mean": 1.0, "return_std": 1.0, "success": 0.5}
    assert scores(np.array([0.0, 2.0]), None)["success"] is None


def seen(task):
    """Four states: of the space where it has bounds, of an episode where it has none."""
    if task == "hand-egg":
        simulator = egg_in_hand()
    elif task in ROBOTS:
        simulator = Simulator(ROBOTS[task])
    else:
        space = TASKS[task]().build().world.mdp.states
        return np.stack([space.sample(key) for key in jr.split(jr.key(0), 4)])
    first, action = simulator.reset(seed=0)[0], simulator.action_space.high
    return np.stack([first, *(simulator.step(action)[0] for _ in range(3))])


@pytest.mark.parametrize("task", SCENES)
def test_an_episode_is_drawn(task):
    states = seen(task)
    pictures = list(frames(task, Episode(states, np.ones((3, 2)), np.zeros(3))))
    assert len(pictures) == 4
    for picture in pictures:
        assert (picture.shape, picture.dtype) == ((360, 480, 3), np.uint8)
        assert picture.std() > 5  # something is there
    assert (pictures[0] != pictures[-1]).any()


@pytest.mark.parametrize("task", [task for task in ROBOTS if task != "reacher"])
def test_robots_are_posed_as_they_were(task):
    """All but the place along the ground, which is the sum of velocities and so only about right."""
    simulator = Simulator(ROBOTS[task])
    states = [simulator.reset(seed=0)[0]]
    states += [simulator.step(0.3 * simulator.action_space.high)[0] for _ in range(10)]
    hidden = ROBOTS[task].hidden
    posed, real = find_pose(task, np.stack(states)), simulator.data.qpos
    np.testing.assert_allclose(posed[hidden:], real[hidden:])
    np.testing.assert_allclose(posed[:hidden], real[:hidden], atol=0.25)


def test_what_moves_is_taken_away_again():
    states = np.array([[-0.5, 0.0], [0.3, 0.0], [-0.5, 0.0]])
    first, _, again = frames("mountain-car", Episode(states, np.zeros((2, 1)), np.zeros(2)))
    title = 40
    np.testing.assert_array_equal(first[title:], again[title:])


def test_the_film_can_be_read(tmp_path):
    from imageio_ffmpeg import get_ffmpeg_exe

    states = np.tile([0.5, 0.5], (10, 1))
    film = write_video(tmp_path / "video.mp4", "point-umaze", Episode(states, np.zeros((9, 2)), np.zeros(9)))
    told = subprocess.run([get_ffmpeg_exe(), "-i", str(film)], capture_output=True, text=True, check=False).stderr
    assert "h264" in told
    assert "480x360" in told


def test_a_missing_encoder_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'pcmlp\[video\]'"):
        check_filmed("acrobot")


def film(begin, tmp_path):
    """Five steps of uniform play in the maze."""
    problem = PointUMaze(horizon=5).build()
    begun = eqx.tree_at(lambda p: p.world.mdp.initial, problem, lambda key: jnp.array(begin))
    config = resolve("combination-lock", seeds=(3, 4))
    return Episode(*film_episode(SavedRun(tmp_path, config, begun, UniformPolicy(problem.world.mdp.actions))))


def test_an_episode_is_filmed_to_its_end(tmp_path):
    whole = film([0.5, 0.5], tmp_path)
    assert len(whole.states) == 6
    assert len(whole.actions) == len(whole.rewards) == 5
    goal = film([0.5, 2.5], tmp_path)
    assert len(goal.states) == 2
    assert len(goal.actions) == len(goal.rewards) == 1
    assert goal.rewards[0] > 90
