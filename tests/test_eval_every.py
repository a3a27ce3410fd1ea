"""`eval_every`: which iterations are evaluated, and what the others leave empty."""

import dataclasses
import io
import itertools
import json
import re

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file
from same_run import assert_same_run

from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import ConfigError
from pcmlp.experiments.job import check_result
from pcmlp.report.curves import plot_certificate, plot_curves
from pcmlp.report.figures import draw
from pcmlp.report.page import report
from pcmlp.report.reading import load
from pcmlp.report.words import final_return, headline, median_steps
from pcmlp.runs import checkpoint
from pcmlp.runs.callbacks import PlainProgress
from pcmlp.runs.config import from_json, resolve, to_json
from pcmlp.runs.evaluate import count_evaluations, is_due
from pcmlp.runs.metrics import read_metrics, read_rows
from pcmlp.runs.summary import closing_lines, read_summary, summarise_seed
from pcmlp.runs.train import train

SEEDS = (0, 7)
EVALUATED = ("eval_return_mean", "eval_return_std", "eval_success")


def lock(*settings, steps=60):
    """Twenty iterations of three env steps; those that complete another seven are evaluated."""
    own = ("task.horizon=3", "task.actions=2", "eval_episodes=4", "eval_every=7")
    return resolve("combination-lock", seeds=SEEDS, steps=steps, settings=(*own, *settings))


def each_iteration():
    return dataclasses.replace(lock(), eval_every=0)


def run(config, out, **options):
    train(config, out, console=Console(file=io.StringIO()), **options)
    return out


def iterations_with(out, column):
    rows = read_rows(out)
    return sorted({int(row["iteration"]) for row in rows if row[column]})


@pytest.fixture(scope="module")
def whole(tmp_path_factory, every_iteration_saved):
    return run(lock(), tmp_path_factory.mktemp("runs") / "whole")


DUE = [0, 3, 5, 7, 10, 12, 14, 17, 19, 20]  # at 9, 15, 21, 30, 36, 42, 51 and 57 env steps, and the last iteration


@pytest.mark.parametrize(
    ("every", "steps", "due"),
    [
        (7, 60, DUE),
        (0, 9, [0, 1, 2, 3]),
        (1, 9, [0, 1, 2, 3]),
        (6, 21, [0, 2, 4, 6, 7]),
        (1_000, 60, [0, 20]),
    ],
)
def test_iterations_that_complete_so_many_env_steps_are_evaluated(every, steps, due):
    config = dataclasses.replace(lock(steps=steps), eval_every=every)
    assert [n for n in range(config.num_iterations + 1) if is_due(config, n)] == due
    assert count_evaluations(config) == len(due)


def test_the_default_depends_on_the_kind_of_task():
    for task, every in (("half-cheetah", 20_000), ("hand-egg", 20_000), ("ant-umaze", 20_000), ("point-umaze", 0)):
        assert resolve(task).eval_every == every
    assert resolve("gym:Pendulum-v1").eval_every == 3_000
    robot = resolve("half-cheetah", steps=200_000)
    assert count_evaluations(robot) == 11
    assert is_due(robot, 5)  # 20,000 env steps
    for given in ("0", "4000"):  # no default replaces what was given
        config = resolve("half-cheetah", settings=(f"eval_every={given}",))
        assert from_json(to_json(config)) == config
        assert config.eval_every == int(given)
    with pytest.raises(ConfigError, match="eval_every=-1: give env steps, or 0 to evaluate every iteration"):
        resolve("half-cheetah", settings=("eval_every=-1",))


def test_cells_are_empty_without_an_evaluation(whole):
    for column in EVALUATED:
        assert iterations_with(whole, column) == DUE
    for column in ("bonus_mean", "promised", "certificate"):  # the value of a finite MDP's policy is computed
        assert iterations_with(whole, column) == list(range(1, 21))


def test_what_is_learned_does_not_depend_on_evaluations(whole, tmp_path):
    each = run(each_iteration(), tmp_path / "each")
    ours, theirs = read_metrics(whole), read_metrics(each)
    for name, values in ours.items():
        if not name.endswith("_s"):
            known = ~np.isnan(values)
            np.testing.assert_array_equal(np.array(values)[known], np.array(theirs[name])[known])
    assert np.isfinite(theirs["eval_return_mean"]).all()


