"""Protocols: what is reported runs as it was written down before, on other seeds than those of tuning."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from written_jobs import LOCK, REVISION, TINY, write_trained
from written_runs import change_summary

from pcmlp.cli import main
from pcmlp.experiments import paper, protocol
from pcmlp.experiments.experiment import Experiment, per_run, solved_columns
from pcmlp.runs import source
from pcmlp.runs.durable import read_sealed, write_sealed
from pcmlp.runs.source import Source, find_source

FILE = Path("results/locks/protocol.json")
RESULT = Path("results") / LOCK.where


@pytest.fixture
def locks(places, monkeypatch):
    """An experiment that needs a protocol. Its list of jobs may be changed."""
    jobs = [LOCK]
    made = Experiment("locks", "Locks", "", "", lambda: jobs, per_run("locks", solved_columns), needs_protocol=True)
    monkeypatch.setattr(paper, "EXPERIMENTS", {"locks": made})
    monkeypatch.setattr(protocol, "find_source", lambda: Source(REVISION, True))
    return jobs


@pytest.fixture
def refused(places, capsys, record_property):
    """A function that gives a command and returns the one line that refuses it; nothing is trained. `mistake` is what
    docs/reliability.md calls it."""

    def refuse(*words, mistake=None):
        before = len(places[2])
        capsys.readouterr()
        assert main([*words]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert len(places[2]) == before
        if mistake:
            shown = line.removeprefix("pcmlp: ").strip().replace(str(Path.cwd() / "results"), "results")
            record_property("bad input", (f"{words[0]} {words[1]} ({mistake})", shown))
        return line

    return refuse


def test_a_protocol_has_the_settings_seeds_and_steps_of_every_run_and_lets_it_run(locks, places, capsys):
    locks.append(replace(LOCK, label="other", settings=(*TINY, "ridge=0.5"), seeds=(3, 4), steps=12))
    assert main(["paper", "locks", "--protocol"]) == 0
    assert capsys.readouterr().out == f"{FILE}\n"
    record = read_sealed(FILE)
    assert record["experiment"] == "locks"
    assert set(record["runs"]) == {"locks/combination-lock/other", "locks/combination-lock/tiny"}
    other = record["runs"]["locks/combination-lock/other"]
    assert (other["seeds"], other["steps"], other["ridge"]) == ([3, 4], 12, 0.5)
    assert main(["paper", "locks"]) == 0
    for where, config in record["runs"].items():
        assert json.loads((Path("results") / where / "config.json").read_text()) == config
    assert len(places[2]) == 2
    assert main(["paper", "locks", "--protocol"]) == 0  # the results are those of the same protocol
    assert read_sealed(FILE) == record


@pytest.mark.bad_input
def test_what_is_reported_needs_a_protocol_but_not_at_other_scales(locks, places, refused):
    assert "locks: has no protocol.json in results; write it with pcmlp paper locks --protocol" in refused(
        "paper", "locks"
    )
    assert main(["paper", "locks", "--scale", "smoke"]) == 0
    assert len(places[2]) == 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": (*TINY, "ridge=0.5")}, "combination-lock/tiny is not the same now (ridge: 0.01 -> 0.5)"),
        ({"seeds": (0, 1)}, "combination-lock/tiny is not the same now (seeds: [0] -> [0, 1])"),
        ({"steps": 12}, "combination-lock/tiny is not the same now (steps: 8 -> 12)"),
        ({"label": "new"}, "combination-lock/new is not the same now (it is not in the protocol)"),
    ],
)
def test_a_protocol_whose_settings_changed_is_refused_before_anything_runs(locks, refused, change, said):
    assert main(["paper", "locks", "--protocol"]) == 0
    locks[0] = replace(LOCK, **change)
    line = refused("paper", "locks", mistake=f"{next(iter(change))} changed since its protocol")
    assert f"{FILE}: locks/{said}; change it back, or write a new one" in line


def test_a_run_that_is_gone_and_other_seeds_by_hand_are_changes_too(locks, refused):
    locks.append(replace(LOCK, label="other"))
    assert main(["paper", "locks", "--protocol"]) == 0
    said = "combination-lock/other is asked for with other settings (seeds: [0] -> [7]); leave out --seeds"
    assert said in refused("paper", "locks", "--only", "combination-lock/other", "--seeds", "7")
    locks.pop()
    assert "locks/combination-lock/other is not the same now (it is no run any more)" in refused("paper", "locks")


@pytest.mark.bad_input
def test_a_result_of_other_settings_is_not_mixed_in(locks, refused):
    assert main(["paper", "locks", "--protocol"]) == 0
    assert main(["paper", "locks"]) == 0
    record = read_sealed(FILE)
    record["runs"]["locks/combination-lock/tiny"]["seeds"] = [5]
    write_sealed(FILE, record)
    assert f"not of {FILE.absolute()} (seeds: [5] -> [0]); remove it" in refused("report", "results")
    locks[0] = replace(LOCK, seeds=(5,))
    assert "holds another run" in refused("paper", "locks")


@pytest.mark.bad_input
def test_a_result_without_a_revision_is_refused(locks, refused):
    assert main(["paper", "locks", "--protocol"]) == 0
    assert main(["paper", "locks"]) == 0
    change_summary(RESULT, revision=None)
    line = refused("report", "results", mistake="a result of a protocol without a revision")
    assert "tiny: its summary.json has no git revision, which a result with a protocol needs; remove it" in line
    assert "has no git revision" in refused("paper", "locks")
    FILE.unlink()
    assert main(["report", "results"]) == 0  # what has no protocol needs no revision


@pytest.mark.bad_input
def test_runs_that_would_have_no_revision_are_not_begun(locks, places, refused, monkeypatch):
    assert main(["paper", "locks", "--protocol"]) == 0
    monkeypatch.setattr(protocol, "find_source", lambda: Source(None, None))
    assert "its results need a git revision, and none is known here; set PCMLP_REVISION" in refused("paper", "locks")


@pytest.mark.bad_input
def test_runs_of_a_changed_source_are_not_begun(locks, refused, monkeypatch):
    assert main(["paper", "locks", "--protocol"]) == 0
    monkeypatch.setattr(protocol, "find_source", lambda: Source(REVISION, False))
    assert "locks: its results need a revision, and src has changes; commit them first" in refused("paper", "locks")


@pytest.mark.bad_input
def test_runs_that_another_experiment_shows_need_their_own_protocol(locks, refused):
    shows = Experiment("shows", "Shows", "", "", lambda: locks, per_run("shows", solved_columns))
    paper.EXPERIMENTS["shows"] = shows
    assert "locks: has no protocol.json in results" in refused("paper", "shows")
    assert main(["paper", "locks", "--protocol"]) == 0
    assert "seed 100: seeds 100 to 199 are for tuning" in refused("paper", "shows", "--seeds", "100")


@pytest.mark.bad_input
def test_of_several_protocols_all_or_none_are_written(locks, refused):
    other = replace(LOCK, experiment="other", seeds=(100,))
    paper.EXPERIMENTS["other"] = Experiment("other", "Other", "", "", lambda: [other], per_run("other", solved_columns))
    assert "seed 100: seeds 100 to 199 are for tuning" in refused("paper", "locks", "other", "--protocol")
    assert not FILE.exists()


@pytest.mark.bad_input
def test_a_protocol_cannot_follow_a_run_that_is_not_kept_yet(locks, refused):
    run = Path("runs/experiments") / LOCK.where
    write_trained(LOCK.config(), run, "by hand", "finished")
    assert f"{run}: was made before this protocol; remove it" in refused("paper", "locks", "--protocol")


def test_a_run_of_before_without_a_revision_is_not_kept(locks, places, refused):
    runs = Path("runs/experiments")
    assert main(["paper", "locks", "--protocol"]) == 0
    write_trained(LOCK.config(), runs / LOCK.where, "by hand", "finished")
    change_summary(runs / LOCK.where, revision=None)
    assert f"{runs / LOCK.where}: its summary.json has no git revision" in refused("paper", "locks")


@pytest.mark.bad_input
def test_tuning_seeds_are_not_reported(locks, refused):
    assert main(["paper", "locks", "--protocol"]) == 0
    line = refused("paper", "locks", "--seeds", "99", "100", mistake="seeds of tuning")
    assert (
        "combination-lock/tiny: seed 100: seeds 100 to 199 are for tuning, and locks is reported; give others" in line
    )
    FILE.unlink()
    locks[0] = replace(LOCK, seeds=(0, 199))
    assert "seed 199: seeds 100 to 199 are for tuning" in refused("paper", "locks", "--protocol")
    assert not FILE.exists()


@pytest.mark.bad_input
def test_a_protocol_cannot_follow_its_results(locks, refused):
    assert main(["paper", "locks", "--protocol"]) == 0
    assert main(["paper", "locks"]) == 0
    before = FILE.read_text()
    locks[0] = replace(LOCK, seeds=(1,))
    said = f"{RESULT}: was made before this protocol; remove it, and give --protocol again"
    assert said in refused("paper", "locks", "--protocol")
    assert FILE.read_text() == before
    FILE.unlink()
    locks[0] = LOCK
    assert said in refused("paper", "locks", "--protocol")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scale", "quick"), "--protocol: holds the runs at full scale; leave out --scale quick"),
        (("--seeds", "4"), "--protocol: takes all runs and seeds; leave out --only, --seeds and --plan"),
        (("--only", "combination-lock/tiny"), "--protocol: takes all runs and seeds"),
    ],
)
def test_a_protocol_is_of_everything(locks, refused, words, said):
    assert said in refused("paper", "locks", "--protocol", *words)
    assert not FILE.exists()


@pytest.mark.bad_input
def test_an_edited_protocol_is_refused(locks, refused):
    assert main(["paper", "locks", "--protocol"]) == 0
    FILE.write_text(FILE.read_text().replace('"steps": 8', '"steps": 80'))
    assert f"{FILE}: cannot be read (edited); restore the one that was committed" in refused("paper", "locks")


def test_the_revision_is_that_of_the_checkout_and_elsewhere_what_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("PCMLP_REVISION", "abc123")
    find_source.cache_clear()
    here = find_source()
    assert here.revision is not None  # these tests run in a checkout
    assert len(here.revision) == 40
    assert here.clean in (True, False)
    monkeypatch.setattr(source, "__file__", str(tmp_path / "source.py"))
    for given, known in (("abc123", "abc123"), (" ", None)):
        monkeypatch.setenv("PCMLP_REVISION", given)
        find_source.cache_clear()
        assert find_source() == (known, None)
    find_source.cache_clear()
