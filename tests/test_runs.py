"""A run and its folder: rows, evaluation, summary, policy; the algorithms on the tasks they are made for.

All runs of the lock share one configuration, which is then compiled once.
"""

import dataclasses
import io
import json
import math
import shutil
from threading import Thread
from unittest.mock import MagicMock, patch

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file, save_file
from same_run import assert_same_run

from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.planners import MPPI, UniformPolicy
from pcmlp.runs import arrays, checkpoint, durable
from pcmlp.runs.callbacks import LiveProgress, PlainProgress, listening, show_progress
from pcmlp.runs.config import build, from_json, resolve
from pcmlp.runs.episodes import read
from pcmlp.runs.evaluate import Evaluator
from pcmlp.runs.folder import RunFolder
from pcmlp.runs.metrics import COLUMNS, read_metrics
from pcmlp.runs.policy import load_run
from pcmlp.runs.run import Run, failed_seeds
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import open_run, train
from pcmlp.spaces import Box, Finite
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Policy
from pcmlp.world import JaxWorld

SEEDS = (0, 7)
SETTINGS = ("task.horizon=3", "task.actions=2", "eval_episodes=4")


def quiet() -> Console:
    return Console(file=io.StringIO())


def lock(steps=60):
    return resolve("combination-lock", seeds=SEEDS, steps=steps, settings=SETTINGS)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lock"
    jax.clear_caches()  # another module's run may have compiled this one's programs
    train(lock(), out, command="the command", console=quiet())
    return out


def test_a_row_for_each_seed_and_iteration(run):
    header = (run / "metrics.csv").read_text().splitlines()[0].split(",")
    assert tuple(header[: len(COLUMNS)]) == COLUMNS
    assert {"sample_return", "planned_value"} <= set(header)
    assert not any(name.startswith("explore_") for name in header)
    metrics = read_metrics(run)
    assert metrics["iteration"] == [n for n in range(21) for _ in SEEDS]
    assert metrics["seed"] == [float(seed) for _ in range(21) for seed in SEEDS]
    assert metrics["env_steps"] == [3.0 * n for n in range(21) for _ in SEEDS]
    assert all(later >= earlier for earlier, later in zip(metrics["wall_s"], metrics["wall_s"][1:], strict=False))


def test_row_zero_is_the_untrained_policy(run):
    metrics = read_metrics(run)
    assert math.isnan(metrics["bonus_mean"][0])
    assert math.isnan(metrics["sample_return"][0])
    assert metrics["eval_return_mean"][0] == 0.0
    assert not math.isnan(metrics["bonus_mean"][2])


def test_the_lock_is_opened_and_the_summary_says_when(run):
    metrics, summary = read_metrics(run), read_summary(run)
    assert summary["status"] == "finished"
    assert summary["command"] == "the command"
    assert set(summary["versions"]) == {"python", "jax", "jaxlib", "equinox", "numpy", "pcmlp"}
    assert summary["wall_s"] >= summary["compile_s"] > 0
    assert 0 < summary["save_s"] < summary["wall_s"]
    assert summary["virtual_steps_per_s"] is None
    for i, seed in enumerate(summary["seeds"]):
        success = metrics["eval_success"][i :: len(SEEDS)]
        assert seed["seed"] == SEEDS[i]
        assert seed["final_return"] == seed["final_success"] == success[-1] == 1.0
        assert seed["env_steps_to_success"] == 3 * next(n for n, rate in enumerate(success) if rate >= 0.95)
        assert seed["env_steps_to_sustained_success"] == 3 * (max(n for n, r in enumerate(success) if r < 0.95) + 1)
        assert seed["rewards_seen"] == sum((record.rows.reward[i] > 0).sum() for record in read(run / "episodes"))
        assert seed["explored"] > 0.5
    assert (summary["explored_of"], summary["nothing_found"], summary["reward_free"]) == ("the states", None, False)


def test_the_configuration_is_whole(run):
    assert from_json((run / "config.json").read_text()) == lock()
    task = durable.read_json(run / "config.json")["task"]
    assert task == {"name": "combination-lock", "horizon": 3, "reward_scale": 1.0, "actions": 2, "seed": 0}


def test_every_episode_is_logged(run):
    records = list(read(run / "episodes"))
    assert [record.iteration for record in records] == list(range(1, 21))
    assert all(record.seeds == SEEDS for record in records)
    metrics = read_metrics(run)
    for n, record in enumerate(records, start=1):
        np.testing.assert_allclose(record.rows.reward.sum(axis=1), metrics["sample_return"][2 * n : 2 * n + 2])
        assert record.rows.last.sum(axis=1).tolist() == [1, 1]


