"""Kernel regulators: the kernel form of the bonus, classes that do not contain the truth, and the measurements."""

import dataclasses
import io
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from pcmlp.bonus import Covariance, Elliptical, second_moment
from pcmlp.bonus import information_gain as gain_of_covariance
from pcmlp.errors import ConfigError
from pcmlp.experiments import kernels
from pcmlp.experiments.experiment import Done
from pcmlp.experiments.job import SCALES, run_local
from pcmlp.experiments.kernels import information_gain, posterior_variance, rbf
from pcmlp.features import Fourier
from pcmlp.models import KNR, nearest_member
from pcmlp.replay import Transitions
from pcmlp.runs.config import build, resolve
from pcmlp.runs.train import class_notes, train

PENDULUM = "knr-pendulum"


def bound(task, *settings):
    problem, algo = build(resolve(task, settings=settings))
    return problem, algo, problem.world.mdp


def rows_of(mdp, count):
    """Random pairs of the box, as samples."""
    keys = jr.split(jr.key(0), count)
    example = Transitions.example(mdp.states, mdp.actions)
    rows = jax.tree.map(lambda x: jnp.repeat(x, count, axis=0), example)
    state, action = jax.vmap(mdp.states.sample)(keys), jax.vmap(mdp.actions.sample)(keys)
    return dataclasses.replace(rows, state=state, action=action, valid=jnp.ones(count, bool))


# The kernel form


def test_the_kernel_form_is_the_bonus_and_the_information_gain():
    """With a finite phi, k(x, y) = phi(x)^T phi(y): two policies of 20 samples, and pairs that nobody visited."""
    _, algo, mdp = bound(PENDULUM, "features.name=fourier", "features.dim=30")
    phi, ridge, K = algo.features, 0.02, 20
    rows = rows_of(mdp, 60)
    first, second, new = (jax.tree.map(lambda x, i=i: x[i * K : (i + 1) * K], rows) for i in range(3))
    covariance = Covariance.ridge_only(ridge, 30)
    for policy in (first, second):
        covariance = covariance.add(second_moment(phi, policy))
    bonus = jax.vmap(Elliptical().init(jr.key(0), phi, covariance.matrix))(new.state, new.action)
    features = np.asarray(jax.vmap(phi)(rows.state, rows.action), np.float64)
    X, Y = features[: 2 * K], features[2 * K :]
    variance = posterior_variance(np.sum(Y**2, axis=1), Y @ X.T, X @ X.T, ridge * K)
    np.testing.assert_allclose(ridge * (bonus / 2) ** 2, variance, rtol=1e-3)
    gain = float(gain_of_covariance(covariance.matrix, ridge))
    assert information_gain(X @ X.T, ridge * K) == pytest.approx(gain, rel=1e-4)
    assert information_gain(X.T @ X, ridge * K) == pytest.approx(gain, rel=1e-4)  # the same determinant


def test_fourier_features_tend_to_the_kernel():
    _, _, mdp = bound(PENDULUM)
    rows = rows_of(mdp, 50)
    example = Transitions.example(mdp.states, mdp.actions)
    errors = []
    for dim in (20, 2000):
        phi = Fourier(dim=dim, bandwidth=1.5).draw(jr.key(3), mdp, example)
        values = np.asarray(jax.vmap(phi)(rows.state, rows.action))
        x = np.concatenate([rows.state, rows.action], axis=1) / np.asarray(phi.units)
        errors.append(np.max(np.abs(values @ values.T - rbf(x, x, 1.5))))
        np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1.0, rtol=1e-4)
    assert errors[1] < 0.1 < errors[0]
    assert rbf(x, x + 1.5, 1.5)[0, 0] == pytest.approx(math.exp(-x.shape[1] / 2))


# Classes that do not contain the truth


