"""Both sides of the proof's inequalities, the repair of the sum of bonuses, and the pictures of docs/proof.md."""

import math
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest

from pcmlp import theory
from pcmlp.algorithms.framework import PCMLP
from pcmlp.experiments import chain
from pcmlp.experiments.chain_figures import PICTURES, column, draw_pictures, line, where
from pcmlp.experiments.experiment import write_csv
from pcmlp.experiments.history import bonus_table, play
from pcmlp.experiments.job import SMOKE
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.experiments.verdict import Kept
from pcmlp.report.curves import new_figure
from pcmlp.tasks import CombinationLock, LowRank

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/proof.md"


@pytest.fixture(scope="module")
def kept():
    return Kept.of(ROOT / "results", EXPERIMENTS.values())


def play_lock(ridge, scale, iterations=12, digits=3):
    """Two runs on a lock."""
    algo = PCMLP(ridge=ridge, bonus_scale=scale, samples_per_policy=digits)
    problem = CombinationLock(horizon=digits, actions=digits).build()
    return algo, play(problem, algo, jr.split(jr.key(0), 2), iterations)


@pytest.fixture(scope="module")
def tiny():
    """A run in a linear MDP with noise."""
    algo = PCMLP(ridge=0.1, bonus_scale=0.5, samples_per_policy=50, draws="iid")
    problem = LowRank(horizon=3, states=5, actions=2, rank=3, members=16).build()
    return algo, play(problem, algo, jr.split(jr.key(0), 2), 6)


# Both sides


def test_a_history_is_made_of_distributions_and_their_values(tiny):
    _, run = tiny
    np.testing.assert_allclose(run.occupancy.sum((3, 4)), 1, rtol=1e-5)
    np.testing.assert_allclose(run.models.sum(-1), 1, rtol=1e-5)
    values = np.einsum("nkhxa,xay,xay->nk", run.occupancy, run.truth, run.reward)
    np.testing.assert_allclose(values, run.values, rtol=1e-4)
    assert np.all(np.linalg.eigvalsh(run.true_covariances(0.1)) >= 0.1 - 1e-9)


def test_the_expected_bonus_is_that_of_draws(tiny):
    """The mean over draws from pi_n+1 of the bonus with the exact Sigma_n."""
    algo, run = tiny
    n, seed = 3, 1
    bonuses = bonus_table(run.phi, run.true_covariances(algo.ridge)[n, seed], algo.bonus_scale, run.horizon)
    visits = run.visits[n + 1, seed].ravel()
    drawn = np.random.default_rng(0).choice(bonuses.ravel(), 200_000, p=visits / visits.sum())
    assert run.expected_bonuses(algo.bonus_scale, algo.ridge)[n, seed] == pytest.approx(drawn.mean(), rel=0.01)


@pytest.mark.parametrize(("samples", "ridge", "within"), [(100_000, 0.1, True), (1, 0.001, False)])
def test_the_bonus_of_many_samples_is_between_one_and_four_true_ones(tiny, samples, ridge, within):
    _, run = tiny
    ratios = chain.bonus_ratios(np.random.default_rng(0), run.phi, run.visits[:6, 0], ridge, samples)
    assert (ratios.min() >= 1 and ratios.max() <= 4) == within
    if within:
        np.testing.assert_allclose(ratios, 2, rtol=0.05)


def test_the_regret_is_under_its_bound_with_the_proved_scale_and_not_without_a_bonus():
    ridge, horizon = 0.01, 3
    algo, run = play_lock(ridge, horizon * math.sqrt(ridge) / 2)
    regrets = np.cumsum(1 - run.values[:-1], axis=0)
    bounds = chain.regret_bounds(algo, run)
    assert np.all(regrets <= bounds)
    np.testing.assert_array_equal(bounds[0], horizon)  # the first policy alone
    by_hand = horizon + 6 * horizon**2 * run.expected_bonuses(algo.bonus_scale, ridge)[:4].sum(0)
    np.testing.assert_allclose(bounds[4], by_hand)

    greedy, shut = play_lock(ridge, 0.0)
    assert np.all(np.sum(1 - shut.values[:-1], axis=0) > chain.regret_bounds(greedy, shut)[-1])
    assert [row["share_under_bound"] for row in chain.regret_rows(greedy, shut, 1.0)][-1] == 0


