"""The certificate: an upper bound of what could still be gained where that is proved, and what ends a run by it."""

import dataclasses
import io
import math
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from pcmlp import finite, theory
from pcmlp.algorithms.certificate import exact_values, promised
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.experiments.theorems import Gap, cart_bound, certificate_job, certificate_jobs, gaps, make_row, optimum
from pcmlp.features import feature_dim
from pcmlp.planners import CEM, FinitePolicy
from pcmlp.replay import Replay
from pcmlp.runs.certificate import DELTA, certificates, is_certified, proved_scale, standing
from pcmlp.runs.config import build, resolve
from pcmlp.runs.metrics import read_metrics
from pcmlp.runs.policy import load_run
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import train

SEEDS = tuple(range(6))
LOCK = ("combination-lock", 90, ("task.horizon=3", "task.actions=2", "eval_episodes=2"))
LOW_RANK = (
    "low-rank",
    480,
    (
        "task.horizon=4",
        "task.states=6",
        "task.actions=3",
        "task.rank=3",
        "task.members=64",
        "eval_episodes=2",
        "task.seed=3",
    )
    + ("samples_per_policy=40",),
)
CART = (
    "knr-lds",
    24,
    ("task.horizon=12", "samples_per_policy=12", "eval_episodes=2", "planner.num_plans=8", "planner.elites=4")
    + ("planner.iterations=2", "planner.warmup=1"),
)


def config_of(task, *more, seeds=SEEDS):
    name, steps, settings = task
    return resolve(name, seeds=seeds, steps=steps, settings=(*settings, *more))


def ran(config, out, **options):
    console = Console(file=io.StringIO(), width=200)
    summary = train(config, out, console=console, command="pcmlp train", **options)
    return summary, console.file.getvalue()


def gap_of(config, out) -> Gap:
    summary, _ = ran(config, out)
    assert summary["status"] == "finished"
    return gaps(read_metrics(out), len(config.seeds), optimum(build(config)[0].world.mdp))


def least_proved(config, **changes):
    """The least proved scale of a run, or of one with other settings of the algorithm."""
    problem, algo = build(config)
    return proved_scale(dataclasses.replace(algo, **changes), problem.world.mdp, config.num_iterations)


def scales(task):
    """The theorem's c with its ridge, and the least that is proved for the run with the preset's."""
    problem, algo = build(config_of(task))
    mdp = problem.world.mdp
    theorem = theory.linear_mdp_scale(mdp.horizon, feature_dim(algo.features, mdp))
    proved = least_proved(config_of(task))
    return {"theorem": (f"bonus_scale={theorem!r}", "ridge=1"), "proved": (f"bonus_scale={proved!r}",)}


# The bound


@pytest.mark.parametrize("task", [LOCK, LOW_RANK], ids=lambda task: task[0])
@pytest.mark.parametrize("which", ["theorem", "proved"])
def test_the_certificate_bounds_the_gap_in_every_iteration_of_every_seed(task, which, tmp_path):
    config = config_of(task, *scales(task)[which])
    gap = gap_of(config, tmp_path / "run")
    assert gap.true.shape == (config.num_iterations, len(SEEDS))
    assert np.max(gap.true) > 0.04  # something was to be gained
    assert np.all(gap.certificate >= gap.true - 1e-4)
    assert not gap.below.any()
    assert read_summary(tmp_path / "run")["certificate"]["kind"] == "bound"
    if which == "proved":  # the bonus shrinks, and with it what could be gained
        assert np.median(gap.certificate[-1]) < 0.5 * np.median(gap.certificate[0])


@pytest.mark.parametrize("task", [LOCK, LOW_RANK, pytest.param(CART, marks=pytest.mark.slow)], ids=lambda task: task[0])
def test_without_a_bonus_it_is_no_bound(task, tmp_path):
    gap = gap_of(config_of(task, "bonus_scale=0"), tmp_path / "run")
    assert np.min(gap.certificate - gap.true) < -0.005
    assert gap.below.any()


@pytest.mark.slow
def test_the_certificate_of_a_regulator_at_the_theorems_scale(tmp_path):
    algo = build(config_of(CART))[1]
    scale = theory.knr_scale(12, algo.model.radius, algo.model.sigma)
    config = config_of(CART, f"bonus_scale={scale!r}", "ridge=1", seeds=(0, 1))
    gap = gap_of(config, tmp_path / "run")
    assert np.all(gap.certificate >= gap.true)
    assert np.all(gap.true > 1.0)  # nobody gets there in two iterations
    assert read_summary(tmp_path / "run")["certificate"]["kind"] == "estimate"


