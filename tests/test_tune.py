"""`pcmlp tune`: the searched ranges, the trials as runs, and searches that continue after a kill."""

import csv
import io
import json
import os
import shlex
import signal
import sys

import pytest
from rich.console import Console

from pcmlp.algorithms import METHODS
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.parts import PARTS
from pcmlp.runs.config import resolve
from pcmlp.runs.config_file import load_config
from pcmlp.runs.folder import Lock
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.run import Run
from pcmlp.runs.summary import read_summary
from pcmlp.settings import settings_of
from pcmlp.tuning import space
from pcmlp.tuning.search import Listener, tune
from pcmlp.tuning.study import Study, Trial, best, score

TUNE = ["tune", "combination-lock", "--steps", "30"]
SETTINGS = ["--set", "task.horizon=3", "task.actions=2", "eval_episodes=4"]


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lock(**changes):
    """Return a study of the lock."""
    config = resolve("combination-lock", seeds=(100, 101), steps=30, settings=SETTINGS[1:])
    dimensions = tuple(space.given(["bonus_scale", "ridge=0.001:0.1:log"], config, []))
    facts = {"objective": "return", "prunes": False, "fixed": tuple(SETTINGS[1:]), "dimensions": dimensions} | changes
    return Study(config.task_name, config.algo, config.seeds, config.steps, **facts)


def search(out, number, study=None):
    """Run a study, and return its rows."""
    tune(study or lock(), out, number, Console(file=io.StringIO()))
    return rows(out)


def rows(out):
    with (out / "tune.csv").open() as file:
        return list(csv.DictReader(file))


def refused(words, capsys):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_search_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pcmlp.commands.runs.draw_pictures", lambda out: [])
    assert main([*TUNE, *SETTINGS, "--trials", "3", "--space", "bonus_scale", "ridge=0.001:0.1:log"]) == 0
    out = tmp_path / "runs" / "combination-lock-pcmlp-linear-tune"
    trials = rows(out)
    assert [row["state"] for row in trials] == ["finished"] * 3
    assert (trials[0]["bonus_scale"], trials[0]["ridge"]) == ("0.1", "0.01")  # the method's own
    assert len({row["bonus_scale"] for row in trials}) == 3
    for row in trials:
        run = out / f"trial-{int(row['trial']):04d}"
        config, summary = load_config(run), read_summary(run)
        assert config.algorithm.bonus_scale == float(row["bonus_scale"])
        assert config.algorithm.ridge == float(row["ridge"])
        assert 0.001 <= config.algorithm.ridge <= 0.1
        assert config.seeds == (100, 101)
        returns = [seed["final_return"] for seed in summary["seeds"]]
        assert float(row["value"]) == pytest.approx(sum(returns) / 2)
    said = capsys.readouterr().out.splitlines()
    leader = max(trials, key=lambda row: float(row["value"]))
    assert f"best of 3: return {float(leader['value']):.4g} (trial-{int(leader['trial']):04d})" in said[-3]
    words = shlex.split(said[-1])
    assert words[:3] == ["pcmlp", "train", "combination-lock"]
    assert f"bonus_scale={leader['bonus_scale']}" in words
    assert "task.horizon=3" in words
    assert main([*words[1:], "--seeds", "0", "--out", "tuned"]) == 0  # the command is ready to use


class Killed(BaseException):
    """The end of a process in which none of its own code runs."""


def test_a_killed_search_continues_like_an_uninterrupted_one(tmp_path, monkeypatch):
    whole = search(tmp_path / "whole", 3)
    record, count = Run.record, []

    def dies(self, n, metrics):
        record(self, n, metrics)
        count.append(n)
        if len(count) == 15:  # in the second trial
            raise Killed

    monkeypatch.setattr(Run, "record", dies)
    with pytest.raises(Killed):
        search(tmp_path / "killed", 3)
    monkeypatch.setattr(Run, "record", record)
    before = rows(tmp_path / "killed")
    assert [row["state"] for row in before] == ["finished", "running"]
    kept = (tmp_path / "killed" / "trial-0000" / "metrics.csv").stat().st_mtime_ns
    assert search(tmp_path / "killed", 3) == whole
    assert (tmp_path / "killed" / "trial-0000" / "metrics.csv").stat().st_mtime_ns == kept  # it was not run again
    assert search(tmp_path / "killed", 3) == whole  # and now there is nothing to do
    assert search(tmp_path / "killed", 4)[:3] == whole


