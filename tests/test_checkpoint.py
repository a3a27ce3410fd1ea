"""Checkpoints: a run that was cut off goes on bit for bit, and whatever cannot go on is refused and left as it is.

The runs are those of tests/test_cli.py, so that they are compiled once.
"""

import errno
import io
import os
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file, save_file
from same_run import assert_same_run

from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.planners import UniformPolicy
from pcmlp.replay import Transitions
from pcmlp.runs import arrays, checkpoint, durable
from pcmlp.runs.checkpoint import differences
from pcmlp.runs.config import build, resolve
from pcmlp.runs.episodes import log_path, read
from pcmlp.runs.folder import Lock
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train
from pcmlp.spaces import Finite
from pcmlp.types import Algorithm, Iteration, Learner, Policy

SETTINGS = ("task.horizon=3", "task.actions=2", "eval_episodes=4")


def lock(*settings, steps=60, seeds=(0, 7)):
    return resolve("combination-lock", seeds=seeds, steps=steps, settings=(*SETTINGS, *settings))


def run(config, out, *, resume=False):
    console = Console(file=io.StringIO(), width=200)
    train(config, out, console=console, resume=resume)
    return console.file.getvalue()


def crash_at(patch, iteration):
    """The process dies in the middle of an iteration."""
    iterate = PCMLP.iterate

    def dies(self, keys, world, learner, n):
        if n == iteration:
            raise OSError("killed")
        return iterate(self, keys, world, learner, n)

    patch.setattr(PCMLP, "iterate", dies)


@pytest.fixture(scope="module")
def places(tmp_path_factory, every_iteration_saved):
    """Twenty iterations at once, and seventeen of twenty."""
    folder = tmp_path_factory.mktemp("runs")
    run(lock(), folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 18)
        with pytest.raises(OSError, match="killed"):
            run(lock(), folder / "cut")
    return folder


@pytest.fixture
def cut(places, tmp_path):
    return shutil.copytree(places / "cut", tmp_path / "cut")


