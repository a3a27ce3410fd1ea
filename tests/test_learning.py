"""Learning checks that take minutes: `make slow`. What they check at full size is in `results/`."""

import numpy as np
import pytest

from pcmlp.runs.config import resolve
from pcmlp.runs.train import train

pytestmark = pytest.mark.slow

SEEDS = (100, 101, 102)  # results are reported on others


def final_returns(tmp_path, task, algo, steps, *settings):
    summary = train(resolve(task, algo, SEEDS, steps, settings), tmp_path / "run")
    return np.array([seed["final_return"] for seed in summary["seeds"]])


def test_a_lock_of_twenty_digits_is_opened(tmp_path):
    assert (final_returns(tmp_path, "combination-lock", "pcmlp-linear", 2_400) == 1.0).all()


@pytest.mark.parametrize("control", ["bonus_scale=0", "covariance=off"])
def test_and_not_by_the_controls(tmp_path, control):
    assert (final_returns(tmp_path, "combination-lock", "pcmlp-linear", 2_400, control) == 0.0).all()


def test_the_cart_gets_to_its_goal(tmp_path):
    """Planning in the true dynamics gets 10.9."""
    assert (final_returns(tmp_path, "knr-lds", "pcmlp-knr", 400) > 10.3).all()


def test_and_rests_without_a_bonus(tmp_path):
    returns = final_returns(tmp_path, "knr-lds", "pcmlp-knr", 400, "bonus_scale=0")
    assert (returns < 0.25).all()


@pytest.mark.parametrize(("settings", "success"), [((), 1.0), (("bonus_scale=0",), 0.0)], ids=["bonus", "no bonus"])
def test_the_car_gets_out_of_its_valley_in_two_episodes_by_the_bonus_alone(tmp_path, settings, success):
    summary = train(resolve("mountain-car", "pcmlp", SEEDS[:1], 400, settings), tmp_path / "run")
    assert summary["seeds"][0]["env_steps"] == 400
    assert summary["seeds"][0]["final_success"] == pytest.approx(success, abs=0.05)
