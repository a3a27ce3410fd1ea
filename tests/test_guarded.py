"""Run folders that come from anywhere: nothing is read or written through a link, and damage gets one line."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from written_runs import change_summary, write_experiment, write_run

from pcmlp.cli import main
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.report.experiment import check_tables, read_experiment, read_tables
from pcmlp.report.page import report
from pcmlp.report.reading import load
from pcmlp.runs import arrays
from pcmlp.runs.arrays import load_facts_and_arrays, pack, read_facts, save_tree
from pcmlp.runs.durable import (
    Damaged,
    parse_json,
    read_bytes,
    read_json,
    read_sealed,
    read_text,
    show_size,
    write_json,
    write_sealed,
    write_text,
)
from pcmlp.runs.episodes import EpisodeLog, log_path, measure, read
from pcmlp.runs.folder import Lock, check_folder
from pcmlp.runs.metrics import read_rows

TINY = ["--seeds", "0", "--steps", "12", "--set", "task.horizon=3", "samples_per_policy=3", "eval_episodes=2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "combination-lock", *TINY, "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def resume(run):
    return ["train", "combination-lock", *TINY, "--out", str(run), "--resume"]


def refused(words, capsys):
    """Run a command that is refused; return its one line."""
    capsys.readouterr()
    assert main(words) in (1, 2)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "unexpected" not in shown
    return shown


@pytest.mark.fault("a link in a run folder, to a file or folder elsewhere", "refused, its target untouched")
@pytest.mark.parametrize(
    "name",
    [
        "episodes/log",
        "lock",
        "config.json.new",
        "eval.json.new",
        "learning_curve.png",
        "report.html",
        "policy",
        "checkpoint",
        "metrics.csv",
    ],
)
def test_nothing_is_read_or_written_through_a_link(run, tmp_path, capsys, name):
    target, place = tmp_path / "private", run / name
    if name in ("policy", "checkpoint"):
        shutil.move(place, target)
    else:
        target.write_text("private")
        place.unlink(missing_ok=True)
    place.symlink_to(target)
    (run / "summary.json").unlink()  # so that there is something to resume

    def contents():
        return {file.name: file.read_bytes() for file in ([target] if target.is_file() else target.iterdir())}

    before = contents()
    for words in (resume(run), ["eval", str(run), "--episodes", "1"], ["report", str(run)]):
        assert str(place) in refused(words, capsys)
    assert contents() == before
    assert place.is_symlink()


def test_a_lock_that_is_a_link_is_refused_in_an_empty_folder(tmp_path, capsys):
    (tmp_path / "private").write_text("private")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/lock").symlink_to(tmp_path / "private")
    line = refused(["train", "combination-lock", *TINY, "--out", str(tmp_path / "run")], capsys)
    assert "run/lock: a link" in line
    assert (tmp_path / "private").read_text() == "private"


def test_a_page_replaces_a_link_and_leaves_its_target(tmp_path):
    write_run(tmp_path / "runs/one")
    (tmp_path / "private").write_text("private")
    (tmp_path / "runs/report.html").symlink_to(tmp_path / "private")
    page = report([tmp_path / "runs"])
    assert not page.is_symlink()
    assert (tmp_path / "private").read_text() == "private"


def test_an_experiment_shows_nothing_from_elsewhere(tmp_path):
    elsewhere = write_run(tmp_path / "elsewhere/run")
    folder = tmp_path / "results/it"
    (tmp_path / "results").mkdir()
    for name in (str(elsewhere), "../elsewhere/run"):
        write_experiment(folder, name)
        with pytest.raises(ConfigError, match="is outside of"):
            read_experiment(folder)
    write_experiment(folder)
    (tmp_path / "private.csv").write_text("secret\n1\n")
    (folder / "x.csv").symlink_to(tmp_path / "private.csv")
    write_run(folder / "somewhere/run")
    with pytest.raises(ConfigError, match="a link"):
        report([folder])


@pytest.mark.fault("a pipe, a file or a link in the place of a folder of an experiment", "refused by name")
@pytest.mark.parametrize("name", ["it/somewhere", "it/somewhere/run"])
@pytest.mark.parametrize(
    ("put", "said"),
    [
        (os.mkfifo, "not a folder"),
        (Path.touch, "not a folder"),
        (lambda path: path.symlink_to(path.name), "a link"),
        (lambda path: path.symlink_to(path.parent), "a link"),
    ],
)
def test_an_experiment_misses_a_run_that_has_something_else_in_its_place(tmp_path, capsys, name, put, said):
    write_run(tmp_path / "it/somewhere/run")
    write_run(tmp_path / "it/other/run")
    write_experiment(tmp_path / "it", "it/somewhere/run", "it/other/run")
    assert len(read_experiment(tmp_path / "it").runs) == 2
    shutil.rmtree(tmp_path / name)
    assert len(read_experiment(tmp_path / "it").runs) == 1  # a run that was not made yet
    put(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name} is {said}"):
        read_experiment(tmp_path / "it")
    assert main(["report", str(tmp_path / "it")]) == 0
    assert f"{name} is {said}" in capsys.readouterr().err  # the other run is on the page


def test_an_experiment_shows_only_the_tables_that_it_made(tmp_path):
    write_run(tmp_path / "it/somewhere/run")
    (tmp_path / "it/made.csv").write_text("made\n1\n")
    write_experiment(tmp_path / "it", "it/somewhere/run")
    (tmp_path / "it/more.csv").write_text("more\n1\n")
    assert list(read_tables(tmp_path / "it", read_experiment(tmp_path / "it"))) == ["made.csv"]
    assert list(read_tables(tmp_path / "it", None)) == ["made.csv", "more.csv"]


def test_a_run_whose_metrics_were_renamed_is_not_taken_for_a_plan(tmp_path, capsys):
    write_run(tmp_path / "one")
    run = write_run(tmp_path / "two")
    (run / "metrics.csv").rename(run / "plan.json")
    assert main(["report", str(tmp_path)]) == 0
    assert f"left out: {run}" in capsys.readouterr().err


@pytest.mark.fault("a pipe, a folder or a device in the place of a file", "refused, never waited for")
@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "summary.json", "episodes", "checkpoint", "lock"])
def test_what_is_not_a_file_is_refused(run, capsys, name):
    place = run / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    os.mkfifo(place)
    for words in (resume(run), ["eval", str(run)], ["report", str(run)]):
        assert name in refused(words, capsys)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "not a finite"),
        ('{"a": -Infinity}', "not a finite"),
        ('{"a": 1e400}', "not a finite"),
        ('{"a": 1' + "0" * 30 + "}", "too large"),
        ('{"a": ' + "[" * 30 + "1" + "]" * 30 + "}", "nested"),
        ('{"a": ' + "[" * 100_000, "nested"),
        ("[1]", "not a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_json_is_read_strictly(text, why):
    with pytest.raises(Damaged, match=why):
        parse_json(text)
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


def test_files_have_a_plausible_size_and_encoding(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"\xff{}")
    with pytest.raises(Damaged, match="UTF-8"):
        read_text(file)
    with file.open("wb") as huge:
        huge.truncate(2**33)  # a hole: it takes no space
    with pytest.raises(Damaged, match="too large: 8.6 GB, at most 268.4 MB"):
        read_json(file)
    with pytest.raises(Damaged, match="truncated or edited"):
        load_facts_and_arrays(file)
    assert [show_size(size) for size in (7, 1500, 2.5e6)] == ["7 bytes", "1.5 kB", "2.5 MB"]


def test_a_sealed_file_notices_every_change(tmp_path):
    file = tmp_path / "file.json"
    write_sealed(file, {"a": [1.5, float("nan")], "b": {"c": "text"}})
    assert read_sealed(file) == {"a": [1.5, None], "b": {"c": "text"}}
    whole = file.read_text()
    for changed in (whole.replace("1.5", "1.6"), whole.replace("text", "test"), whole.replace('"sha256"', '"sha"')):
        file.write_text(changed)
        with pytest.raises(Damaged, match="edited"):
            read_sealed(file)
    file.write_text(json.dumps(json.loads(whole)))  # another layout is the same record
    assert read_sealed(file)["a"] == [1.5, None]


def test_writing_replaces_what_a_run_that_was_cut_off_has_left(tmp_path):
    (tmp_path / "file.new").write_text("half")
    write_text(tmp_path / "file", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    write_json(tmp_path / "file", {"a": 1})
    assert read_bytes(tmp_path / "file") == b'{\n  "a": 1\n}\n'


@pytest.mark.fault("a checkpoint that would be too large to be read again", "not written, a line says so")
def test_nothing_is_written_that_is_too_large_to_be_read_again(tmp_path, monkeypatch):
    most = 2**26 + 4000  # with the room for the header
    monkeypatch.setattr(arrays, "_LARGEST", most)
    save_tree(tmp_path / "fits.safetensors", {"x": np.zeros(1000, np.float32)}, {})
    assert load_facts_and_arrays(tmp_path / "fits.safetensors")[1]["['x']"].size == 1000
    with pytest.raises(
        RunStopped, match=r"large.safetensors: not written: its arrays have 4.0 kB, .*; use fewer seeds"
    ):
        save_tree(tmp_path / "large.safetensors", {"x": np.zeros(1001, np.float32)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["fits.safetensors"]


@pytest.mark.fault("a changed number in metrics.csv", "refused by --resume, report and export")
@pytest.mark.parametrize("ended", [True, False])
def test_a_changed_number_of_the_metrics_is_refused(run, capsys, ended):
    rows = (run / "metrics.csv").read_text().splitlines()
    cells = rows[2].split(",")
    cells[3] = "0.125"
    (run / "metrics.csv").write_text("\n".join([*rows[:2], ",".join(cells), *rows[3:]]) + "\n")
    if not ended:
        (run / "summary.json").unlink()
        assert "metrics.csv: truncated or edited" in refused(resume(run), capsys)
    assert "metrics.csv was edited" in refused(["report", str(run)], capsys)
    assert "metrics.csv was edited" in refused(["export", str(run), "--minari", "pcmlp/lock-v0"], capsys)


def test_a_changed_time_is_no_damage(run):
    header, *rows = (run / "metrics.csv").read_text().splitlines()
    at = header.split(",").index("wall_s")
    for i, row in enumerate(rows):
        cells = row.split(",")
        cells[at] = "9.5"
        rows[i] = ",".join(cells)
    (run / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    assert load(run).metrics["wall_s"].min() == 9.5


@pytest.mark.parametrize("cell", ["١", "0x10", "1_0", " 1", "1e400", "--1", "one"])
def test_a_cell_is_a_number(tmp_path, cell):
    path = write_run(tmp_path / "run")
    text = (path / "metrics.csv").read_text().replace("0.1,", f"{cell},", 1)
    (path / "metrics.csv").write_text(text)
    with pytest.raises(Damaged, match="metrics.csv"):
        read_rows(path)


def test_damage_in_the_middle_of_a_log_is_told_with_its_cost(run, capsys):
    log = log_path(run / "episodes")
    data = bytearray(log.read_bytes())
    size, last = measure(run / "episodes")
    assert (size, last) == (len(data), 4)
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    capsys.readouterr()
    assert main(["report", str(run)]) == 0
    line = capsys.readouterr().err
    assert "episodes/log: damaged" in line
    assert "only episodes up to iteration 2 are used" in line
    assert "episodes/log: damaged" in (run / "report.html").read_text()
    assert load(run).damage is not None


def test_a_torn_end_is_no_damage(run):
    (run / "summary.json").unlink()
    with log_path(run / "episodes").open("ab") as log:
        log.write(b"PCEP half of a rec")
    assert load(run).damage is None
    assert len(list(read(run / "episodes"))) == 4


def test_records_are_the_same_bytes_every_time(run, tmp_path):
    once = log_path(run / "episodes").read_bytes()
    with EpisodeLog(tmp_path / "again") as log:
        for record in read(run / "episodes"):
            log.append(record.iteration, record.seeds, record.rows)
    assert log_path(tmp_path / "again").read_bytes() == once
    assert log.seal == (len(once), hashlib.sha256(once).hexdigest())


def test_facts_are_read_without_the_arrays(tmp_path):
    save_tree(tmp_path / "tree", (), {"b": 1, "a": [2]})
    assert read_facts(tmp_path / "tree") == {"a": [2], "b": 1}
    assert pack({}, {"b": 1, "a": 2}) == pack({}, {"a": 2, "b": 1})


@pytest.mark.parametrize(
    "changes", [{"wall_s": "long"}, {"versions": [3]}, {"seeds": [{"seed": "x"}]}, {"certificate": 1}, {"more": 1}]
)
def test_a_summary_of_wrong_types_is_refused_even_with_a_seal_that_fits(tmp_path, changes):
    path = write_run(tmp_path / "run")
    load(path)
    change_summary(path, **changes)
    with pytest.raises(ConfigError, match=f"summary.json: .*{next(iter(changes))}"):
        load(path)


def test_a_table_that_was_edited_is_not_shown_and_not_blessed(tmp_path):
    folder = tmp_path / "it"
    folder.mkdir()
    (folder / "who.csv").write_text("who,share\na,0.5\n")
    write_experiment(folder)
    assert read_experiment(folder) is not None
    (folder / "who.csv").write_text("who,share\na,0.9\n")
    with pytest.raises(ConfigError, match="who.csv was edited; remove it"):
        read_experiment(folder)
    with pytest.raises(ConfigError, match="who.csv: edited; remove it to make it again"):
        check_tables(folder)
    (folder / "who.csv").unlink()
    with pytest.raises(ConfigError, match="who.csv is missing"):
        read_experiment(folder)
    check_tables(folder)  # it is made again


def test_a_lock_that_was_removed_is_named(run):
    with Lock(run) as lock:
        lock.check()
        (run / "lock").unlink()
        with pytest.raises(RunStopped, match="run/lock: removed while the run was in progress"):
            lock.check()


def test_names_cannot_act_on_the_terminal(capsys):
    assert main(["report", "a\x1b[2Jb"]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "a\\x1b[2Jb" in shown


def test_any_other_error_is_one_line_and_a_file_with_the_details(monkeypatch, capsys):
    def broken(*_):
        raise KeyError("nothing expected this")

    monkeypatch.setattr("pcmlp.commands.others.List.run", broken)
    assert main(["list"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("pcmlp: unexpected error, KeyError")
    assert line.count("\n") == 1
    file = line.split("the details are in ")[1].split(";")[0]
    assert "raise KeyError" in Path(file).read_text()
    os.unlink(file)


def test_only_files_and_folders_are_in_a_run(run):
    check_folder(run)
    (run / "mine").symlink_to(run / "lock")
    with pytest.raises(ConfigError, match="run/mine: a link"):
        check_folder(run)


@pytest.mark.parametrize(
    "name", ["eval.json", "eval.json.new", "summary.json", "lock", "policy/policy.safetensors", "episodes/log"]
)
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_runs(run, name, capsys):
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    for words in (["eval", str(run)], resume(run)):
        assert f"run/{name}: not a file; put the file itself there" in refused(words, capsys)


def test_an_evaluation_that_cannot_be_written_says_so(run, monkeypatch, capsys):
    def full(path, record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pcmlp.runs.evaluate.write_json", full)
    line = refused(["eval", str(run), "--episodes", "1"], capsys)
    assert "run/eval.json: cannot be written (No space left on device); evaluate a copy" in line


def test_an_export_does_not_need_the_code_of_the_reward(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    Path("swing.py").write_text("def reward(state, action, next_state):\n    return -state[2] ** 2\n")
    settings = ["task.reward=swing.py:reward", "task.horizon=5", "samples_per_policy=5", "eval_episodes=1"]
    words = ["train", "gym:Pendulum-v1", "--algo", "random", "--seeds", "0", "--steps", "10", "--out", "run"]
    assert main([*words, "--set", *settings]) == 0
    Path("swing.py").write_text("raise RuntimeError('imported')\n")
    assert main(["export", "run", "--minari", "pcmlp/swing-v0"]) == 0
    assert "2 episodes, 10 steps" in capsys.readouterr().out
    assert "swing.py: changed" in refused(["eval", "run", "--trust-code"], capsys)
