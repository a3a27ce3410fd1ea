"""`pcmlp doctor`: what a machine has, what it lacks, and an exit code that says whether it can run anything."""

import pytest

from pcmlp import doctor
from pcmlp.cli import main

QUICK = ("versions", "devices", "cache", "folder", "pictures", "video")


@pytest.fixture
def quick(monkeypatch):
    """Without the training, which has a test of its own."""
    monkeypatch.setattr(doctor, "self_test", lambda: doctor.Finding(True, "not run"))
    monkeypatch.setenv("COLUMNS", "200")


def test_a_sound_machine(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(doctor, "self_test", None)  # only with --train
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("Python 3.", "jax 0.", "cpu", "pcmlp[cuda]", "MB free" if "MB free" in shown else "GB free", "ffmpeg"):
        assert word in shown
    assert "FAILED" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.fault("`pcmlp doctor` where one of its checks raises", "the others continue, the exit code is 1")
def test_a_broken_check_is_a_finding(quick, capsys, monkeypatch, name):
    def breaks():
        raise OSError("no such luck\nand more of it")

    monkeypatch.setattr(doctor, name, breaks)
    assert main(["doctor", "--train"]) == 1
    shown = capsys.readouterr().out
    assert "OSError: no such luck" in shown
    assert "and more of it" not in shown
    assert "not run" in shown


@pytest.mark.fault("an optional package is missing", "`pcmlp doctor` names it and how to get it, exit code 0")
def test_what_is_optional_may_be_missing(quick, capsys, monkeypatch):
    there = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda n: None if n == "tensorboardX" else there(n))
    assert main(["doctor", "--train"]) == 0
    shown = capsys.readouterr().out
    assert "missing" in shown
    assert "pip install 'pcmlp[tensorboard]'" in shown


@pytest.mark.fault("the disk is nearly full", "`pcmlp doctor` fails and says how much a run needs")
def test_too_little_room(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    usage = doctor.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    assert doctor.folder() == doctor.Finding(False, f"{tmp_path}: 1 MB free, a run needs 200; free some space")


@pytest.mark.slow  # the kills resume runs of both algorithms in every run of the tests
def test_the_self_test_trains_resumes_and_evaluates():
    finding = doctor.run_check(doctor.self_test)
    assert finding.good, finding.line
    assert "trained, resumed and evaluated" in finding.line


@pytest.mark.fault("a training that gives nonsense", "`pcmlp doctor` fails")
def test_the_self_test_can_fail(monkeypatch):
    rows = {"iteration": [0.0, 1.0, 2.0], "eval_return_mean": [0.0, 1.0, float("nan")]}
    for name, fake in (("train.train", lambda *a, **k: {}), ("metrics.read_metrics", lambda run: rows)):
        monkeypatch.setattr(f"pcmlp.runs.{name}", fake)
    monkeypatch.setattr("pcmlp.runs.policy.load_run", lambda run: None)
    monkeypatch.setattr("pcmlp.runs.evaluate.evaluate_run", lambda saved, episodes: None)
    assert not doctor.self_test().good