def test_the_bound_on_the_carts_optimum_holds_and_is_close():
    """Against planning in the true dynamics, which is a policy; and nothing is in the circle before step 10."""
    world = build(resolve("knr-lds"))[0].world
    planner = CEM(plan_length=20)
    policy, _ = eqx.filter_jit(planner.plan)(jr.key(0), world.mdp, planner.init(jr.key(0), world.mdp))
    many = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, policy)
    reached = float(np.mean(world.evaluate(jr.key(1)[None], many, 4)))
    assert reached <= cart_bound(world.mdp) < reached + 1.5
    nine = dataclasses.replace(world.mdp, horizon=9)
    assert cart_bound(nine) == pytest.approx(0.09, abs=1e-3)


# What it is made of


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lock"
    ran(config_of(LOCK), out)
    return out


def test_the_columns_are_what_is_promised_and_what_is_left(lock):
    metrics, problem = read_metrics(lock), build(config_of(LOCK))[0]
    assert np.isnan(metrics["promised"][: len(SEEDS)]).all()  # the untrained policy promises nothing
    np.testing.assert_allclose(metrics["promised"], metrics["planned_value"], rtol=1e-6)
    policies = load_run(lock).policies
    assert isinstance(policies, FinitePolicy)
    one = eqx.filter_vmap(lambda p: p.deterministic().probabilities())(policies)
    values = [float(finite.value(problem.world.mdp, p)) for p in one]
    last = np.array(metrics["promised"])[-len(SEEDS) :] - values
    np.testing.assert_allclose(metrics["certificate"][-len(SEEDS) :], last, rtol=1e-5)
    finals = [seed["final_certificate"] for seed in read_summary(lock)["seeds"]]
    assert finals == metrics["certificate"][-len(SEEDS) :]


def test_values_are_exact_in_finite_mdps_and_measured_elsewhere():
    config = config_of(LOW_RANK)
    problem, algo = build(config)
    mdp = problem.world.mdp
    policies = algo.start(jax.vmap(jr.key)(jnp.arange(2)), mdp, config.num_iterations).policy
    uniform = jnp.full((4, 6, 3), 1 / 3)
    exact = exact_values(mdp, policies)
    np.testing.assert_allclose(exact, float(finite.value(mdp, uniform)), rtol=1e-5)
    returns = np.full((2, 3), 7.0)  # of no use here
    given = {"promised": np.array([2.0, np.nan])}
    left = certificates(problem, policies, given, returns)["certificate"]
    np.testing.assert_allclose(left, [2.0 - exact[0], np.nan])
    assert certificates(problem, policies, {}, returns) == {}
    cart = build(config_of(CART))[0]
    assert exact_values(cart.world.mdp, policies) is None
    np.testing.assert_allclose(certificates(cart, policies, given, returns)["certificate"], [-5.0, np.nan])


def test_a_promise_that_is_no_number_certifies_nothing():
    rows = [{"iteration": 3, "seed": s, "certificate": value} for s, value in enumerate((0.1, math.nan))]
    assert not is_certified(rows, 3, 1.0)
    assert is_certified(rows[:1], 3, 1.0)
    assert not is_certified(rows[:1], 3, 0.05)
    assert not is_certified(rows[:1], 2, 1.0)
    assert not is_certified(rows[:1], 3, None)
    assert not is_certified([{"iteration": 0, "seed": 0}], 0, 1.0)


@pytest.mark.slow
def test_promises_change_no_random_number_and_have_their_own():
    config = config_of(CART, seeds=(0, 1))
    (problem, algo), keys = build(config), jax.vmap(jr.key)(jnp.arange(2))
    world = problem.world
    learner = algo.iterate(keys, world, algo.start(keys, world.mdp, config.num_iterations), 1).learner
    first, again, later = (promised(keys, algo, world.mdp, learner, n)["promised"] for n in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)


# What it is worth


def test_the_least_proved_scale():
    lock, low_rank, cart = (config_of(task) for task in (LOCK, LOW_RANK, CART))
    assert least_proved(lock) == pytest.approx(3 * math.sqrt(0.01) / 2)
    N = low_rank.num_iterations
    by_hand = 4 / 2 * math.sqrt(0.01 * 3 + 2 * math.log(64 * N / DELTA) / 40)
    assert least_proved(low_rank) == pytest.approx(by_hand)
    problem, regulator = build(cart)
    F, sigma = regulator.model.radius, regulator.model.sigma
    assert least_proved(cart) == pytest.approx(12 / sigma * math.sqrt(4 * 0.01 * F**2 + 1))
    assert proved_scale(regulator, problem.world.mdp, cart.num_iterations, own_features=False) is None
    assert least_proved(lock, fit_samples=9) is None  # the bonus knows pairs that the model may not
    fresh = {"fit_samples": 500, "draws": "iid"}
    assert least_proved(low_rank, **fresh) is None  # K is too small for the covariance
    K = theory.covariance_samples(N, 3, DELTA / 2, 0.01)
    error = theory.linear_mdp_error(N, 500, DELTA / 2, 64)
    assert least_proved(low_rank, **fresh, samples_per_policy=K) == pytest.approx(
        theory.linear_mdp_scale(4, 3, 0.01, error)
    )