def test_a_trial_whose_end_was_not_written_down(tmp_path):
    whole = search(tmp_path / "out", 2)
    table = tmp_path / "out" / "tune.csv"
    lines = table.read_text().splitlines()
    cells = lines[-1].split(",")
    table.write_text("\n".join([*lines[:-1], ",".join(["1", "running", "", *cells[3:]])]) + "\n")
    assert search(tmp_path / "out", 2) == whole


def test_ctrl_c_ends_the_search_after_an_iteration(tmp_path, monkeypatch):
    record = Run.record

    def asks(self, n, metrics):
        record(self, n, metrics)
        if n == 4 and self.folder.path.name == "trial-0001":
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "out"
    command = [*TUNE, *SETTINGS, "--trials", "3", "--space", "bonus_scale", "--out", "out"]
    with monkeypatch.context() as patch:
        patch.setattr(Run, "record", asks)
        assert main(command) == 75
    assert [row["state"] for row in rows(out)] == ["finished", "running"]
    assert 4 <= max(read_metrics(out / "trial-0001")["iteration"]) < 10
    assert main(command) == 0
    assert [row["state"] for row in rows(out)] == ["finished"] * 3


def test_trials_below_the_median_are_pruned(tmp_path, monkeypatch):
    """A trial whose evaluations are below the median of five others ends early; the search continues."""
    study, steps = lock(prunes=True), range(3, 31, 3)
    search(tmp_path / "out", 5, study)
    monkeypatch.setattr("pcmlp.tuning.search.reports_of", lambda study, folder: dict.fromkeys(steps, 1.0))
    monkeypatch.setattr("pcmlp.tuning.search.evaluations", lambda found, objective: {int(found[-1]["env_steps"]): -1.0})
    trials = search(tmp_path / "out", 6, study)
    assert [row["state"] for row in trials] == ["finished"] * 5 + ["pruned"]
    assert 10 <= max(read_metrics(tmp_path / "out" / "trial-0005")["env_steps"]) < 30
    assert search(tmp_path / "out", 7, study)[:6] == trials


def test_without_prune_no_trial_is_pruned(tmp_path):
    class Always:
        def report(self, value, step):
            pass

        def should_prune(self):
            return True

    class Source:
        rows, done, num_iterations = [], 2, 4

    listener = Listener(Always(), lock(), lambda line: None)
    assert listener(Source(), {"iteration": 2.0})
    assert not listener.pruned
    listener = Listener(Always(), lock(prunes=True), lambda line: None)
    assert not listener(Source(), {"iteration": 2.0})
    assert listener.pruned


def test_the_value_of_a_trial():
    seeds = [{"final_return": 1.0, "env_steps_to_sustained_success": 10}]
    seeds += [{"final_return": 3.0, "env_steps_to_sustained_success": None}]
    assert score(lock(), {"seeds": seeds}) == 2.0
    assert score(lock(objective="success"), {"seeds": seeds}) == pytest.approx(0.5 * (1 - 10 / 30))
    assert score(lock(), {"seeds": [*seeds, {"final_return": None}]}) is None
    trials = [Trial(i, "finished", {}, value) for i, value in enumerate([-2.0, -1.0, -1.0])]
    assert best([*trials, Trial(3, "failed", {})]) == trials[1]
    assert best([Trial(0, "failed", {})]) is None


def test_every_declared_range_is_valid():
    """Each declaration can be read, and has the limits of its setting."""
    parts = {part for made in PARTS.values() for part in made.values()}
    parts |= {type(method.algorithm) for method in METHODS.values()}
    found = [(part, field) for part in parts for field in settings_of(part) if field.tune]
    assert len({field.name for _, field in found}) > 8
    for _, field in found:
        dimension = space._parse(field.name, field.tune, field)
        assert all(field.limits.allow(float(end)) for end in dimension.ends())