def test_the_nearest_member_is_the_truth_where_the_class_contains_it():
    for task, settings in (
        ("knr-lds", ()),
        ("knr-rbf", ()),
        ("knr-poly", ("features.name=polynomial", "features.degree=3")),
    ):
        problem, algo, mdp = bound(task, *settings)
        near = nearest_member(mdp, algo.features, algo.model.radius)
        assert near.is_truth
        known = pytest.approx(1.25 * np.linalg.norm(mdp.transition.W), rel=5e-3)  # F of knr-rbf has three digits
        assert algo.model.radius == known
        np.testing.assert_allclose(near.W, mdp.transition.W, atol=0.02 * algo.model.radius)
        assert class_notes(algo, problem) == []


def test_the_nearest_member_is_found_by_hand_for_a_known_error():
    """Without the motor's feature, the error is that of the motor, 0.35 x 0.6 a^5; the mean of a^10 is 1/11."""
    _, _, mdp = bound(PENDULUM)
    own = mdp.transition.features
    near = nearest_member(mdp, lambda s, a: own(s, jnp.zeros_like(a)))
    assert near.error == pytest.approx(0.35 * 0.6 / math.sqrt(11) / 0.01, rel=0.05)
    assert near.largest == pytest.approx(0.35 * 0.6 / 0.01, rel=0.05)
    assert near.radius == pytest.approx(1.25 * np.linalg.norm(mdp.transition.W[:, :5]), rel=1e-2)


def test_a_radius_keeps_the_nearest_member_within_it_and_further_from_the_truth():
    _, algo, mdp = bound(PENDULUM)
    phi = Fourier(dim=60, bandwidth=2.0).draw(jr.key(0), mdp, Transitions.example(mdp.states, mdp.actions))
    errors = []
    for radius in (5.0, 20.0, 80.0):
        near = nearest_member(mdp, phi, radius)
        assert np.linalg.norm(near.W) <= radius * (1 + 1e-6)
        errors.append(near.error)
    assert errors[0] > errors[1] > errors[2]
    small = nearest_member(mdp, algo.features, 2.0)  # the task's own phi, with a ball that does not contain the truth
    assert np.linalg.norm(small.W) == pytest.approx(2.0, rel=1e-3)
    assert not small.is_truth


def test_where_the_truth_is_not_known_nothing_is_said():
    problem, algo, mdp = bound("knr-poly", "features.name=fourier")
    unknown = dataclasses.replace(mdp, transition=lambda key, s, a: s)
    assert nearest_member(unknown, algo.features) is None
    linear, tabular, _ = bound("combination-lock")
    assert class_notes(tabular, linear) == []
    assert "or a larger model.radius" in class_notes(algo, problem)[0]


def test_a_ball_of_regulators_says_so_too_and_has_no_radius_to_give():
    settings = "features.name=polynomial", "features.degree=1"
    problem, algo = build(resolve("knr-lds", "lc3-oracle", settings=settings))
    (line,) = class_notes(algo, problem)
    assert line.endswith("give other features")
    problem, algo = build(resolve("knr-lds", "lc3-oracle"))
    assert class_notes(algo, problem) == []


def test_other_features_have_their_own_radius_unless_one_is_given():
    _, own, _ = bound(PENDULUM)
    _, kernel, mdp = bound(PENDULUM, "features.name=fourier")
    assert isinstance(kernel.model, KNR)
    assert kernel.model.radius == pytest.approx(nearest_member(mdp, kernel.features).radius)
    assert kernel.model.radius != own.model.radius
    assert bound(PENDULUM, "features.name=fourier", "model.radius=7")[1].model.radius == 7


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ((), False),
        (("features.name=polynomial", "features.degree=1"), True),
        (("features.name=fourier", "features.dim=10"), True),
        (("model.radius=1",), True),
    ],
)
def test_a_class_without_the_true_model_warns(settings, warned):
    problem, algo = build(resolve(PENDULUM, settings=("task.horizon=4", "samples_per_policy=4", *settings)))
    lines = class_notes(algo, problem)
    assert len(lines) == warned
    if warned:
        near = nearest_member(problem.world.mdp, algo.features, algo.model.radius)
        assert "does not contain the truth" in lines[0]
        assert f"errs by {near.error:.3g} sigma" in lines[0]
        loss = min(4.0, 16 * near.error)  # nobody loses more than all
        assert f"may cost {loss:.3g} of a return of 4 (at most H^2 x {near.error:.3g})" in lines[0]