def test_the_lemma_behind_the_least_proved_scale():
    """Of M steps in a row, however they were chosen, the most likely member has sum TV^2 <= 2 ln(|Upsilon| / delta) in
    at least 1 - delta of the cases; here the next state chooses what is tried next."""
    config = config_of(LOW_RANK, seeds=tuple(range(64)))
    problem, algo = build(config)
    mdp, model, keys = problem.world.mdp, algo.model, jax.vmap(jr.key)(jnp.arange(64))
    learner = algo.start(keys, mdp, config.num_iterations)
    samples, _ = problem.world.collect(keys, learner.policy, 40)

    def most_likely(data):
        replay = Replay(data, jnp.zeros((), int))
        fitted, _ = model.train(jr.key(0), mdp, model.init(jr.key(0), mdp), replay)
        return jnp.argmax(jnp.all(model.upsilon == fitted.mu[None], axis=(1, 2)))

    fitted = jax.vmap(most_likely)(samples)
    p = np.einsum("xaz,uzy->uxay", np.asarray(model.features.phi), np.asarray(model.upsilon))
    distance = 0.5 * np.abs(p - p[0]).sum(-1)  # the truth is the first
    at = np.asarray(samples.state), np.asarray(samples.action)
    sums = np.array([np.sum(distance[u][s, a] ** 2) for u, s, a in zip(fitted, *at, strict=True)])
    bound = 2 * math.log(64 / DELTA)
    assert np.mean(sums > bound) <= DELTA
    worst = max(np.sum(distance[u][at[0][0], at[1][0]] ** 2) for u in range(64))
    assert worst > bound / 2  # the class has members that are far


def test_a_linear_class_needs_features_in_which_it_is_linear():
    problem, algo = build(config_of(LOW_RANK))
    mdp = problem.world.mdp
    assert proved_scale(algo, mdp, 4) is not None
    assert proved_scale(algo, mdp, 4, own_features=False) is None
    one_hot = build(config_of(LOW_RANK, "features.name=one-hot"))[1]
    assert proved_scale(one_hot, mdp, 4, own_features=False) > proved_scale(algo, mdp, 4)  # d is larger


def test_where_it_is_a_bound_an_estimate_and_a_heuristic():
    def kind(task, *more):
        config = config_of(task, *more) if isinstance(task, tuple) else resolve(task, *more)
        problem, algo = build(config)
        stands = standing(config, algo, problem)
        return None if stands is None else stands.kind

    assert kind(LOCK, "bonus_scale=0.15") == "bound"
    assert kind(LOCK, "bonus_scale=0.1") == "heuristic"
    assert kind(LOCK, "bonus_scale=0.15", "task.reward_scale=0.5") == "bound"
    assert kind(LOCK, "bonus_scale=0.15", "task.reward_scale=100") == "heuristic"  # J* is 100, a bonus promises 9
    assert kind(LOW_RANK) == "heuristic"
    assert kind(CART) == "heuristic"
    assert kind(CART, "bonus_scale=999999") == "estimate"
    assert kind(CART, "bonus_scale=999999", "task.reward_scale=2") == "heuristic"
    assert kind(CART, "bonus_scale=999999", "features.name=fourier") == "heuristic"
    assert kind("mountain-car") == "heuristic"
    assert kind("mountain-car", "random") is None
    assert kind("combination-lock", "random") is None
    assert kind("point-umaze", "pcmlp", (0,), None, ("reward_free=true",)) is None


# Ending a run


