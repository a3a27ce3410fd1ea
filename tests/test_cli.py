"""The command line: what it prints, what it exits with, and that bad input writes and compiles nothing."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from pcmlp import framework
from pcmlp.cli import main
from pcmlp.runs.episodes import read
from pcmlp.runs.folder import read_metrics, read_summary

# the configuration of tests/test_runs.py, so that it is compiled once
TRAIN = ["train", "combination-lock", "--seeds", "0", "7", "--steps", "60"]
SETTINGS = ["--set", "task.horizon=3", "task.actions=2", "--set", "eval_episodes=4"]


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def upsilon(tmp_path_factory):
    """Files of classes: one whose members are not distributions, one of the wrong dimension, one of words."""
    folder = tmp_path_factory.mktemp("classes")
    np.save(folder / "ones.npy", np.ones((4, 5, 12)))
    np.save(folder / "narrow.npy", np.full((4, 3, 12), 1 / 12))
    np.save(folder / "words.npy", np.array([[["a"]]]))
    return folder


def test_help_does_not_wait_for_jax():
    code = "import sys, pcmlp.cli; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_list_has_a_line_for_each_name(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("combination-lock", "low-rank", "knr-lds", "knr-poly", "pcmlp-linear", "pcmlp-knr", "random", "demo"):
        assert any(line.split()[0] == name and len(line.split()) > 3 for line in lines)


def test_theory_prints_both_tables(capsys):
    assert main(["theory", "linear-mdp", "--horizon", "3", "--members", "16"]) == 0
    assert "corrected" in capsys.readouterr().out
    assert main(["theory", "knr", "--sigma", "0.5", "--state-dim", "3"]) == 0
    assert "corrected" in capsys.readouterr().out


def test_a_run_from_beginning_to_end(tmp_path, capsys):
    assert main([*TRAIN, *SETTINGS]) == 0
    out = tmp_path / "runs" / "combination-lock-pcmlp-linear"
    files = {path.name for path in out.iterdir()}
    assert {"config.json", "metrics.csv", "summary.json", "episodes", "policy"} <= files
    assert {"learning_curve.png", "visit_map.png"} <= files
    assert read_summary(out)["command"].startswith("pcmlp train combination-lock --seeds 0 7")
    shown = capsys.readouterr().out
    assert "20 iterations of 3 env steps" in shown
    assert "finished" in shown

    # a second run never writes over the first
    before = (out / "metrics.csv").read_bytes()
    assert main([*TRAIN, *SETTINGS]) == 2
    assert "already holds files" in capsys.readouterr().err
    assert (out / "metrics.csv").read_bytes() == before


BAD_INPUT = [
    ("train combination-lok", "combination-lock"),
    ("train combination-lock --algo pcmlp-liner", "pcmlp-linear"),
    ("train combination-lock --algo pcmlp-knr", "pcmlp-linear or random"),
    ("train combination-lock --set task.horizon=0", "task.horizon=0"),
    ("train combination-lock --set task.actions=1", "task.actions=1"),
    ("train combination-lock --set bonus_scale=-1", "bonus_scale=-1"),
    ("train combination-lock --set ridge=-0.5", "ridge=-0.5"),
    ("train combination-lock --set ridge=0", "ridge=0"),
    ("train combination-lock --set bonus_scal=1", "bonus_scale"),
    ("train combination-lock --set samples_per_policy=2.5", "samples_per_policy=2.5"),
    ("train combination-lock --set nonsense", "key=value"),
    ("train combination-lock --seeds", "seeds="),
    ("train combination-lock --seeds 1 1", "seeds=1 1"),
    ("train combination-lock --seeds one", "seeds=one"),
    ("train combination-lock --steps 3", "20 env steps"),
    ("train combination-lock --steps many", "steps=many"),
    ("train knr-lds --set features.name=polynomial features.scale=5", "features.scale=5"),
    ("train knr-lds --set features.name=fourier features.dim=7", "features.dim=7"),
    ("train low-rank --set task.upsilon={upsilon}/ones.npy", "ones.npy"),
    ("train low-rank --set task.upsilon={upsilon}/narrow.npy", "[members, 5, 12]"),
    ("train low-rank --set task.upsilon={upsilon}/words.npy", "words.npy"),
    ("train low-rank --set task.upsilon={upsilon}/absent.npy", "absent.npy"),
    ("train combination-lock --out {upsilon}", "--out"),
    ("train combination-lock --out {upsilon}/ones.npy", "is a file"),
    ("train combination-lock --out {upsilon}/ones.npy/run", "--out"),
    ("theory linear-mdp --horizon 0", "horizon=0"),
    ("theory linear-mdp --delta 2", "delta=2"),
    ("theory knr --sigma x", "sigma=x"),
]


@pytest.mark.parametrize(("command", "named"), BAD_INPUT)
def test_bad_input_is_one_line_and_code_2(command, named, upsilon, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(framework, "start", None)  # whoever compiles the run fails
    assert main([word.format(upsilon=upsilon) for word in command.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("pcmlp: ")
    assert shown.err.count("\n") == 1
    assert named in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["trian"], [], ["train"], ["train", "combination-lock", "--sed", "3"]])
def test_unknown_words_are_code_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_too_little_memory_is_bad_input(capsys, monkeypatch):
    from pcmlp.tasks import TASKS

    def refuse(self):
        raise MemoryError("67 GiB")

    monkeypatch.setattr(TASKS["combination-lock"], "build", refuse)
    assert main([*TRAIN, *SETTINGS]) == 2
    assert "not enough memory (67 GiB)" in capsys.readouterr().err


def interrupt_at(monkeypatch, iteration, interrupt):
    iterate = framework.iterate

    def interrupted(keys, algo, learner, n):
        if n == iteration:
            interrupt()
        return iterate(keys, algo, learner, n)

    monkeypatch.setattr(framework, "iterate", interrupted)


def read_all(out):
    """Everything a reader opens, and the last iteration that is there."""
    summary, metrics, episodes = read_summary(out), read_metrics(out), list(read(out / "episodes"))
    assert summary["status"] == "interrupted"
    assert metrics["iteration"][-1] == len(episodes) == summary["iterations"]
    assert (out / "policy" / "policy.json").exists()
    return summary["iterations"]


def test_an_interrupt_ends_the_run_after_its_iteration(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGINT)
    interrupt_at(monkeypatch, 5, lambda: signal.raise_signal(signal.SIGINT))
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 130
    assert read_all(tmp_path / "run") == 5
    assert "stopping after this iteration" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_ends_it_at_once(tmp_path, monkeypatch):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    interrupt_at(monkeypatch, 5, twice)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 130
    assert read_all(tmp_path / "run") == 4


def test_an_interrupt_before_anything_was_learned(tmp_path, monkeypatch):
    def twice(keys, algo):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(framework, "start", twice)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 130
    assert read_summary(tmp_path / "run")["seeds"][0]["final_return"] is None
