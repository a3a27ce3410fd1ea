"""`pcmlp list`: the names, the settings and presets of one, and docs/settings.md."""

import re
from pathlib import Path

import pytest

from pcmlp import listing
from pcmlp.algorithms import METHODS
from pcmlp.cli import main
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.parts import PARTS
from pcmlp.runs.config import resolve
from pcmlp.tasks import TASKS

DOCS = Path(__file__).parents[1] / "docs"
BARE = """
from pcmlp.types import Planner

class Unfinished(Planner):
    pass

number = 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files of docs/extending.md, and one whose parts cannot be made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # so that no row of a table is broken
    for text, name in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", (DOCS / "extending.md").read_text(), re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "bare.py").write_text(BARE)
    return tmp_path


def shown(capsys, *words):
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


def test_the_page_of_settings_is_up_to_date():
    assert (DOCS / "settings.md").read_text() == listing.settings_page(), (
        "run python -m pcmlp.listing > docs/settings.md"
    )


def test_the_page_has_every_key_of_every_method():
    page = listing.settings_page()
    for method in METHODS.values():
        for key, *_ in listing.settings_rows(method):
            assert f"| `{key}` |" in page


def test_every_name_has_one_line_of_at_most_120_columns():
    lines = listing.name_lines()
    assert max(map(len, lines)) <= 120
    for names in (TASKS, METHODS, EXPERIMENTS, [listing.ANY_GYM]):
        for name in names:
            assert [line for line in lines if line.startswith(f"  {name} ")], name


def test_algorithms_are_listed_once_per_kind():
    lines = listing.name_lines()
    kinds = {task.kind for task in listing.ALL_TASKS.values()}
    assert sorted(line.split()[0] for line in lines if " tasks, for " in line) == sorted(kinds)
    assert "small tasks, for pcmlp, pcmlp-mppi, pets," in "\n".join(lines)
    for task, method in {"hand-egg": "pets-gt", "knr-rbf": "lc3-oracle"}.items():
        (line,) = [line for line in lines if line.startswith(f"  {task} ")]
        assert line.endswith(f"(not for {method})")
    assert len([line for line in lines if "not for" in line or "also for" in line]) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mountain-car", ["task.horizon=200", "Its kind is small, for pcmlp, pcmlp-mppi"]),
        ("gym:ID", ["task.horizon=1000", "task.max_faults=100", "Its kind is gym"]),
        ("gym:Pendulum-v1", ["task.horizon=200", "task.reward=none"]),
        ("trpo", ["model-free TRPO", "planner.kl_bound="]),
        ("planner.trpo", ["planner.updates=40", "--set planner.name=trpo"]),
        ("cem", ["planner.elites=20", "--set planner.name=cem"]),
        ("features.none", ["It has no settings."]),
        ("nearest.py:METHOD", ["nearest-neighbour bonus", "bonus.*", "bonus.memory=256", "steps=2000"]),
        ("nearest.py:NearestNeighbour", ["bonus.memory=256", "--set bonus.name=nearest.py:NearestNeighbour"]),
        ("climb.py:HillClimb", ["planner.tries=64", "(2 or more)"]),
        ("radial.py:Radial", ["features.count=64"]),
        ("corridor.py:Corridor", ["task.length=5.0", "Its kind is small"]),
    ],
)
def test_a_name_shows_its_settings(name, expected, place, capsys):
    out = shown(capsys, name)
    assert [text for text in expected if text not in out] == []


def test_every_part_is_listed_by_its_group():
    for group, kind in listing.GROUPS.items():
        for name, part in PARTS[kind].items():
            assert type(listing.find(f"{group}.{name}")) is part


def test_a_task_without_a_time_limit_says_so(place, capsys):
    import gymnasium

    gymnasium.register("Endless-v0", "gymnasium.envs.classic_control:PendulumEnv")
    try:
        assert "It has no time limit: give task.horizon." in shown(capsys, "gym:Endless-v0")
    finally:
        del gymnasium.registry["Endless-v0"]


def test_the_algorithm_has_headers_of_groups_and_presets(place, capsys):
    out = shown(capsys, "pcmlp")
    assert re.search(r"outcome\.\* +reward and end, where they are not given as functions", out)
    assert re.search(r"ours +small +steps=2000 eval_episodes=100 eval_every=0\n", re.sub(" +\n", "\n", out))
    assert re.search(r"ours +robot +steps=200000 eval_episodes=20 eval_every=20000 .*planner\.name=sac", out)
    assert re.search(r"ours +gym +.*rounds=10 \(for a horizon of 1000\)", out)
    assert "planner.name=sac has other keys; pcmlp list planner.sac shows them" in out


@pytest.mark.parametrize(("algo", "preset", "task"), [("pcmlp", "dense", "pendulum"), ("mbpo", "ours", "pendulum")])
def test_a_row_of_a_preset_is_what_a_run_uses(algo, preset, task):
    rows = {(row[0], name): row[2] for row in listing.preset_rows(METHODS[algo]) for name in row[1].split(", ")}
    settings = dict(item.split("=") for item in rows[preset, task].split())
    steps = settings.pop("steps")
    config = resolve(task, algo, settings=[f"preset={preset}"])
    given = [f"{key}={value}" for key, value in settings.items() if not key.startswith("outcome.")]
    assert str(config.steps) == steps
    assert resolve(task, algo, steps=steps, settings=[f"preset={preset}", *given]) == config


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mountain-cra", "name=mountain-cra: unknown; the nearest is mountain-car ("),
        ("planner.trop", "name=planner.trop: unknown; the nearest is planner.trpo ("),
        ("none", "name=none: several parts have this name; give features.none or bonus.none"),
        ("gym:Pendulm-v1", "task=gym:Pendulm-v1: not registered with Gymnasium"),
        ("climb.py:HillClim", "name=climb.py:HillClim: climb.py has no HillClim; the nearest is HillClimb"),
        ("missing.py:Part", "name=missing.py:Part: there is no file missing.py"),
        ("bare.py:number", "name=bare.py:number: is not a subclass of pcmlp.types.FeatureMap or"),
        ("bare.py:Unfinished", "name=bare.py:Unfinished: has no init, plan; define it in the class"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(name, line, place, capsys):
    assert main(["list", name]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"pcmlp: {line}")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
