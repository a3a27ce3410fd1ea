"""The expected time of experiments: which earlier run an estimate comes from, how it is scaled, and the total."""

from dataclasses import replace

import pytest
from written_runs import write_summary

from pcmlp.cli import main
from pcmlp.experiments import budget
from pcmlp.experiments.budget import count_work, expected_seconds, schedule
from pcmlp.experiments.gpu import Gpu
from pcmlp.experiments.job import Job
from pcmlp.runs.config import to_json
from pcmlp.runs.metrics import COLUMNS

HERE, GPU = "cpu (x86_64, 2 cores)", "gpu (NVIDIA H200)"
LOCK = Job("locks", "combination-lock", "tiny", "pcmlp-linear", 400, ("eval_episodes=2",), (0, 1))
CAR = Job("cars", "mountain-car", "pcmlp", "pcmlp", 2_000, (), (0, 1))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder of results, on a CPU with two cores; the kept results of the repository are not read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(budget, "find_device", lambda: HERE)
    budget.read_earlier.cache_clear()
    return tmp_path / "results"


def keep(results, job, *, wall_s, compile_s=0.0, device=HERE, status="finished", **facts):
    """Write the kept files of a run that budgets are made from."""
    folder = results / job.where
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(to_json(job.config()))
    (folder / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    times = {"wall_s": wall_s, "compile_s": compile_s, "device": device}
    write_summary(folder, {"status": status, "seeds": [], "iterations": 1, **times, **facts})


def test_the_same_run_takes_the_same_time(results):
    keep(results, LOCK, wall_s=100.0, compile_s=20.0)
    assert expected_seconds(replace(LOCK, label="again"), results) == pytest.approx(100)


def test_a_longer_run_takes_longer_but_compiles_once(results):
    keep(results, LOCK, wall_s=100.0, compile_s=20.0)
    longer = replace(LOCK, label="longer", steps=4 * LOCK.steps)
    ratio = count_work(longer.config()) / count_work(LOCK.config())
    assert 2 < ratio <= 4
    assert expected_seconds(longer, results) == pytest.approx(20 + 80 * ratio)


def test_seeds_cost_less_on_a_gpu_than_on_a_cpu(results, monkeypatch):
    one, many = replace(LOCK, seeds=(0,)), replace(LOCK, label="many", seeds=tuple(range(16)))
    keep(results, one, wall_s=10.0)
    assert expected_seconds(many, results) == pytest.approx(160)
    monkeypatch.setattr(budget, "find_device", lambda: GPU)
    keep(results / "gpu", one, wall_s=10.0, device=GPU)
    assert expected_seconds(many, results / "gpu") == pytest.approx(17.5, rel=0.01)


def test_what_is_nearest_is_used(results):
    """This device before the same task, and the same parts before it too; other methods never."""
    assert expected_seconds(CAR, results) is None
    keep(results / "a", replace(CAR, algo="slbo"), wall_s=1.0)
    assert expected_seconds(CAR, results / "a") is None
    keep(results / "b", CAR, wall_s=2.0, device=GPU)
    assert expected_seconds(CAR, results / "b") == pytest.approx(2)
    keep(results / "c", CAR, wall_s=2.0, device=GPU)
    keep(results / "c", replace(CAR, task="acrobot"), wall_s=3.0)
    assert expected_seconds(CAR, results / "c") == pytest.approx(3)
    keep(results / "d", replace(CAR, settings=("planner.name=sac",)), wall_s=4.0)
    keep(results / "d", replace(CAR, task="acrobot"), wall_s=5.0)
    assert expected_seconds(CAR, results / "d") == pytest.approx(5)


@pytest.mark.parametrize("facts", [{"shared_device": True}, {"status": "stopped"}])
def test_a_run_that_had_neighbours_or_was_stopped_is_not_used(results, facts):
    keep(results, LOCK, wall_s=100.0, **facts)
    assert expected_seconds(LOCK, results) is None


def test_damaged_results_are_not_used(results):
    keep(results, LOCK, wall_s=100.0)
    keep(results, CAR, wall_s=50.0)
    (results / LOCK.where / "summary.json").write_text("{")
    (results / CAR.where / "config.json").write_text("[]")
    assert expected_seconds(replace(LOCK, label="next"), results) is None
    assert expected_seconds(replace(CAR, label="next"), results) is None


def test_the_longest_begin_first():
    assert schedule([], 2) == 0
    assert schedule([1.0, 2.0, 3.0], 1) == 6
    assert schedule([1.0, 2.0, 3.0], 2) == 3
    assert schedule([2.0, 2.0, 3.0, 3.0, 4.0], 2) == 8  # 4 2 2 beside 3 3; the best is 7
    assert schedule([5.0], 8) == 5


def test_the_plan_has_a_line_for_every_run_and_a_total(results):
    keep(results, LOCK, wall_s=60.0)
    keep(results, CAR, wall_s=600.0, device=GPU)
    jobs = [LOCK, replace(LOCK, label="next"), replace(CAR, task="acrobot"), replace(CAR, algo="slbo", label="slbo")]
    finished, here, elsewhere, unknown, counts, total, lanes, *doubts = budget.describe_plan(jobs, results, 2)
    assert finished.endswith("finished")
    assert "1.0 min  this device: locks/combination-lock/tiny" in here
    assert f"10.0 min  another device, {GPU}, another task: cars/mountain-car/pcmlp" in elsewhere
    assert "unknown   no earlier run of slbo" in unknown
    assert counts == "4 runs: 1 finished, 3 to run"
    assert total.startswith("about 11 min one after another")
    assert lanes.startswith("about 10 min with --jobs 2")
    assert [line.split()[0] for line in doubts] == ["1", "1"]


def test_timed_runs_have_no_neighbours(results):
    keep(results, LOCK, wall_s=600.0)
    jobs = [replace(LOCK, label=label) for label in ("a", "b")]
    assert any(line.startswith("about 10 min with --jobs 2") for line in budget.describe_plan(jobs, results, 2))
    timed = list(budget.describe_plan(jobs, results, 2, alone=["locks"]))
    assert any(line.startswith("about 20 min with --jobs 2") for line in timed)


def test_a_gpu_is_named_as_in_a_summary(monkeypatch):
    monkeypatch.setattr(budget, "find_gpu", lambda: Gpu("0", "GPU-1", "NVIDIA H200", 140.0, 140.0, "Default"))
    assert budget.find_device() == GPU


def test_the_command_runs_nothing(results, capsys):
    assert main(["paper", "sparse", "--plan", "--only", "mountain-car/pcmlp", "--seeds", "0", "1"]) == 0
    line, counts, *_ = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["sparse/mountain-car/pcmlp", "2", "seeds"]
    assert "unknown" in line
    assert counts == "1 runs: 0 finished, 1 to run"
    assert not list(results.parent.rglob("*.json"))
    assert main(["paper", "sparce", "--plan"]) == 2
    assert main(["paper", "sparse", "--plan", "--jobs", "0"]) == 2
