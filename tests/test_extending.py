"""Parts from outside the library: one file each, named FILE.py:NAME, trained from the command line.

The four files are the examples of docs/extending.md.
"""

import json
import re
from pathlib import Path

import pytest

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.runs.config import resolve
from pcmlp.runs.config_file import load_config
from pcmlp.runs.metrics import read_metrics

DOCS = Path(__file__).parents[1] / "docs" / "extending.md"
TINY = ["samples_per_policy=20", "task.horizon=20", "rounds=1", "replay_size=50", "num_starts=16", "eval_episodes=2"]
SETTINGS = [*TINY, "model.sizes=8", "model.steps=2", "model.batch=8", "bonus.memory=8", "planner.tries=4"]
SETTINGS += ["features.count=8"]
TRAIN = ["train", "corridor.py:Corridor", "--algo", "nearest.py:METHOD", "--seeds", "0", "1", "--out", "run", "--set"]
CHOICES = ["planner.name=climb.py:HillClimb", "features.name=radial.py:Radial"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the docs, and a run of all four together."""
    place = tmp_path_factory.mktemp("mine")
    blocks = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", DOCS.read_text(), re.DOTALL)
    assert sorted(name for _, name in blocks) == ["climb.py", "corridor.py", "nearest.py", "radial.py"]
    for text, name in blocks:
        (place / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main([*TRAIN, *CHOICES, *SETTINGS, "--steps", "40"]) == 0
    return place


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_the_run_is_a_run_like_any_other(folder):
    metrics = read_metrics(folder / "run")
    assert metrics["iteration"] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert min(metrics["bonus_mean"][2:]) > 0  # the bonus from outside pays
    assert all(value == value for value in metrics["planned_value"][2:])  # reported by the planner from outside


def test_the_configuration_names_the_parts_and_their_settings(folder):
    record = json.loads((folder / "run" / "config.json").read_text())
    assert (record["task"]["name"], record["algo"]) == ("corridor.py:Corridor", "nearest.py:METHOD")
    assert record["planner"] == {"name": "climb.py:HillClimb", "tries": 4, "spread": 1.0}
    assert record["features"] == {"name": "radial.py:Radial", "count": 8, "width": 0.5}
    assert record["bonus"]["memory"] == 8
    assert "ridge" not in record  # the method says that it means nothing
    assert sorted(record["code"]) == ["climb.py", "corridor.py", "nearest.py", "radial.py"]
    assert load_config(folder / "run", trust_code=True) == resolve(
        "corridor.py:Corridor", "nearest.py:METHOD", (0, 1), 40, [*CHOICES, *SETTINGS]
    )


def test_it_is_evaluated_and_resumed_with_trust(folder, capsys):
    for command in (["eval", "run"], [*TRAIN, *CHOICES, *SETTINGS, "--steps", "60", "--resume"]):
        assert main(command) == 2
        line = capsys.readouterr().err
        assert "uses code of a file" in line
        assert "--trust-code" in line
        assert main([*command, "--trust-code"]) == 0
        capsys.readouterr()
    assert read_metrics(folder / "run")["iteration"][-1] == 3.0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("planner.tries=1", "planner.tries=1: give 2 or more"),
        ("planner.trees=4", "planner.trees=4: unknown key; the nearest is planner.tries"),
        ("bonus.memory=0", "bonus.memory=0: give 1 or more"),
        ("task.length=0", "task.length=0.0: give a number above 0"),
        ("ridge=1", "ridge=1: has no effect with nearest.py:METHOD: its bonus has no covariance"),
        ("planner.name=cem", "planner.name=cem: nearest.py:METHOD takes trpo or sac"),
        ("planner.name=climb.py:LinearPolicy", "climb.py:LinearPolicy: is not a subclass of pcmlp.types.Planner"),
        ("planner.name=climb.py:Hill", "climb.py has no Hill; the nearest is HillClimb"),
        ("features.name=gone.py:Radial", "there is no file gone.py"),
    ],
)
def test_their_settings_are_checked_as_ours_are(setting, said):
    key = setting.split("=")[0]
    rest = [item for item in CHOICES if item.split("=")[0] != key]
    with pytest.raises(ConfigError) as caught:
        resolve("corridor.py:Corridor", "nearest.py:METHOD", settings=[*rest, setting])
    assert said in str(caught.value)


def test_a_method_that_is_none_and_a_task_that_is_none(folder):
    with pytest.raises(ConfigError, match=r"algo=nearest.py:Nearest: is not a pcmlp.algorithms.method.Method"):
        resolve("mountain-car", "nearest.py:Nearest")
    with pytest.raises(ConfigError, match=r"task=climb.py:HillClimb: is not a subclass of pcmlp.types.Task"):
        resolve("climb.py:HillClimb")
    with pytest.raises(ConfigError, match="algo=nearest.py:METHOD: cannot be used with combination-lock"):
        resolve("combination-lock", "nearest.py:METHOD")


BROKEN = """
from pcmlp.types import Planner, Task


class NoPlan(Planner):
    def init(self, key, mdp):
        return None


class NoKind(Task):
    def build(self):
        return None


class NoProblem(Task):
    kind = "small"

    def build(self):
        return 3
"""


def test_parts_that_are_not_complete_are_refused_before_a_folder_is_made(folder, capsys):
    (folder / "broken.py").write_text(BROKEN)
    (folder / "random.py").write_text(BROKEN)
    for words, line in (
        ("mountain-car --set planner.name=broken.py:NoPlan", "planner.name=broken.py:NoPlan: has no plan"),
        ("mountain-car --algo trpo --set planner.name=climb.py:HillClimb", "planner=HillClimb: has no update for real"),
        ("broken.py:NoKind", "task=broken.py:NoKind: has no kind; define it in the class"),
        ("random.py:NoProblem --steps 200", "build() returned a int; return a pcmlp.types.Problem"),
        ("mountain-car --algo rnd --set features.name=radial.py:Radial", "features"),
    ):
        assert main(["train", *words.split(), "--out", "none"]) == 2, words
        shown = capsys.readouterr().err
        assert line in shown
        assert shown.count("\n") == 1
        assert not (folder / "none").exists()
    import random

    assert random.random() < 1  # a user's random.py does not hide the module
    import sys

    assert sys.modules["random"] is random


def test_a_stopped_run_says_how_it_goes_on(folder, monkeypatch, capsys):
    """The command that is printed is accepted: it trusts the code that the run names."""
    from pcmlp.runs import train

    monkeypatch.setattr(train, "iterate_runs", lambda runs, asked: None)
    words = [*TRAIN, *CHOICES, *SETTINGS, "--steps", "40"]
    words[words.index("run")] = "stopped"
    assert main(words) == 75
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to go on: ")]
    assert line.endswith(" --resume --trust-code")
