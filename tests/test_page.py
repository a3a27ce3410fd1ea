"""What the page says and what its script is given, from run files written by hand; no browser is needed here."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from written_runs import write_run

from pcmlp.cli import main
from pcmlp.experiments import dense, sparse
from pcmlp.experiments.experiment import describe
from pcmlp.published import DIFFERING, dense_table
from pcmlp.report.html import read_runs, report
from pcmlp.report.page.charts import charts_of, group_data
from pcmlp.report.page.dense import best_published, dense_tables
from pcmlp.report.page.maps import map_of, shares_data
from pcmlp.report.page.scores import profile_data, scores_of, scores_table
from pcmlp.report.page.sections import arrange
from pcmlp.report.reading import find_runs, load
from pcmlp.types import ConfigError


class Page(HTMLParser):
    """What a page shows, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words, self.inside = [], [], "", []
        self.feed(text)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data):
        if not {"script", "style"} & set(self.inside):
            self.words += data


def data_of(file):
    return json.loads(re.search(r'id="data">(.*?)</script>', file.read_text(), re.DOTALL)[1])


def returning(path, *returns, task, done=True):
    """A run whose last evaluation is of these returns, a seed each."""
    run = load(write_run(path, 2, task=task, goal=False, summary=done))
    run.metrics["eval_return_mean"][-1] = returns
    return run


def test_a_report_is_one_file_that_shows_everything(tmp_path):
    run = write_run(tmp_path / "run", task="point-umaze", deep=True)
    file = report([run])
    assert file == run / "report.html"
    page = Page(file.read_text())
    assert page.tags.count("img") == 2  # without scripts: the curves and the map
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert "b" not in page.tags  # the command is text
    assert "--set 'x=<b>'" in page.words
    assert "pcmlp solved 2 of 2 seeds (median 12 env steps)" in page.words
    for shown in ("python 3.11", "seeds: 0 4", "7.2", "0.3 ± 0", '"bonus_scale": 1.0'):
        assert shown in page.words


def test_names_from_files_cannot_write_html(tmp_path):
    file = report([write_run(tmp_path / "<i>run", 1, task="<script>alert(1)</script>")])
    page = Page(file.read_text())
    assert page.tags.count("script") == 2  # the data, and ours
    assert "i" not in page.tags
    assert "<script>alert(1)</script>" in data_of(file)["groups"]


def test_runs_of_a_folder_are_compared(tmp_path):
    write_run(tmp_path / "all/car/pcmlp", 2, bonus=1.0, state_shape=(2,))
    write_run(tmp_path / "all/car/control", 1, bonus=0.0, summary=False)
    write_run(tmp_path / "all/pole/pcmlp", 2, task="pole", goal=False)
    file = report([tmp_path / "all"])
    assert file == tmp_path / "all/report.html"
    page = Page(file.read_text())
    assert "On somewhere, pcmlp solved 2 of 2 seeds (median 12 env steps); the return" in page.words
    assert "Not finished: control." in page.words
    assert "control (unfinished)" in page.words
    assert "On pole, pcmlp took 12 env steps; the return of its policy went from 0 to 0.2" in page.words


def test_a_report_goes_where_it_is_wanted(tmp_path):
    run = write_run(tmp_path / "run", 0)
    assert report([run], tmp_path / "new/page.html") == tmp_path / "new/page.html"
    assert report([run], tmp_path / "new") == tmp_path / "new/report.html"


def test_experiments_are_sections_and_other_folders_are_not(tmp_path):
    for name in ("sparse/somewhere/pcmlp", "sparse/somewhere/random", "dense/gym-X-v1/pcmlp"):
        write_run(tmp_path / name, 1, task="gym:X-v1" if "gym" in name else "somewhere")
    (tmp_path / "sparse/table.csv").write_text("who,steps\nus,1234567\n")
    describe(sparse.EXPERIMENT, tmp_path / "sparse")
    sections = arrange(read_runs([tmp_path]))
    assert [(section.title, section.labels) for section in sections] == [
        ("Sparse rewards", ["pcmlp", "random"]),
        ("Dense", ["pcmlp"]),  # which says nothing of itself
    ]
    page = Page(report([tmp_path]).read_text())
    assert "pcmlp paper sparse" in page.words
    assert "1,234,567" in page.words
    (alone,) = arrange(read_runs([write_run(tmp_path / "mine/somewhere/run", 1)]))
    assert alone.name == ""  # no experiment of ours
    (tmp_path / "sparse/table.csv").write_text("who,steps\nus,12\nthem\n")
    with pytest.raises(ConfigError, match="half-written .row 2 has 1 of 2"):
        report([tmp_path])


