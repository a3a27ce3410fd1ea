"""The robots: what they are paid and where they end is what MuJoCo's own numbers say, and they step as they should."""

import dataclasses
import pickle
import subprocess
import sys
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.observed import Fault
from pcmlp.planners import UniformPolicy
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.tasks import TASKS
from pcmlp.tasks.mujoco.robots import RobotTask
from pcmlp.tasks.mujoco.simulator import Simulator, load_model
from pcmlp.tasks.registered import SteppedTask

MUJOCO_TASKS = {name: task for name, task in TASKS.items() if issubclass(task, SteppedTask)}
ROBOTS = {name: task.robot for name, task in MUJOCO_TASKS.items() if issubclass(task, RobotTask)}

# observation, action, bound of an action, horizon, seconds of a step
FACTS = {
    "half-cheetah": (17, 6, 1.0, 1000, 0.05),
    "hopper-et": (11, 3, 1.0, 1000, 0.008),
    "walker2d-et": (17, 6, 1.0, 1000, 0.008),
    "reacher": (11, 2, 1.0, 50, 0.02),
    "ant": (27, 8, 1.0, 1000, 0.05),
    "humanoid-et": (376, 17, 0.4, 1000, 0.015),
    "slim-humanoid-et": (45, 17, 0.4, 1000, 0.015),
    "swimmer": (9, 2, 1.0, 1000, 0.04),
    "swimmer-v0": (8, 2, 1.0, 1000, 0.04),
    "ant-umaze": (29, 8, 1.0, 1000, 0.1),
}
ENDING = {"hopper-et", "walker2d-et", "humanoid-et", "slim-humanoid-et"}


@pytest.fixture(scope="module")
def tasks():
    return {name: options().build() for name, options in MUJOCO_TASKS.items() if name in ROBOTS}


class Physics:
    """MuJoCo's numbers at the positions, velocities and controls of a simulator, computed apart from it."""

    def __init__(self, simulator):
        self.source, self.model = simulator.data, simulator.model
        self.data = mujoco.MjData(self.model)
        self.jacobian = np.zeros((3, self.model.nv))

    def read(self):
        for field in ("qpos", "qvel", "ctrl"):
            getattr(self.data, field)[:] = getattr(self.source, field)
        # Contact forces are found by iteration, and where it begins matters in the last digits.
        self.data.qacc_warmstart[:] = self.source.qacc_warmstart
        mujoco.mj_forward(self.model, self.data)
        mujoco.mj_rnePostConstraint(self.model, self.data)
        return self.data

    def velocity(self, body, point):
        """Of a point given in the frame of a body."""
        frame = self.data.body(body)
        place = frame.xpos + frame.xmat.reshape(3, 3) @ point
        mujoco.mj_jac(self.model, self.data, self.jacobian, None, place, frame.id)
        return self.jacobian @ self.data.qvel


def expected_reward(name, physics, action):
    """In 64 bits, from the state before the step."""
    data = physics.read()
    squares = np.sum(np.clip(action, -FACTS[name][2], FACTS[name][2]).astype(np.float64) ** 2)
    speed, height = data.qvel[0], data.body(1).xpos[2]
    if name == "half-cheetah":
        return speed - 0.1 * squares
    if name in ("hopper-et", "walker2d-et", "ant"):
        return speed - 0.1 * squares - 3 * (height - (0.57 if name == "ant" else 1.3)) ** 2 + 1
    if name == "ant-umaze":
        return 0.01 * (np.hypot(*physics.velocity("torso", np.zeros(3))[:2]) - 1e-4 * squares)
    if name == "reacher":
        return -np.linalg.norm(data.geom("fingertip").xpos - data.geom("target").xpos) - squares
    if name == "swimmer":
        return physics.velocity("torso", np.array([1.5, 0, 0]))[0] - 1e-4 * squares
    if name == "swimmer-v0":
        return physics.velocity("torso", np.zeros(3))[0] - 1e-4 * squares
    impact = min(5e-7 * np.sum(data.cfrc_ext**2), 10) if name == "humanoid-et" else 0.0
    return 0.25 / 0.015 * speed - 0.1 * squares - impact + 5


def expected_end(name, data):
    """Of the positions after the step."""
    if name == "hopper-et":
        return data.qpos[1] <= 0.7 or abs(data.qpos[2]) >= 0.2
    if name == "walker2d-et":
        return not 0.8 < data.qpos[1] < 2 or abs(data.qpos[2]) >= 1
    return name in ENDING and not 1 <= data.qpos[2] <= 2


