"""The experiment `theory`: information gains, sums of bonuses, and how steps grow."""

import dataclasses
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pcmlp import theory as bounds
from pcmlp.experiments import gains, growth, theory
from pcmlp.experiments.experiment import Done, write_table
from pcmlp.experiments.job import FULL, SMOKE, run_local
from pcmlp.experiments.sample_bounds import linear_mdp_steps, tabular_steps, theorem_steps
from pcmlp.features import OneHotFeatures
from pcmlp.report import statistics
from pcmlp.runs.config import build
from pcmlp.spaces import Finite
from pcmlp.tasks.finite import RewardOfState, TabularTransition, start_at_zero
from pcmlp.types import MDP, never


def test_the_parts_share_no_name():
    assert len(theory.THEORY.measured) == sum(len(part.MEASURED) for part in theory.PARTS)
    assert {job.where for part in theory.PARTS for job in part.jobs()} == {job.where for job in theory.theory_jobs()}


# Growth


def test_a_power_law_has_its_degree_and_an_interval_around_it():
    x = [5.0, 10.0, 20.0, 40.0]
    steps = 3 * np.array(x)[:, None] ** 2.5 * np.exp(0.1 * np.random.default_rng(0).normal(size=(4, 10)))
    found = statistics.growth(x, steps)
    assert found.low < 2.5 < found.high
    assert abs(found.value - 2.5) < 0.1
    assert found.high - found.low < 0.3
    exact = statistics.growth(x, np.repeat(steps[:, :1], 10, axis=1))
    assert exact.low == exact.value == exact.high


def test_seeds_that_never_get_there_widen_the_interval_and_take_the_median_away():
    x, steps = [1.0, 2.0, 4.0], np.repeat([[10.0], [20.0], [40.0]], 10, axis=1)
    steps[2, :4] = np.inf
    few = statistics.growth(x, steps)
    assert few.value == pytest.approx(1)
    assert few.low == pytest.approx(1)
    assert few.high == np.inf  # four of ten: some resamples have six or more
    steps[2, :6] = np.inf
    assert np.isnan(statistics.growth(x, steps)).all()
    assert np.isnan(statistics.growth(x[:1], steps[:1])).all()


def test_the_bounds_grow_as_published():
    by_epsilon = [growth.Point(1 / e, growth._rank(8), e) for e in (0.4, 0.2, 0.1)]
    x = [point.x for point in by_epsilon]
    slopes = {
        bound: statistics.growth(x, np.array([[bound(point.job, point.epsilon)] for point in by_epsilon])).value
        for bound in (theorem_steps, linear_mdp_steps)
    }
    assert slopes[linear_mdp_steps] == pytest.approx(2)
    assert 6 < slopes[theorem_steps] < 7  # epsilon^-6, and logarithms
    lock = growth._LOCKS[5]
    assert tabular_steps(lock, 0.5) == 5**3 * 7 * 5 * 4


def first_steps(monkeypatch, tmp_path, rule, epsilon, **columns):
    """Steps that a made-up run of `dims-1` needs: two seeds, three iterations of 20 steps after the untrained one."""
    made = {"env_steps": [0, 0, 20, 20, 40, 40, 60, 60], **columns}
    monkeypatch.setattr(growth, "read_metrics", lambda folder: made)
    job = dataclasses.replace(growth._cart(1) if rule == "share" else growth._rank(4), seeds=(0, 1))
    return growth.steps_needed(Done((job,), FULL, tmp_path, tmp_path), job, rule, epsilon)


def test_steps_to_a_share_of_what_planning_in_the_truth_gets(monkeypatch, tmp_path):
    returns = [9.5, 0, 8.9, 1, 9.0, 2, 0, 3]  # the untrained policy does not count
    assert first_steps(monkeypatch, tmp_path, "share", 0.1, eval_return_mean=returns).tolist() == [math.inf] * 2
    rows = [{"dims": 1, "sigma": 0.02, "value": 10.0}, {"dims": 2, "sigma": 0.02, "value": 1.0}]
    write_table(tmp_path / "theory" / "planned_in_the_truth.csv", rows)
    assert first_steps(monkeypatch, tmp_path, "share", 0.1, eval_return_mean=returns).tolist() == [40, math.inf]


def test_steps_to_a_gap_and_to_a_certificate(monkeypatch, tmp_path):
    best = growth.optimum(build(growth._rank(4).config())[0].world.mdp)
    values = np.array([best, best, 0.1, best, best - 0.15, 0.1, best, 0.1])
    certificate = np.array([0, 0, 3, 0.3, 0.2, 0.1, 0.2, 0.1])
    columns = {"promised": values + certificate, "certificate": certificate}
    assert first_steps(monkeypatch, tmp_path, "gap", 0.2, **columns).tolist() == [40, 20]
    assert first_steps(monkeypatch, tmp_path, "gap", 0.1, **columns).tolist() == [60, 20]
    assert first_steps(monkeypatch, tmp_path, "certificate", 0.1, **columns).tolist() == [math.inf, 40]


def test_a_control_differs_from_its_run_in_its_switch_alone():
    for job in growth.jobs():
        for control in growth.controls_of(job) if job.experiment == "theory" else ():
            if control.algo == job.algo:
                (changed,) = set(control.settings) - set(job.settings)
                assert changed in ("bonus_scale=0", "covariance=off")
            assert control.config().task == job.config().task


