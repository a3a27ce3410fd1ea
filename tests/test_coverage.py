"""The share of a map that was entered, iteration by iteration, and what a reward-free run says of itself."""

import dataclasses
import io
import shutil

import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.errors import ConfigError
from pcmlp.maps import Map
from pcmlp.runs.config import build, build_problem, resolve
from pcmlp.runs.episodes import read
from pcmlp.runs.evaluate import Entered, read_coverage
from pcmlp.runs.folder import RunFolder
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.train import reward_free_notes, train
from pcmlp.tasks.point_umaze import at_goal
from pcmlp.types import never

SEEDS = (3, 8)


def explore(tiny_trpo, out, steps, *, resume=False):
    shown = io.StringIO()
    own = ("task.horizon=20", "eval_episodes=2", "reward_free=true")
    config = resolve("point-umaze", "pcmlp", SEEDS, steps, (*tiny_trpo, *own))
    train(config, out, console=Console(file=shown, width=200), resume=resume)
    return shown.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_trpo):
    out = tmp_path_factory.mktemp("runs") / "free"
    return out, explore(tiny_trpo, out, 80)


def test_coverage_is_what_the_log_has_entered(run):
    """Counted here square by square, in Python."""
    coverage = np.array(read_metrics(run[0])["coverage"]).reshape(5, 2)
    assert coverage[0].tolist() == [0.0, 0.0]
    entered = [set(), set()]
    for n, record in enumerate(read(run[0] / "episodes"), start=1):
        for seed in range(2):
            valid = record.rows.valid[seed]
            for states in (record.rows.state, record.rows.next_state):
                entered[seed] |= {tuple(np.floor(10 * place).astype(int)) for place in states[seed][valid]}
        np.testing.assert_allclose(coverage[n], [len(cells) / 700 for cells in entered], rtol=1e-6)
    assert (coverage[-1] > coverage[1]).all()
    assert read_coverage(run[0]) == {3: coverage[-1, 0], 8: coverage[-1, 1]}


def test_a_resumed_run_has_the_same_coverage(run, tmp_path, tiny_trpo):
    again = tmp_path / "run"
    explore(tiny_trpo, again, 40)
    explore(tiny_trpo, again, 80, resume=True)
    assert_same_run(run[0], again)
    metrics = shutil.copytree(again, tmp_path / "cut")
    rows = (metrics / "metrics.csv").read_text()
    (metrics / "summary.json").unlink()
    explore(tiny_trpo, metrics, 80, resume=True)
    assert (metrics / "metrics.csv").read_text() == rows


def test_a_reward_free_run_says_what_it_explores_for(run):
    assert "reward-free: explores for the bonus alone" in run[1]
    assert "coverage in metrics.csv" in run[1]
    paid, free = (resolve("mountain-car", settings=(f"reward_free={free}",)) for free in ("false", "true"))
    problem = build_problem(free.task)
    assert reward_free_notes(paid.algorithm, problem) == []
    (line,) = reward_free_notes(free.algorithm, problem)
    assert "coverage" not in line  # there is no map
    (line,) = reward_free_notes(free.algorithm, dataclasses.replace(problem, pays_for_moving=True))
    assert "for the bonus and for the task's own reward, which only pays for moving" in line


def test_where_nothing_is_paid_a_goal_is_no_end():
    """The task is judged with its end; a reward for moving alone stays (paper: section 7.3)."""
    paid, free = (resolve("point-umaze", settings=(f"reward_free={free}",)) for free in ("false", "true"))
    problem, algorithm = build(free)
    assert algorithm.explored_world(problem).mdp.terminal is never
    assert problem.world.mdp.terminal is at_goal
    same, paid_algorithm = build(paid)
    assert paid_algorithm.explored_world(same).mdp.terminal is at_goal
    assert algorithm.reward_free
    other = dataclasses.replace(problem, pays_for_moving=True, goal_ends=False)
    algorithm = free.algorithm.bind(other)
    assert not algorithm.reward_free
    assert algorithm.explored_world(other).mdp.terminal is at_goal


def test_a_task_with_no_map_has_no_coverage(tmp_path):
    folder, held = RunFolder.create(tmp_path / "run", "{}")
    held.close()
    folder.metrics.append([{"iteration": 0, "seed": 0, "env_steps": 0, "eval_return_mean": 0.0}])
    with pytest.raises(
        ConfigError, match="has no coverage, because its task has no map; choose a run of point-umaze or ant-umaze"
    ) as refused:
        read_coverage(tmp_path / "run")
    assert "\n" not in str(refused.value)
    nowhere = Entered(build_problem(resolve("mountain-car").task).map, 2)
    nowhere.add([])
    assert nowhere.columns() == {}


def test_places_that_are_not_on_the_map_do_not_count(run):
    ground = Map.of((0.0, 0.0), (1.0, 1.0), 0.5, lambda x, y: x + y > 0, coordinates=(1, 0))
    entered = Entered(ground, 2)
    assert entered.columns()["coverage"].tolist() == [0.0, 0.0]
    entered.add(record.rows for record in read(run[0] / "episodes"))
    low = entered.columns()["coverage"]
    assert (low > 0).all()
    assert (low <= 1).all()