def walk(name, steps):
    """Random steps with actions beyond the range as well, and what is to be paid for them, with resets."""
    simulator, rng, rows = Simulator(ROBOTS[name]), np.random.default_rng(0), []
    physics, (_, size, bound, horizon, _) = Physics(simulator), FACTS[name]
    state, t = simulator.reset(seed=0)[0], 0
    for _ in range(steps):
        action = rng.uniform(-1.5 * bound, 1.5 * bound, size).astype(np.float32)
        reward = expected_reward(name, physics, action)
        after = simulator.step(np.clip(action, -bound, bound))[0]
        ended = expected_end(name, simulator.data)
        rows.append((state, action, after, reward, ended))
        t += 1
        over = ended or t == horizon
        state, t = (simulator.reset()[0], 0) if over else (after, t)
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("steps", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ROBOTS)
def test_rewards_and_ends_are_those_of_mujocos_numbers(name, steps, tasks):
    *rows, reward, ended = walk(name, steps)
    known = tasks[name].world.mdp
    rows = [jnp.asarray(x, jnp.float32) for x in rows]
    ours = np.asarray(jax.jit(jax.vmap(known.reward))(*rows))
    error = np.abs(ours - reward) / (1 + np.abs(reward))
    print(f"{name}: largest error {error.max():.1e}, {ended.sum()} ends")
    assert error.max() < 1e-4
    np.testing.assert_array_equal(jax.jit(jax.vmap(known.terminal))(*rows), ended)
    assert (ended.sum() > steps / 500) == (name in ENDING)


@pytest.mark.parametrize("name", ROBOTS)
def test_sizes_horizons_and_seconds(name, tasks):
    states, actions, bound, horizon, seconds = FACTS[name]
    world = tasks[name].world
    assert (world.mdp.states.size, world.mdp.actions.size, world.mdp.horizon) == (states, actions, horizon)
    np.testing.assert_allclose([-world.mdp.actions.low, world.mdp.actions.high], bound)
    assert not world.mdp.states.is_bounded()
    simulator = world.environments.first
    simulator.reset(seed=0)
    simulator.step(np.zeros(actions))
    assert simulator.data.time == pytest.approx(seconds)
    assert ROBOTS[name].dt == pytest.approx(seconds)


@pytest.mark.parametrize("name", ROBOTS)
def test_gymnasium_finds_nothing_wrong_and_episodes_repeat(name, tasks):
    with warnings.catch_warnings():  # that observations have no bounds, and actions not those of 1
        warnings.simplefilter("ignore")
        check_env(Simulator(ROBOTS[name]), skip_render_check=True)
    assert tasks[name].world.notes == []
    ours, theirs = Simulator(ROBOTS[name]), Simulator(ROBOTS[name])
    theirs.reset(seed=5)
    theirs.step(theirs.action_space.high)  # what was walked before does not matter
    first, again = (simulator.reset(seed=3)[0] for simulator in (ours, theirs))
    np.testing.assert_array_equal(first, again)
    assert (first != ours.reset(seed=4)[0]).any()
    ours.reset(seed=3)
    for _ in range(20):
        once, twice = (simulator.step(0.5 * ours.action_space.high)[0] for simulator in (ours, theirs))
        np.testing.assert_array_equal(once, twice)


def test_observed_forces_are_those_of_the_contacts():
    """MuJoCo does not compute them unless it is asked to."""
    simulator = Simulator(ROBOTS["humanoid-et"])
    state = simulator.reset(seed=0)[0]
    for _ in range(60):
        state = simulator.step(np.zeros(17))[0]
    assert np.abs(state[-84:]).max() > 10
    np.testing.assert_array_equal(state[-84:].reshape(14, 6), simulator.data.cfrc_ext)


def test_goals_of_the_reacher_are_drawn_from_the_square():
    simulator = Simulator(ROBOTS["reacher"])
    goals = np.array([simulator.reset(seed=seed)[0][4:6] for seed in range(400)])
    assert 0.19 < np.abs(goals).max() < 0.2
    assert (np.linalg.norm(goals, axis=1) > 0.21).mean() == pytest.approx(1 - np.pi * 0.21**2 / 0.16, abs=0.1)