def test_the_growth_of_made_up_runs(monkeypatch, tmp_path):
    """A lock whose steps are 4 H^2: the degree is 2, far from the theorem's."""
    monkeypatch.setattr(growth, "steps_needed", lambda done, job, *_: np.full(10, 4.0 * job.config().task.horizon ** 2))
    jobs = (growth._LOCKS[5], growth._LOCKS[10], *growth.controls_of(growth._LOCKS[10]))
    made = dict(growth.tables(Done(jobs, FULL, tmp_path, tmp_path)))
    by_horizon = made["growth"][0]
    assert (by_horizon["degree"], by_horizon["low"], by_horizon["high"]) == (2, 2, 2)
    assert by_horizon["degree_of_theorem"] > 20
    assert [row["x"] for row in made["growth_steps"]] == [5, 10, 10, 10, 35]  # the controls follow the run; then by d
    assert made["growth_steps"][1]["steps_of_uniform_play"] == 5**10 * 10


# Gains


def random_moments(rng, N: int, d: int) -> np.ndarray:
    """Second moments of phi with |phi| <= 1: a few vectors each, some of them all new."""
    phi = rng.normal(size=(N, 3, d)) * (rng.uniform(size=(N, 3, d)) < 0.3)
    phi /= np.maximum(np.linalg.norm(phi, axis=2, keepdims=True), 1)
    return np.einsum("nki,nkj->nij", phi, phi) / 3


@pytest.mark.parametrize("ridge", [1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("most", [0.5, 20.0, math.inf])
def test_the_repaired_potential_lemma(ridge, most):
    """sum_n min{w_n, most} <= kappa I_N, for any lambda."""
    rng, tightest = np.random.default_rng(0), 0.0
    for _ in range(100):
        d, N = rng.integers(1, 12), rng.integers(2, 12)
        M, total = ridge * np.eye(d), 0.0
        for moment in random_moments(rng, N, d):
            total += min(np.trace(np.linalg.solve(M, moment)), most)
            M = M + moment
        gain = np.linalg.slogdet(M / ridge)[1]
        tightest = max(tightest, total / max(bounds.potential_factor(ridge, most) * gain, 1e-9))
    assert 0.2 < tightest <= 1 + 1e-9


def test_the_factor_is_the_largest_ratio_of_a_trace_to_its_logarithm():
    assert bounds.potential_factor(1.0) == pytest.approx(1 / math.log(2))
    assert bounds.potential_factor(0.398) == pytest.approx(2, abs=2e-3)  # from here on the printed lemma is false
    assert bounds.potential_factor(0.01) == pytest.approx(100 / math.log(101))
    assert bounds.potential_factor(0.01, 1.0) == bounds.potential_factor(1.0)  # c = H: as printed, for any lambda


def test_the_printed_sum_of_bonuses_fails_for_a_small_ridge_and_the_repaired_one_is_tight():
    rows = gains.fresh_directions(FULL)
    assert [row["holds"] for row in rows] == [True, True, False, False, False]
    assert all(row["holds_repaired"] for row in rows)
    assert rows[-1]["sum"] > 0.9 * rows[-1]["repaired"]


def test_the_sum_begins_with_the_second_policy():
    columns = {"info_gain": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "bonus_mean": [9.0, 9.0, 1.0, 2.0, 3.0, 4.0]}
    found = gains.series({name: [math.nan, math.nan, *column] for name, column in columns.items()}, 2)
    assert found.gain.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found.bonus.tolist() == [[0, 0], [1, 2], [4, 6]]


def one_state(actions: int) -> gains.Pairs:
    """A bandit: any distribution over its actions is possible."""
    table = TabularTransition(jnp.ones((1, actions, 1)))
    mdp = MDP(start_at_zero, table, RewardOfState(jnp.zeros(1)), never, Finite(1), Finite(actions), 3)
    return gains.Pairs.of(mdp, OneHotFeatures(1, actions))


def test_the_largest_gain_of_a_bandit():
    """The best is to try all actions equally often."""
    exact = 4 * math.log1p(20 / (4 * 0.1))
    assert exact <= one_state(4).largest_gain(20, 0.1) <= 1.011 * exact


def test_no_policies_of_a_lock_gain_more_than_the_largest_gain():
    problem, algorithm = build(growth._LOCKS[5].config())
    mdp, phi, rng = problem.world.mdp, algorithm.features, np.random.default_rng(0)
    pairs, best = gains.Pairs.of(mdp, phi), 0.0
    for _ in range(200):
        moments = sum(np.diag(pairs.best_visits(rng.uniform(size=pairs.phi.shape[:2])).ravel()) for _ in range(6))
        best = max(best, np.linalg.slogdet(np.eye(35) + moments / 0.01)[1])
    bound = pairs.largest_gain(6, 0.01)
    assert 0.6 * bound < best <= bound < 35 * math.log1p(6 / 0.35)


def test_the_tables_of_a_tiny_run(tmp_path):
    job = next(job for job in map(SMOKE.apply, gains.jobs()) if job.name == "combination-lock/gain-preset")
    run_local([job], tmp_path / "runs", tmp_path / "results")
    made = dict(gains.tables(Done((job,), SMOKE, tmp_path / "runs", tmp_path / "results")))
    ((gain,), (bonus,)) = made["gain"], made["bonus_sum"]
    assert 0 < gain["gain"] <= gain["largest_gain"] <= gain["bound"]
    assert gain["above"] == bonus["above_repaired"] == 0
    assert 0 < bonus["sum"] < bonus["repaired"]
    assert bonus["policies"] == gain["policies"] == 3


def test_runs_of_other_parts_are_left_out():
    made = dict(gains.tables(Done((growth._rank(4),), FULL, Path(), Path())))
    assert made == {"gain": [], "bonus_sum": []}