def test_the_summary_is_of_evaluations(whole):
    rows = [row for row in read_rows(whole) if row["eval_success"]]
    for seed in read_summary(whole)["seeds"]:
        own = [(int(row["env_steps"]), float(row["eval_success"])) for row in rows if row["seed"] == str(seed["seed"])]
        assert seed["env_steps"] == seed["evaluated_env_steps"] == own[-1][0] == 60
        assert seed["env_steps_to_success"] == next(steps for steps, share in own if share >= 0.95)
        assert seed["final_success"] == own[-1][1]
    assert not any("the last evaluation" in line for line in closing_lines(read_summary(whole)))


@pytest.mark.parametrize("last", [4, 5, 13])  # 5 is evaluated, 4 and 13 are not
def test_a_killed_run_goes_on_bit_for_bit(whole, last, tmp_path, monkeypatch):
    iterate = PCMLP.iterate

    def dies(self, keys, world, learner, n):
        if n > last:
            raise OSError("killed")
        return iterate(self, keys, world, learner, n)

    monkeypatch.setattr(PCMLP, "iterate", dies)
    with pytest.raises(OSError, match="killed"):
        run(lock(), tmp_path / "run")
    monkeypatch.undo()
    run(lock(), tmp_path / "run", resume=True)
    assert_same_run(whole, tmp_path / "run")
    hashes = [read_summary(out)["manifest"]["metrics_sha256"] for out in (whole, tmp_path / "run")]
    assert hashes[0] == hashes[1]


def test_a_stopped_run_says_which_evaluation_its_results_are_of(whole, tmp_path):
    out = run(lock(), tmp_path / "run", callbacks=[lambda _, metrics: metrics["iteration"] < 6])
    summary = read_summary(out)
    assert summary["status"] == "stopped"
    assert [(seed["env_steps"], seed["evaluated_env_steps"]) for seed in summary["seeds"]] == [(18, 15)] * 2
    fifth = [float(row["eval_return_mean"]) for row in read_rows(out) if row["iteration"] == "5"]
    assert [seed["final_return"] for seed in summary["seeds"]] == fifth
    said = "the last evaluation was at 15 env steps; pcmlp eval evaluates the saved policies"
    assert said in closing_lines(summary)
    stopped = load(out)
    np.testing.assert_array_equal(stopped.final("eval_return_mean"), fifth)
    assert "not a number" not in final_return(stopped)
    run(lock(), out, resume=True)
    assert_same_run(whole, out)


def test_the_best_checkpoint_is_one_that_was_evaluated(whole):
    folder = whole / "checkpoint"
    assert checkpoint.read(folder, 20).score is not None
    kept = checkpoint.iterations(folder)
    assert checkpoint.best(folder) in DUE
    assert all((checkpoint.read(folder, n).score is None) == (n not in DUE) for n in kept)


def test_the_report_reads_empty_cells(whole, tmp_path):
    found = load(whole)
    curve = found.curve("eval_return_mean")
    assert curve.iteration.tolist() == DUE
    assert found.curve("bonus_mean").iteration.tolist() == list(range(1, 21))
    steps = [seed["env_steps_to_success"] for seed in read_summary(whole)["seeds"]]
    sustained = [seed["env_steps_to_sustained_success"] for seed in read_summary(whole)["seeds"]]
    assert found.steps_to_success.tolist() == steps
    assert found.steps_to_sustained_success.tolist() == sustained  # an empty cell is not a failure
    np.testing.assert_array_equal(found.final("eval_return_mean"), curve.values[-1])
    assert f"{np.median(steps):,.0f}" == median_steps(found)
    assert "solved 2 of 2 seeds" in headline({"run": found})
    (line,) = [line for line in plot_curves({"run": found}).axes[0].lines if "mean" in str(line.get_label())]
    assert line.get_xdata().tolist() == [3.0 * n for n in DUE]
    assert {"learning_curve.png", "certificate.png"} <= {path.name for path in draw(whole)}
    report([whole], tmp_path / "report.html")
    page = re.sub(r"data:[^\"]*", "", (tmp_path / "report.html").read_text())  # without pictures
    assert not re.search(r"[\[,>: ]nan\b", page, re.IGNORECASE)