def test_a_simulation_that_diverges_is_no_transition(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes a log
    simulator = Simulator(ROBOTS["hopper-et"])
    simulator.reset(seed=0)
    simulator.state[-simulator.model.nv :] = 1e12
    with pytest.raises(RuntimeError, match="the simulation diverged"):
        simulator.step(np.zeros(3))
    assert np.isfinite(simulator.reset(seed=0)[0]).all()


def test_a_timestep_of_the_task_replaces_the_models():
    assert load_model(dataclasses.replace(ROBOTS["ant"], timestep=0.004)).opt.timestep == 0.004


def test_without_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    line = r"^task.name=half-cheetah: mujoco is not installed; run pip install 'pcmlp\[mujoco\]'$"
    with pytest.raises(ConfigError, match=line):
        build(resolve("half-cheetah"))


def test_the_names_of_the_tasks_need_no_extra():
    script = "import sys, pcmlp.tasks; sys.exit('mujoco' in sys.modules or 'gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_bad_workers():
    with pytest.raises(ConfigError, match="task.workers=-1: give 0 or more"):
        build(resolve("ant", settings=("task.workers=-1",)))


@pytest.mark.parametrize("name", ROBOTS)
def test_what_makes_a_simulator_can_be_sent_to_a_process(name):
    make = partial(Simulator, ROBOTS[name])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(make))().reset(seed=1)[0], make().reset(seed=1)[0])


@pytest.mark.slow
def test_workers_walk_what_one_process_does():
    alone, apart = (MUJOCO_TASKS["swimmer"](horizon=10, workers=workers).build().world for workers in (0, 2))
    policies = jax.tree.map(lambda x: jnp.stack([x, x]), UniformPolicy(alone.mdp.actions))

    def walked(world):
        return world.collect(jr.split(jr.key(0), 2), policies, 20)[0]

    try:
        ours, theirs = walked(alone), walked(apart)
    finally:
        apart.close()
    assert ours.valid.all()
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUJOCO_TASKS)
def test_training_evaluation_and_film(name, tiny, tmp_path):
    out = tmp_path / "run"
    smaller = ("task.horizon=20", "eval_episodes=2", "num_starts=16", "features.sizes=16,16")
    planner = ("updates=2", "streams=8", "length=2", "batch=8", "sizes=8,8")
    settings = [*tiny, *smaller, *(f"planner.{setting}" for setting in planner)]
    command = ["train", name, "--seeds", "0", "1", "--steps", "40", "--out", str(out), "--set", *settings]
    assert main(command) == 0
    rows = read_metrics(out)
    assert rows["iteration"] == [0, 0, 1, 1, 2, 2]
    for column in ("eval_return_mean", "explore_return_mean"):
        assert np.isfinite(rows[column]).all()
    # Units of phi are those of the first samples, which the norm of 1 has twice the room for.
    assert all(0 < bonus < 2 * 0.05 / np.sqrt(1e-3) for bonus in rows["bonus_mean"][2:4])
    assert main(["eval", str(out), "--episodes", "2", "--video"]) == 0
    assert (out / "video.mp4").stat().st_size > 1000


def test_a_mujoco_that_is_too_new_is_named(monkeypatch):
    monkeypatch.setattr("mujoco.__version__", "3.12.0")
    with pytest.raises(ConfigError, match="mujoco 3.12.0 is too new; run pip install 'mujoco<3.12'"):
        MUJOCO_TASKS["ant"]().build()


def test_faults_are_survived_as_often_as_is_said():
    assert MUJOCO_TASKS["ant"](horizon=5, max_faults=7).build().world.environments._max_faults == 7


@pytest.mark.parametrize("name", ROBOTS)
def test_together_they_step_as_alone(name, tmp_path, monkeypatch):
    """Bit for bit, and one that diverges leaves the others as they are. MuJoCo itself says nothing of it."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo would write a log
    alone, together = ([Simulator(ROBOTS[name]) for _ in range(3)] for _ in range(2))
    rng, step = np.random.default_rng(0), together[0].batch_simulator()
    for i in range(3):
        np.testing.assert_array_equal(alone[i].reset(seed=i)[0], together[i].reset(seed=i)[0])
    for t in range(60):
        if t == 30:  # one begins another episode
            np.testing.assert_array_equal(alone[2].reset(seed=9)[0], together[2].reset(seed=9)[0])
        actions = rng.uniform(-1, 1, (3, alone[0].action_space.shape[0]))
        rows = step(together, actions)
        assert not rows.fault.any()
        for simulator, action, seen in zip(alone, actions, rows.observation, strict=True):
            np.testing.assert_array_equal(np.float32(simulator.step(action)[0]), seen)
    together[1].state[-together[1].model.nv :] = 1e12
    rows = step(together, actions)
    np.testing.assert_array_equal(rows.fault, [Fault.NONE, Fault.RAISED, Fault.NONE])
    assert rows.messages == {1: "step raised RuntimeError: the simulation diverged"}
    np.testing.assert_array_equal(np.float32(alone[2].step(actions[2])[0]), rows.observation[2])
    assert not list(tmp_path.iterdir())
