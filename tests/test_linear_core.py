"""Linear MDPs of Yang and Wang: both fits, the task, the net that replaces |Upsilon|, and the bad input."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize

from pcmlp import covering
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.experiments import linear_core as experiment
from pcmlp.experiments.job import SMOKE
from pcmlp.features import TableFeatures, check_norm
from pcmlp.models import LinearCore, linear_core
from pcmlp.planners import ValueIteration
from pcmlp.replay import Replay, Transitions
from pcmlp.runs.certificate import DELTA, proved_scale, standing
from pcmlp.runs.config import build, resolve
from pcmlp.tasks.finite import CoreMDP

S, A, D, W = 6, 3, 3, 4


def factors(seed=0):
    rng = np.random.default_rng(seed)
    draws = rng.dirichlet(np.full(D, 0.3), (S, A)), rng.dirichlet(np.ones(S), W), rng.dirichlet(np.full(W, 0.5), D)
    return [np.asarray(x, np.float32) for x in draws]


def model_of(phi, psi, method="likelihood"):
    return LinearCore(method, TableFeatures(jnp.asarray(phi)), jnp.asarray(psi))


def counts_of(rng, phi, psi, M, samples):
    p = np.asarray(phi.reshape(-1, D) @ M @ psi, np.float64)
    visits = rng.multinomial(samples, np.full(len(p), 1 / len(p)))
    return np.array([rng.multinomial(n, q / q.sum()) for n, q in zip(visits, p, strict=True)], np.float32)


def rows_of(counts):
    """Return the replay with these counts, and one row of padding."""
    pair, after = np.nonzero(counts)
    times = counts[pair, after].astype(int)
    pair, after = np.repeat(pair, times), np.repeat(after, times)
    n, no = len(pair) + 1, np.zeros(len(pair) + 1, bool)
    state, action, after = (jnp.asarray(np.append(x, 0)) for x in (pair // A, pair % A, after))
    valid = jnp.asarray(np.arange(n) < n - 1)
    return Replay(
        Transitions(state, action, jnp.zeros(n), after, jnp.asarray(no), jnp.asarray(no), valid), jnp.array(0)
    )


def log_likelihood(M, phi, psi, counts):
    p = np.asarray(phi, np.float64).reshape(-1, D) @ np.asarray(M, np.float64) @ np.asarray(psi, np.float64)
    return np.sum(np.where(counts > 0, counts * np.log(np.maximum(p, 1e-300)), 0.0))


def largest_likelihood(phi, psi, counts):
    """Return the maximum by another method: a quasi-Newton search over the logits of M's rows."""

    def loss(logits):
        M = np.exp(logits.reshape(D, W) - logits.reshape(D, W).max(1, keepdims=True))
        return -log_likelihood(M / M.sum(1, keepdims=True), phi, psi, counts)

    return -minimize(loss, np.zeros(D * W), method="L-BFGS-B", options={"maxfun": 50_000, "maxiter": 5_000}).fun


fit = jax.jit(linear_core.most_likely)


@pytest.mark.parametrize("samples", [5, 50, 2_000])
@pytest.mark.parametrize("seed", range(2))
def test_em_finds_the_largest_likelihood(seed, samples):
    phi, psi, M = factors(seed)
    counts = counts_of(np.random.default_rng(seed), phi, psi, M, samples)
    found, gap = fit(phi.reshape(-1, D), psi, counts)
    assert np.all(np.asarray(found) >= 0)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, rtol=1e-5)
    best = largest_likelihood(phi, psi, counts)
    assert best - log_likelihood(found, phi, psi, counts) <= float(gap) + 1e-3 <= linear_core.TOLERANCE + 1e-3
    assert log_likelihood(found, phi, psi, counts) >= log_likelihood(M, phi, psi, counts) - linear_core.TOLERANCE


