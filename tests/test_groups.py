"""Runs of equal programs as one group: on a CPU each is, bit for bit, the run that it is alone."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from same_run import assert_same_run

from pcmlp.runs import checkpoint
from pcmlp.runs.config import resolve
from pcmlp.runs.group import group_key
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import announce, open_run, train, train_runs

SEEDS, ITERATIONS, STEPS = (3, 5), 3, 200
KINDS = {
    "method": (),
    "no-bonus": ("bonus_scale=0",),
    "covariance-off": ("covariance=off",),
    "other": ("bonus_scale=0.4", "ridge=0.1", "replay_starts=0", "margin=1", "model.rate=0.01"),
}


@pytest.fixture(scope="module")
def config_of(tiny_trpo):
    tiny = ("samples_per_policy=200", "replay_size=500", "eval_episodes=2", "num_starts=16")
    settings = (*(given for given in tiny_trpo if not given.startswith(("samples_", "replay_"))), *tiny)

    def config(kind, seeds=SEEDS, steps=ITERATIONS * STEPS, algo="pcmlp", more=()):
        return resolve("mountain-car", algo, seeds, steps, (*settings, *KINDS[kind], *more))

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
    runs = train_group({tmp_path / kind: config_of(kind) for kind in KINDS})
    assert [run.failure for run in runs] == [None] * len(KINDS)
    for kind in KINDS:
        assert read_summary(tmp_path / kind)["status"] == "finished"
        assert_same_run(alone / kind, tmp_path / kind)
    first, second = ((tmp_path / kind / "metrics.csv").read_text() for kind in ("method", "no-bonus"))
    assert first != second