def test_the_saved_policy_returns_what_was_evaluated(run):
    problem, _ = build(lock())
    keys = jnp.stack([jr.fold_in(jr.key(seed), 2**31) for seed in SEEDS])
    returns = problem.world.evaluate(keys, load_run(run).policies, 4)
    np.testing.assert_allclose(np.asarray(returns).mean(axis=1), read_metrics(run)["eval_return_mean"][-2:])
    assert arrays.read_facts(run / "policy" / "policy.safetensors")["policy"] == "FinitePolicy"


@pytest.mark.fault("a saved policy beside another configuration, or behind a link", "`pcmlp eval` refuses it")
def test_a_policy_of_another_configuration_is_refused(run, tmp_path):
    text = (run / "config.json").read_text().replace('"horizon": 3', '"horizon": 2')
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "policy").symlink_to(run / "policy")
    with pytest.raises(ConfigError, match="a link, which may lead anywhere"):
        load_run(tmp_path)
    (tmp_path / "policy").unlink()
    shutil.copytree(run / "policy", tmp_path / "policy")
    with pytest.raises(ConfigError, match="not the policy of the configuration beside it; train it again"):
        load_run(tmp_path)
    with pytest.raises(ConfigError, match="not a run folder"):
        load_run(tmp_path / "nothing")


@pytest.mark.fault(
    "a saved policy with a flipped bit, truncated, empty, gone, or without its facts", "`pcmlp eval` refuses it by name"
)
def test_a_policy_that_was_changed_is_refused(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    file = again / "policy" / "policy.safetensors"
    data, facts = file.read_bytes(), arrays.read_facts(file)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    for damaged in (flipped, data[:-1], data[:50], b"\xff\xfe", b""):
        file.write_bytes(damaged)
        with pytest.raises(
            ConfigError,
            match="policy.safetensors: truncated or edited; remove summary.json, if there is one, and continue",
        ):
            load_run(again)
    file.write_bytes(data)
    held = load_file(file)
    for header in (json.dumps({"facts": facts, "sha256": "0"}), json.dumps({"facts": facts})[:50], "", "[]"):
        save_file(held, file, {"header": header})
        with pytest.raises(ConfigError, match="policy.safetensors: (truncated or edited|facts: .*); remove"):
            load_run(again)
    file.write_bytes(arrays.pack(held, {"facts": {}, "sha256": arrays._digest(held, {})}))
    with pytest.raises(ConfigError, match=r"policy.safetensors: not the policy of the configuration beside it"):
        load_run(again)
    save_file(held, file)
    with pytest.raises(ConfigError, match=r"policy.safetensors: truncated or edited"):
        load_run(again)
    file.unlink()
    with pytest.raises(
        ConfigError, match=r"policy.safetensors: No such file .*; remove summary.json, .* with resume=True"
    ):
        load_run(again)


def test_only_another_policy_is_evaluated(run, tmp_path, monkeypatch):
    runs, record = [], Run.record
    monkeypatch.setattr(Run, "record", lambda self, n, metrics: (runs.append(self), record(self, n, metrics))[1])
    train(lock(), tmp_path / "again", console=quiet())
    assert len(runs) == 21
    assert 4 <= runs[-1].spent()["evaluated_episodes"] < 4 * 20
    # and the same seeds give the same run
    once, again = read_metrics(run), read_metrics(tmp_path / "again")
    for name in set(once) - {"wall_s"}:
        np.testing.assert_array_equal(once[name], again[name])


class TwoPolicies(PCMLP):
    """Algorithm 1, measured as an algorithm that plans the policy it deploys apart from the one that explores."""

    @property
    def evaluates_exploring(self) -> bool:
        return True


def test_an_exploring_policy_has_columns_of_its_own(run, tmp_path, monkeypatch):
    problem, algorithm = build(lock())
    both = TwoPolicies(**{field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)})
    monkeypatch.setattr("pcmlp.runs.train.build", lambda config, _: (problem, both))
    train(lock(), tmp_path / "both", console=quiet())
    metrics, without = read_metrics(tmp_path / "both"), read_metrics(run)
    assert set(metrics) - set(without) == {"explore_return_mean", "explore_return_std", "explore_success"}
    assert metrics["eval_return_mean"] == without["eval_return_mean"]
    assert metrics["explore_return_mean"] != metrics["eval_return_mean"]