def test_a_declared_range_includes_the_methods_own_value():
    config = resolve("mountain-car", settings=["rounds=20", "bonus_scale=0.7"])
    found = {each.key: each for each in space.declared(config, ["features.norm"])}
    assert str(found["rounds"]) == "rounds=1:20:log"
    assert str(found["bonus_scale"]) == "bonus_scale=0.005:0.7:log"
    assert "features.norm" not in found
    assert "bonus_scale" not in {each.key for each in space.declared(resolve("mountain-car"), [])}  # it is auto


def test_words_and_whole_numbers():
    config = resolve("mountain-car")
    scale, planner, rounds = space.given(["bonus_scale=auto,0.1", "planner.name=trpo,sac", "rounds=1:4"], config, [])
    assert scale.texts == ("auto", "0.1")
    assert planner.texts == ("trpo", "sac")
    assert rounds.whole
    assert str(rounds) == "rounds=1:4"
    assert space.own_values((scale, planner, rounds), config) == {
        "bonus_scale": "auto",
        "planner.name": "trpo",
        "rounds": 2,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--space", "bonus_scal"], "the nearest is bonus_scale"),
        (["--space", "bonus_scale=1:0.1"], "give a smaller number first"),
        (["--space", "bonus_scale=0:1:log"], "have a logarithm"),
        (["--space", "bonus_scale=0.1:1:lin"], "give LOW:HIGH or LOW:HIGH:log"),
        (["--space", "bonus_scale=-1:1"], "bonus_scale=-1.0: give 0 to 1000000"),
        (["--space", "bonus_scale=0.1"], "at least two different values"),
        (["--space", "draws=1:2"], "give one of episodes, iid"),
        (["--space", "samples_per_policy=1.5:3"], "not a whole number"),
        (["--space", "task.horizon=3:5"], "has no setting 'task.horizon'"),
        (["--space", "samples_per_policy"], "declares no values"),
        (["--space", "bonus_scale", "bonus_scale=1:2"], "given twice"),
        (["--space", "bonus_scale", "--set", "bonus_scale=1"], "fixed by set"),
        (["--seeds", "100", "3"], "--seeds 100"),
        (["--trials", "0"], "--trials 0: give 1 to"),
        (["--trials", "many"], "not a whole number"),
        (["--objective", "speed"], "--objective speed: give return or success"),
    ],
)
@pytest.mark.bad_input
def test_bad_input_is_refused_in_one_line(words, said, tmp_path, capsys):
    line = refused([*TUNE, *words], capsys)
    assert said in line
    assert not (tmp_path / "runs").exists()


def test_reported_seeds_are_refused(capsys):
    assert "seeds 0 to 39 are reserved for reported results" in refused([*TUNE, "--seeds", "39", "100"], capsys)


def test_another_search_in_the_same_folder_is_refused(tmp_path, capsys):
    search(tmp_path / "out", 1)
    before = (tmp_path / "out" / "tune.csv").read_bytes()
    with pytest.raises(ConfigError, match=r"has another study \(space"):
        search(tmp_path / "out", 2, lock(dimensions=lock().dimensions[:1]))
    with Lock(tmp_path / "out"), pytest.raises(ConfigError, match="in use by process"):
        search(tmp_path / "out", 2)
    (tmp_path / "out" / "tune.csv").write_text(before.decode().replace("finished", "perfect"))
    with pytest.raises(ConfigError, match=r"tune\.csv: edited"):
        search(tmp_path / "out", 2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="give a new or empty folder"):
        search(tmp_path / "full", 2)
    record = json.loads((tmp_path / "out" / "study.json").read_text())
    assert record["space"] == ["bonus_scale=0.005:0.5:log", "ridge=0.001:0.1:log"]


@pytest.mark.fault("Optuna is not installed", "`pcmlp tune` says how to get it, exit code 2")
def test_tuning_without_optuna(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'pcmlp[tune]'" in refused(TUNE, capsys)
    assert not (tmp_path / "runs").exists()
