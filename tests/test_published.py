"""What the page says of our runs beside others' published ones: bold faces, ranks, scores, and files for papers."""

import re

import numpy as np
import pytest
from written_runs import Page, returning, write_run

from pcmlp.cli import main
from pcmlp.experiments.catalogue import DENSE
from pcmlp.experiments.job import FULL
from pcmlp.experiments.paper import describe
from pcmlp.published import DIFFERING, best_published, dense_table
from pcmlp.report.page import compose, profile_data
from pcmlp.report.reading import load
from pcmlp.report.sections import arrange, is_comparable, scores_of
from pcmlp.report.tables import describe_scores, scores_table


def test_the_best_of_a_dense_row_is_bold_and_what_is_unfinished_never(tmp_path):
    runs = [
        returning(tmp_path / "dense/half-cheetah/pcmlp", 9_000.0, 9_200.0, task="half-cheetah"),
        returning(tmp_path / "dense/reacher/pcmlp", -3.0, -1.0, task="reacher", done=False),
        returning(tmp_path / "dense/pendulum/pcmlp", 150.0, 152.0, task="pendulum"),
    ]
    text = compose(runs, static=False)
    bold = re.findall(r'class="[^"]*best"[^>]*><span>([^<]*)', text)
    assert bold == ["9,100.0 ± 141.4", "177.3 ± 1.9", "-3.8 ± 0.2"]
    page = Page(text)
    assert "unfinished: 12 of 15 steps" in page.words
    assert "differs from the benchmark's in three cells" in page.words
    assert "ours: pcmlp" in page.words
    assert "2 tasks: half-cheetah (12 env steps), pendulum (12 env steps); the paper's on these: 2.0" in page.words
    ranks = re.findall(r"ours: pcmlp</span></th><td[^>]*><span>([^<]*)", text)
    assert ranks == ["5.0"]  # first, and ninth on the pendulum


def test_what_is_not_as_published_is_never_bold_and_has_no_rank_or_score(tmp_path):
    short = returning(tmp_path / "dense/half-cheetah/pcmlp", 9_000.0, 9_200.0, task="half-cheetah", horizon=20)
    broken = returning(tmp_path / "dense/reacher/pcmlp", 0.0, np.nan, task="reacher")
    longer = returning(tmp_path / "dense/pendulum/pcmlp", 180.0, 180.0, task="pendulum")
    longer.metrics["env_steps"][-1] = 300_000
    (section,) = arrange([short, broken, longer])
    assert not any(is_comparable(run) for run in (short, broken, longer))
    text = compose([short, broken, longer], static=False)
    page = Page(text)
    assert "9,100.0 ± 141.4not compared: episodes of 20 steps, 12 env steps" in page.words
    assert "not a number at the end" in page.words
    assert 'class="best"' not in text
    assert "ours: pcmlp</span></th>" not in text
    assert scores_of(section) == {}


def test_the_cells_that_differ_do_differ():
    for task, column, mean, std in DIFFERING:
        row = dense_table()[task]
        ours = best_published(task)[1] if column == "Best MBBL" else row[column]
        assert (mean, std) != ours[:2]
    assert len(DIFFERING) == 3


def test_scores_are_of_finished_runs_with_a_goal_or_published_returns(tmp_path):
    pendulum = dense_table()["pendulum"]
    random, best = pendulum["Random"].mean, best_published("pendulum")[1].mean
    runs = [
        load(write_run(tmp_path / "sparse/somewhere/pcmlp", 1)),  # success 0.5
        returning(tmp_path / "sparse/pendulum/pcmlp", random, best, task="pendulum"),
        load(write_run(tmp_path / "sparse/pole/pcmlp", 1, task="pole", goal=False)),  # nothing to measure it by
        load(write_run(tmp_path / "sparse/somewhere/control", 1)),  # of one task alone
        load(write_run(tmp_path / "sparse/acrobot/pcmlp", 1, task="acrobot", summary=False)),
    ]
    (section,) = arrange(runs)
    scores = scores_of(section)
    assert {label: list(tasks) for label, tasks in scores.items()} == {"pcmlp": ["pendulum", "somewhere"]}
    np.testing.assert_allclose(scores["pcmlp"]["pendulum"], [0.0, 1.0], atol=1e-6)
    assert scores_table(section).rows[0]["interquartile mean"].text == "0.500"
    assert describe_scores(section) == [
        "Left out: the tasks acrobot, pole; the run control.",
        "Fewer env steps than published: pcmlp on pendulum (12 env steps).",
    ]
    line = profile_data(scores, {"pcmlp": 0})["runs"][0]["lines"]["profile"]
    assert line["mean"][0] == pytest.approx(0.75)
    assert line["mean"][-1] == 0.0


def test_figures_for_papers(tmp_path, capsys):
    run = write_run(tmp_path / "dense/pendulum/pcmlp", 2, task="pendulum", goal=False)
    describe(DENSE, FULL, tmp_path / "dense")
    assert main(["report", str(run), "--figures"]) == 0
    folder = run / "figures"
    names = {path.name for path in folder.iterdir()}
    assert capsys.readouterr().out.splitlines() == [str(run / "report.html"), f"{folder}: {len(names)} files"]
    pictures = ("curves", "bonus", "pcmlp-coverage", "pcmlp-traces")
    assert names == {
        *(f"dense-pendulum-{name}.{ending}" for name in pictures for ending in ("pdf", "png")),
        "dense-dense.csv",
    }
    assert (folder / "dense-pendulum-curves.pdf").read_bytes().startswith(b"%PDF")
    assert "0.2 ± 0.0 (12 env steps)" in (folder / "dense-dense.csv").read_text()
