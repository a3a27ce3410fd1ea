"""What a run has found, what its closing lines say of it, and how the page shows it; no run is run here."""

import json

import numpy as np
import pytest
from written_runs import Page, change_summary, write_run

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.report.page import report
from pcmlp.report.reading import load
from pcmlp.report.sections import arrange
from pcmlp.report.tables import runs_table
from pcmlp.report.words import headline
from pcmlp.runs.config import resolve
from pcmlp.runs.findings import RANGE, STATES, Findings
from pcmlp.runs.summary import add_findings, closing_lines, summarise_seed
from pcmlp.spaces import Box, Finite


def steps(states, rewards, ends=None):
    """The rows of two seeds; the last row of the second one is padding."""
    states, rewards = np.asarray(states), np.asarray(rewards, np.float32)
    no = np.zeros(rewards.shape, bool)
    valid = ~no
    valid[1, -1] = False
    ends = no if ends is None else np.asarray(ends)
    return Transitions.of_arrays(states, rewards, rewards, states, ends, ends, valid)


def test_rewards_ends_and_the_visited_range_are_counted_for_each_seed():
    findings = Findings(Box((-1.0, 0.0, -np.inf), (1.0, 4.0, np.inf)), 2)
    states = np.zeros((2, 3, 3), np.float32)
    states[0, :, 0], states[0, :, 1] = [-1.0, 0.0, 0.5], [0.0, 1.0, 1.0]
    states[1, 2] = 9.0  # padding
    findings.add([steps(states, [[-0.1, 1.0, 2.0], [0.0, 0.0, 5.0]], [[False, False, True], [False, False, True]])])
    findings.add([steps(states[:, :1], [[1.0], [1.0]])])
    assert findings.rewards_seen.tolist() == [3, 0]
    assert findings.ends_seen.tolist() == [1, 0]
    assert findings.explored_of == RANGE
    assert findings.explored() == [0.5, 0.0]  # 1.5 of 2 and 1 of 4; the third coordinate has no bounds
    assert Findings(Box.of(np.inf, 2), 2).explored() == [None, None]


def test_states_of_a_finite_mdp_are_counted():
    findings = Findings(Finite(5), 2)
    findings.add([steps([[0, 1, 1], [4, 4, 3]], np.zeros((2, 3)))])
    assert (findings.explored_of, findings.explored()) == (STATES, [0.4, 0.2])


def searching(rewards=0.0, **known):
    findings = Findings(Box.of(1.0, 1), 2)
    findings.add([steps(np.linspace(-1, 0.2, 8).reshape(2, 4, 1), np.broadcast_to(rewards, (2, 4)))])
    return findings.describe_nothing(2000, **{"succeeded": False, "bonus": 0.2, "longer": "--steps 4000", **known})


def test_nothing_found_is_said_with_what_to_do():
    line = searching()
    assert line.startswith("no reward and no end in 2,000 steps; ")
    assert line.endswith(
        "% of the range of the observations explored; bonus still 0.2 per step; "
        "continue with --steps 4000, or raise bonus_scale"
    )
    assert "; 61 % of the map explored;" in searching(coverage=0.61)
    assert "can be reached" in searching(coverage=0.99)
    assert "no bonus is paid: to explore, choose pcmlp" in searching(bonus=None)
    assert searching([-0.1, 0.0, -0.05, 0.0]) is not None  # a cost of acting
    assert searching([-0.1, 0.0, -0.05, 0.0], succeeded=None) is not None
    assert searching([-9.0, 0.0, -3.0, 0.0], succeeded=None) is None  # costs alone, no cost of acting
    assert searching([0.0, 0.0, 1.0, 0.0]) is None
    assert searching(succeeded=True) is None


def rows_with(*success):
    return [
        {"seed": 0, "env_steps": 200 * n, "eval_return_mean": 0.0, "eval_success": share, "bonus_mean": 0.2}
        for n, share in enumerate(success)
    ]