def test_the_sum_of_bonuses_is_above_its_printed_bound_for_a_small_ridge():
    """Real runs with the least proved c; the repaired bound holds in all of them."""
    printed_holds = {}
    for ridge in (1.0, 1e-4):
        algo, run = play_lock(ridge, 5 * math.sqrt(ridge) / 2, iterations=24, digits=5)
        sums = chain.bonus_sums(algo, run)
        printed, repaired = np.transpose([chain.sum_bounds(algo, run, n) for n in range(1, len(sums) + 1)])
        assert np.all(sums <= repaired[:, None])
        printed_holds[ridge] = bool(np.all(sums <= printed[:, None]))
    assert printed_holds == {1.0: True, 1e-4: False}


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_repaired_sum_of_bonuses_holds_for_every_ridge_and_scale(ridge, scale):
    """Distributions over a few directions, with new ones as long as there are any, and the bonus at its cap or not."""
    rng, H = np.random.default_rng(0), 5
    for d in (1, 3, 8):
        for N in (1, d, 5 * d):
            phi = np.concatenate([np.eye(d), rng.normal(size=(4, d))])
            phi /= np.maximum(1, np.linalg.norm(phi, axis=1, keepdims=True))
            weights = rng.dirichlet(np.full(len(phi), 0.1), size=N)
            weights[: min(N, d)] = np.eye(len(phi))[: min(N, d)]
            moments = np.einsum("nj,ji,jk->nik", weights, phi, phi)
            sigma = ridge * np.eye(d) + np.cumsum(moments, axis=0)
            bonuses = bonus_table(phi[None], sigma[:-1], scale, H)[:, 0]
            total = np.sum(weights[1:] * bonuses)
            factor = theory.potential_factor(ridge, (H / scale) ** 2)
            gain = np.linalg.slogdet(sigma[-1])[1] - d * math.log(ridge)
            assert total <= scale * math.sqrt(factor * N * gain) * (1 + 1e-6)
            assert gain <= d * math.log1p(N / ridge)


def test_the_factor_is_at_most_two_where_the_page_says_so():
    assert theory.potential_factor(0.398) == pytest.approx(2, abs=2e-3)
    assert theory.potential_factor(1e-6, 0.631**-2) == pytest.approx(2, abs=1e-3)
    assert theory.potential_factor(1e-6, (5 / theory.linear_mdp_scale(5, 1, 1e-6)) ** 2) < 2  # the theorem's c
    assert theory.potential_factor(1e-3, 1e6) > 100


# Tables and pictures


def test_the_pictures_are_drawn_from_measured_tables(kept, tmp_path):
    results, folder = tmp_path / "results", tmp_path / "pictures"
    folder.mkdir()
    for name, measure in chain.MEASURED.items():
        rows = measure(SMOKE)
        assert rows, name
        assert len({tuple(row) for row in rows}) == 1, name  # the columns are the same in every row
        write_csv(results / "theory" / f"{name}.csv", rows)
    old = folder / "proof-1-model.png"
    old.write_text("an old one, of results that are gone")
    drawn = draw_pictures(PICTURES, Kept(results, kept.jobs), folder)
    assert [file.stem for file in drawn] == [made.name for made in PICTURES if made.needs[0].startswith("theory/")]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    assert not old.exists()


def test_the_pictures_of_kept_runs(kept, tmp_path):
    """Of the runs of `certificate` and the table of `low_rank`."""
    shown = [made for made in PICTURES if not made.needs[0].startswith("theory/")]
    for made in shown:
        if all(kept.has(place) for place in made.needs):
            made.draw(kept).savefig(tmp_path / f"{made.name}.png")
    assert len(list(tmp_path.iterdir())) == len(shown) == 3


def test_a_solid_line_is_a_left_side():
    axes = new_figure(2.0).subplots()
    line(axes, np.arange(3), np.ones(3), "-", 1, "left side")
    line(axes, np.arange(3), np.ones(3), "--", 1, "right side")
    assert [made.get_linestyle() for made in axes.get_lines()] == ["-", "--"]


def test_the_page_has_every_picture_and_the_numbers_of_the_tables(kept):
    page = PAGE.read_text()
    for made in PICTURES:
        assert f"(pictures/{made.name}.png)" in page
        assert (PAGE.parent / f"pictures/{made.name}.png").exists() == all(map(kept.has, made.needs))
    sums = where(kept.table("theory/chain_bonus_sum.csv"), {"ridge": 0.0001, "iterations": 22})
    most, printed, repaired = (column(sums, name)[0] for name in ("sum_most", "printed", "repaired"))
    assert f"at N = 22 the sum is {most:.2f} and the bound {printed:.2f}" in " ".join(page.split())
    assert f"At N = 22 it gives {repaired:.0f}" in " ".join(page.split())
    regret = kept.table("theory/chain_regret.csv")
    for task, run, n in (
        (chain.LOCK, "preset", 50),
        (chain.LOCK, "proved", 50),
        (chain.LOW_RANK, "preset", 100),
        (chain.LOW_RANK, "proved", 100),
    ):
        (row,) = where(regret, {"task": task, "run": run, "iterations": n})
        assert f"{float(row['regret_most']):.1f} against {float(row['bound_least']):,.0f}" in " ".join(page.split())
    ratios = where(kept.table("theory/chain_covariance.csv"), {"ridge": 0.01, "samples": 1_000})
    low, high = column(ratios, "lowest")[0], column(ratios, "highest")[0]
    assert f"the ratio was between {low:.2f} and {high:.2f}" in " ".join(page.split())


def test_rows_are_found_by_text_and_by_number():
    rows = [{"run": "a", "n": "1.0"}, {"run": "b", "n": "1"}, {"run": "a", "n": ""}]
    assert where(rows[:2], {"n": 1}) == rows[:2]
    assert where(rows, {"run": "a"}) == [rows[0], rows[2]]
    assert math.isnan(column(rows, "n")[2])