@pytest.mark.parametrize(("searches", "in_jax", "episodes"), [(False, True, 7), (True, True, 2), (False, False, 2)])
def test_exploring_policies_get_fewer_episodes_where_these_are_expensive(searches, in_jax, episodes):
    """As many elsewhere, so that one compiled program evaluates both policies."""
    world, policies = MagicMock(spec=JaxWorld if in_jax else GymnasiumWorld), MagicMock(spec=Policy, searches=searches)
    with (
        patch("pcmlp.runs.evaluate.named_arrays", return_value={}),
        patch("pcmlp.runs.evaluate.score", return_value=(jnp.zeros((1, 1)), None)) as score,
    ):
        for exploring in (True, False):
            Evaluator(world, jnp.zeros(1), 7, exploring=exploring).returns(policies)
    assert [call.args[3] for call in score.call_args_list] == [episodes, 7]


def test_independent_draws_are_charged_for_and_logged(tmp_path):
    settings = (*SETTINGS, "draws=iid", "samples_per_policy=4", "fit_samples=6")
    config = resolve("combination-lock", "pcmlp-linear", SEEDS, 200, settings)
    assert config.num_iterations == 10
    summary = train(config, tmp_path / "iid", console=quiet())
    assert all(100 < seed["env_steps"] < 300 for seed in summary["seeds"])  # 200 on average
    records = list(read(tmp_path / "iid" / "episodes"))
    assert [record.iteration for record in records] == [n for n in range(1, 11) for _ in range(2)]  # lines 4 and 7
    logged = sum(record.rows.valid.sum(axis=1) for record in records)
    assert logged.tolist() == [seed["env_steps"] for seed in summary["seeds"]]  # every step that was charged for


def test_random_play_is_saved_and_counted(tmp_path):
    config = resolve("combination-lock", "random", SEEDS, 30, SETTINGS)
    assert config.num_iterations == 10
    summary = train(config, tmp_path / "random", console=quiet())
    assert [seed["env_steps"] for seed in summary["seeds"]] == [30, 30]
    assert type(load_run(tmp_path / "random").policies).__name__ == "UniformPolicy"


@pytest.mark.parametrize(("space", "low", "high"), [(Finite(3), 0, 2), (Box.of(2.0, 4), -2.0, 2.0)])
def test_uniform_actions_are_those_of_the_space(space, low, high):
    act = UniformPolicy(space).deterministic()
    _, actions = jax.vmap(lambda key: act(key, act.init(), jnp.zeros(2)))(jr.split(jr.key(1), 200))
    assert low <= actions.min() < actions.max() <= high


@pytest.mark.slow
def test_a_regulator_is_learned_by_shooting(tmp_path):
    settings = ["task.horizon=3", "eval_episodes=2", "planner.num_plans=4", "planner.elites=2"]
    settings += ["samples_per_policy=3", "planner.warmup=1", "planner.iterations=1", "model.method=sgd"]
    summary = train(resolve("knr-lds", seeds=SEEDS, steps=6, settings=settings), tmp_path / "knr", console=quiet())
    assert summary["iterations"] == 2
    assert summary["virtual_steps_per_s"] > 0
    assert type(load_run(tmp_path / "knr").policies).__name__ == "ShootingPolicy"
    assert np.isfinite(read_metrics(tmp_path / "knr")["model_loss"][2:]).all()


def test_paths_can_be_planned_by_mppi():
    problem, algorithm = build(resolve("knr-poly", settings=("planner.name=mppi", "planner.temperature=0.7")))
    mdp = problem.world.mdp
    assert isinstance(algorithm.planner, MPPI)
    assert algorithm.planner.init(jr.key(0), mdp).start.shape == (mdp.horizon, mdp.actions.size)
    assert algorithm.planner.temperature == 0.7


def metrics_at(n):
    return {"iteration": float(n), "env_steps": 3.0 * n, "eval_return_mean": 0.5, "wall_s": 1.0}


def test_the_progress_of_a_long_run_is_twenty_lines():
    console = quiet()
    progress = show_progress(console, 1000)
    assert isinstance(progress, PlainProgress)
    for n in range(1001):
        progress(None, metrics_at(n))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 21
    assert lines[1] == "iteration 50/1000  env steps 150  return 0.500  1.0 s"


