"""Statistics over seeds and tasks against numbers that can be worked out by hand, and what was published."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from pcmlp.experiments.catalogue import DENSE_TASKS
from pcmlp.published import MODEL_BASED, PAPER, dense_table
from pcmlp.report.statistics import (
    Rank,
    deviation,
    interquartile_mean,
    mean_difference,
    mean_interval,
    normalise,
    profile,
    ranks,
)


def test_the_deviation_is_that_of_a_sample():
    assert deviation([1.0, 3.0]) == pytest.approx(np.sqrt(2))
    rng = np.random.default_rng(0)
    assert np.mean([deviation(rng.normal(size=4)) ** 2 for _ in range(20_000)]) == pytest.approx(1.0, rel=0.03)
    assert np.isnan(deviation([1.0]))


def test_the_interquartile_mean_ignores_the_worst_and_the_best_quarter():
    scores = [np.array([-1e6, 1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0, 1e6])]
    assert interquartile_mean(scores).value == pytest.approx(np.mean([2.0, 3.0, 4.0, 5.0]))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)

    def drawn(seeds):
        return [rng.normal(1.0, 1.0, seeds), rng.normal(3.0, 0.2, seeds)]

    truth = trim_mean(np.concatenate(drawn(100_000)), 0.25)
    found = [interquartile_mean(drawn(12)) for _ in range(60)]
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in found)
    inside = sum(estimate.low <= truth <= estimate.high for estimate in found)
    assert 48 <= inside < 60  # 95 % of a large sample; small ones have narrower intervals
    assert np.isnan(interquartile_mean([np.array([1.0]), np.array([2.0])]).low)


def test_seeds_are_drawn_anew_within_their_task():
    """Two tasks of constant scores have nothing to draw anew: drawing over both would spread the interval."""
    found = interquartile_mean([np.full(4, 1.0), np.full(4, 3.0)])
    assert found == (2.0, 2.0, 2.0)


def test_the_interval_of_a_mean_at_each_point_of_a_curve():
    rng = np.random.default_rng(0)
    values = rng.normal(np.arange(50.0)[:, None], 2.0, (50, 40))
    low, high = mean_interval(values)
    np.testing.assert_allclose(high - low, 2 * 1.96 * values.std(axis=1) / np.sqrt(40), rtol=0.1)
    assert np.count_nonzero((low < np.arange(50)) & (np.arange(50) < high)) >= 45
    assert np.isnan(mean_interval(values[:, :1])).all()


def test_a_profile_falls_from_all_to_none():
    scores = [np.array([0.0, 1.0]), np.array([2.0, 2.0, 2.0, 2.0])]
    np.testing.assert_allclose(profile(scores, np.array([-1.0, 0.5, 1.5, 2.0])), [1.0, 0.75, 0.5, 0.0])


def test_returns_are_normalised():
    np.testing.assert_allclose(normalise(np.array([10.0, 20.0, 40.0]), 20.0, 40.0), [-0.5, 0.0, 1.0])
    with pytest.raises(ValueError, match="nothing between"):
        normalise(np.array([1.0]), 2.0, 2.0)


def test_ranks_are_means_and_medians_over_tasks_and_equals_share_theirs():
    means = {
        "one": {"a": 3.0, "b": 1.0, "c": 1.0},
        "two": {"a": 1.0, "b": 2.0},
        "three": {"a": 9.0, "b": 0.0, "c": 1.0},
    }
    assert ranks(means) == {"a": Rank(4 / 3, 1.0), "b": Rank(6.5 / 3, 2.5), "c": Rank(7.5 / 3, 2.5)}


def test_what_was_published_is_complete_and_ranks_nearly_as_printed():
    table = dense_table()
    assert set(table) == {*DENSE_TASKS, "pendulum"}
    assert table["half-cheetah"][PAPER][:2] == (3599.9, 662.6)
    compared = (*MODEL_BASED, PAPER)
    found = ranks({task: {name: row[name].mean for name in compared if name in row} for task, row in table.items()})
    assert len(found) == 11
    printed = {PAPER: (2.4, 1.5), "SLBO": (4.0, 5.0), "PETS-CEM": (5.6, 6.0)}
    for name, (mean, median) in printed.items():
        assert abs(found[name].mean - mean) <= 0.3, name
        assert abs(found[name].median - median) <= 1.0, name


def test_a_difference_has_an_interval_that_resamples_both():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        found = mean_difference(
            [rng.normal(2, 1, 20), rng.normal(5, 1, 20)], [rng.normal(1, 2, 20), rng.normal(4, 2, 20)]
        )
        inside += found.low < 1 < found.high
    assert 0.88 < inside / 200 < 0.99
    sure = mean_difference([np.array([3.0, 3.0])], [np.array([1.0, 1.0])])
    assert sure == (2, 2, 2)
    assert np.isnan(mean_difference([np.array([3.0])], [np.array([1.0, 1.0])]).low)
