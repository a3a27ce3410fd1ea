"""Runs of equal programs as one group: on a CPU each is, bit for bit, the run that it is alone."""

import io
import json
import math
import os
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from unittest.mock import MagicMock

import fake_gpu
import numpy as np
import pytest
from rich.console import Console
from same_run import assert_same_run
from waiting import wait_until

from pcmlp.algorithms.deep import Deep
from pcmlp.errors import ConfigError, RunStopped
from pcmlp.experiments import share
from pcmlp.experiments.gpu import Gpu
from pcmlp.experiments.job import Job
from pcmlp.experiments.order import form_groups
from pcmlp.experiments.outcome import Outcome
from pcmlp.experiments.pool import Pool, Running, connect
from pcmlp.experiments.table import Row
from pcmlp.runs import checkpoint
from pcmlp.runs.config import build, resolve, seed_keys
from pcmlp.runs.evaluate import Evaluator, evaluation_keys
from pcmlp.runs.group import group_key
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import announce, open_run, train, train_runs
from pcmlp.world import JaxWorld

SEEDS, ITERATIONS, STEPS = (3, 5), 3, 200
KINDS = {
    "method": (),
    "no-bonus": ("bonus_scale=0",),
    "covariance-off": ("covariance=off",),
    "other": ("bonus_scale=0.4", "ridge=0.1", "replay_starts=0", "margin=1", "model.rate=0.01"),
}


@pytest.fixture(scope="module")
def settings(tiny_trpo):
    kept = (given for given in tiny_trpo if not given.startswith(("samples_", "replay_")))
    return (*kept, f"samples_per_policy={STEPS}", "replay_size=500", "eval_episodes=2", "num_starts=16")


@pytest.fixture(scope="module")
def config_of(settings):
    def config(kind, seeds=SEEDS, iterations=ITERATIONS, more=(), algo="pcmlp"):
        return resolve("mountain-car", algo, seeds, iterations * STEPS, (*settings, *KINDS[kind], *more))

    return config


@pytest.fixture(scope="module")
def alone(config_of, tmp_path_factory, every_iteration_saved):
    """The folders of the runs, each made alone."""
    folder = tmp_path_factory.mktemp("alone")
    for kind in KINDS:
        train(config_of(kind), folder / kind, console=quiet())
    return folder


def quiet():
    return Console(file=io.StringIO())


def train_group(configs, callbacks=None):
    """Run or resume configurations, by folder, as one group; return the runs."""
    runs, callbacks = [], callbacks or {}
    for out, config in configs.items():
        run = open_run(config, out, resume=True, problem=runs[0].problem if runs else None)
        announce(run, quiet(), callbacks.get(out.name, ()), len(configs))
        runs.append(run)
    train_runs(runs, quiet())
    return runs


def stop_after(n):
    return [lambda run, metrics: metrics["iteration"] < n]


def test_each_is_the_run_that_it_is_alone(config_of, alone, tmp_path):
    """Three of them, as in the next test, because a group of another size is another program."""
    kinds = ("method", "no-bonus", "covariance-off")
    runs = train_group({tmp_path / kind: config_of(kind) for kind in kinds})
    assert [run.failure for run in runs] == [None] * len(kinds)
    for kind in kinds:
        assert read_summary(tmp_path / kind)["status"] == "finished"
        assert_same_run(alone / kind, tmp_path / kind)
    first, second = ((tmp_path / kind / "metrics.csv").read_text() for kind in ("method", "no-bonus"))
    assert first != second


def test_a_group_is_resumed_and_who_is_behind_catches_up(config_of, alone, tmp_path):
    """The method stops after its second iteration, its control after the first, and another has not begun."""
    kinds = ("method", "no-bonus")
    configs = {tmp_path / kind: config_of(kind) for kind in kinds}
    train_group(configs, {kind: stop_after(n) for kind, n in zip(kinds, (2, 1), strict=True)})
    assert [checkpoint.iterations(tmp_path / kind / "checkpoint")[-1] for kind in kinds] == [2, 1]
    assert {read_summary(tmp_path / kind)["status"] for kind in kinds} == {"stopped"}
    train_group({**configs, tmp_path / "other": config_of("other")})
    for kind in (*kinds, "other"):
        assert_same_run(alone / kind, tmp_path / kind)