def test_success_is_not_lost_where_nothing_was_evaluated():
    rows = [
        {"env_steps": 10 * n, "eval_return_mean": share, "eval_success": share}
        for n, share in enumerate((0.0, None, 1.0, None, 1.0, None))
    ]
    seed = summarise_seed(0, rows)
    assert (seed["success_changes"], seed["env_steps_to_sustained_success"]) == ([20], 20)
    assert (seed["env_steps"], seed["evaluated_env_steps"], seed["final_return"]) == (50, 40, 1.0)


def test_progress_shows_the_last_return():
    console = Console(file=io.StringIO())
    progress = PlainProgress(console, 3, every=1)
    for n, value in enumerate((0.25, None, 0.5, None)):
        known = {} if value is None else {"eval_return_mean": value}
        progress(None, {"iteration": float(n), "env_steps": 3.0 * n, "wall_s": 1.0, **known})
    shown = [line.partition("return ")[2][:5] for line in console.file.getvalue().splitlines()]
    assert shown == ["0.250", "0.250", "0.500", "0.500"]


def test_a_kept_result_with_more_evaluations_counts(whole, tmp_path):
    each = run(each_iteration(), tmp_path / "each")
    check_result(lock(), each)
    with pytest.raises(ConfigError, match="eval_every: 7 -> None"):
        check_result(each_iteration(), whole)


def car(tiny_trpo, *settings, steps):
    own = (*tiny_trpo, "task.horizon=20", "eval_episodes=2", "eval_every=60")
    return resolve("mountain-car", seeds=SEEDS, steps=steps, settings=(*own, *settings))


@pytest.fixture(scope="module")
def long(tmp_path_factory, tiny_trpo):
    return run(car(tiny_trpo, steps=140), tmp_path_factory.mktemp("runs") / "long")


def test_an_extended_run_learns_what_a_longer_one_learns(long, tiny_trpo, tmp_path):
    """Where the shorter run ended, it was evaluated; this row is the only one that differs."""
    out = run(car(tiny_trpo, steps=80), tmp_path / "run")
    assert iterations_with(out, "eval_return_mean") == [0, 3, 4]
    run(car(tiny_trpo, steps=140), out, resume=True)
    assert iterations_with(long, "eval_return_mean") == [0, 3, 6, 7]
    assert iterations_with(out, "eval_return_mean") == [0, 3, 4, 6, 7]
    more = ("eval_return_mean", "eval_return_std", "eval_success", "explore_return_mean", "promised", "certificate")
    for ours, theirs in zip(read_rows(out), read_rows(long), strict=True):
        differing = {name for name in ours if not name.endswith("_s") and ours[name] != theirs[name]}
        assert differing == set() if ours["iteration"] != "4" else set(more) <= differing
        assert all(theirs[name] == "" for name in differing)
    learned = [load_file(path / "policy" / "policy.safetensors") for path in (out, long)]
    assert learned[0].keys() == learned[1].keys()
    assert all(np.array_equal(learned[0][name], learned[1][name]) for name in learned[0])
    assert read_summary(out)["seeds"] == read_summary(long)["seeds"]


def test_a_certificate_that_needs_an_evaluation_is_empty_without_one(long, tiny_trpo, tmp_path):
    for column in ("promised", "certificate"):  # a promise that nothing is compared with would be wasted time
        assert iterations_with(long, column) == [3, 6, 7]
    figure = plot_certificate(load(long))
    assert {len(line.get_xdata()) for line in figure.axes[0].lines} == {3}
    kept = [seed["final_certificate"] for seed in read_summary(long)["seeds"]]
    assert kept == read_metrics(long)["certificate"][-2:]


def test_a_certificate_that_may_end_the_run_does_not_wait_for_an_evaluation_that_is_due(tiny_trpo, tmp_path):
    out = run(car(tiny_trpo, steps=140), tmp_path / "run", stop_when_certified=1e30)
    assert (read_summary(out)["status"], read_summary(out)["iterations"]) == ("certified", 1)
    assert iterations_with(out, "eval_return_mean") == [0, 1]


def test_the_configuration_has_the_number_unless_it_is_zero():
    assert json.loads(to_json(lock()))["eval_every"] == 7
    assert "eval_every" not in json.loads(to_json(each_iteration()))
    pairs = itertools.pairwise(json.loads(to_json(lock())))
    assert ("eval_episodes", "eval_every") in pairs