def test_an_experiment_shows_the_runs_that_it_has_from_another(tmp_path):
    for label in ("pcmlp", "random"):
        write_run(tmp_path / f"sparse/somewhere/{label}", 1)
    said = {"title": "It vanishes", "place": "section 7.5", "shows": "how", "command": "pcmlp paper it", "order": 4}
    (tmp_path / "it").mkdir()
    file = tmp_path / "it/experiment.json"
    file.write_text(json.dumps({**said, "runs": ["sparse/somewhere/pcmlp", "sparse/nowhere/pcmlp"]}))
    for given in (tmp_path, tmp_path / "it"):
        shown = {section.title: section.labels for section in arrange(read_runs([given]))}
        assert shown["It vanishes"] == ["pcmlp"]
    file.write_text('{"title": "It')
    with pytest.raises(ConfigError, match="experiment.json: cannot be read"):
        report([tmp_path])


def test_lines_are_means_and_ranges_over_seeds_and_some_points(tmp_path):
    run = load(write_run(tmp_path / "run", 300, deep=True))
    run.metrics["eval_return_mean"][:, 1] += 2.0
    (section,) = arrange([run])
    data = group_data(section.groups[0], {"run": 3})
    (only,) = data["runs"]
    line = only["lines"]["eval_return_mean"]
    assert (only["label"], only["look"], data["seeds"], data["stretched"]) == ("run", 3, True, False)
    assert len(line["x"]) == 200
    assert (line["x"][0], line["x"][-1]) == (2.0, 1502.0)  # the first and the last
    assert [line[name][-1] for name in ("low", "mean", "high")] == [30.0, 31.0, 32.0]
    assert [seed[-1] for seed in line["seeds"]] == [30.0, 32.0]
    assert line["explore"][-1] == 15.0
    assert list(data["charts"]) == ["eval_return_mean", "eval_success", "info_gain", "bonus_mean"]


def test_charts_without_anything_to_show_are_left_out(tmp_path):
    run = load(write_run(tmp_path / "run", 2, bonus=0.0, goal=False))
    run.metrics["coverage"] = np.full_like(run.metrics["env_steps"], 0.5)
    (section,) = arrange([run])
    assert [chart.column for chart in charts_of(section.groups[0])] == ["eval_return_mean", "coverage"]


def test_a_map_has_the_points_and_shares_of_each_policy(tmp_path):
    found = map_of(load(write_run(tmp_path / "maze", 4, task="point-umaze")))
    assert found is not None
    assert found["policies"] == [1, 2, 3, 4]
    assert [len(points) for points in found["points"][0]] == [10] * 4  # five places of two numbers
    assert all(0 <= value <= 1000 for points in found["points"][0] for value in points)
    assert all(np.diff(found["together"][0]) >= 0)
    assert sum(length for *_, length in found["wall"]["runs"]) == 30 * 30 - 700
    assert "goal" in found
    assert shares_data(found)["runs"][0]["lines"]["shares"]["mean"] == pytest.approx(
        np.mean(found["together"], axis=0), abs=1e-4
    )
    finite = map_of(load(write_run(tmp_path / "finite", 4)))
    assert finite is not None
    assert finite["of"] == "4 states × 3 actions"
    assert finite["together"][0][-1] == pytest.approx(len(set_of(finite["points"][0])) / 12, abs=1e-4)
    assert map_of(load(write_run(tmp_path / "none", 0))) is None


def set_of(policies):
    return {tuple(points[i : i + 2]) for points in policies for i in range(0, len(points), 2)}