def test_one_that_fails_leaves_and_the_others_continue(config_of, alone, tmp_path):
    def fail(run, metrics):
        if metrics["iteration"] == 2:
            raise RunStopped("nothing is learned")

    configs = {tmp_path / kind: config_of(kind) for kind in ("method", "no-bonus")}
    failed, other = train_group(configs, {"method": [fail]})
    assert str(failed.failure) == "nothing is learned"
    assert (read_summary(tmp_path / "method")["status"], other.failure) == ("failed", None)
    assert checkpoint.iterations(tmp_path / "method" / "checkpoint")[-1] == 2  # nothing is lost
    assert_same_run(alone / "no-bonus", tmp_path / "no-bonus")


def test_a_world_that_fails_for_one_fails_for_that_one_only(config_of, alone, tmp_path, monkeypatch):
    iterate = Deep.iterate

    def fail(self, keys, world, learner, n, each=()):
        if n == 2 and any(algorithm.bonus_scale == 0 for algorithm in each or [self]):
            raise RunStopped("the simulator takes no such action")
        return iterate(self, keys, world, learner, n, each)

    monkeypatch.setattr(Deep, "iterate", fail)
    configs = {tmp_path / kind: config_of(kind) for kind in ("method", "no-bonus")}
    other, failed = train_group(configs)
    assert str(failed.failure) == "the simulator takes no such action"
    assert (read_summary(tmp_path / "no-bonus")["status"], other.failure) == ("failed", None)
    assert checkpoint.iterations(tmp_path / "no-bonus" / "checkpoint")[-1] == 1  # nothing is lost
    assert_same_run(alone / "method", tmp_path / "method")


def test_runs_are_evaluated_together_as_a_gpu_does(config_of, monkeypatch):
    problem, algorithm = build(config_of("method"))
    keys = [seed_keys(seeds) for seeds in ((3, 5), (8,))]
    learners = [algorithm.start(own, problem.world.mdp, ITERATIONS) for own in keys]
    policies = [learner.deployed() for learner in learners]
    together, alone = ([Evaluator(problem.world, evaluation_keys(own), 3) for own in keys] for _ in range(2))
    Evaluator.prepare(together, policies)
    monkeypatch.setattr(JaxWorld, "evaluate", lambda *_: pytest.fail("evaluated again"))
    found = [each.returns(policy) for each, policy in zip(together, policies, strict=True)]
    monkeypatch.undo()
    for each, policy, returns in zip(alone, policies, found, strict=True):
        np.testing.assert_allclose(returns, each.returns(policy), rtol=1e-5)
    assert [each.evaluated_episodes for each in together] == [3, 3]


def test_who_may_be_in_a_group(config_of):
    keys = [group_key(config_of(kind)) for kind in KINDS]
    assert keys[0] is not None
    assert set(keys) == {keys[0]}
    assert group_key(config_of("method", (8, 9))) == keys[0]
    others = [
        config_of("method", (8,)),
        config_of("method", iterations=4),
        config_of("method", more=("eval_every=400",)),
        config_of("method", more=("noise=0.1",)),  # noise 0 is another program
        config_of("method", more=("deploys=exploring",)),
        config_of("method", more=("reward_free=true",)),
        config_of("method", more=("task.horizon=100",)),
    ]
    assert keys[0] not in map(group_key, others)
    assert group_key(resolve("mountain-car", "trpo")) is None