def test_the_gap_is_a_bound_far_from_the_maximum(monkeypatch):
    phi, psi, M = factors(3)
    counts = counts_of(np.random.default_rng(3), phi, psi, M, 500)
    best, values = largest_likelihood(phi, psi, counts), []
    for rounds in range(4):  # stopped early
        monkeypatch.setattr(linear_core, "_ROUNDS", rounds)
        found, gap = linear_core.most_likely(jnp.asarray(phi.reshape(-1, D)), jnp.asarray(psi), jnp.asarray(counts))
        values.append(log_likelihood(found, phi, psi, counts))
        assert linear_core.TOLERANCE < best - values[-1] <= float(gap) + 1e-2
    assert np.all(np.diff(values) > 0)  # no round makes it smaller


def test_many_seeds_at_once_end_and_agree_with_one():
    """Under vmap a seed that is near enough waits for the others."""
    phi, psi, M = factors(4)
    counts = np.stack([counts_of(np.random.default_rng(n), phi, psi, M, 10 ** (1 + n % 4)) for n in range(24)])
    together, gaps = jax.jit(jax.vmap(linear_core.most_likely, in_axes=(None, None, 0)))(
        phi.reshape(-1, D), psi, counts
    )
    assert np.all(np.asarray(gaps) <= linear_core.TOLERANCE)
    for one in (0, 3, 23):
        np.testing.assert_allclose(together[one], fit(phi.reshape(-1, D), psi, counts[one])[0], atol=2e-3)


def test_a_latent_without_data_keeps_its_uniform_row():
    phi, psi, M = factors()
    phi = np.zeros_like(phi)
    phi[..., 0] = 1
    counts = counts_of(np.random.default_rng(0), phi, psi, M, 200)
    data = [jnp.asarray(x) for x in (phi.reshape(-1, D), psi, counts)]
    for rows in (linear_core.most_likely(*data)[0], linear_core.regression(*data)):
        np.testing.assert_allclose(rows[1:], 1 / W, rtol=1e-5)
        assert np.abs(np.asarray(rows[0]) - 1 / W).max() > 0.05


def test_regression_is_that_of_yang_and_wang_where_it_is_in_the_simplex():
    phi, psi, _ = factors(1)
    M = np.random.default_rng(0).dirichlet(np.full(W, 20.0), D).astype(np.float32)  # far from the edges
    counts = counts_of(np.random.default_rng(1), phi, psi, M, 200_000)
    x, y = phi.reshape(-1, D).astype(np.float64), psi.astype(np.float64)
    gram = np.eye(D) + x.T @ (counts.sum(1, keepdims=True) * x)
    by_hand = np.linalg.inv(gram) @ (x.T @ counts @ y.T) @ np.linalg.inv(y @ y.T)
    found = linear_core.regression(*map(jnp.asarray, (phi.reshape(-1, D), psi, counts)))
    assert by_hand.min() > 0
    np.testing.assert_allclose(found, by_hand, atol=2e-3)
    np.testing.assert_allclose(found, M, atol=0.05)


@pytest.mark.parametrize(
    "row", [[0.2, 0.3, 0.5], [2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, -3.0, 5.0], [0.6, 0.6, -1.0]]
)
def test_projection_onto_the_simplex(row):
    found = np.asarray(linear_core.onto_simplex(jnp.array(row)))
    grid = np.array([(i, j, 40 - i - j) for i in range(41) for j in range(41 - i)]) / 40
    nearest = np.sum((grid - np.array(row)) ** 2, axis=1).min()
    assert np.sum((found - np.array(row)) ** 2) <= nearest + 1e-5
    assert found.sum() == pytest.approx(1, abs=1e-6)
    assert found.min() >= 0