def test_a_run_ends_at_the_first_iteration_that_is_certified(lock, tmp_path):
    metrics = read_metrics(lock)
    worst = np.reshape(metrics["certificate"], (-1, len(SEEDS)))[1:].max(axis=1)
    threshold = float(np.median(worst))
    first = 1 + int(np.argmax(worst <= threshold))
    assert 1 < first < len(worst)
    summary, said = ran(config_of(LOCK), tmp_path / "run", stop_when_certified=threshold)
    assert (summary["status"], summary["iterations"]) == ("certified", first)
    assert summary["certificate"]["stop_when_certified"] == threshold
    assert "the certificate is a heuristic (optimism is proved for a bonus_scale of 0.15" in said
    assert "to go on" not in said
    ended = read_metrics(tmp_path / "run")
    for name in set(metrics) - {"wall_s"}:  # what it did until then is what it would have done
        np.testing.assert_array_equal(ended[name], metrics[name][: len(ended[name])])

    # resumed, it is finished; cut off after its last iteration, it ends there
    before = (tmp_path / "run/metrics.csv").read_bytes()
    _, said = ran(config_of(LOCK), tmp_path / "run", resume=True, stop_when_certified=threshold)
    assert "already finished" in said
    assert "already finished" in ran(config_of(LOCK), tmp_path / "run", resume=True)[1]
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    (tmp_path / "cut/summary.json").unlink()
    summary, _ = ran(config_of(LOCK), tmp_path / "cut", resume=True, stop_when_certified=threshold)
    assert summary["status"] == "certified"
    assert (tmp_path / "run/metrics.csv").read_bytes() == (tmp_path / "cut/metrics.csv").read_bytes() == before


def test_a_run_that_is_never_certified_is_finished(lock, tmp_path):
    summary, _ = ran(config_of(LOCK), tmp_path / "run", stop_when_certified=0.0)
    assert (summary["status"], summary["iterations"]) == ("finished", 30)


def test_the_flag_on_the_command_line(tmp_path, capsys):
    words = "train combination-lock --seeds 0 --steps 30 --set task.horizon=3 task.actions=2 eval_episodes=2"
    assert main([*words.split(), "--stop-when-certified", "1e3", "--out", str(tmp_path / "run")]) == 0
    assert "certified:" in capsys.readouterr().out
    assert read_summary(tmp_path / "run")["iterations"] == 1


@pytest.mark.parametrize("threshold", [-1.0, math.nan, math.inf])
def test_bad_thresholds_are_refused(threshold, tmp_path):
    with pytest.raises(ConfigError, match="stop_when_certified=.*give 0 or more"):
        train(config_of(LOCK), tmp_path / "run", stop_when_certified=threshold)
    assert not (tmp_path / "run").exists()


# Deep PC-MLP, and who has none


@pytest.mark.slow
def test_deep_runs_have_a_heuristic(tiny_trpo, tmp_path):
    settings = (*tiny_trpo, "task.horizon=20", "eval_episodes=5")
    config = resolve("mountain-car", "pcmlp", (0, 1), 40, settings)
    summary, said = ran(config, tmp_path / "car", stop_when_certified=0.0)
    assert "the certificate is a heuristic (no theorem covers" in said
    assert summary["certificate"]["kind"] == "heuristic"
    metrics = read_metrics(tmp_path / "car")
    left, value = np.array(metrics["certificate"])[2:], np.array(metrics["eval_return_mean"])[2:]
    np.testing.assert_allclose(np.array(metrics["promised"])[2:] - value, left, rtol=1e-4)
    assert np.all(left > 0)  # at most 2 c / sqrt(lambda) of bonus at each of 20 steps
    assert np.all(np.array(metrics["promised"])[2:] < 20 * 2 * 0.05 / math.sqrt(1e-3) + 100)


def test_random_play_has_no_certificate(tmp_path):
    name, steps, settings = LOCK
    config = resolve(name, "random", SEEDS, steps, settings)
    summary, _ = ran(config, tmp_path / "run")
    assert "certificate" not in read_metrics(tmp_path / "run")
    assert "certificate" not in summary
    with pytest.raises(
        ConfigError, match="stop_when_certified=1: the run has no certificate: random play promises nothing"
    ):
        train(config, tmp_path / "other", stop_when_certified=1.0)


# The experiment


def test_the_experiments_runs_resolve_and_make_rows():
    for one in certificate_jobs():
        config = one.config()
        problem, algo = build(config)
        stands = standing(config, algo, problem)
        assert stands is not None
        assert (one.label in ("theorem", "proved")) == (stands.kind != "heuristic")
    gap = Gap(np.array([[4.0, 2.0], [1.0, 0.1]]), np.array([[1.0, 1.0], [0.5, 0.5]]), np.ones((2, 2)))
    row = make_row(certificate_job("low-rank", "proved"), gap, "bound", 1.0)
    assert (row["below_the_gap"], row["of"], row["runs_ever_below"]) == (1, 4, 1)
    assert (row["certificate_first"], row["ratio_first"]) == (3.0, 3.0)
    assert row["gap_last"] == 0.5