def test_a_run_prints_the_warning_once(tmp_path):
    few = ("planner.num_plans=4", "planner.elites=2", "planner.plan_length=2", "planner.warmup=1", "eval_episodes=1")
    own = ("task.horizon=4", "samples_per_policy=4", "features.name=polynomial", "features.degree=1")
    console = Console(file=io.StringIO(), width=1000)
    train(resolve(PENDULUM, seeds=(0,), steps=4, settings=(*own, *few)), tmp_path / "run", console=console)
    assert console.file.getvalue().count("does not contain the truth") == 1


@pytest.mark.parametrize("width", ["0", "-1", "nan"])
def test_a_bandwidth_that_is_no_positive_number(width):
    with pytest.raises(ConfigError, match=rf"features\.bandwidth={width}"):
        resolve(PENDULUM, settings=("features.name=fourier", f"features.bandwidth={width}"))


# The measurements


def test_the_jobs_are_what_is_compared():
    made = {job.name: job for job in kernels.jobs()}
    assert len(made) == len(kernels.jobs())
    features = [name for name in made if "/features-" in name or "/bandwidth-" in name or "/degree-" in name]
    assert len(features) == 11
    assert made["knr-pendulum/no-bonus"].config().algorithm.bonus_scale == 0
    assert (
        made["knr-pendulum/no-bonus"].config().algorithm.features
        == made["knr-pendulum/features-100"].config().algorithm.features
    )
    for task in ("knr-pendulum", "knr-rbf"):
        theorem = made[f"{task}/certificate-theorem"]
        algo = build(theorem.config())[1]
        assert len(theorem.seeds) == 100
        by_hand = 30 / 0.01 * math.sqrt(4 * algo.model.radius**2 + 1)
        assert (algo.ridge, algo.bonus_scale) == (1, pytest.approx(by_hand))


@pytest.mark.slow
def test_all_tables_at_smoke_scale(tmp_path):
    scale = SCALES["smoke"]
    wanted = ("knr-pendulum/own", "knr-pendulum/random", "knr-pendulum/certificate-preset")
    jobs = {job.label: scale.apply(job) for job in kernels.jobs() if job.name in wanted}
    run_local(tuple(jobs.values()), tmp_path / "runs", tmp_path / "results")
    done = Done(tuple(jobs.values()), scale, tmp_path / "runs", tmp_path / "results")
    made = dict(kernels.tables(done))
    assert {row["run"] for row in made["kernel_learning"]} == {"own", "random"}
    assert made["kernel_certificate"][0]["optimum"] == kernels.best_known(done, jobs["own"])
    without = Done((jobs["certificate-preset"],), scale, tmp_path / "runs", tmp_path / "results")
    assert not dict(kernels.tables(without))  # nothing is certified without an optimum


@pytest.mark.slow
@pytest.mark.parametrize("name", list(kernels.MEASURED))
def test_what_is_measured_at_smoke_scale(name):
    rows = kernels.MEASURED[name](SCALES["smoke"])
    assert all(row.keys() == rows[0].keys() for row in rows)
    if name == "kernel_classes":
        found = {row["class"]: row for row in rows}
        assert found["own"]["nearest_error"] == 0
        assert found["features-200"]["bonus_error"] < found["features-20"]["bonus_error"]
        assert (
            found["degree-3"]["nearest_error"] < found["degree-2"]["nearest_error"] < found["degree-1"]["nearest_error"]
        )
    if name == "kernel_growth":
        assert all(abs(row["features_400"] / row["kernel"] - 1) < 0.2 for row in rows)
        assert all(row["power"] == "" or row["power"] < 5.5 for row in rows if row["pairs"] == "uniform")
