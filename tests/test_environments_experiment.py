"""`pcmlp paper environments`: its runs, its table, and the baselines beside it."""

import csv
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from written_runs import write_summary

from pcmlp.cli import main
from pcmlp.experiments import environments
from pcmlp.experiments.environments import MOUNTAIN_CAR, TASKS, Target
from pcmlp.experiments.experiment import Done, write_csv
from pcmlp.experiments.job import FULL
from pcmlp.runs.config import build, resolve, to_json
from pcmlp.runs.folder import RunFolder

ROOT = Path(__file__).parents[1]
CARTPOLE, LANDER, MAZE = "gym:CartPole-v1", "gym:LunarLander-v3", "gym:PointMaze_UMaze-v3"
MADE = {"seconds": 1.0, "versions": "stable-baselines3 2"}


@pytest.fixture(scope="module")
def baselines():
    spec = importlib.util.spec_from_file_location("baselines", ROOT / "benchmarks" / "baselines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def job_of(task, seeds=(0, 1)):
    return next(replace(job, seeds=seeds) for job in environments.jobs() if job.task == task)


def least(returns):
    """What the mean and the standard deviation of some returns say about their success."""
    mean, std = np.array([returns.mean()]), np.array([returns.std()])
    return environments.least_success(mean, std, -200.0, len(returns))[0]


def table_of(tmp_path, task, evaluations, baselines=()):
    """The row of a run that is written by hand: steps -> (return, std, success) of each seed."""
    job = job_of(task)
    folder, held = RunFolder.create(tmp_path / job.where, to_json(job.config()))
    held.close()
    for n, (steps, seeds) in enumerate(evaluations.items()):
        rows = []
        for seed, (mean, std, success) in enumerate(seeds):
            scores = {"eval_return_mean": mean, "eval_return_std": std, "eval_success": success}
            rows.append({"iteration": n, "seed": seed, "env_steps": steps, **scores})
        folder.metrics.append(rows)
    ended = {"env_steps": max(evaluations), "env_steps_to_sustained_success": None}
    seeds = [{"seed": seed, **ended} for seed in (0, 1)]
    write_summary(tmp_path / job.where, {"seeds": seeds, "wall_s": 2.4, "device": "cpu"})
    if baselines:
        write_csv(tmp_path / environments.BASELINES, baselines)
    [(name, [row])] = environments.tables(Done((job,), FULL, tmp_path, tmp_path))
    assert (name, row["task"]) == ("environments", task)
    return row


def sb3(task, method, seed, paid, steps=10_000, success=""):
    return {"method": method, "task": task, "seed": seed, "steps": steps, "return": paid, "success": success, **MADE}


def test_nothing_is_set_but_the_evaluations():
    jobs = {job.task: job for job in environments.jobs()}
    assert len(jobs) == 8
    for task, job in jobs.items():
        assert job.config() == resolve(task, "pcmlp", (0, 1, 2, 3), job.steps, (f"eval_every={job.steps // 10}",))
        assert job.config().algorithm == resolve(task).algorithm
        assert job.config().eval_episodes == environments.EPISODES
    assert (jobs[LANDER].steps, TASKS[LANDER].compared) == (100_000, 50_000)


def test_a_task_is_judged_by_its_last_evaluation(tmp_path):
    seeds = {
        0: [(9.0, 1.0, None)] * 2,
        5_000: [(500.0, 0.0, None)] * 2,
        10_000: [(500.0, 0.0, None), (440.0, 1.0, None)],
    }
    row = table_of(tmp_path, CARTPOLE, seeds)
    assert (row["goal"], row["final_return"], row["final_success"]) == ("return 475", 470.0, "")
    assert (row["steps_to_goal"], row["seeds_at_goal"], row["reached"]) == (5_000, "1 of 2", "no")
    assert row["sb3"] == row["difference"] == row["sb3_missing"] == ""  # nothing to compare with


def test_success_that_is_reported_is_a_goal(tmp_path):
    row = table_of(tmp_path, MAZE, {0: [(0.0, 0.0, 0.0)] * 2, 19_800: [(150.0, 9.0, 1.0), (140.0, 9.0, 0.9)]})
    assert (row["goal"], row["final_success"], row["seeds_at_goal"]) == ("success 0.95", 0.95, "1 of 2")
    assert (row["reached"], row["steps_to_goal"]) == ("yes", 19_800)


def test_the_best_of_stable_baselines3_is_beside_it(tmp_path):
    rows = [sb3(CARTPOLE, "ppo", seed, 100.0 + seed) for seed in range(4)]
    rows += [sb3(CARTPOLE, "dqn", 0, 90.0), sb3(CARTPOLE, "dqn", 1, 500.0, steps=120), sb3(LANDER, "ppo", 0, 300.0)]
    row = table_of(tmp_path, CARTPOLE, {0: [(9.0, 1.0, None)] * 2, 10_000: [(401.5, 0.0, None)] * 2}, rows)
    assert (row["sb3"], row["sb3_return"], row["sb3_steps"], row["sb3_success"]) == ("ppo", 101.5, 10_000, "")
    assert (row["return_then"], row["difference"]) == (401.5, 300.0)
    assert 299.0 <= row["low"] < 300.0 < row["high"] <= 301.0
    assert row["sb3_missing"] == "dqn 1, dqn 2, dqn 3"  # a trial with few steps does not count


def test_the_lander_is_compared_after_the_steps_of_the_baselines(tmp_path):
    seeds = {0: [(-200.0, 0.0, None)] * 2, 50_000: [(50.0, 0.0, None)] * 2, 100_000: [(220.0, 0.0, None)] * 2}
    row = table_of(tmp_path, LANDER, seeds, [sb3(LANDER, "ppo", seed, 80.0, steps=51_200) for seed in range(4)])
    assert (row["final_return"], row["reached"], row["return_then"], row["difference"]) == (220.0, "yes", 50.0, -30.0)


def test_the_success_of_mountain_car_is_a_lower_bound(tmp_path):
    rng = np.random.default_rng(0)
    for failures in range(21):
        returns = np.where(np.arange(20) < failures, -200.0, rng.integers(-190, -85, 20))
        assert least(returns) <= 1 - failures / 20 + 1e-9
    assert least(np.full(20, -200.0)) == 0.0
    assert least(np.array([-90.0, -130.0] * 10)) == 1.0
    assert least(np.array([-200.0] + [-110.0] * 19)) == pytest.approx(0.95)  # exact, because all others are equal
    row = table_of(tmp_path, MOUNTAIN_CAR, {0: [(-200.0, 0.0, None)] * 2, 20_000: [(-110.0, 20.0, None)] * 2})
    assert (row["final_success"], row["reached"], row["steps_to_goal"]) == (1.0, "yes", 20_000)


def test_the_baselines_are_resumed_row_by_row(baselines, tmp_path):
    path = tmp_path / "new" / "sb3.csv"
    assert baselines.read(path) == {}
    whole = baselines.left({}, list(TASKS), list(baselines.METHODS), None)
    assert len(whole) == 8 * 2 * 4
    assert whole[LANDER, "dqn", 3] == 50_000
    assert (CARTPOLE, "sac", 0) not in whole  # its actions are discrete
    assert (MAZE, "dqn", 0) not in whole  # and those of the maze are not
    rows = {(task, method, seed): sb3(task, method, seed, 1.0, steps=n) for (task, method, seed), n in whole.items()}
    del rows[MAZE, "sac", 2]
    rows[CARTPOLE, "ppo", 1]["steps"] = 120  # a trial
    baselines.write(path, rows)
    with path.open() as file:
        assert next(csv.reader(file)) == list(baselines.COLUMNS)
    assert baselines.left(baselines.read(path), list(TASKS), list(baselines.METHODS), None) == {
        (MAZE, "sac", 2): 20_000,
        (CARTPOLE, "ppo", 1): 10_000,
    }


@pytest.mark.parametrize("task", TASKS)
def test_the_baselines_learn_the_same_environments(baselines, task):
    """By the same name and time limit, with actions that their methods have."""
    env, target = baselines.make(task), TASKS[task]
    assert env.spec.max_episode_steps == resolve(task).task.horizon
    discrete = type(env.action_space).__name__ == "Discrete"
    assert target.methods == (("dqn", "ppo") if discrete else ("ppo", "sac"))
    env.close()


def test_episodes_of_the_baselines_count_success_as_ours_do(baselines):
    class Env:
        """An episode of two steps, the first of which reports success."""

        def reset(self, *, seed):
            self.steps = 0
            return np.zeros(1), {}

        def step(self, action):
            self.steps += 1
            return np.zeros(1), 1.0, False, self.steps == 2, {"success": self.steps == 1}

    class Model:
        """A policy that does nothing."""

        def predict(self, observation, deterministic):
            assert deterministic
            return 0, None

    assert baselines.play(Model(), Env(), MAZE, 0) == ([2.0] * 20, [True] * 20)


def test_a_target_is_compared_after_at_most_fifty_thousand_steps():
    assert [Target(steps, ()).compared for steps in (5_000, 50_000, 100_000)] == [5_000, 50_000, 50_000]


def test_the_lander_is_a_task():
    problem, algorithm = build(resolve(LANDER))
    assert problem.world.mdp.initial.states.shape[1] == 8
    assert algorithm.steps_per_iteration(problem.world.mdp.horizon) == 1_000


@pytest.mark.bad_input
@pytest.mark.parametrize("missing", ["Box2D", "pygame"])
def test_without_box2d(missing, monkeypatch, tmp_path, capsys, record_property):
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["train", LANDER, "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err.removeprefix("pcmlp: ").strip()
    record_property("bad input", (f"train {LANDER}", line))
    assert "Box2D or pygame is not installed; run pip install 'pcmlp[box2d]'" in line
