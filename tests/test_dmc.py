"""The DeepMind Control Suite by name: dmc:DOMAIN-TASK."""

import os
import sys

import jax.random as jr
import numpy as np
import pytest
from test_host import counting

from pcmlp.cli import main
from pcmlp.runs.config import build_problem, from_json, resolve, to_json
from pcmlp.tasks import dmc
from pcmlp.types import never

NAME = "dmc:cartpole-swingup_sparse"


def test_a_task_of_the_suite():
    before = dict(os.environ)
    config = resolve(NAME)
    assert (config.task_name, config.task.horizon, config.task.kind) == (NAME, 1000, "gym")
    assert from_json(to_json(config)) == config
    world = build_problem(resolve(NAME, settings=("task.horizon=20",)).task).world
    assert world.mdp.states.names == ("position[0]", "position[1]", "position[2]", "velocity[0]", "velocity[1]")
    assert world.mdp.terminal is never  # this task never ends early
    rows, _ = world.collect(jr.split(jr.key(0), 1), counting(1), 40)
    assert rows.valid.all()
    assert not rows.terminal.any()
    assert np.all((np.asarray(rows.reward) >= 0) & (np.asarray(rows.reward) <= 1))
    again, _ = world.collect(jr.split(jr.key(0), 1), counting(1), 40)
    np.testing.assert_array_equal(rows.next_state, again.next_state)
    assert dict(os.environ) == before  # MUJOCO_GL among others


def test_an_episode_has_the_suites_time_limit():
    env = dmc.make(NAME)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(1000)]
    assert ends == [(False, False)] * 999 + [(False, True)]


def test_seeds_decide_the_start_and_nothing_else():
    one, two = dmc.make("dmc:acrobot-swingup"), dmc.make("dmc:acrobot-swingup")
    first, _ = one.reset(seed=3)
    np.testing.assert_array_equal(first["orientations"], two.reset(seed=3)[0]["orientations"])
    assert not np.array_equal(first["orientations"], one.reset()[0]["orientations"])
    assert dmc.ends_early("dmc:lqr-lqr_2_1")
    assert dmc.time_limit("dmc:lqr-lqr_2_1") is None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("dmc:cartpol-swingup", "not a task of the DeepMind Control Suite; the nearest is dmc:cartpole-swingup"),
        ("dmc:cartpole-swing", "cartpole has cartpole-balance, cartpole-balance_sparse, cartpole-swingup"),
        ("dmc:", "not a task of the DeepMind Control Suite; the nearest is dmc:"),
        ("dmc:lqr-lqr_2_1", "has no time limit; give the steps of an episode, task.horizon=INT"),
        (f"{NAME} --set task.action_scale=2", "its actions have bounds; leave out action_scale=2.0"),
        (f"{NAME} --set task.horizon=1001", "stops after 1000 steps; give 1000 or less"),
    ],
)
def test_bad_input(words, named, tmp_path, capsys, record_property):
    out = tmp_path / "out"
    assert main(["train", *words.split(), "--out", str(out)]) == 2
    line = capsys.readouterr().err.removeprefix("pcmlp: ").strip()
    record_property("bad input", (f"train {words}", line))
    assert "\n" not in line
    assert named in line
    assert not out.exists()


@pytest.mark.bad_input
def test_without_its_extra(monkeypatch, tmp_path, capsys, record_property):
    dmc.import_suite.cache_clear()
    monkeypatch.setitem(sys.modules, "dm_control", None)
    try:
        assert main(["train", NAME, "--out", str(tmp_path / "out")]) == 2
    finally:
        dmc.import_suite.cache_clear()
    line = capsys.readouterr().err.removeprefix("pcmlp: ").strip()
    record_property("bad input", (f"train {NAME}", line))
    assert line == "dm-control is not installed; run pip install 'pcmlp[dmc]'"
