"""What a model forgets: which rows a fit sees, what the errors show, and that they are made once."""

import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp.experiments import forgetting
from pcmlp.experiments.experiment import Done
from pcmlp.experiments.forgetting import COVER, LATEST, Log, compare_fits, hold_out, summarise, tables
from pcmlp.experiments.job import FULL, SMOKE, Job, run_job
from pcmlp.replay import Transitions
from pcmlp.runs.config import build_problem, to_json

ROWS = 400  # of each policy


def test_a_fifth_of_each_policys_rows_is_held_out_in_blocks():
    rng = np.random.default_rng(0)
    iteration = np.repeat([1, 2], [1000, 300])
    valid = rng.uniform(size=1300) < 0.8
    held_out = hold_out(valid, iteration)
    assert not held_out[~valid].any()
    for n in (1, 2):
        own = held_out[(iteration == n) & valid]
        assert own.mean() == pytest.approx(0.2, abs=0.01)
        assert np.count_nonzero(np.diff(own.astype(int)) == 1) == 4  # four blocks
        assert not own[0]
    assert not hold_out(np.zeros(5, bool), np.ones(5, int)).any()


def two_policies(seeds=2):
    """Two policies that visit two halves of the line, where an action has opposite effects."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, 0, (seeds, ROWS)), rng.uniform(0, 1, (seeds, ROWS))], axis=1)
    action = rng.uniform(-1, 1, (seeds, 2 * ROWS, 1))
    state = np.stack([x, rng.uniform(-1, 1, x.shape)], axis=-1)
    step = np.where(x < 0, -0.1, 0.1)[..., None] * action
    no = np.zeros(x.shape, bool)
    next_state = state + np.concatenate([step, 0.5 * step], axis=-1)
    rows = [np.float32(state), np.float32(action), np.float32(0 * x), np.float32(next_state), no, no, ~no]
    iteration = np.repeat([1, 2], ROWS)
    held_out = np.stack([hold_out(~no[0], iteration)] * seeds)
    every = jnp.broadcast_to(jnp.asarray(iteration), held_out.shape)
    return Log(jax.tree.map(jnp.asarray, Transitions.of_arrays(*rows)), every, jnp.asarray(held_out))


JOB = Job(
    *("forgetting", "mountain-car", "pcmlp", "pcmlp", 4_000),
    settings=("preset=paper", "model.sizes=64,64", "model.steps=200", "model.batch=64", "rounds=3"),
    seeds=(3, 8),
)


def test_a_fit_sees_the_rows_of_its_policies_that_are_not_held_out():
    log = jax.tree.map(lambda x: x[0], two_policies())
    for n, latest, policies in ((1, False, [1]), (2, False, [1, 2]), (2, True, [2])):
        seen = log.fitted_to(jnp.array(n), jnp.array(latest)).data.valid
        np.testing.assert_array_equal(seen, np.isin(log.iteration, policies) & ~np.asarray(log.held_out))


def test_the_latest_data_make_a_model_forget_and_those_of_the_cover_do_not():
    log = two_policies()
    rows = compare_fits(JOB, log)
    of = {(row["seed"], row["iteration"], row["begins"], row["fitted_to"]): row for row in rows}
    assert len(of) == len(rows) == 2 * 2 * 2 * 2
    for (seed, n, begins, data), row in of.items():
        cover = of[seed, n, begins, COVER]
        if n == 1:  # the cover is the latest policy
            assert row["error_earlier"] == ""
            assert row["error_own"] == cover["error_own"] == of[seed, n, "fresh", COVER]["error_own"]
        elif data == LATEST:
            assert row["error_own"] < 0.3
            assert cover["error_own"] < 0.3
            assert cover["error_earlier"] < 0.3
            assert row["error_earlier"] > 3 * cover["error_earlier"]
    again = [{"task": "t", **row} for row in rows]
    row = summarise("t", "continued", again)
    ends = [[of[seed, 2, "continued", data]["error_earlier"] for seed in (3, 8)] for data in (COVER, LATEST)]
    ratio = np.array(ends[1]) / np.array(ends[0])
    assert (row["iterations"], row["seeds"]) == (2, 2)
    assert row["error_earlier_cover"] == pytest.approx(np.mean(ends[0]), abs=1e-3)
    assert row["ratio_earlier"] == pytest.approx(ratio.mean(), abs=1e-3)
    assert row["ratio_earlier_std"] == pytest.approx(abs(ratio[0] - ratio[1]) / np.sqrt(2), abs=1e-3)


def test_held_out_rows_have_no_effect_on_a_fit():
    """They only are what is measured."""
    log = two_policies(1)
    config = JOB.config()
    mdp, kind = build_problem(config.task).world.mdp, config.algorithm.model
    keys = jax.random.split(jax.random.key(0), 1)
    initial = jax.tree.map(lambda x: x[None], kind.init(keys[0], mdp))
    moved = log.rows.next_state + jnp.where(log.held_out[..., None], 5.0, 0.0)
    other = eqx.tree_at(lambda data: data.rows.next_state, log, moved)
    one, two = (forgetting.fit(keys, kind, initial, data, jnp.array(2), jnp.array(False)) for data in (log, other))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)
    errors = [np.asarray(forgetting.measure_errors(keys, one, data)) for data in (log, other)]
    assert np.isnan(errors[0][~np.asarray(log.held_out)]).all()
    assert np.nanmean(errors[1]) > 2 * np.nanmean(errors[0])


def test_the_tables_are_made_once_from_the_rows_of_a_run(tmp_path, capsys):
    job = SMOKE.apply(forgetting.jobs()[0])
    runs, results = tmp_path / "runs", tmp_path / "results"
    run_job(job, runs, results)
    made = dict(tables(Done((job,), SMOKE, runs, results)))
    assert len(made["forgetting"]) == 2 * 2 * 4  # seeds, iterations, fits
    assert all(np.isfinite(row["error_own"]) and row["error_own"] > 0 for row in made["forgetting"])
    assert [row["begins"] for row in made["summary"]] == ["fresh", "continued"]
    shutil.rmtree(runs)
    kept = dict(tables(Done((job,), SMOKE, runs, results)))
    assert kept["summary"] == made["summary"]
    assert [list(map(str, row.values())) for row in made["forgetting"]] == [
        list(map(str, row.values())) for row in kept["forgetting"]
    ]
    (results / job.where / "errors.csv").unlink()
    assert dict(tables(Done((job,), SMOKE, runs, results))) == {"forgetting": [], "summary": []}


def test_its_runs_have_the_papers_settings_and_ten_iterations():
    for job in forgetting.jobs():
        assert FULL.apply(job).config().num_iterations == 10
        assert '"preset": "paper"' in to_json(job.config())
