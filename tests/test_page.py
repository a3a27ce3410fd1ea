"""What the page says and what its script is given, from run files written by hand; no browser is needed here."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from written_runs import Page, change_summary, write_experiment, write_run, write_summary

from pcmlp.errors import ConfigError
from pcmlp.experiments.catalogue import SPARSE
from pcmlp.experiments.job import FULL, SMOKE
from pcmlp.experiments.paper import describe
from pcmlp.report import reading
from pcmlp.report.curves import line_style
from pcmlp.report.experiment import hash_tables
from pcmlp.report.maps import map_data
from pcmlp.report.page import charts_of, compose, css_classes, group_data, report, shares_data
from pcmlp.report.reading import load, read_runs
from pcmlp.report.sections import arrange, scores_of
from pcmlp.report.tables import runs_table
from pcmlp.report.words import headline
from pcmlp.runs.metrics import COLUMNS, read_rows


def data_of(file):
    return json.loads(re.search(r'id="data">(.*?)</script>', file.read_text(), re.DOTALL)[1])


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


def test_no_text_from_any_file_becomes_markup(tmp_path):
    """Names, settings, statuses and tables of every kind, each with an element and the end of an attribute in it."""
    evil = """<i>'"><b onclick=x>&amp;</script>"""
    folder = evil.replace("/", "")
    run = write_run(tmp_path / f"exp/{folder}/{folder}", 2, task=folder, state_shape=(2,))
    other = write_run(tmp_path / f"exp/{folder}/other", 2, task=folder)
    for label in (folder, "other"):
        write_run(tmp_path / f"exp/a{folder}/{label}", 2, task=f"a{folder}")
    write_experiment(tmp_path / "exp", title=evil, place=evil, shows=evil, command=evil, scale=evil)
    (tmp_path / "exp" / f"{folder}.csv").write_text(f"who,{folder}\n" + f"us,{folder}\n" * 13)
    config = {"task": {"name": folder, evil: evil}, "algo": evil, evil: [evil], "seeds": [0], "steps": 1}
    (other / "config.json").write_text(json.dumps(config))
    change_summary(other)
    certificate = {"kind": evil, "why": evil}
    summary = {"status": evil, "command": evil, "device": evil, "versions": {evil: evil}, "certificate": certificate}
    write_summary(run, summary)
    text = compose(read_runs([tmp_path / "exp"]), static=False, version="1", notes=[evil])
    page = Page(text)
    assert page.tags.count("script") == 2
    assert not {"i", "b"} & set(page.tags)
    assert "onclick" not in page.attributes
    assert "<" not in re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert page.words.count(evil) > 10
    assert page.policy["connect-src"] == ["'self'"]


@pytest.mark.parametrize("version", [None, "1"])
def test_only_the_page_s_own_style_and_scripts_are_allowed(tmp_path, version):
    runs = [write_run(tmp_path / "maze", 2, task="point-umaze"), write_run(tmp_path / "finite", 2)]
    page = Page(compose(read_runs(runs), static=version is None, version=version))
    assert [tag for tag, _ in page.inline] == ["style", "style", "script"]  # the second one is for no scripts
    for tag, text in page.inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy[f"{tag}-src"]
    assert len(page.policy["style-src"] + page.policy["script-src"]) == 3
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]
    rest = {name: sources for name, sources in page.policy.items() if name not in ("style-src", "script-src")}
    fetched = ["'none'"] if version is None else ["'self'"]
    assert rest == {
        "default-src": ["'none'"],
        "img-src": ["data:"],
        "connect-src": fetched,
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }


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


def test_a_report_lies_in_the_folder_that_was_given(tmp_path):
    """Wherever the runs of it lie."""
    for name in ("a/somewhere/pcmlp", "b/somewhere/pcmlp"):
        write_run(tmp_path / name, 1)
    assert report([tmp_path / "a"]) == tmp_path / "a/report.html"
    assert report([tmp_path / "a", tmp_path / "b"]) == tmp_path / "report.html"
    write_experiment(tmp_path / "of_others", "a/somewhere/pcmlp")
    file = report([tmp_path / "of_others"])
    assert file == tmp_path / "of_others/report.html"
    assert "It vanishes" in Page(file.read_text()).words


