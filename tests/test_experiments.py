"""What the experiments are made of: runs that are kept and not repeated, slopes, the demo's sentence."""

import argparse
import json

import pytest

from pcmlp.experiments import demo
from pcmlp.experiments.kept import kept_run, slope, write_table

TINY = ("task.horizon=2", "task.actions=2", "eval_episodes=2")


def test_slope_of_a_power_law():
    rows = [{"x": x, "y": 3.0 * x**-1.5} for x in (1, 10, 100)]
    assert slope(rows, "x", "y") == pytest.approx(-1.5)


def test_a_finished_run_is_kept_and_another_configuration_is_run(tmp_path):
    places = argparse.Namespace(results=tmp_path / "results", runs=tmp_path / "runs")

    def run(*settings):
        arguments = {"algo": "pcmlp-linear", "steps": 8, "seeds": (0,), "settings": (*TINY, *settings)}
        return kept_run(places, "test", "combination-lock", "label", **arguments)

    first, summary = run()
    kept = tmp_path / "results/test/combination-lock/label"
    assert {file.name for file in kept.iterdir()} == {"config.json", "metrics.csv", "summary.json"}
    again = run()[1]
    assert again["wall_s"] == summary["wall_s"]  # not run again
    run("ridge=0.5")
    assert json.loads((kept / "config.json").read_text())["ridge"] == 0.5
    assert first.is_dir()


def test_tables_are_written_and_shown(tmp_path, capsys):
    write_table(tmp_path / "a/b.csv", [{"x": 1, "y": 2.5}])
    assert (tmp_path / "a/b.csv").read_text() == "x,y\n1,2.5\n"
    assert "y 2.5" in capsys.readouterr().out


@pytest.mark.parametrize(("opened", "claims"), [((4, 0, 0), True), ((4, 1, 0), False), ((0, 0, 0), False)])
def test_the_demo_claims_only_what_happened(opened, claims):
    counts = dict(zip(demo.RUNS, opened, strict=True))
    assert demo.only_ours(counts) is claims


def test_the_demo_refuses_bad_input(capsys):
    with pytest.raises(SystemExit) as ended:
        demo.main(["--horizon", "0"])
    assert ended.value.code == 2
    assert "task.horizon=0" in capsys.readouterr().err