@pytest.mark.parametrize(
    ("success", "changes", "sustained"),
    [
        ((0.0, 1.0, 0.5, 0.95), [200, 400, 600], 600),
        ((0.0, 1.0, 0.5), [200, 400], None),
        ((0.0, 0.96, 1.0), [200], 200),
        ((None, None), [], None),
    ],
)
def test_success_is_sustained_from_the_evaluation_after_which_none_fails(success, changes, sustained):
    seed = summarise_seed(0, rows_with(*success))
    assert seed["env_steps_to_success"] == (changes[0] if changes else None)
    assert seed["success_changes"] == changes
    assert seed["env_steps_to_sustained_success"] == sustained


def test_closing_lines_tell_success_that_was_lost_and_a_search_in_vain():
    lost = {"seeds": [summarise_seed(0, rows_with(0.0, 1.0, 0.5, 1.0)), summarise_seed(0, rows_with(0.0, 1.0))]}
    assert closing_lines(lost) == ["seed 0: solved at 200, lost by 400, solved again at 600"]
    config, findings = resolve("mountain-car", seeds=(0,), steps=200), Findings(Box.of(1.0, 2), 1)
    findings.lowest_reward = findings.highest_reward = 0.0
    summary = {"seeds": [summarise_seed(0, rows_with(0.0, 0.0))]}
    add_findings(summary, config, rows_with(0.0, 0.0), findings)
    (line,) = closing_lines(summary)
    assert line.startswith("no reward and no end in 200 steps")
    assert "--resume --steps 400" in line
    assert (summary["reward_free"], summary["seeds"][0]["rewards_seen"]) == (False, 0)


def change(path, **entries):
    change_summary(path, **entries)
    return load(path)


def test_the_page_says_that_nothing_was_found_and_when_success_lasted(tmp_path):
    path = write_run(tmp_path / "run", 3)
    run = change(path, nothing_found="no reward in <b> steps")
    run.metrics["eval_success"][:, 1] = [0.0, 1.0, 0.0, 1.0]
    assert run.steps_to_success.tolist() == [10, 9]
    assert run.steps_to_sustained_success.tolist() == [10, 19]
    row = runs_table(arrange([run])[0].groups[0]).rows[0]
    assert (row["median env steps to success"].text, row["to sustained success"].text) == ("10", "14")
    assert "run: no reward in <b> steps" in Page(report([path]).read_text()).words


def test_tables_of_reward_free_runs_show_what_was_explored(tmp_path):
    path = write_run(tmp_path / "run", 1)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "reward_free": True}))
    run = change(path, seeds=[{"seed": 0, "explored": 0.5}, {"seed": 4, "explored": 0.7}], explored_of=STATES)
    assert runs_table(arrange([run])[0].groups[0]).rows[0]["explored"].text == "60 % of the states"
    assert headline({"run": run}) == "On somewhere, with no reward, pcmlp explored 60 % of the states."


def test_a_report_says_what_it_left_out_and_goes_where_it_is_told(tmp_path, capsys):
    write_run(tmp_path / "all/good", 1)
    (write_run(tmp_path / "all/bad", 1) / "summary.json").write_text("[]")
    (write_run(tmp_path / "all/begun", 0) / "metrics.csv").unlink()
    (tmp_path / "empty").mkdir()
    page = tmp_path / "new/page.html"
    assert main(["report", str(tmp_path / "all"), str(tmp_path / "empty"), "--out", str(page)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [str(page)]
    empty, bad, begun = shown.err.splitlines()
    assert empty == f"left out: {tmp_path}/empty: no run in it (no metrics.csv); give a run folder or a folder of runs"
    assert f"all/bad: not a run that can be read ({tmp_path}/all/bad/summary.json: not a JSON object" in bad
    assert "all/begun: not a run that can be read" in begun
    assert "metrics.csv" in begun
    assert Page(page.read_text()).words.count("Left out: ") == 3
    with pytest.raises(ConfigError, match="summary.json: not a JSON object"):
        report([tmp_path / "all/bad"])
