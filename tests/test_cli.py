"""The command line: what it prints, what it exits with, and that bad input writes and compiles nothing."""

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import pcmlp
from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.framework import PCMLP
from pcmlp.cli import COMMANDS, check_words, main, parse
from pcmlp.commands import show_loading
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.runs.cache import use_cache
from pcmlp.runs.episodes import read
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary

# the configuration of tests/test_runs.py, so that it is compiled once
TRAIN = ["train", "combination-lock", "--seeds", "0", "7", "--steps", "60"]
SETTINGS = ["--set", "task.horizon=3", "task.actions=2", "--set", "eval_episodes=4"]


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PCMLP_CACHE", "off")


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
    for name in (
        "combination-lock",
        "low-rank",
        "linear-core",
        "knr-lds",
        "knr-poly",
        "knr-pendulum",
        "knr-rbf",
        "pcmlp-linear",
        "pcmlp-knr",
        "random",
        "ablation",
    ):
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
    assert "this folder contains files" in capsys.readouterr().err
    assert (out / "metrics.csv").read_bytes() == before


def test_a_run_is_interrupted_resumed_and_finished(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 18, lambda: signal.raise_signal(signal.SIGINT))
        assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 75
    assert "--out run --resume\n" in capsys.readouterr().out  # how to go on
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--set", "ridge=2", "--resume"]) == 2
    assert "ridge: 0.01 -> 2.0" in capsys.readouterr().err
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--resume"]) == 0
    assert "continuing after iteration 18" in capsys.readouterr().out
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--resume"]) == 0
    assert "already finished" in capsys.readouterr().out
    assert read_metrics(tmp_path / "run")["iteration"][::2] == list(range(21))


def test_tensorboard_gets_every_row(tmp_path):
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--tensorboard"]) == 0
    for seed in (0, 7):
        (file,) = (tmp_path / "run" / "tensorboard" / f"seed-{seed}").iterdir()
        data = file.read_bytes()
        for name in ("eval_return_mean", "bonus_mean", "model_loss"):
            assert data.count(name.encode()) in (20, 21)  # row 0 has no bonus


@pytest.mark.fault("tensorboardX is not installed", "training continues, and a line says how to install it")
def test_training_goes_on_without_tensorboard(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--tensorboard"]) == 0
    assert "pip install 'pcmlp[tensorboard]'" in capsys.readouterr().out
    assert not (tmp_path / "run" / "tensorboard").exists()


@pytest.fixture
def cache_settings():
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.fault("the TensorBoard folder cannot be made, or is removed", "training continues, and a line says so")
@pytest.mark.parametrize("when", ["opened", "written"])
def test_training_goes_on_where_tensorboard_cannot_write(tmp_path, monkeypatch, capsys, when):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "tensorboard")

    name = {"opened": "tensorboardX.SummaryWriter", "written": "tensorboardX.SummaryWriter.add_scalar"}[when]
    monkeypatch.setattr(name, full)
    assert main([*TRAIN, *SETTINGS, "--out", "run", "--tensorboard"]) == 0
    assert capsys.readouterr().out.count("continuing without; metrics.csv has it all") >= 1


@pytest.mark.fault("pictures cannot be drawn", "the run is on disk, the line says how to draw them later")
def test_a_run_is_worth_more_than_its_pictures(tmp_path, monkeypatch, capsys):
    def breaks(out):
        raise RuntimeError("no display\nand more")

    monkeypatch.setattr("pcmlp.report.figures.draw", breaks)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 0
    assert "no pictures (RuntimeError: no display); pcmlp report run draws them later" in capsys.readouterr().out
    assert read_summary(tmp_path / "run")["status"] == "finished"


@pytest.mark.fault("JAX_PLATFORMS asks for a GPU that is not there", "one line says what to do, exit code 2")
def test_a_gpu_that_is_not_there():
    env = {**os.environ, "JAX_PLATFORMS": "cuda"}
    command = [sys.executable, "-m", "pcmlp.cli", *TRAIN, *SETTINGS]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "JAX_PLATFORMS=cuda: JAX finds no such device; unset it" in line


