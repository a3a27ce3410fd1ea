"""`train --wandb`: the numbers that are sent, resumed runs, and errors of W&B, which only print a line."""

import json
import sys

import pytest

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary
from pcmlp.runs.weights_biases import WeightsAndBiases, check_wandb, find_id

wandb = pytest.importorskip("wandb")
from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402

_HEADER, _BLOCK = 7, 2**15
TRAIN = ["train", "combination-lock", "--seeds", "0", "7", "--steps", "60", "--wandb", "lock"]
TRAIN += ["--set", "task.horizon=3", "task.actions=2", "eval_episodes=4", "--out", "run"]


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """Nobody is logged in, and W&B is offline."""
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name, place in (("NETRC", "netrc"), ("WANDB_CONFIG_DIR", "config"), ("WANDB_CACHE_DIR", "cache")):
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr("pcmlp.commands.runs.draw_pictures", lambda out: [])
    wandb.teardown()
    yield
    wandb.teardown()


def records(file):
    """Return the records of a W&B file: a LevelDB log in blocks, after a header of seven bytes."""
    data, place, record = file.read_bytes(), _HEADER, b""
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if left < _HEADER or kind == 0:  # the rest of a block is empty
            place += left
            continue
        record += data[place + _HEADER : place + _HEADER + length]
        place += _HEADER + length
        if kind in (1, 4):  # the whole record, or its last part
            yield Record.FromString(record)
            record = b""


def sent(file):
    """Return the numbers that were sent, by step."""
    found = {}
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found[int(items["_step"])] = items
    return found


def files(run):
    return sorted(run.glob("wandb/offline-run-*/*.wandb"))


def test_every_number_is_sent_and_a_resumed_run_goes_on(tmp_path):
    run = tmp_path / "run"
    assert main([*TRAIN[:6], "30", *TRAIN[7:]]) == 0
    (file,) = files(run)
    numbers, metrics = sent(file), read_metrics(run)
    assert sorted(numbers) == list(range(11))
    for i, (n, seed) in enumerate(zip(metrics["iteration"], metrics["seed"], strict=True)):
        for name in ("eval_return_mean", "info_gain"):
            value = numbers[n].get(f"seed-{seed:.0f}/{name}")
            assert value == pytest.approx(metrics[name][i], rel=1e-6) or (value is None and metrics[name][i] != value)
    assert numbers[10]["env_steps"] == 30
    pair = [numbers[10][f"seed-{seed}/eval_return_mean"] for seed in (0, 7)]
    assert numbers[10]["eval_return_mean"] == pytest.approx(sum(pair) / 2)
    begun = [record.run for record in records(file) if record.WhichOneof("record_type") == "run"]
    config = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
    assert config["task"] == json.loads((run / "config.json").read_text())["task"]
    stored = json.loads((run / "wandb.json").read_text())
    assert begun[0].run_id == stored["id"]
    assert begun[0].project == stored["project"] == "lock"

    assert main([*TRAIN[:6], "60", *TRAIN[7:], "--resume"]) == 2  # a run of Algorithm 1 cannot be extended
    assert main([*TRAIN[:6], "30", *TRAIN[7:], "--resume"]) == 0  # nothing to do
    (run / "summary.json").unlink()
    assert main([*TRAIN[:6], "30", *TRAIN[7:], "--resume"]) == 0
    again = [record.run for file in files(run) for record in records(file) if record.WhichOneof("record_type") == "run"]
    assert {each.run_id for each in again} == {stored["id"]}
    assert len(files(run)) == 2


def test_a_run_folder_has_its_own_id(tmp_path):
    own, other = tmp_path / "a run", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    assert find_id(own, "p") == find_id(own, "p")
    assert find_id(own, "p").startswith("a-run-")
    assert find_id(own, "p") != find_id(other, "p")
    with pytest.raises(ConfigError, match="this run is in the project p"):
        find_id(own, "q")
    (own / "wandb.json").write_text("{")
    with pytest.raises(ConfigError, match="remove it to begin another run"):
        find_id(own, "p")


def refused(capsys, words=TRAIN):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.fault("nobody is logged in to Weights & Biases", "`train --wandb` says what to do, exit code 2")
def test_nobody_is_logged_in(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("WANDB_MODE")
    line = refused(capsys)
    assert line.startswith("pcmlp: --wandb lock: nobody is logged in")
    assert "run wandb login, or set the environment variable WANDB_MODE=offline" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("Weights & Biases cannot be reached", "`train --wandb` says what to do, exit code 2")
def test_no_network(tmp_path, monkeypatch, capsys):
    def fails(prompt, verify):
        assert (prompt, verify) == (False, True)
        raise wandb.errors.AuthenticationError("Failed to authenticate: no such host")

    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr(wandb, "login", fails)
    assert "no such host; run wandb login, or set the environment variable WANDB_MODE=offline" in refused(capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_no_network_on_a_real_port(tmp_path, monkeypatch, capsys):
    """W&B is at a port where nothing listens; the line is printed within seconds."""
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert "WANDB_MODE=offline" in refused(capsys)


@pytest.mark.fault("Weights & Biases does not begin a run", "exit code 2, and the run can be resumed without it")
def test_wandb_fails_to_start(tmp_path, monkeypatch, capsys):
    def fails(**arguments):
        raise wandb.errors.CommError("deadline exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(wandb, "init", fails)
        assert "--wandb lock: deadline exceeded; set WANDB_MODE=offline" in refused(capsys)
    words = [word for word in TRAIN if word not in ("--wandb", "lock")]
    assert main([*words, "--resume"]) == 0


@pytest.mark.fault("Weights & Biases fails during a run", "training goes on, and a line says so")
def test_training_goes_on_without_wandb(tmp_path, monkeypatch, capsys):
    class Broken:
        logged = 0

        def define_metric(self, *names, **options):
            pass

        def log(self, numbers, step):
            self.logged += 1
            raise OSError("the service has died")

        def finish(self, exit_code):
            raise AssertionError("nothing more is asked of it")

    broken = Broken()
    monkeypatch.setattr(wandb, "init", lambda **arguments: broken)
    assert main(TRAIN) == 0
    assert capsys.readouterr().out.count("wandb: the service has died, continuing without; metrics.csv has it all") == 1
    assert broken.logged == 1
    assert read_summary(tmp_path / "run")["status"] == "finished"


def test_the_last_upload_may_fail(tmp_path, monkeypatch, capsys):
    class Slow:
        def define_metric(self, *names, **options):
            pass

        def finish(self, exit_code):
            raise TimeoutError("not all was sent")

    monkeypatch.setattr(wandb, "init", lambda **arguments: Slow())
    from rich.console import Console

    from pcmlp.runs.config import resolve

    with WeightsAndBiases(tmp_path, resolve("combination-lock"), "p", Console()):
        pass
    assert "wandb: not all was sent, continuing without" in capsys.readouterr().out


@pytest.mark.bad_input
def test_a_project_has_a_name(capsys, monkeypatch):
    words = [word if word != "lock" else "a/b" for word in TRAIN]
    assert "--wandb a/b: not a name for a project" in refused(capsys, words)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'pcmlp\[wandb\]'"):
        check_wandb("p")