class TestJobs:
    @pytest.fixture
    def jobs(self, settings):
        return [
            Job("test", "mountain-car", kind, "pcmlp", ITERATIONS * STEPS, (*settings, *given), SEEDS)
            for kind, given in KINDS.items()
        ]

    @pytest.fixture
    def pool(self, tmp_path):
        def make(groups):
            return Pool(groups, tmp_path / "runs", tmp_path / "results", 2, dict, False)

        return make

    def test_groups_are_of_limited_size(self, jobs):
        lock = Job("test", "combination-lock", "lock", "pcmlp-linear", 200)
        one, two, three, four = jobs
        assert form_groups([one, lock, two, three, four], 32) == [(one, two, three, four), (lock,)]
        assert form_groups([*jobs, lock], 7) == [(one, two, three), (four,), (lock,)]
        assert form_groups([*jobs, lock], 1) == [(job,) for job in (*jobs, lock)]

    def test_the_memory_limits_a_group(self):
        gpu = Gpu("0", "GPU-aa11", "NVIDIA H200", 150.0, 150.0, "Default")
        assert [share.most_seeds(gpu._replace(free=free)) for free in (0.5, 10.0, 150.0, math.inf)] == [1, 17, 32, 32]
        assert [share.count_groups(seeds, gpu) for seeds in (400, 60, 20)] == [1, 4, 12]

    def test_a_pool_runs_them_as_if_alone_and_one_is_refused(self, jobs, pool, alone, tmp_path, capfd):
        *good, bad = jobs[:3]
        (tmp_path / "runs" / bad.where).mkdir(parents=True)
        (tmp_path / "runs" / bad.where / "config.json").write_text((alone / "other" / "config.json").read_text())
        with pytest.raises(ConfigError, match="covariance-off: holds another run"):
            pool(form_groups(jobs[:3], 32)).run()
        said = capfd.readouterr().out
        assert "3 runs in 1 process, 2 at a time" in said
        assert "test/mountain-car/method: begun in a group of 3" in said
        assert "2 finished" in said
        for job in good:
            assert_same_run(alone / job.label, tmp_path / "runs" / job.where)
            assert read_summary(tmp_path / "results" / job.where)["shared_device"] is True
            log = (tmp_path / "runs" / job.where).with_name(f"{job.label}.log").read_text()
            assert f"iteration {ITERATIONS}/{ITERATIONS}" in log
            assert "together with test/mountain-car/" in log

    @pytest.mark.parametrize("mps", [True, False])
    def test_on_a_gpu_they_share_a_process(self, jobs, mps, tmp_path, monkeypatch):
        made = []
        monkeypatch.setattr("pcmlp.experiments.pool.Pool", lambda *given: made.append(given) or MagicMock())
        monkeypatch.setattr("pcmlp.experiments.mps._DEFAULT_PIPES", str(tmp_path / "default"))
        fake_gpu.install(tmp_path / "bin", monkeypatch, mps=mps)
        connect(None)(jobs, tmp_path / "runs", tmp_path / "results")
        [(groups, *_, at_once, variables, on_gpu)] = made
        assert (groups, at_once, on_gpu) == ([tuple(jobs)], 1, True)
        assert share.FRACTION not in variables()  # one process has the whole GPU

    def test_who_begins_again(self, jobs, pool, monkeypatch):
        """A group that died begins again together, then its jobs alone, and then they are given up."""

        process, pipe = MagicMock(SpawnProcess, exitcode=-9), MagicMock(Connection)
        sweep, group = pool([tuple(jobs)]), tuple(jobs)

        def end_next(outcomes):
            group = sweep._queue.take()
            sweep._begun[group] += 1
            sweep._running.append(each := Running(group, process, pipe, list(map(Row, group)), outcomes))
            sweep._end(each, stopping=False)
            return group

        assert end_next({}) == group
        assert sweep._queue.waiting == [group]
        assert end_next({0: Outcome("", "finished")}) == group
        assert sweep._queue.waiting == [(job,) for job in jobs[1:]]
        for job in (jobs[1], jobs[1]):
            assert end_next({}) == (job,)
        assert sweep._queue.waiting == [(job,) for job in jobs[2:]]
        assert sweep._tally.ended == {"finished": 1, "failed": 1}

    @pytest.mark.slow
    @pytest.mark.fault("the process of a group of runs is killed", "all of them begin again, bit for bit")
    def test_a_group_is_killed(self, jobs, pool, alone, tmp_path, capfd):
        folder = tmp_path / "runs" / jobs[0].where

        def kill():
            wait_until(lambda: checkpoint.iterations(folder / "checkpoint"), 200.0)
            os.kill(json.loads((folder / "lock").read_text())["process"], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        pool(form_groups(jobs, 32)).run()
        killer.join()
        said = capfd.readouterr().out
        assert f"{jobs[1].where}: its process died (by SIGKILL); it begins again from its last checkpoint" in said
        assert "4 finished; 4 begun again" in said
        for job in jobs:
            assert_same_run(alone / job.label, tmp_path / "runs" / job.where)
