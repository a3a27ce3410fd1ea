"""The benchmark at a tiny size: that it runs and what it says, never how long it takes."""

import json
import runpy
import subprocess
from pathlib import Path

import pytest

from pcmlp import bench
from pcmlp.bench import clock, parts
from pcmlp.errors import ConfigError
from pcmlp.models import Probabilistic
from pcmlp.planners import CEM
from pcmlp.runs.config import resolve

TINY = bench.Sizes(
    net=(8,),
    samples=200,
    model_steps=2,
    updates=2,
    streams=8,
    length=32,
    seeds=(),
    squares=(16,),
    small=(4, 3, (4,)),
    large=(4, 3, (8, 8)),
    pets_search=CEM(num_plans=10, plan_length=3, particles=4, iterations=2, elites=1, correlation=0.0, truncated=True),
    pets_model=Probabilistic(members=2, sizes=(8,)),
    fourier=4,
    repeats=1,
    seconds=0.0,
    solve=False,
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
    "time_to_solved_s",
    "device",
    "versions",
}


@pytest.mark.slow  # it compiles all that is timed
def test_the_file_holds_what_is_promised(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert bench.main(out, TINY) == 0
    result = json.loads(out.read_text())
    assert set(result) >= PROMISED
    assert set(result["phases"]) == {"rollout", "bonus", "advantages", "TRPO step", "value fit", "model fit"}
    assert set(result["seeds_scaling"]) == {"1"}
    assert result["round_s"] == result["seeds_scaling"]["1"]
    (before, after), (round_s,) = result["peaks_flop_per_s"], result["rounds_s"]["1"]
    assert result["peak_flop_per_s"] == pytest.approx((before + after) / 2)
    assert result["share_of_peak"] == pytest.approx(3.2e11 / round_s / result["peak_flop_per_s"])
    assert result["imagined_steps_per_s"] == pytest.approx(2 * 8 * 32 / result["round_s"])
    times = [
        *result["phases"].values(),
        *result["seeds_scaling"].values(),
        result["mppi_small_ms"],
        result["pets_plan_s"],
    ]
    assert min(times) > 0
    assert "share_of_peak" in capsys.readouterr().out


@pytest.mark.slow  # it compiles an iteration
def test_an_iteration_on_a_simulator():
    settings = (
        "task.simulator=gymnasium",
        "task.horizon=20",
        "samples_per_policy=20",
        "rounds=1",
        "model.sizes=8",
        "features.sizes=8",
        "model.steps=2",
        "planner.updates=1",
        "planner.streams=8",
        "planner.length=32",
    )
    measure = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "host.py"))["host_seconds"]
    host = measure(resolve("mountain-car", "pcmlp", (0,), settings=settings))
    assert (host["task"], host["steps"]) == ("mountain-car", 20)
    assert min(seconds for name, seconds in host.items() if name.endswith("_s")) > 0
    assert host["dispatch_s"] <= host["stage_s"] < host["iteration_s"]
    assert host["share_evaluated"] == 1
    assert 0 < host["share_policy"] + host["share_around"] < 1


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
    algo = parts.paper_round(sizes.net, sizes.samples, sizes.model_steps, sizes.updates, sizes.streams, sizes.length)
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
