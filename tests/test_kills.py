"""`kill -9` at any moment, then `--resume`: the run that comes out is the uninterrupted one, bit for bit.

`make slow` has a kill of each kind, `make faults` fifty (`--kills 50`), half of them of Deep PC-MLP on mountain-car.
"""

import os
import random
from pathlib import Path

import pytest
from killing import Trials
from same_run import assert_same_run

from pcmlp.runs import durable
from pcmlp.runs.config import resolve
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train

LOCK = ("combination-lock", "--seeds", "0", "7", "--steps", "900", "--set", "task.horizon=3", "task.actions=2")
CAR = ("mountain-car", "--seeds", "0", "1", "--steps", "600", "--set", "task.horizon=20", "eval_episodes=4")


@pytest.mark.slow
@pytest.mark.fault("`kill -9` at a random moment of combination-lock", "`--resume` continues, bit for bit")
def test_kills_at_random_moments(tmp_path, request):
    count = request.config.getoption("--kills")
    assert Trials(tmp_path, LOCK).kill(-(-count // 2), random.Random(0)) >= count // 2


@pytest.mark.slow
@pytest.mark.fault("`kill -9` at a random moment of Deep PC-MLP on mountain-car", "`--resume` continues, bit for bit")
def test_kills_of_deep_pcmlp(tmp_path, request, tiny_trpo):
    count = request.config.getoption("--kills")
    assert Trials(tmp_path, (*CAR, *tiny_trpo)).kill(count // 2, random.Random(1)) >= count // 2


class Killed(BaseException):
    """Nothing in the code catches it, as nothing catches a kill."""


def lock_run():
    return resolve("combination-lock", seeds=(0, 7), steps=6, settings=("task.horizon=3", "task.actions=2"))


def operations(monkeypatch, most):
    """Count what a checkpoint does on disk, and die at operation `most`, a write with half of its bytes."""
    done = []

    def counted(name, real, half=None):
        def operation(path, *args, **options):
            if "checkpoint" not in Path(path).parts:
                return real(path, *args, **options)
            done.append(name)
            if len(done) == most:
                if half is not None:
                    half(path)
                raise Killed
            return real(path, *args, **options)

        return operation

    def halve(path):
        os.truncate(path, os.path.getsize(path) // 2)

    def sync_file(file):
        path = os.readlink(f"/proc/self/fd/{file}")
        if os.path.isdir(path):  # `sync_folder` is counted itself
            return os_sync(file)
        return counted("write", lambda path: os_sync(file), halve)(path)

    os_sync = os.fsync
    monkeypatch.setattr(durable.os, "fsync", sync_file)
    monkeypatch.setattr(durable.os, "replace", counted("rename", os.replace))
    monkeypatch.setattr(durable, "sync_folder", counted("sync", durable.sync_folder))
    monkeypatch.setattr(Path, "unlink", counted("remove", Path.unlink))
    return done


@pytest.mark.fault("death at any operation of a checkpoint's write", "the one before loads, what is left is swept")
def test_death_at_every_operation_of_a_checkpoint(tmp_path, monkeypatch, every_iteration_saved):
    train(lock_run(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        done = operations(patch, most=0)
        train(lock_run(), tmp_path / "counted")
    assert {"write", "sync", "rename", "remove"} == set(done)
    for most in range(1, len(done) + 1):
        out = tmp_path / f"dies-{most}"
        with monkeypatch.context() as patch:
            operations(patch, most)
            with pytest.raises(Killed):
                train(lock_run(), out)
        (out / "summary.json").unlink(missing_ok=True)
        train(lock_run(), out, resume=True)
        assert_same_run(tmp_path / "whole", out)
        assert read_summary(out)["status"] == "finished"
        assert all(file.stem.isdigit() and file.suffix == ".safetensors" for file in (out / "checkpoint").iterdir())