@pytest.mark.slow
@pytest.mark.fault("a file may not grow as large as a checkpoint", "exit code 1, the line says how much room it needs")
def test_a_disk_that_is_really_full(tmp_path):
    """By the operating system's own limit on the size of files."""
    code = (
        "import resource, sys; from pcmlp.cli import main; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *TRAIN, *SETTINGS, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert "no space for" in line
    assert " needed, " in line
    assert "--resume" in line
    assert main([*TRAIN, *SETTINGS, "--out", str(tmp_path / "run"), "--resume"]) == 0


@pytest.mark.usefixtures("cache_settings")
def test_compiled_programs_are_kept_for_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv("PCMLP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert use_cache() == tmp_path / "user" / "pcmlp" / "jax"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "user" / "pcmlp" / "jax")
    assert use_cache() is None  # JAX has one already


@pytest.mark.parametrize("named", ["off", "OFF", "{tmp}/file/below"])
@pytest.mark.fault("the compile cache cannot be written", "training continues without it")
def test_no_cache_is_no_problem(named, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PCMLP_CACHE", named.format(tmp=tmp_path))
    assert use_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


BAD_INPUT = [
    ("train combination-lok", "combination-lock"),
    ("train combination-lock --algo pcmlp-liner", "pcmlp-linear"),
    ("train combination-lock --algo pcmlp-knr", "pcmlp-linear or random"),
    ("train combination-lock --set task.horizon=0", "task.horizon=0"),
    ("train combination-lock --set task.actions=1", "task.actions=1"),
    ("train combination-lock --set bonus_scale=-1", "bonus_scale=-1"),
    ("train combination-lock --set bonus_scale=auto", "bonus_scale=auto: not a finite number; give one such as 0.1"),
    ("train knr-lds --set bonus_scale=auto", "bonus_scale=auto: not a finite number; give one such as 0.1"),
    ("train mountain-car --algo pc-pg --set bonus_scale=auto", "bonus_scale=auto: not a finite number; give one"),
    ("train mountain-car --algo pets --set bonus_scale=auto", "bonus_scale=auto: has no effect with pets"),
    ("train mountain-car --algo slbo --set bonus_scale=auto", "bonus_scale=auto: has no effect with slbo"),
    ("train mountain-car --algo trpo --set bonus_scale=auto", "bonus_scale=auto: trpo has no such setting"),
    (
        "train mountain-car --set bonus_scale=Auto",
        "bonus_scale=Auto: not a finite number; give one such as 0.1 or",
    ),
    ("train mountain-car --set rescales=auto", "rescales=auto: give true or false"),
    ("train mountain-car --set deploys=best", "deploys=best: give one of exploring, newest, imagined, proven"),
    ("train mountain-car --algo pcmlp-mppi --set deploys=proven", "deploys=proven: has no effect with pcmlp-mppi"),
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
    ("train combination-lock --stop-when-certified -1", "stop_when_certified=-1"),
    ("train combination-lock --stop-when-certified nan", "stop_when_certified=nan"),
    ("train combination-lock --stop-when-certified soon", "stop_when_certified=soon"),
    ("train combination-lock --algo random --stop-when-certified 0.1", "the run has no certificate"),
    ("train point-umaze --reward-free --stop-when-certified 0.1", "the run has no certificate"),
    ("train knr-lds --set features.name=polynomial features.scale=5", "features.scale=5"),
    ("train knr-lds --set features.name=fourier features.dim=7", "features.dim=7"),
    ("train low-rank --set task.upsilon={upsilon}/ones.npy", "ones.npy"),
    ("train low-rank --set task.upsilon={upsilon}/narrow.npy", "[members, 5, 12]"),
    ("train low-rank --set task.upsilon={upsilon}/words.npy", "words.npy"),
    ("train low-rank --set task.upsilon={upsilon}/absent.npy", "absent.npy"),
    ("train combination-lock --out {upsilon}", "--out"),
    ("train combination-lock --out {upsilon}/ones.npy", "is a file"),
    ("train combination-lock --out {upsilon}/ones.npy/run", "--out"),
    ("train mountain-car --set rounds=0", "rounds=0"),
    ("train mountain-car --set replay_starts=2", "replay_starts=2"),
    ("train mountain-car --set model.sizes=0", "model.sizes=0"),
    ("train mountain-car --set model.rate=nan", "model.rate=nan"),
    ("train mountain-car --set model.unroll=0", "model.unroll=0"),
    ("train mountain-car --set features.norm=3", "features.norm=3"),
    ("train mountain-car --set features.name=one-hot", "one-hot"),
    ("train mountain-car --set planner.updates=0", "planner.updates=0"),
    ("train mountain-car --set planner.value_batch=9999", "planner.value_batch=9999"),
    ("train mountain-car --set planner.num_plans=5", "num_plans"),
    ("train mountain-car --set task.simulator=unity", "unity"),
    ("train mountain-car --set covariance=maybe", "covariance=maybe"),
    ("train mountain-car --set preset=papre", "preset=papre"),
    ("train mountain-car --steps 0", "steps=0"),
    ("train acrobot --algo pcmlp-mppi --set planner.temperature=0", "planner.temperature=0"),
    ("train acrobot --algo pcmlp-mppi --set planner.least_noise=2", "planner.least_noise=2"),
    ("train acrobot --algo pets --set planner.smoothing=1", "planner.smoothing=1"),
    (
        "train acrobot --algo pets --set planner.correlation=0.5",
        "planner.correlation=0.5: truncated noise is independent",
    ),
    ("train acrobot --algo pcmlp-mppi --set planner.correlation=1", "planner.correlation=1"),
    ("train pendulum --algo pcmlp-linear", "pcmlp"),
    ("train point-umaze --set task.horizon=ten", "task.horizon=ten"),
    ("train point-umaze --seeds 0 --seeds 1 --set bonus_scale=inf", "bonus_scale=inf"),
    ("eval {upsilon}/absent", "not a run folder"),
    ("eval {upsilon}", "not a run folder"),
    ("eval {upsilon} --episodes none", "episodes=none"),
    ("export {upsilon}/absent --minari pcmlp/lock-v0", "not a run folder"),
    ("export {upsilon} --minari pcmlp/lock-v0", "not a run folder"),
    ("export {upsilon} --minari lock", "--minari lock: not a name for Minari"),
    ("export {upsilon} --minari ../lock-v0", "--minari ../lock-v0"),
    ("export {upsilon} --minari p/lock-v0", "at least two"),
    ("export {upsilon} --minari pcmlp//lock-v0", "--minari pcmlp//lock-v0"),
    ("paper", "no experiment was given"),
    ("paper sparce", "the nearest is sparse"),
    ("paper all --scale huge", "scale=huge"),
    ("paper sparse --only mountain-car/pcmpl", "the nearest is mountain-car/pcmlp"),
    ("paper sparse --seeds", "there is no seed"),
    ("paper sparse --seeds one", "seeds=one"),
    ("paper sparse --engine spark", "engine=spark"),
    ("paper sparse --address 10.0.0.1:6379", "give --engine ray as well"),
    ("report {upsilon}/absent", "absent"),
    ("bench --out {upsilon}/absent/file.json", "there is no folder"),
    ("bench --seeds many", "seeds=many"),
    ("bench --seeds 16 1", "at least 2"),
    ("theory linear-mdp --horizon 0", "horizon=0"),
    ("theory linear-mdp --delta 2", "delta=2"),
    ("theory knr --sigma x", "sigma=x"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("command", "named"), BAD_INPUT)
def test_bad_input_is_one_line_and_code_2(command, named, upsilon, tmp_path, capsys, monkeypatch, record_property):
    monkeypatch.setattr(PCMLP, "start", None)  # whoever compiles the run fails
    monkeypatch.setattr(Deep, "start", None)
    assert main([word.format(upsilon=upsilon) for word in command.split()]) == 2
    shown = capsys.readouterr()
    line = shown.err.removeprefix("pcmlp: ").strip().replace(str(upsilon), "DIR")
    record_property("bad input", (command.format(upsilon="DIR"), line))
    assert shown.out == ""
    assert shown.err.startswith("pcmlp: ")
    assert shown.err.count("\n") == 1
    assert named in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("trian", "trian"),
        ("", "train"),
        ("train", "TASK"),
        ("train combination-lock --sed 3", "--seeds"),
        ("train combination-lock --algo", "--algo"),
        ("export runs/lock", "--minari NAME"),
        ("theory", "linear-mdp"),
    ],
)
def test_unknown_words_are_one_line_and_code_2(command, named, capsys, record_property):
    assert main(command.split()) == 2
    shown = capsys.readouterr()
    record_property("bad input", (command, shown.err.removeprefix("pcmlp: ").strip()))
    assert shown.out == ""
    assert shown.err.startswith("pcmlp: ")
    assert shown.err.count("\n") == 1
    assert "--" * 4 not in shown.err  # a rule of the box it was in
    assert named in shown.err


def test_help_is_shown(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--help"])
    assert not stopped.value.code
    assert "--resume" in capsys.readouterr().out


@pytest.mark.parametrize("error", [MemoryError("67 GiB"), RuntimeError("RESOURCE_EXHAUSTED: 67 GiB\nand a long dump")])
@pytest.mark.fault("too little memory, of the machine or the GPU", "one line says which settings to lower, exit code 1")
def test_too_little_memory_names_what_to_lower(capsys, monkeypatch, error):
    from pcmlp.tasks import TASKS

    def refuse(self):
        raise error

    monkeypatch.setattr(TASKS["combination-lock"], "build", refuse)
    assert main([*TRAIN, *SETTINGS]) == 1
    line = capsys.readouterr().err
    assert "67 GiB)" in line
    assert "fewer --seeds" in line
    assert line.count("\n") == 1


def test_a_run_that_cannot_go_on_says_so_in_a_line(capsys, monkeypatch):
    def stops(self, keys, world, learner, n):
        raise RunStopped("the world has ended; begin another")

    monkeypatch.setattr(PCMLP, "iterate", stops)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 1
    assert capsys.readouterr().err == "pcmlp: the world has ended; begin another\n"
    assert read_summary(Path("run"))["status"] == "failed"


def interrupt_at(monkeypatch, iteration, interrupt):
    iterate = PCMLP.iterate

    def interrupted(self, keys, world, learner, n):
        if n == iteration:
            interrupt()
        return iterate(self, keys, world, learner, n)

    monkeypatch.setattr(PCMLP, "iterate", interrupted)


def read_all(out, status):
    """Everything a reader opens, and the last iteration that is there."""
    summary, metrics, episodes = read_summary(out), read_metrics(out), list(read(out / "episodes"))
    assert summary["status"] == status
    assert metrics["iteration"][-1] == len(episodes) == summary["iterations"]
    assert (out / "policy" / "policy.safetensors").exists()
    return summary["iterations"]


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGUSR1, "SIGUSR1")]
)
@pytest.mark.fault(
    "Ctrl-C, SIGTERM or SIGUSR1", "the iteration is ended and saved, the command to continue is shown, exit code 75"
)
def test_a_signal_ends_the_run_after_its_iteration(tmp_path, monkeypatch, capsys, number, name):
    before = signal.getsignal(number)
    interrupt_at(monkeypatch, 5, lambda: signal.raise_signal(number))
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 75
    assert read_all(tmp_path / "run", "stopped") == 5
    assert f"{name}: stopping after this iteration" in capsys.readouterr().out
    assert signal.getsignal(number) is before