def test_the_best_of_a_dense_row_is_bold_and_what_is_unfinished_never(tmp_path):
    runs = [
        returning(tmp_path / "dense/half-cheetah/pcmlp", 9_000.0, 9_200.0, task="half-cheetah"),
        returning(tmp_path / "dense/reacher/pcmlp", -3.0, -1.0, task="reacher", done=False),
        returning(tmp_path / "dense/pendulum/pcmlp", 150.0, 152.0, task="pendulum"),
    ]
    (section,) = arrange(runs)
    text = dense_tables(section)
    bold = re.findall(r'class="[^"]*best"[^>]*><span>([^<]*)', text)
    assert bold == ["9,100.0 ± 100.0", "177.3 ± 1.9", "-3.8 ± 0.2"]
    page = Page(text)
    assert "unfinished: 12 of 15 steps" in page.words
    assert "differs from the benchmark's in three cells" in page.words
    assert "ours: pcmlp" in page.words
    assert "2 tasks: half-cheetah, pendulum; the paper's on these: 2.0" in page.words
    ranks = re.findall(r"ours: pcmlp</span></th><td[^>]*><span>([^<]*)", text)
    assert ranks == ["5.0"]  # first, and ninth on the pendulum


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
    assert "0.500" in scores_table(scores)
    line = profile_data(scores, {"pcmlp": 0})["runs"][0]["lines"]["profile"]
    assert line["mean"][0] == pytest.approx(0.75)
    assert line["mean"][-1] == 0.0


def test_figures_for_papers(tmp_path, capsys):
    run = write_run(tmp_path / "dense/pendulum/pcmlp", 2, task="pendulum", goal=False)
    describe(dense.EXPERIMENT, tmp_path / "dense")
    assert main(["report", str(run), "--figures"]) == 0
    folder = run / "figures"
    names = {path.name for path in folder.iterdir()}
    assert capsys.readouterr().out.splitlines() == [str(run / "report.html"), f"{folder}: {len(names)} files"]
    pictures = ("curves", "bonus", "pcmlp-coverage", "pcmlp-traces")
    assert names == {
        *(f"dense-pendulum-{name}.{ending}" for name in pictures for ending in ("pdf", "png")),
        "dense-dense.csv",
        "dense-dense.tex",
    }
    assert (folder / "dense-pendulum-curves.pdf").read_bytes().startswith(b"%PDF")
    assert r"\textbf{177.3 $\pm$ 1.9 (ME-TRPO)}" in (folder / "dense-dense.tex").read_text()
    assert "0.2 ± 0.0 (12 steps)" in (folder / "dense-dense.csv").read_text()


BROKEN = {
    "half-written: row 2": lambda run: (run / "metrics.csv").write_text(
        "iteration,seed,env_steps,eval_return_mean\n0,0,0,0\n0,4\n1,0,5,1\n1,4,5,1\n"
    ),
    "half-written: it has rows up to iteration 1 of 7": lambda run: (run / "summary.json").write_text(
        '{"status": "finished", "iterations": 7}'
    ),
    "no row yet": lambda run: (run / "metrics.csv").write_text("iteration,seed,env_steps,eval_return_mean\n0,0,0"),
    "made by pcmlp 99.1.0": lambda run: (run / "summary.json").write_text('{"versions": {"pcmlp": "99.1.0"}}'),
    "nothing": lambda run: (run / "metrics.csv").unlink(),
    "config.json": lambda run: (run / "config.json").unlink(),
    "names no task": lambda run: (run / "config.json").write_text('{"task": {"name": 3}, "algo": "x"}'),
    "not an object": lambda run: (run / "summary.json").write_text("[]"),
    "column": lambda run: (run / "metrics.csv").write_text("iteration,seed,env_steps\n"),
    "row for each": lambda run: (run / "metrics.csv").write_text(
        "iteration,seed,env_steps,eval_return_mean\n0,0,0,0\n1,0,5,1\n1,4,5,1\n1,4,5,1\n"
    ),
    "convert": lambda run: (run / "metrics.csv").write_text("iteration,seed,env_steps,eval_return_mean\n0,0,0,much\n"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path, what):
    run = write_run(tmp_path / "run", 1)
    BROKEN[what](run)
    with pytest.raises(ConfigError) as refused:
        report([run])
    line = str(refused.value)
    assert "\n" not in line
    assert str(run) in line
    assert what in line.replace("no run in it", "nothing")
    assert not (run / "report.html").exists()


def test_there_must_be_a_folder(tmp_path):
    with pytest.raises(ConfigError, match="is not a folder"):
        report([tmp_path / "missing"])
    with pytest.raises(ConfigError, match="no folder was given"):
        report([])
    run = write_run(tmp_path / "run", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        report([run], tmp_path / "file" / "inside")
    assert find_runs([run, tmp_path]) == [run]
