"""What the experiments are made of: runs that are kept and not repeated, slopes, the demo."""

import argparse
import json

import pytest

from pcmlp.experiments import demo
from pcmlp.experiments.kept import kept_run, slope, write_table
from pcmlp.runs.config import to_json
from pcmlp.runs.folder import RunFolder

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


@pytest.mark.parametrize(
    ("with_bonus", "without", "said"), [(2, 0, "Only"), (2, 1, "More often"), (1, 1, "no difference"), (0, 1, "harm")]
)
def test_the_demo_claims_only_what_happened(with_bonus, without, said):
    assert said in demo.verdict({demo.WITH: with_bonus, demo.WITHOUT: without})


def test_the_demo_compares_and_writes_a_page(tmp_path, monkeypatch, capsys):
    """Its runs are test_runs' business: these are written by hand, solved where there is a bonus."""

    def train(config, out, *, command, console):
        folder = RunFolder.create(out, to_json(config))
        for n in (0, 1):
            success = float(n * (config.bonus_scale > 0))
            scores = {"eval_return_mean": 90 * success, "eval_return_std": 0.0, "eval_success": success, "wall_s": 1.0}
            folder.append([{"iteration": n, "seed": s, "env_steps": 200 * n, **scores} for s in config.seeds])
        return {"status": "finished"}

    monkeypatch.setenv("PCMLP_CACHE", "off")
    monkeypatch.setattr(demo, "train", train)
    (tmp_path / demo.WITH).mkdir()
    (tmp_path / demo.WITH / "config.json").write_text("an earlier demo, which is replaced")
    assert demo.main(["--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "with-bonus solved 2 of 2 seeds (median 200 env steps); without-bonus solved 0 of 2 seeds" in shown
    assert "Only the bonus" in shown
    assert {"report.html", "curves.png", demo.WITH, demo.WITHOUT} == {file.name for file in tmp_path.iterdir()}


def test_the_demo_refuses_bad_input(monkeypatch, capsys):
    monkeypatch.setenv("PCMLP_CACHE", "off")
    with pytest.raises(SystemExit) as ended:
        demo.main(["--steps", "0"])
    assert ended.value.code == 2
    assert "steps=0" in capsys.readouterr().err