def test_experiments_are_sections_and_other_folders_are_not(tmp_path):
    for name in ("sparse/somewhere/pcmlp", "sparse/somewhere/random", "dense/gym-X-v1/pcmlp"):
        write_run(tmp_path / name, 1, task="gym:X-v1" if "gym" in name else "somewhere")
    (tmp_path / "sparse/table.csv").write_text("who,steps\nus,1234567\n")
    describe(SPARSE, FULL, tmp_path / "sparse", tables=hash_tables(tmp_path / "sparse"))
    sections = arrange(read_runs([tmp_path]))
    assert [(section.title, section.labels) for section in sections] == [
        ("Sparse rewards", ["pcmlp", "random"]),
        ("Dense", ["pcmlp"]),  # which says nothing of itself
    ]
    page = Page(report([tmp_path]).read_text())
    assert "pcmlp paper sparse" in page.words
    assert "--scale" not in page.words
    assert "1,234,567" in page.words
    describe(SPARSE, SMOKE, tmp_path / "sparse")
    small = Page(report([tmp_path]).read_text())
    assert "pcmlp paper sparse --scale smoke Scale smoke" in small.words
    assert "These numbers are not results." in small.words
    (alone,) = arrange(read_runs([write_run(tmp_path / "mine/somewhere/run", 1)]))
    assert alone.name == ""  # no experiment of ours
    (tmp_path / "sparse/table.csv").write_text("who,steps\nus,12\nthem\n")
    describe(SPARSE, FULL, tmp_path / "sparse", tables=hash_tables(tmp_path / "sparse"))
    with pytest.raises(ConfigError, match="table.csv: half-written or edited; remove it to make it again"):
        report([tmp_path])


def test_an_experiment_shows_the_runs_that_it_has_from_another(tmp_path):
    for label in ("pcmlp", "random"):
        write_run(tmp_path / f"sparse/somewhere/{label}", 1)
    file = write_experiment(tmp_path / "it", "sparse/somewhere/pcmlp", "sparse/nowhere/pcmlp")
    for given in (tmp_path, tmp_path / "it"):
        shown = {section.title: section.labels for section in arrange(read_runs([given]))}
        assert shown["It vanishes"] == ["pcmlp"]
    for spoil in (
        lambda: file.write_text('{"title": "It'),
        lambda: write_experiment(tmp_path / "it", scale=3),
        lambda: write_experiment(tmp_path / "it", order="first"),
        lambda: write_experiment(tmp_path / "it", 3),
    ):
        spoil()
        with pytest.raises(ConfigError, match="experiment.json: cannot be read"):
            report([tmp_path])


def test_lines_are_means_and_ranges_over_seeds_and_some_points(tmp_path):
    run = load(write_run(tmp_path / "run", 300, deep=True))
    run.metrics["eval_return_mean"][:, 1] += 2.0
    (section,) = arrange([run])
    data = group_data(section.groups[0], {"run": 3})
    (only,) = data["runs"]
    line = only["lines"]["eval_return_mean"]
    assert (only["label"], only["look"], data["seeds"], data["stretched"]) == ("run", "c3 d3", True, False)
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


def test_coverage_has_the_interval_of_its_mean_within_its_range(tmp_path):
    run = load(write_run(tmp_path / "run", 4))
    run.metrics["coverage"] = np.array([[0.1, 0.3]] * len(run.metrics["env_steps"]))
    (section,) = arrange([run])
    lines = group_data(section.groups[0], {"run": 0})["runs"][0]["lines"]
    line = lines["coverage"]
    assert 0.1 <= line["surely_low"][0] < line["mean"][0] < line["surely_high"][0] <= 0.3
    assert "surely_low" not in lines["eval_return_mean"]


def test_a_map_has_the_points_and_shares_of_each_policy(tmp_path):
    found = map_data(load(write_run(tmp_path / "maze", 4, task="point-umaze")))
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
    finite = map_data(load(write_run(tmp_path / "finite", 4)))
    assert finite is not None
    assert finite["of"] == "4 states × 3 actions"
    assert finite["together"][0][-1] == pytest.approx(len(set_of(finite["points"][0])) / 12, abs=1e-4)
    assert map_data(load(write_run(tmp_path / "none", 0))) is None


def set_of(policies):
    return {tuple(points[i : i + 2]) for points in policies for i in range(0, len(points), 2)}