def contents(folder):
    """But for the lock, which says who looked last."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_the_last_two_checkpoints_and_the_best_are_kept(places, tmp_path):
    folder, scores = places / "cut" / "checkpoint", read_metrics(places / "cut")["eval_return_mean"]
    means = np.mean(np.reshape(scores, (-1, 2)), axis=1)
    best = max(range(1, 18), key=lambda n: (means[n], n))
    assert {file.name for file in folder.iterdir()} == {f"{n:06d}.safetensors" for n in (16, 17, best)}
    learner = Count(UniformPolicy(Finite(2)), jnp.zeros(2, int), jr.key(0))
    facts = vars(checkpoint.read(folder, 17))
    for n, score in enumerate([0.0, 2.0, 1.0, 2.0, 0.0, 1.0, 0.5], 1):
        checkpoint.save(tmp_path / "some", learner, checkpoint.Facts(**{**facts, "iteration": n, "score": score}))
    assert checkpoint.iterations(tmp_path / "some") == [4, 6, 7]
    assert checkpoint.best(tmp_path / "some") == 4


def test_what_a_checkpoint_says(places):
    facts = checkpoint.read(places / "cut" / "checkpoint", 17)
    assert (facts.task, facts.algo, facts.seeds) == ("combination-lock", "pcmlp-linear", [0, 7])


@pytest.mark.fault(
    "half a record in the episode log and half a row in metrics.csv",
    "cut off at the checkpoint, the run continues bit for bit",
)
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(places, cut):
    with log_path(cut / "episodes").open("ab") as log:  # half a record, and a row that no checkpoint has
        log.write(log_path(cut / "episodes").read_bytes()[:100])
    with (cut / "metrics.csv").open("a") as metrics:
        metrics.write("18,0,54,0.5")
    assert "continuing after iteration 17" in run(lock(), cut, resume=True)
    assert_same_run(places / "whole", cut)
    assert read_summary(cut)["status"] == "finished"


def test_iterations_after_the_checkpoint_are_done_again(places, tmp_path):
    again = shutil.copytree(places / "whole", tmp_path / "again")
    (again / "summary.json").unlink()
    (again / "checkpoint" / "000020.safetensors").unlink()
    assert "continuing after iteration 19" in run(lock(), again, resume=True)
    assert_same_run(places / "whole", again)


def test_without_a_checkpoint_a_run_starts_afresh(places, cut, tmp_path):
    shutil.rmtree(cut / "checkpoint")
    run(lock(), cut, resume=True)
    run(lock(), tmp_path / "new", resume=True)
    for out in (cut, tmp_path / "new"):
        assert_same_run(places / "whole", out)


def test_a_finished_run_is_left_alone(places):
    before = contents(places / "whole")
    assert "already finished" in run(lock(), places / "whole", resume=True)
    assert contents(places / "whole") == before


def refused(config, out, match, *, resume=True):
    before = contents(out)
    with pytest.raises(ConfigError, match=match) as error:
        run(config, out, resume=resume)
    assert "\n" not in str(error.value)
    assert contents(out) == before


@pytest.mark.fault("`--resume` with another configuration", "refused, with every key that differs")
def test_another_configuration_is_refused_key_by_key(cut):
    refused(lock("bonus_scale=0.5", "ridge=2"), cut, r"ridge: 0.01 -> 2.0, bonus_scale: 0.1 -> 0.5")
    refused(lock(seeds=(0, 8)), cut, r"seeds: \[0, 7\] -> \[0, 8\]")
    refused(lock(steps=9), cut, "steps: 60 -> 9")
    refused(lock(steps=90), cut, "steps: 60 -> 90, but a run of pcmlp-linear cannot be extended")
    refused(resolve("low-rank", seeds=(0, 7), steps=1000), cut, r"\(task.name: combination-lock -> low-rank\)")


def test_a_folder_that_exists_is_refused(cut, tmp_path):
    refused(lock(), cut, "resume=True to continue the run in it", resume=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    refused(lock(), tmp_path / "other", "this folder contains files")
    (cut / "config.json").write_text("{")
    refused(lock(), cut, "not the configuration of a run")


@pytest.mark.fault(
    "a checkpoint with a flipped bit, truncated, empty, or that cannot be read",
    "refused by name, the one before is offered",
)
def test_a_damaged_checkpoint_is_refused(cut):
    file = cut / "checkpoint" / "000017.safetensors"
    data = file.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    offered = "remove it to continue from iteration 16"
    for damaged in (data[:-4], data[:-4] + b"edit", bytes(flipped), data[:40], data[:4], b""):
        file.write_bytes(damaged)
        refused(lock(), cut, f"000017.safetensors: truncated or edited; {offered}")
    file.unlink()
    file.mkdir()
    refused(lock(), cut, f"000017.safetensors: not a file; put the file itself there; {offered}")
    file.rmdir()
    assert "continuing after iteration 16" in run(lock(), cut, resume=True)


def rewrite(file, facts, *, hashed=True):
    """Write other facts into a checkpoint, with a hash that fits them or with the one that was there."""
    held, claimed = load_file(file), arrays.read_header(file.read_bytes())["sha256"]
    digest = arrays._digest(held, facts) if hashed and isinstance(facts, dict) else claimed
    file.write_bytes(arrays.pack(held, {"facts": facts, "sha256": digest}))


@pytest.mark.fault(
    "facts of a checkpoint that are truncated, edited, of a newer format, or of another iteration",
    "refused by name, the one before is offered",
)
def test_damaged_facts_are_refused(cut):
    file = cut / "checkpoint" / "000017.safetensors"
    data, facts = file.read_bytes(), arrays.read_facts(file)
    for other, hashed, match in (
        ({**facts, "evaluated_episodes": 1}, False, "truncated or edited"),
        ({**facts, "format": 7}, True, "has format 7, this pcmlp reads 6; use the version that wrote it"),
        ({**facts, "iteration": 16}, True, "renamed or edited"),
        ({**facts, "files": ["../elsewhere"]}, True, "edited"),
        ({**facts, "score": "high"}, True, "score: .* did not match"),
        ({"format": 6}, True, "edited"),
        ([], True, "facts: list is not"),
        ("", True, "facts: str is not"),
    ):
        file.write_bytes(data)
        rewrite(file, other, hashed=hashed)
        refused(lock(), cut, f"000017.safetensors: {match}")
        assert checkpoint.best(cut / "checkpoint") in (None, 16, 17)
    save_file(load_file(file), file)  # no facts at all
    refused(lock(), cut, "000017.safetensors: truncated or edited; remove it to continue from iteration 16")


@pytest.mark.parametrize("older", ["000017.json", "000017/manifest.json"])
@pytest.mark.fault("a checkpoint of an older format", "refused, with the format that is read")
def test_a_checkpoint_of_an_older_format_is_refused(cut, older):
    """It is not taken for a run without checkpoints, which would start afresh."""
    shutil.rmtree(cut / "checkpoint")
    (cut / "checkpoint" / older).parent.mkdir(parents=True)
    (cut / "checkpoint" / older).write_text("{}")
    refused(lock(), cut, "has an older format, this pcmlp reads 6; use the version that wrote it")


@pytest.mark.parametrize("file", ["checkpoint/000017.safetensors", "episodes/log"])
@pytest.mark.fault("a link in the place of a checkpoint or the log", "refused by name")
def test_links_are_refused(cut, tmp_path, file):
    (cut / file).rename(tmp_path / "elsewhere")
    (cut / file).symlink_to(tmp_path / "elsewhere")
    refused(lock(), cut, "a link, which may lead anywhere; put the file itself there, or remove it")


@pytest.mark.fault(
    "the machine stops during the write of a checkpoint", "the one before loads, the partial one is swept"
)
def test_a_checkpoint_that_was_cut_off_is_swept(places, cut):
    partial = cut / "checkpoint" / "000018.safetensors.new"
    partial.write_bytes(b"half of it")
    assert "continuing after iteration 17" in run(lock(), cut, resume=True)
    assert not partial.exists()
    assert_same_run(places / "whole", cut)


@pytest.mark.fault(
    "two processes on one run folder",
    "the second is refused, and the error names the holder; the lock of a dead process blocks no one",
)
def test_one_process_for_a_folder(cut):
    before = contents(cut)
    with Lock(cut), pytest.raises(ConfigError, match=rf"in use by process {os.getpid()} on .* since ") as error:
        run(lock(), cut, resume=True)
    assert "\n" not in str(error.value)
    assert contents(cut).keys() == before.keys()
    assert "continuing after iteration 17" in run(lock(), cut, resume=True)  # nobody holds it now, whatever it says


@pytest.mark.fault(
    "the disk is full during the write of a checkpoint", "the one before stays, the line says how much room is needed"
)
def test_a_full_disk_loses_nothing(cut, monkeypatch):
    """The last good checkpoint stays, one line says how much room is needed, and with room the run goes on."""
    write = durable.write_durably

    def full(path, data):
        if path.name.startswith("000019"):
            path.with_name(f"{path.name}.new").write_bytes(data[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(arrays, "write_durably", full)
    with pytest.raises(RunStopped, match=r"no space for the checkpoint of iteration 19: .* [kM]B needed, .* free"):
        run(lock(), cut, resume=True)
    assert read_summary(cut)["status"] == "failed"
    monkeypatch.undo()
    assert "continuing after iteration 18" in run(lock(), cut, resume=True)


@pytest.mark.fault("a checkpoint of another task, configuration or shape", "refused by name")
def test_a_checkpoint_of_another_run_is_refused(cut):
    other = Count(UniformPolicy(Finite(2)), jnp.zeros(2, int), jr.key(0))
    folder, facts = cut / "checkpoint", checkpoint.read(cut / "checkpoint", 17)
    for change, match in (
        ({"task": "low-rank"}, "is for low-rank, pcmlp-linear, not combination-lock"),
        ({"config_sha256": "0"}, "another configuration of combination-lock"),
    ):
        (folder / "000017.safetensors").unlink()
        checkpoint.save(folder, other, checkpoint.Facts(**{**vars(facts), **change}))
        refused(lock(), cut, match)
    (folder / "000017.safetensors").unlink()
    checkpoint.save(folder, other, facts)
    refused(lock(), cut, "written by another version of pcmlp")


@pytest.mark.fault("metrics.csv or the episode log ends before the checkpoint", "refused by name")
def test_a_run_whose_rows_or_episodes_are_gone_is_refused(cut):
    log_path(cut / "episodes").rename(cut / "log")
    refused(
        lock(), cut, "episodes/log: truncated or edited before iteration 17 of the checkpoint; give another out folder"
    )
    (cut / "log").rename(log_path(cut / "episodes"))
    lines = (cut / "metrics.csv").read_text().splitlines()
    (cut / "metrics.csv").write_text("\n".join(lines[:-1]) + "\n")
    refused(
        lock(),
        cut,
        "metrics.csv: truncated or edited before iteration 17 of the checkpoint .*; remove .*to continue from",
    )


@pytest.mark.fault(
    "an episode log that was edited, truncated, or is another run's", "refused, an older checkpoint offered"
)
def test_a_log_that_is_not_as_it_was_is_refused(cut):
    path = log_path(cut / "episodes")
    whole, facts = path.read_bytes(), checkpoint.read(cut / "checkpoint", 16)
    offered = "remove .*/000017.safetensors to continue from iteration 16"
    for changed, line in (
        (whole[: facts.log_bytes], offered),
        (
            whole[: facts.log_bytes + 40] + bytes([whole[facts.log_bytes + 40] ^ 1]) + whole[facts.log_bytes + 41 :],
            offered,
        ),
        (bytes([whole[0] ^ 1]) + whole[1:], "give another out folder"),
        (whole[:-1], offered),
        (b"", "give another out folder"),
    ):
        path.write_bytes(changed)
        refused(lock(), cut, f"episodes/log: truncated or edited before iteration 17 of the checkpoint; {line}")
    path.write_bytes(whole)
    run(lock(), cut, resume=True)


def test_other_versions_are_said(cut):
    file = cut / "checkpoint" / "000017.safetensors"
    facts = arrays.read_facts(file)
    assert facts["versions"]["jax"] != "0.0.1"
    facts["versions"]["jax"] = "0.0.1"
    rewrite(file, facts)
    assert "may differ in the last bits from an uninterrupted run (jax: 0.0.1 -> " in run(lock(), cut, resume=True)


class Count(Learner):
    """A learner whose arrays do not depend on how long the run is, as those of Algorithm 2."""

    policy: Policy
    env_steps: jax.Array
    key: jax.Array
    name: str = "no array"

    def deployed(self) -> Policy:
        return self.policy


class Counting(Algorithm):
    """Learns nothing and walks nowhere."""

    samples_per_policy: int = 1

    def bind(self, problem):
        return self

    def start(self, keys, mdp, num_iterations):
        return Count(UniformPolicy(Finite(2)), jnp.zeros(2, int), keys)

    def iterate(self, keys, world, learner, n):
        counted = eqx.tree_at(lambda l: l.env_steps, learner, learner.env_steps + n)
        row = Transitions.example(world.mdp.states, world.mdp.actions)
        rows = jax.tree.map(lambda x: jnp.stack([x, x]), row)
        return Iteration(counted, {"counted": counted.env_steps.astype(jnp.float32)}, rows, [rows])

    def steps_per_iteration(self, horizon):
        return float(horizon)


@pytest.fixture
def counting(monkeypatch):
    problem = build(lock())[0]
    monkeypatch.setattr("pcmlp.runs.train.build", lambda config, _: (problem, Counting()))


def test_more_steps_are_welcome_where_nothing_is_sized_by_them(counting, tmp_path):
    out = tmp_path / "run"
    run(lock(steps=6), out)
    assert "already finished" in run(lock(steps=6), out, resume=True)
    assert "continuing after iteration 2" in run(lock(steps=12), out, resume=True)
    assert read_metrics(out)["env_steps"][::2] == [0.0, 1.0, 3.0, 6.0, 10.0]
    assert read_summary(out)["iterations"] == 4
    refused(lock(steps=6), out, "steps: 12 -> 6")


def test_keys_and_what_is_no_array_come_back(tmp_path):
    def count(number):
        return Count(UniformPolicy(Finite(2)), jnp.full(3, number), jr.split(jr.key(number), 2))

    like = eqx.filter_eval_shape(lambda: count(0))
    size = arrays.save_tree(tmp_path / "tree", count(5), {"some": "facts"})
    assert size == (tmp_path / "tree").stat().st_size
    facts, held = arrays.load_facts_and_arrays(tmp_path / "tree")
    assert facts == arrays.read_facts(tmp_path / "tree") == {"some": "facts"}
    assert eqx.tree_equal(arrays.restore_tree(held, like), count(5))
    with pytest.raises(ValueError, match=r"env_steps is float64\[3\], not int32\[3\]"):
        arrays.restore_tree({**held, "env_steps": np.zeros(3)}, like)
    with pytest.raises(ValueError, match=r"key is absent, not uint32\[2, 2\]"):
        arrays.restore_tree({"env_steps": held["env_steps"]}, like)
    with pytest.raises(ValueError, match=r"more is float64\[1\], not absent"):
        arrays.restore_tree({**held, "more": np.zeros(1)}, like)
    (tmp_path / "other").write_bytes(b"nonsense")
    for read_file in (arrays.load_facts_and_arrays, arrays.read_facts):
        with pytest.raises(durable.Damaged, match="truncated or edited"):
            read_file(tmp_path / "other")


def test_differences_are_by_key():
    old, new = {"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}, "e": 5}
    assert differences(old, new) == {"b.c": (2, 4), "b.d": (3, None), "e": (None, 5)}


def test_the_log_is_cut_at_the_checkpoint(places):
    assert [record.iteration for record in read(places / "cut" / "episodes")] == list(range(1, 18))
    assert load_file(places / "cut" / "checkpoint" / "000017.safetensors")["env_steps"].tolist() == [51, 51]
