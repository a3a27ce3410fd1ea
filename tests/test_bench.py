"""The benchmark at a tiny size: that it runs and what it says, never how long it takes."""

import json
import multiprocessing
import subprocess
import threading
from pathlib import Path

import pytest

from pcmlp import bench
from pcmlp.bench import clock, parts, record, robot, updates
from pcmlp.errors import ConfigError
from pcmlp.models import Probabilistic
from pcmlp.planners import CEM, SAC, TRPO

ROBOT = (
    "task.simulator=gymnasium",
    "task.horizon=20",
    "samples_per_policy=20",
    "eval_episodes=2",
    "rounds=3",
    "model.sizes=8",
    "features.sizes=8",
    "model.steps=2",
    "planner.updates=1",
    "planner.streams=8",
    "planner.length=32",
)
TINY = bench.Sizes(
    net=(8,),
    samples=200,
    model_steps=2,
    planner=TRPO(updates=2, streams=8, length=32),
    seeds=(),
    squares=(16,),
    small=(4, 3, (4,)),
    large=(4, 3, (8, 8)),
    pets_search=CEM(num_plans=10, plan_length=3, particles=4, iterations=2, elites=1, correlation=0.0, truncated=True),
    pets_model=Probabilistic(members=2, sizes=(8,)),
    fourier=4,
    updating={"sac": SAC(updates=2, streams=4, length=2, batch=4, sizes=(4,))},
    updating_seeds=(1, 2),
    jobs=2,
    robot="mountain-car",
    robot_settings=ROBOT,
    robot_seeds=(1,),
    robot_round_seeds=(1,),
    repeats=1,
    seconds=0.0,
)
PROMISED = {
    "round_s",
    "share_of_peak",
    "peak_flop_per_s",
    "imagined_steps_per_s",
    "phases",
    "mppi_small_ms",
    "mppi_large_ms",
    "mppi_large_floor_ms",
    "pets_plan_s",
    "seeds_scaling",
    "peak_memory_mb",
    "updates",
    "robot",
    "robot_round_s",
    "device",
    "versions",
}


@pytest.mark.slow  # it compiles all that is timed
def test_the_file_holds_what_is_promised(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(clock, "time_to_solved", lambda: {"cold_cache": 2.0, "warm_cache": 1.0})
    out = tmp_path / "bench.json"
    assert bench.main(out, (), TINY) == 0
    result = json.loads(out.read_text())
    assert set(result) >= {*PROMISED, "time_to_solved_s"}
    assert set(result["phases"]) == {"rollout", "bonus", "advantages", "TRPO step", "value fit", "model fit"}
    assert set(result["seeds_scaling"]) == {"1"}
    assert result["round_s"] == result["seeds_scaling"]["1"]
    (before, after), (round_s,) = result["peaks_flop_per_s"], result["rounds_s"]["1"]
    assert result["peak_flop_per_s"] == pytest.approx((before + after) / 2)
    assert result["share_of_peak"] == pytest.approx(3.2e11 / round_s / result["peak_flop_per_s"])
    assert result["imagined_steps_per_s"] == pytest.approx(2 * 8 * 32 / result["round_s"])
    rates = result["updates"]["sac"]
    assert set(rates) == {"alone", "jobs_2"}
    assert all(set(rates[count]) == {"1", "2"} for count in rates)
    times = [
        *result["phases"].values(),
        *result["seeds_scaling"].values(),
        *result["robot_round_s"].values(),
        *(rate["updates_per_s"] for by_seeds in rates.values() for rate in by_seeds.values()),
        result["mppi_small_ms"],
        result["pets_plan_s"],
    ]
    assert min(times) > 0
    assert "share_of_peak" in capsys.readouterr().out


@pytest.fixture
def measured(monkeypatch):
    """Return two lists: the names of the measured parts, and of those at which a benchmark is stopped."""
    names, ends = [], []

    def part(name):
        def measure(sizes):
            if name in ends:
                raise KeyboardInterrupt
            names.append(name)
            return {f"{name}_s": float(len(names))}

        return measure

    monkeypatch.setattr(bench, "PARTS", {name: part(name) for name in bench.PARTS})
    return names, ends


def test_only_what_is_asked_for_is_measured(measured, tmp_path):
    names, _ = measured
    bench.main(tmp_path / "some.json", ("mppi", "round"), TINY)
    assert names == ["round", "mppi"]
    found = json.loads((tmp_path / "some.json").read_text())
    assert [key for key in found if key in ("round_s", "mppi_s", "pets_s")] == ["round_s", "mppi_s"]
    bench.main(None, (), TINY)
    assert names[2:] == list(bench.PARTS)
    with pytest.raises(ConfigError, match="part=mpi: .*nearest is mppi"):
        bench.main(None, ("mpi",), TINY)


def test_a_benchmark_that_was_stopped_continues_with_the_parts_that_are_missing(measured, tmp_path, capsys):
    (names, ends), out = measured, tmp_path / "bench.json"
    ends.append("mppi")
    with pytest.raises(KeyboardInterrupt):
        bench.main(out, (), TINY)
    before = json.loads(out.read_text())
    assert list(before["parts"]) == names == ["solved", "updates", "round"]
    said = capsys.readouterr().out
    assert "round_s" in said  # shown before the next part ends
    ends.clear()
    bench.main(out, (), TINY)
    assert names == list(bench.PARTS)  # each once
    after = json.loads(out.read_text())
    assert [key for key in before if before[key] != after[key]] == ["parts"]
    assert list(after["parts"]) == list(bench.PARTS)
    assert all(set(part) == {"load_before", "wall_s"} for part in after["parts"].values())
    said = capsys.readouterr().out
    assert f"round: {out} has it already" in said
    assert "pets_s" in said
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("device", "gpu (NVIDIA H200)", "of another device; give another file"),
        ("versions", {"jax": "0.1"}, "of another set of package versions"),
        ("code", "1" * 64, "of another code of pcmlp"),
        ("options", {"seeds": [2], "jobs": 2}, "of another choice of --seeds or --jobs"),
        ("parts", None, "is no benchmark, or one of an earlier version"),
    ],
)
def test_a_file_of_another_machine_code_or_choice_is_refused(measured, tmp_path, key, value, line):
    (names, _), out = measured, tmp_path / "bench.json"
    bench.main(out, ("solved",), TINY)
    other = {**json.loads(out.read_text()), key: value}
    out.write_text(json.dumps(other))
    with pytest.raises(ConfigError, match=f"out=.*{line}"):
        bench.main(out, ("round",), TINY)
    assert names == ["solved"]
    assert json.loads(out.read_text()) == other