def test_who_explores_with_no_reward_solves_nothing(tmp_path):
    runs = []
    for label in ("pcmlp", "random"):
        for task in ("point-umaze", "mountain-car"):
            path = write_run(tmp_path / f"held_out/{task}/{label}", 3, task=task)
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps({**config, "reward_free": True}))
            change_summary(path)
            if label == "pcmlp":
                (path / "places.csv").write_text("place,seed,success\na,0,1.0\na,4,0.5\n")
            runs.append(load(path))
            if task == "point-umaze":
                runs[-1].metrics["coverage"] = np.full_like(runs[-1].metrics["env_steps"], 0.9)
    (section,) = arrange(runs)
    assert scores_of(section) == {}
    car, maze = section.groups
    assert [chart.column for chart in charts_of(maze)] == ["coverage", "bonus_mean"]
    assert [chart.column for chart in charts_of(car)] == ["info_gain", "bonus_mean"]
    assert headline(maze.runs) == (
        "On point-umaze, with no reward, pcmlp entered 90 % of the map and then reached 75 % of the places "
        "planned for in its model; random entered 90 % of the map."
    )
    row = next(iter(runs_table(maze).rows))
    assert (row["map entered"].text, row["planned for and reached"].text) == ("90 %", "75 %")
    assert not {"seeds solved", "median env steps to success", "final return", "interquartile mean"} & set(row)
    assert runs[0].num_solved == 2  # by chance
    assert "solved" not in Page(compose(runs[:1], static=False)).words.replace("A seed counts as solved", "")


def test_reports_read_files_alone():
    """They know nothing of the experiments that made them."""
    files = list(Path(reading.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    assert [file.name for file in files if "pcmlp.experiments" in file.read_text()] == []


def test_a_look_comes_again_after_all_of_them():
    looks = [css_classes(i) for i in range(24)]
    assert len(set(looks)) == len({line_style(i) for i in range(24)}) == 24
    css = Path(reading.__file__).with_name("templates") / "page.css"
    for name in {part for look in looks for part in look.split()} - {"d0"}:  # a line without dashes needs no style
        assert f".{name} {{ stroke" in css.read_text()


HEADER = ",".join(COLUMNS)
EMPTY = "," * (len(COLUMNS) - 4)  # the cells after the first four

BROKEN = {
    "half-written: row 2": lambda run: (run / "metrics.csv").write_text(
        f"{HEADER}\n0,0,0,0{EMPTY}\n0,4\n1,0,5,1{EMPTY}\n1,4,5,1{EMPTY}\n"
    ),
    "half-written: it has rows up to iteration 1 of 7": lambda run: change_summary(run, iterations=7),
    "half-written: it has 0 of 4 rows": lambda run: (run / "metrics.csv").write_text(f"{HEADER}\n0,0,0"),
    "no row yet": lambda run: without_summary(run, f"{HEADER}\n0,0,0"),
    "made by pcmlp 99.1.0": lambda run: change_summary(run, versions={"pcmlp": "99.1.0"}),
    "nothing": lambda run: (run / "metrics.csv").unlink(),
    "config.json": lambda run: (run / "config.json").unlink(),
    "task.name: int": lambda run: (run / "config.json").write_text(
        '{"task": {"name": 3}, "algo": "x", "seeds": [], "steps": 1}'
    ),
    "not the configuration of a run (task": lambda run: (run / "config.json").write_text("{}"),
    "config.json was edited": lambda run: (run / "config.json").write_text(
        '{"task": {"name": "x"}, "algo": "x", "seeds": [], "steps": 1}'
    ),
    "not a JSON object": lambda run: (run / "summary.json").write_text("[]"),
    "no column eval_return_mean": lambda run: without_summary(run, "iteration,seed,env_steps\n0,0,0\n"),
    "no column wall_s": lambda run: without_column(run, "wall_s"),
    "row for each": lambda run: without_summary(
        run, f"{HEADER}\n0,0,0,0{EMPTY}\n1,0,5,1{EMPTY}\n1,4,5,1{EMPTY}\n1,4,5,1{EMPTY}\n"
    ),
    "steps: str is not an instance of int": lambda run: (run / "config.json").write_text(
        '{"task": {"name": "x"}, "algo": "x", "seeds": [], "steps": "many"}'
    ),
    "'much' in column eval_return_mean is not a number": lambda run: (run / "metrics.csv").write_text(
        f"{HEADER}\n0,0,0,much{EMPTY}\n"
    ),
}


def without_summary(run, metrics):
    """Leave the run without hashes, with these metrics."""
    (run / "summary.json").unlink()
    (run / "metrics.csv").write_text(metrics)


def without_column(run, name):
    """Remove a column of the metrics."""
    rows = [{key: cell for key, cell in row.items() if key != name} for row in read_rows(run)]
    lines = [rows[0], *(row.values() for row in rows)]
    (run / "metrics.csv").write_text("".join(",".join(line) + "\n" for line in lines))


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
    assert [found.path for found in read_runs([run, tmp_path])] == [run]