@pytest.mark.parametrize("method", ["likelihood", "regression"])
def test_the_model_counts_rows_without_padding(method):
    phi, psi, M = factors(2)
    counts = counts_of(np.random.default_rng(2), phi, psi, M, 3_000)
    model, mdp = model_of(phi, psi, method), CoreMDP(states=S, actions=A, rank=D, core=W).build().world.mdp
    before = model.init(jr.key(0), mdp)
    np.testing.assert_allclose(before.mu, np.full((D, W), 1 / W) @ psi, rtol=1e-5)
    fitted, metrics = model.train(jr.key(0), mdp, before, rows_of(counts))
    rows = jnp.asarray(phi.reshape(-1, D)), jnp.asarray(psi), jnp.asarray(counts)
    expected = linear_core.most_likely(*rows)[0] if method == "likelihood" else linear_core.regression(*rows)
    np.testing.assert_allclose(fitted.mu, np.asarray(expected) @ psi, atol=1e-5)
    loss = -log_likelihood(expected, phi, psi, counts) / counts.sum()
    assert float(metrics["model_loss"]) == pytest.approx(loss, rel=1e-3)
    assert ("likelihood_gap" in metrics) == (method == "likelihood")
    p = np.asarray(fitted.probabilities())
    assert p.min() > -1e-6
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)


# The task


@pytest.mark.parametrize("seed", [0, 1])
def test_the_task_is_what_its_docstring_says(seed):
    problem = CoreMDP(seed=seed).build()
    mdp, model = problem.world.mdp, problem.model
    p = np.asarray(mdp.transition.probabilities())
    assert p.shape == (15, 4, 15)
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)
    check_norm(problem.features, mdp)
    M = experiment.true_core(mdp, model)
    np.testing.assert_allclose(model.member(jnp.asarray(M, jnp.float32)).mu, mdp.transition.mu, atol=1e-5)
    np.testing.assert_allclose(M.sum(1), 1, rtol=1e-4)
    back = M[1:, [0, 5]].sum(1)  # psi_0 and psi_5 are those of level 0
    np.testing.assert_allclose(back, 0.1, atol=1e-4)
    assert np.sum(np.asarray(problem.features.phi)[..., 0] < 0.5) == 15  # one action leads up in every state
    visits = np.linalg.matrix_power(np.asarray(p, np.float64).mean(1), 50)[0]
    paid = np.asarray(mdp.reward.table)
    assert paid[1 + visits[1:].argmin()] == 1
    assert paid[visits.argmax()] == pytest.approx(0.1)
    assert np.count_nonzero(paid) == 2


def test_only_a_learner_that_explores_is_not_kept_by_the_small_reward():
    """Of two seeds of 10 policies each; the optimum is 1.31, and the best for the small reward alone 0.91."""
    values = {}
    for settings in ((), ("bonus_scale=0",)):
        problem, algo = build(resolve("linear-core", None, (100, 101), 2_000, settings))
        mdp, keys = problem.world.mdp, jax.vmap(jr.key)(jnp.array([100, 101]))
        learner = algo.start(keys, mdp, 10)
        for n in range(1, 11):
            learner = algo.iterate(keys, problem.world, learner, n).learner
        values[settings] = experiment.exact_values(mdp, learner.deployed(), 2)
    planner = ValueIteration()
    best = float(planner.promise(jr.key(0), mdp, planner.init(jr.key(0), mdp)))
    assert np.all(values[()] > 0.85 * best)
    assert np.all(values[("bonus_scale=0",)] < 0.75 * best)


# What replaces ln |Upsilon|


def test_the_net_covers_the_class():
    """For any row there is one of the net with row <= (1 + kappa) times it."""
    m, rng = 7, np.random.default_rng(0)
    total = m + W - 1
    net = np.array([k for k in itertools.product(range(total + 1), repeat=W) if sum(k) == total]) / total
    assert math.log(len(net)) == pytest.approx(covering.log_net(m, 1, W))
    for row in (*rng.dirichlet(np.full(W, 0.3), 200), *np.eye(W)):
        assert np.any(np.all(row <= (1 + (W - 1) / m) * net + 1e-9, axis=1))