@pytest.mark.fault("Ctrl-C, SIGTERM or SIGUSR1 twice", "stops at once, nothing is corrupt, exit code 130")
def test_a_second_interrupt_ends_it_at_once(tmp_path, monkeypatch):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    interrupt_at(monkeypatch, 5, twice)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 130
    assert read_all(tmp_path / "run", "interrupted") == 4


def test_an_interrupt_before_anything_was_learned(tmp_path, monkeypatch):
    def twice(self, keys, mdp, num_iterations):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PCMLP, "start", twice)
    assert main([*TRAIN, *SETTINGS, "--out", "run"]) == 130
    assert read_summary(tmp_path / "run")["seeds"][0]["final_return"] is None


@pytest.mark.parametrize("words", [["--port", "3"], ["--port=3"]])
def test_a_flag_of_another_command_is_not_suggested_to_who_gave_it(words, capsys):
    assert main(["report", "somewhere", *words]) == 2
    said = capsys.readouterr().err
    assert "--port" in said
    assert "perhaps you meant" not in said


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pcmlp {pcmlp.__version__}\n"


def test_python_runs_the_package(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pcmlp", "--version"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("pcmlp", run_name="__main__")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("pcmlp ")


def test_a_line_comes_before_jax_is_loaded(capsys, monkeypatch):
    modules = {name: module for name, module in sys.modules.items() if name != "jax"}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "modules", modules)
        show_loading("mountain-car, pcmlp")
    assert capsys.readouterr().out == "mountain-car, pcmlp: loading JAX\n"
    show_loading("mountain-car, pcmlp")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_names_every_command(shell, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["completion", shell])
    assert not stopped.value.code
    script = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in script] == []
    assert "--seeds" in script


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["theory", "linear-mdp"], ["theory", "knr"]])
def test_every_help_has_examples_and_real_defaults(words, capsys):
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert "default: None" not in shown
    examples = re.search(r"For example:\n((?:  .*\n)+)", shown)
    assert examples, "no examples"
    for line in examples[1].splitlines():
        example = shlex.split(re.sub(r"source <\((.*)\)", r"\1", line).partition(" > ")[0], comments=True)[1:]
        check_words(example)
        if "--help" not in example:
            parse(example)


@pytest.mark.parametrize("words", [["eval", "path"], ["report", "paths"], ["train", "mountain-car", "--out", "task"]])
def test_a_folder_may_have_the_name_of_an_argument(words):
    check_words(words)
    with pytest.raises(ConfigError, match="not a flag"):
        check_words([*words[:-1], f"--{words[-1]}"])
