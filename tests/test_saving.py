"""When a run is saved: as often as saving takes at most a fiftieth of the time, and always where it begins and ends.

A clock that each iteration and each checkpoint moves on decides, so that the tests do not depend on the machine.
"""

import io
import math
from contextlib import nullcontext
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.algorithms.framework import PCMLP
from pcmlp.errors import RunStopped
from pcmlp.runs import checkpoint
from pcmlp.runs import run as running
from pcmlp.runs.config import build, resolve, seed_keys
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train

ITERATIONS = 20


class Killed(BaseException):
    """Nothing in the code catches it, as nothing catches a kill."""


def lock(iterations=ITERATIONS):
    settings = ("task.horizon=3", "task.actions=2", "eval_episodes=4")
    return resolve("combination-lock", seeds=(0, 7), steps=3 * iterations, settings=settings)


def learn(out, *, resume=False, callbacks=()):
    console = Console(file=io.StringIO(), width=200)
    train(lock(), out, console=console, resume=resume, callbacks=callbacks)
    return console.file.getvalue()


def fail_at(patch, iteration, error):
    iterate = PCMLP.iterate

    def fails(self, keys, world, learner, n):
        if n == iteration:
            raise error
        return iterate(self, keys, world, learner, n)

    patch.setattr(PCMLP, "iterate", fails)


@pytest.fixture
def saved(monkeypatch):
    """The iterations with a checkpoint, and their bytes. An iteration takes a second, a checkpoint 0.09."""
    now, written = [0.0], {}
    iterate, save = PCMLP.iterate, checkpoint.save

    def iterates(self, keys, world, learner, n):
        now[0] += 1.0
        return iterate(self, keys, world, learner, n)

    def saves(folder, learner, facts):
        now[0] += 0.09
        save(folder, learner, facts)
        written[facts.iteration] = checkpoint.path_of(folder, facts.iteration).stat().st_size

    monkeypatch.setattr(running, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(PCMLP, "iterate", iterates)
    monkeypatch.setattr(running.checkpoint, "save", saves)
    return written


def test_saving_takes_a_fiftieth_of_the_time(saved, tmp_path):
    learn(tmp_path / "run")
    assert list(saved) == [1, 6, 11, 16, 20]  # the first, then after 4.5 = 0.09 / 0.02 seconds, and the last
    assert read_summary(tmp_path / "run")["save_s"] == pytest.approx(0.45)
    assert len(read_metrics(tmp_path / "run")["iteration"]) == 2 * (1 + ITERATIONS)  # every iteration is logged


def test_cheap_checkpoints_follow_every_iteration(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "SAVING_SHARE", 0.1)
    learn(tmp_path / "run")
    assert list(saved) == list(range(1, ITERATIONS + 1))


def test_a_checkpoint_does_not_grow_with_the_iteration(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "SAVING_SHARE", math.inf)
    learn(tmp_path / "run")
    sizes = np.array(list(saved.values()))
    assert len(sizes) == ITERATIONS
    assert np.ptp(sizes) < 64  # numbers among the facts have more digits later


def test_a_learner_has_no_rows_of_earlier_iterations():
    """Its fit is by counts, so that a fit costs the same in every iteration of runs of every length."""
    rows = []
    for iterations in (2, 200):
        problem, algorithm = build(lock(iterations))
        learner = jax.eval_shape(
            lambda algorithm=algorithm, problem=problem, n=iterations: (
                algorithm.start(seed_keys((0, 7)), problem.world.mdp, n).replay.data.reward
            )
        )
        rows.append(learner.shape)
    assert rows == [(2, 3), (2, 3)]


def test_an_iteration_writes_over_the_cover():
    """Otherwise each iteration would copy room for the policies of all others."""
    config = lock()
    problem, algorithm = build(config)
    keys, mdp = seed_keys(config.seeds), problem.world.mdp
    learner = algorithm.start(keys, mdp, ITERATIONS)
    place = learner.cover.stacked.action.unsafe_buffer_pointer()
    after = algorithm.iterate(keys, problem.world, learner, 1).learner
    assert after.cover.stacked.action.unsafe_buffer_pointer() == place
    assert learner.cover.stacked.action.is_deleted()
    assert not jnp.any(jnp.isnan(after.values))


@pytest.mark.fault("a kill between two checkpoints", "`--resume` repeats what came after the last one, bit for bit")
def test_a_run_that_was_killed_between_checkpoints_goes_on_bit_for_bit(saved, tmp_path):
    learn(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, 14, Killed())
        with pytest.raises(Killed):
            learn(tmp_path / "cut")
    assert read_metrics(tmp_path / "cut")["iteration"][-1] == 13
    saved.clear()
    assert "continuing after iteration 11" in learn(tmp_path / "cut", resume=True)
    assert list(saved) == [12, 17, 20]  # a process saves its first iteration: repeated kills do not stop a run
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def stop(run, metrics):
    return run.done != 4


def raise_error(run, metrics):
    if run.done == 4:
        raise ValueError("of a callback")


@pytest.mark.parametrize(
    ("callback", "error", "raised"),
    [
        (stop, None, nullcontext()),
        (raise_error, None, pytest.raises(ValueError, match="of a callback")),
        (None, RunStopped("the simulator keeps failing"), pytest.raises(RunStopped, match="keeps failing")),
    ],
)
def test_the_last_iteration_is_saved_however_a_run_ends(saved, tmp_path, callback, error, raised):
    with pytest.MonkeyPatch.context() as patch:
        if error is not None:
            fail_at(patch, 5, error)
        with raised:
            learn(tmp_path / "run", callbacks=[callback] if callback else [])
    assert list(saved) == [1, 4]
    assert "continuing after iteration 4" in learn(tmp_path / "run", resume=True)


def test_an_error_in_an_iteration_leaves_the_policies(tmp_path, monkeypatch):
    """Although the iteration has used up the learner."""
    improve = PCMLP.iterate

    def fails(self, keys, world, learner, n):
        iteration = improve(self, keys, world, learner, n)
        if n == 3:
            raise MemoryError
        return iteration

    monkeypatch.setattr(PCMLP, "iterate", fails)
    with pytest.raises(MemoryError):
        learn(tmp_path / "run")
    assert read_summary(tmp_path / "run")["status"] == "failed"
    assert (tmp_path / "run" / "policy" / "policy.safetensors").exists()