def test_what_replaces_the_logarithm_of_the_class():
    assert covering.log_members(1_000, 20, 5, 1, 0.1) == pytest.approx(0, abs=1e-9)  # one member
    sizes = [covering.log_members(n, 20, 5, 8, 0.1) for n in (10, 1_000, 100_000)]
    assert np.all(np.diff(sizes) > 0)
    growth = [covering.log_members(10**power, 20, 5, 8, 0.1) for power in (11, 12)]
    assert np.diff(growth) / 35 == pytest.approx(math.log(10), rel=0.03)  # d (d' - 1) ln n
    assert covering.log_members(1_000, 20, 5, 8, 0.1, tolerance=1.0) > sizes[1] + 0.5


def test_the_least_proved_scale_and_what_it_is_worth():
    def found(*settings, steps=2_000):
        config = resolve("linear-core", None, (0,), steps, settings)
        problem, algo = build(config)
        return proved_scale(algo, problem.world.mdp, config.num_iterations), standing(config, algo, problem).kind

    size = covering.log_members(2_000, 20, 5, 8, DELTA, linear_core.TOLERANCE)
    c = 20 / 2 * math.sqrt(0.01 * 5 + 2 * (size + math.log(20 / DELTA)) / 100)
    assert found() == (pytest.approx(c), "heuristic")
    assert found(f"bonus_scale={c * 1.001}")[1] == "bound"
    assert found("bonus_scale=999", "model.method=regression") == (None, "heuristic")
    assert found("fit_samples=100", "draws=iid", steps=10_000)[0] is None  # K is too small for the covariance
    paper = "fit_samples=100", "draws=iid", "samples_per_policy=1000000", "ridge=1"
    size = covering.log_members(100, 1, 5, 8, DELTA / 2, linear_core.TOLERANCE)
    c = 20 * math.sqrt(5 + 2 * (size + math.log(1 / (DELTA / 2))) / 100)
    assert found(*paper, steps=12_000_000)[0] == pytest.approx(c)


@pytest.mark.parametrize(("gap", "kind"), [(None, "bound"), (np.float32(0.1), "bound"), (0.2, "heuristic")])
def test_nothing_is_proved_for_a_run_with_a_fit_that_is_far_from_the_maximum(gap, kind):
    config = resolve("linear-core", None, (0,), 2_000, ("bonus_scale=999",))
    problem, algo = build(config)
    rows = [{"likelihood_gap": None}, {"likelihood_gap": gap and float(gap)}]
    assert standing(config, algo, problem, rows).kind == kind


def test_the_lemma_on_the_same_data():
    """The sum of TV^2 over the samples themselves, which uniform play chose step by step, is below its bound."""
    problem, algo = build(resolve("linear-core", None, range(32), 2_000))
    mdp, keys = problem.world.mdp, jax.vmap(jr.key)(jnp.arange(32))
    data, _ = problem.world.collect(keys, algo.start(keys, mdp, 1).policy, 200)
    truth = mdp.transition.probabilities()

    def summed(rows):
        fitted, _ = algo.model.train(jr.key(0), mdp, algo.model.init(jr.key(0), mdp), Replay(rows, jnp.array(0)))
        apart = 0.5 * jnp.abs(fitted.probabilities() - truth).sum(-1)
        return jnp.sum(apart[rows.state, rows.action] ** 2)

    sums = np.asarray(jax.jit(jax.vmap(summed))(data))
    bound = 2 * (covering.log_members(200, 1, 5, 8, DELTA, linear_core.TOLERANCE) + math.log(1 / DELTA))
    assert np.mean(sums > bound) <= DELTA
    assert sums.mean() > 0.5  # something is left to learn


# Bad input