def test_the_progress_on_a_terminal_is_live():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = show_progress(console, 10)
    assert isinstance(progress, LiveProgress)
    with listening([progress]):
        progress(None, {**metrics_at(4), "bonus_mean": 0.25})
    assert "4/10" in console.file.getvalue()
    assert "env steps 12  return 0.500  bonus 0.25" in console.file.getvalue()


def test_columns_may_grow(tmp_path):
    folder, held = RunFolder.create(tmp_path / "run", "{}")
    held.close()
    folder.metrics.append([{"iteration": 0, "seed": 1, "env_steps": 0}])
    folder.metrics.append([{"iteration": 1, "seed": 1, "env_steps": 5, "extra": 0.5, "model_loss": -0.0}])
    metrics = read_metrics(tmp_path / "run")
    assert metrics["iteration"] == [0.0, 1.0]
    assert math.isnan(metrics["extra"][0])
    assert metrics["extra"][1] == 0.5
    assert "-0" not in (tmp_path / "run" / "metrics.csv").read_text()


def test_a_torn_last_row_is_left_out(tmp_path):
    folder, held = RunFolder.create(tmp_path / "run", "{}")
    held.close()
    folder.metrics.append([{"iteration": n, "seed": 0, "env_steps": n} for n in range(3)])
    file = tmp_path / "run" / "metrics.csv"
    file.write_text(file.read_text()[:-5])
    assert read_metrics(tmp_path / "run")["iteration"] == [0.0, 1.0]


@pytest.mark.fault("a callback raises", "its iteration is saved already; `--resume` continues, bit for bit")
def test_a_callback_that_raises_loses_nothing(run, tmp_path):
    def raises(source, metrics):
        if metrics["iteration"] == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(lock(), tmp_path / "run", console=quiet(), callbacks=[raises])
    assert read_summary(tmp_path / "run")["status"] == "failed"
    assert checkpoint.iterations(tmp_path / "run" / "checkpoint") == [1, 2]
    train(lock(), tmp_path / "run", console=quiet(), resume=True)
    assert_same_run(run, tmp_path / "run")


def test_a_run_in_another_thread_hears_no_signals(run, tmp_path):
    thread = Thread(target=train, args=(lock(), tmp_path / "thread"), kwargs={"console": quiet()})
    thread.start()
    thread.join()
    assert read_summary(tmp_path / "thread")["status"] == "finished"


def test_nothing_is_compiled_anew_for_a_run_like_an_earlier_one(run, tmp_path):
    summary = train(lock(), tmp_path / "again", console=quiet())
    assert summary["compile_s"] < 0.2 * read_summary(run)["compile_s"]


@pytest.mark.fault(
    "a seed that learns nothing three iterations in a row", "the run stops with a line, what was good is saved"
)
def test_a_run_that_does_not_recover_stops(tmp_path, monkeypatch):
    """Twice in a row is borne, and a good iteration in between forgives."""
    ill = iter([0, 1, 1, 0, 1, 1, 1, 1])
    _, algo = build(lock())
    iterate = type(algo).iterate

    def sometimes(self, keys, world, learner, n):
        iteration = iterate(self, keys, world, learner, n)
        skipped = jnp.array([0.0, next(ill)])
        return iteration._replace(metrics={**iteration.metrics, "covariance_skipped": skipped})

    monkeypatch.setattr(type(algo), "iterate", sometimes)
    with pytest.raises(
        RunStopped, match="seed 7: the samples could not be added to the covariance in 3 iterations in a row"
    ):
        train(lock(), tmp_path / "run", console=quiet())
    assert read_metrics(tmp_path / "run")["iteration"][-1] == 7
    assert read_summary(tmp_path / "run")["status"] == "failed"


def test_no_step_of_a_fit_is_hopeless_and_some_are_not():
    config = resolve("mountain-car", "pcmlp", (3, 4), 400, ("model.steps=5",))
    skipped = {"model_skipped": np.array([5.0, 4.0])}
    assert failed_seeds(config, skipped) == {3: "every step of the model's fit failed"}
    assert failed_seeds(config, {}) == {}


def test_a_finished_run_stays_finished(tmp_path):
    """The thread that writes the summary of an interrupted run may be late."""
    run = open_run(lock(30), tmp_path / "run", resume=False)
    with run.lock:
        run.conclude("finished")
        run.conclude("interrupted")
    assert read_summary(tmp_path / "run")["status"] == "finished"
