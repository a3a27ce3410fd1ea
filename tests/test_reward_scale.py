"""The experiments about the default's own weight of the bonus: `scale` and `costs`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from written_runs import write_summary

from pcmlp.agent import DeepPCMLP
from pcmlp.experiments import costs, reward_scale
from pcmlp.experiments.experiment import Done, write_csv
from pcmlp.experiments.job import FULL, QUICK, SCALES, SMOKE
from pcmlp.published import dense_table
from pcmlp.report.reading import load
from pcmlp.runs.config import resolve, to_json
from pcmlp.runs.folder import RunFolder
from pcmlp.runs.group import group_key
from pcmlp.runs.metrics import read_table

RESULTS = Path(__file__).parents[1] / "results"
MACHINE = {"wall_s": 2.4, "device": "cpu"}


def test_only_the_scale_of_the_reward_differs_from_the_defaults():
    jobs = {job.name: job for job in reward_scale.jobs()}
    assert len(jobs) == 15
    control = jobs.pop("deceptive-umaze/no-bonus")
    assert control.config().algorithm == resolve(control.task, settings=("bonus_scale=0",)).algorithm
    for job in jobs.values():
        config = job.config()
        assert config.algorithm == resolve(job.task).algorithm
        assert config.seeds == tuple(range(10))
        problem, scale = config.task.build(), config.task.reward_scale
        kind, _, amount = job.label.partition("-")
        assert float(amount) == (2 * problem.success_return if kind == "goal" else scale)
    assert {name.split("/")[0] for name in jobs} >= {"mountain-car", "acrobot", "point-umaze", "dock"}


def test_the_committed_maze_lost_its_success_as_often_as_its_page_says():
    run = load(RESULTS / "controls/point-umaze/pcmlp")
    assert reward_scale.count_kept(run) == (419 - 57, 419)


def test_evaluations_count_from_the_one_after_a_first_success(tmp_path):
    job = replace(reward_scale.jobs()[0], seeds=(0, 1))
    folder, held = RunFolder.create(tmp_path / job.where, to_json(job.config()))
    held.close()
    of_seeds = {0: (0.0, 1.0, 0.9, 1.0), 1: (0.0, 0.0, 0.0, 0.0)}
    scores = {"eval_return_mean": 0.0, "eval_return_std": 0.0}
    for n in range(4):
        named = {"iteration": n, "env_steps": 200 * n, **scores}
        folder.metrics.append([{**named, "seed": seed, "eval_success": shares[n]} for seed, shares in of_seeds.items()])
    ended = {"env_steps": 600, "final_return": 0.0, "final_success": 0.0, "env_steps_to_sustained_success": None}
    found = [{"seed": seed, **ended, "env_steps_to_success": steps} for seed, steps in ((0, 200), (1, None))]
    write_summary(tmp_path / job.where, {**MACHINE, "seeds": found})
    [(name, [row])] = reward_scale.tables(Done((job,), FULL, tmp_path, tmp_path))
    assert (name, row["run"], row["solved"]) == ("scale", "goal-0.01", "1 of 2")
    assert (row["kept"], row["kept_share"]) == ("1 of 2", 0.5)


def test_what_agents_learned_has_a_row_beside_the_runs(tmp_path):
    ends = {"final_return": 0.01, "final_success": 1.0, "evaluations_after": 3, "kept": 2, **MACHINE}
    solved = {"seed": 0, "env_steps": 4000, "env_steps_to_success": 2000, "env_steps_to_sustained_success": 2400}
    never = {"seed": 1, "env_steps": 4000, "env_steps_to_success": "", "env_steps_to_sustained_success": ""}
    write_csv(tmp_path / "scale/class-0.01.csv", [solved | ends, never | ends | {"evaluations_after": 0, "kept": 0}])
    [(_, [row])] = reward_scale.tables(Done((), FULL, tmp_path, tmp_path))
    assert (row["task"], row["run"], row["solved"], row["env_steps"]) == ("dock", "class-0.01", "1 of 2", 4000)
    assert (row["kept"], row["kept_share"], row["wall_s"], row["device"]) == ("2 of 3", 0.6667, 4.8, "cpu")


@pytest.mark.parametrize("name", ["class-1", reward_scale.LEARNED])
def test_an_agent_learns_the_class_of_the_environment(name, monkeypatch, tmp_path):
    """It is told the reward and the end, or neither."""
    made = []

    class Spied(DeepPCMLP):
        def __init__(self, env, **given):
            made.append((env(), given))
            super().__init__(env, **given)

    monkeypatch.setattr(reward_scale, "DeepPCMLP", Spied)
    [row] = reward_scale.learn_class(replace(reward_scale.classes()[name], seeds=(3,)), replace(SMOKE, runs={}))
    [(environment, given)] = made
    assert environment.goal_reward == 1.0
    assert {given[part] is None for part in ("reward", "terminal")} == {name == reward_scale.LEARNED}
    assert (row["seed"], row["env_steps"], row["kept"]) == (3, 40, 0)
    write_csv(tmp_path / "table.csv", [row])
    shown = reward_scale.class_row(reward_scale.classes()[name], read_table(tmp_path / "table.csv"))
    assert (shown["run"], shown["solved"], shown["kept"]) == (name, "0 of 1", "0 of 0")


def test_a_scale_leaves_out_most_agents():
    kept = {scale.name: [n for n, job in reward_scale.classes().items() if scale.has(job)] for scale in SCALES.values()}
    assert kept == {"smoke": ["class-1"], "quick": ["class-100"], "full": list(reward_scale.SCALE.measured)}
    assert reward_scale.learn_class(reward_scale.classes()[reward_scale.LEARNED], QUICK) == []


def test_costs_compares_the_defaults_with_two_controls_on_other_seeds():
    for job in costs.jobs():
        settings = {"pcmlp": (), "no-bonus": ("bonus_scale=0",), "covariance-off": ("covariance=off",)}[job.label]
        assert job.config().algorithm == resolve(job.task, settings=settings).algorithm
        assert (job.seeds, job.steps) == ((10, 11, 12, 13), 200_000)
    for task in costs.TASKS:  # on a GPU, one program iterates the three
        assert len({group_key(job.config()) for job in costs.jobs() if job.task == task}) == 1


def test_differences_are_in_units_of_what_is_learned_without_a_bonus():
    random = {task: dense_table()[task]["Random"].mean for task in costs.TASKS}
    unit, ours = 1_000.0, np.array([0.5, 1.5, 0.5, 1.5])

    def of(task, share):
        return random[task] + unit * share * np.ones(4)

    cheetah, hopper, walker = costs.TASKS
    returns = {
        task: {"pcmlp": random[task] + unit * ours, "no-bonus": of(task, 2.0), "covariance-off": of(task, 1.0)}
        for task in (cheetah, hopper)
    }
    without, control = costs.pooled_rows({**returns, walker: {"pcmlp": of(walker, 1.0)}})
    assert (without["compared"], without["tasks"], without["seeds"]) == ("pcmlp - no-bonus", f"{cheetah} {hopper}", 4)
    assert without["difference"] == -0.5  # a half of what is learned without a bonus
    assert -0.75 <= without["low"] < -0.5 < without["high"] <= -0.25
    assert (control["difference"], control["compared"]) == (0.0, "pcmlp - covariance-off")


def test_a_task_that_is_not_learned_without_a_bonus_has_no_unit():
    below = {label: np.array([-1e3, -2e3]) for label in ("pcmlp", "no-bonus", "covariance-off")}
    assert costs.pooled_rows(dict.fromkeys(costs.TASKS, below)) == []