def test_a_file_that_is_cut_off_is_refused(measured, tmp_path):
    (tmp_path / "bench.json").write_text('{"round_s": 1.')
    with pytest.raises(ConfigError, match="not JSON .*; give another file, or remove it"):
        bench.main(tmp_path / "bench.json", (), TINY)
    with pytest.raises(ConfigError, match="not a file; put the file itself there"):
        bench.main(tmp_path, (), TINY)


def test_a_change_of_the_code_changes_its_hash(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.py").write_text("x = 1")
    seen = {record.hash_package(tmp_path)}
    (tmp_path / "inner" / "one.py").write_text("x = 2")
    seen.add(record.hash_package(tmp_path))
    (tmp_path / "inner" / "one.py").rename(tmp_path / "one.py")
    seen.add(record.hash_package(tmp_path))
    assert len(seen) == 3
    (tmp_path / "numbers.csv").write_text("1")
    assert record.hash_package(tmp_path) in seen


@pytest.mark.slow  # it compiles an iteration
@pytest.mark.parametrize("whole", [True, False])
def test_an_iteration_on_a_simulator(whole):
    """A CPU measures two of four rounds, and says so."""
    parts_of = robot.iteration_s("mountain-car", ROBOT, 1, whole=whole)
    assert parts_of["rounds_measured"] == (4 if whole else 2)
    assert (parts_of["eval_episodes_measured"], parts_of["steps"]) == (2, 20)
    assert min(seconds for name, seconds in parts_of.items() if name.endswith("_s") and name != "stage_s") > 0


def test_rates_of_processes_are_added(monkeypatch):
    """One that dies leaves no number, not a wrong one."""
    rates = [updates.Rate(2.0, 30.0), updates.Rate(3.0, 20.0)]
    assert updates.add_rates(rates) == updates.Rate(5.0, 30.0)
    (ours, theirs), (others, dead) = multiprocessing.Pipe(duplex=False), multiprocessing.Pipe(duplex=False)
    for pipe in (theirs, dead):
        pipe.send((2.0, 30.0))
    assert updates.receive_all([ours, others]) == [rates[0], rates[0]]
    theirs.send((2.0, 30.0))
    dead.close()
    assert updates.receive_all([ours, others]) is None


@pytest.mark.slow  # it compiles two plans
def test_a_plan_of_several_seeds_is_one_measurement():
    """In this process; `measure_rates` starts others."""
    case = updates.Case(TINY.updating["sac"], (1, 2), (4,), 200, 0.0)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    together = threading.Barrier(1)
    updates.serve(case, together, theirs)
    one, two = updates.receive_all([ours]), updates.receive_all([ours])
    assert one[0].updates_per_s > 0
    assert two[0].peak_memory_mb >= one[0].peak_memory_mb > 0
    assert together.broken  # the others do not wait for a process that has ended


def test_a_folder_that_is_not_there_is_said_before_anything_is_measured(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        bench.main(tmp_path / "none" / "bench.json")


@pytest.mark.parametrize(("code", "steps", "timed"), [(0, 400, True), (0, None, False), (2, 400, False)])
def test_a_run_that_fails_or_solves_nothing_has_no_time(monkeypatch, code, steps, timed):
    caches = []

    def run(command, env, capture_output):
        out = Path(command[-1])
        out.mkdir()
        (out / "summary.json").write_text(json.dumps({"seeds": [{"env_steps_to_success": steps}]}))
        caches.append(env["PCMLP_CACHE"])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(clock.subprocess, "run", run)
    times = clock.time_to_solved()
    assert set(times) == {"cold_cache", "warm_cache"}
    assert all((t is not None) == timed for t in times.values())
    assert caches[0] == caches[1]


def test_the_defaults_are_the_papers_round():
    """What 3.2e11 FLOP stands for."""
    sizes = bench.Sizes()
    algo = parts.paper_round(sizes.net, sizes.samples, sizes.model_steps, sizes.planner)
    assert (algo.planner.updates, algo.planner.streams * algo.planner.length) == (40, 4_000)
    assert (algo.planner.policy_sizes, algo.planner.value_sizes) == ((32, 32), (64, 64))
    assert (algo.model.steps, algo.model.batch, algo.model.unroll) == (100, 128, 2)
    assert algo.model.sizes == algo.features.sizes == (500, 500)


def test_the_defaults_are_a_plan_of_pets():
    """525,000 steps of a net: what mbrl-lib's PETS takes."""
    search, model = bench.Sizes().pets_search, bench.Sizes().pets_model
    assert search.num_plans * search.plan_length * search.particles * search.iterations == 525_000
    assert (search.elites, search.noise_std, search.truncated, search.smoothing) == (35, 0.5, True, 0.1)
    assert (model.members, model.sizes) == (5, (200,) * 4)