def bad_factors(kind, phi, psi):
    if kind == "norm":
        phi[1, 2] = 2 * phi[1, 2]
    elif kind == "negative":
        phi[1, 2] = [1.5, -0.5, 0.0]
    elif kind == "sum":
        psi[1] = 2 * psi[1]
    elif kind == "nan":
        psi[2, 0] = np.nan
    elif kind == "shape":
        psi = psi[:, :-1]
    elif kind == "repeated":
        psi[1] = psi[0]
    return phi, psi


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("norm", r"phi\(1, 2\) has norm .* \(1 of 18 pairs"),
        ("negative", r"phi\(1, 2\) has norm 1.581 and sum 1, and is not a distribution"),
        ("sum", r"psi\[1\] is not a distribution of s' \(1 of 4"),
        ("nan", r"psi\[2\] is not a distribution"),
        ("shape", r"psi has shape \(4, 5\): give \[d', 6\]"),
        ("repeated", "psi has 4 distributions of which 3 are independent"),
    ],
)
def test_factors_that_give_no_distribution_are_refused(kind, message):
    phi, psi, _ = factors()
    with pytest.raises(ConfigError, match=message) as refused:
        model_of(*bad_factors(kind, phi, psi))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("linear-core --set task.core=3", "task.core=3: give 5 (rank) to 15 (states)"),
        ("linear-core --set task.core=20", "task.core=20: give 5 (rank) to 15 (states)"),
        ("linear-core --set task.states=3", "task.rank=5: give 1 to 3 (states)"),
        ("linear-core --set task.states=0", "task.states=0: give 1 or more"),
        ("linear-core --set task.rank=0", "task.rank=0: give 1 or more"),
        ("linear-core --set task.phi={folder}/long.npy", "long.npy: phi(0, 0) has norm 2 and sum 2"),
        ("linear-core --set task.psi={folder}/short.npy", "short.npy: psi[0] is not a distribution of s' (8 of 8"),
        ("linear-core --set task.psi={folder}/long.npy", "has shape (15, 4, 5); give [8, 15], or change the sizes"),
        ("linear-core --set task.psi={folder}/absent.npy", "absent.npy: not a .npy file of numbers"),
        ("linear-core --set model.method=ridge", "model.method=ridge: give one of likelihood, regression"),
        ("combination-lock --set model.name=core", "model.name=core: needs a task with a known phi and psi"),
    ],
)
def test_bad_input_is_one_line(words, named, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("long.npy", np.eye(5)[np.zeros((15, 4), int)] * 2)
    np.save("short.npy", np.full((8, 15), 0.01))
    assert main(["train", *words.format(folder=tmp_path).split()]) == 2
    line = capsys.readouterr().err.strip()
    assert named in line
    assert "\n" not in line


def test_phi_and_psi_from_files(tmp_path):
    phi, psi, _ = factors()
    np.save(tmp_path / "phi.npy", phi)
    np.save(tmp_path / "psi.npy", psi)
    files = {"phi": str(tmp_path / "phi.npy"), "psi": str(tmp_path / "psi.npy")}
    problem = CoreMDP(states=S, actions=A, rank=D, core=W, **files).build()
    np.testing.assert_array_equal(problem.model.psi, psi)
    np.testing.assert_array_equal(problem.features.phi, phi)
    rank = np.linalg.matrix_rank(np.asarray(problem.world.mdp.transition.probabilities()).reshape(-1, S), tol=1e-4)
    assert rank <= D


# The experiment


def test_the_experiments_runs_resolve_and_stand_for_what_they_say():
    for job in experiment.jobs():
        config = job.config()
        problem, algo = build(config)
        stands = standing(config, algo, problem)
        if job.label in ("certificate-theorem", "certificate-proved", "certificate-many-samples"):
            assert stands.kind == "bound"
        else:
            assert stands is None or stands.kind == "heuristic"


def test_the_measured_errors():
    rows = experiment.fit_error(SMOKE)
    assert {row["fit"] for row in rows} == {"likelihood", "regression", "likelihood, 1,024 members"}
    for row in rows:
        assert 0 <= row["mean_error"] <= row["largest_error"]
        assert row["share_under_bound"] in (1.0, "")
