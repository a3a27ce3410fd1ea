"""Networks, Gaussians and normalisers against numpy and scipy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.integrate import quad

from pcmlp.errors import ConfigError
from pcmlp.heads import GaussianHead
from pcmlp.nets import MLP, Gaussian, Normaliser, descend

RNG = np.random.default_rng(0)
build, measure = eqx.filter_jit(MLP.of), eqx.filter_jit(Normaliser.fit)


@jax.jit
def hidden(net, x):
    return jax.vmap(net.hidden)(x)


@jax.jit
def output(net, x):
    return jax.vmap(net)(x)


def f32(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def gaussians(size):
    return Gaussian(f32(size), 0.5 * f32(size)), Gaussian(f32(size), 0.5 * f32(size))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_an_mlp_is_its_formula(activation):
    net = build(jr.key(0), (3, 7, 5, 2), activation, bias=0.5)
    x = f32(11, 3)
    act = np.tanh if activation == "tanh" else lambda z: np.maximum(z, 0)
    h = np.asarray(x, np.float64)
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        h = act(h @ np.asarray(W) + np.asarray(b))
    np.testing.assert_allclose(hidden(net, x), h, atol=1e-5)
    np.testing.assert_allclose(output(net, x), h @ np.asarray(net.weights[-1]) + np.asarray(net.biases[-1]), atol=1e-5)
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(net))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_layer_keeps_the_scale_of_its_input(activation):
    """Three layers of 600, inputs of norm sqrt(600) or, where tanh is linear, 0.1 of it: the mean square is kept."""
    size = 600
    unit = 1.0 if activation == "relu" else 0.1
    net = build(jr.key(1), (size, size, size, size, 1), activation)
    kept = np.mean(np.asarray(hidden(net, unit * f32(50, size))) ** 2) / unit**2
    assert kept == pytest.approx(1.0, rel=0.15)
    assert all((np.asarray(b) == 0).all() for b in net.biases)


def test_options_of_the_first_weights():
    net = build(jr.key(0), (50, 400, 300), "relu", last=0.01, bias=0.3)
    weights, biases = ([np.asarray(x) for x in xs] for xs in (net.weights, net.biases))
    assert np.std(weights[1]) == pytest.approx(0.01 / 20, rel=0.02)
    assert np.std(biases[0]) == pytest.approx(0.3, rel=0.1)
    assert np.std(weights[0]) == pytest.approx((2 / 50) ** 0.5, rel=0.02)


@pytest.mark.parametrize("sizes", [(3,), (), (3, 0, 1)])
def test_a_network_without_layers_is_refused(sizes):
    with pytest.raises(ConfigError, match="give at least an input and an output"):
        MLP.of(jr.key(0), sizes, "relu")


def test_a_network_with_too_many_weights_is_refused():
    with pytest.raises(ConfigError, match="more than 2147483647 weights; give smaller sizes"):
        MLP.of(jr.key(0), (3, 2_000_000_000, 2_000_000_000, 1), "relu")


def test_log_prob_and_entropy_are_scipys():
    p, _ = gaussians(4)
    reference = stats.multivariate_normal(np.asarray(p.mean), np.diag(np.exp(2 * np.asarray(p.log_std))))
    x = f32(20, 4)
    np.testing.assert_allclose(jax.vmap(p.log_prob)(x), reference.logpdf(np.asarray(x)), rtol=1e-5)
    assert float(p.entropy()) == pytest.approx(reference.entropy(), rel=1e-5)


def test_kl_is_its_integral():
    p, q = gaussians(3)
    total = 0.0
    for i in range(3):
        a, b = (stats.norm(float(d.mean[i]), np.exp(float(d.log_std[i]))) for d in (p, q))
        total += quad(lambda x, a=a, b=b: a.pdf(x) * (a.logpdf(x) - b.logpdf(x)), *a.interval(1 - 1e-13))[0]
    assert float(p.kl(q)) == pytest.approx(total, rel=1e-4)
    assert float(p.kl(p)) == 0.0
    assert float(p.kl(q)) != pytest.approx(float(q.kl(p)), rel=1e-2)


def test_a_tiny_kl_is_not_lost_in_rounding():
    p, _ = gaussians(5)
    step = np.float32(1e-3)
    q = Gaussian(p.mean, p.log_std + step)
    ratio = 2.0 * (np.asarray(p.log_std, np.float64) - np.asarray(q.log_std, np.float64))
    assert float(p.kl(q)) == pytest.approx(0.5 * np.sum(np.expm1(ratio) - ratio), rel=0.05)  # about 1e-5


def test_the_curvature_of_kl_is_the_fisher_information():
    """1 / std^2 for the mean and 2 for log_std: what a natural gradient needs is finite and exact at p = q."""
    p, _ = gaussians(3)
    by_mean = jax.jit(jax.hessian(lambda m: p.kl(Gaussian(m, p.log_std))))(p.mean)
    by_std = jax.jit(jax.hessian(lambda s: p.kl(Gaussian(p.mean, s))))(p.log_std)
    np.testing.assert_allclose(by_mean, np.diag(np.exp(-2 * np.asarray(p.log_std))), rtol=1e-5)
    np.testing.assert_allclose(by_std, 2 * np.eye(3), rtol=1e-5)


def test_samples_have_the_distribution():
    p, _ = gaussians(2)
    samples = np.asarray(jax.vmap(p.sample)(jr.split(jr.key(0), 4000)))
    for i in range(2):
        reference = stats.norm(float(p.mean[i]), np.exp(float(p.log_std[i])))
        assert stats.kstest(samples[:, i], reference.cdf).pvalue > 1e-3


def test_a_head_starts_as_noise():
    make = eqx.filter_jit(GaussianHead.of)
    head = make(jr.key(0), 4, 2)
    assert [W.shape for W in head.net.weights] == [(4, 32), (32, 32), (32, 2)]
    assert head.net.activation == "tanh"
    out = output(head, 3.0 * f32(50, 4))
    np.testing.assert_array_equal(out.log_std, 0.0)
    assert np.abs(out.mean).max() < 0.1
    np.testing.assert_allclose(make(jr.key(0), 4, 2, std=0.3).log_std, np.log(0.3), rtol=1e-6)
    with pytest.raises(ConfigError, match="std=0.0: give a number above 0"):
        GaussianHead.of(jr.key(0), 4, 2, std=0.0)


def test_a_normaliser_sees_valid_rows_only():
    x = np.asarray(5 + 3 * f32(40, 3)) * np.array([1, 1e-3, 1e3], np.float32)
    valid = RNG.random(40) < 0.5
    padded = np.where(valid[:, None], x, np.nan)
    units = measure(jnp.asarray(padded), jnp.asarray(valid))
    np.testing.assert_allclose(units.mean, x[valid].mean(0), rtol=1e-5)
    np.testing.assert_allclose(units.std, x[valid].std(0), rtol=1e-5)
    z = jax.vmap(units)(jnp.asarray(x[valid]))
    np.testing.assert_allclose(z.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(units.inverse)(z), x[valid], rtol=1e-5)


def test_a_coordinate_that_does_not_vary_has_unit_1_or_the_floor():
    x = jnp.concatenate([f32(30, 1), jnp.full((30, 1), 0.7)], axis=1)
    valid = jnp.ones(30, bool)
    assert measure(x, valid).std[1] == 1.0
    floored = measure(x, valid, jnp.array([0.1, 0.1]))
    np.testing.assert_allclose(floored.std, [np.std(np.asarray(x[:, 0])), 0.1], rtol=1e-5)
    nothing = measure(x, jnp.zeros(30, bool))
    np.testing.assert_array_equal([nothing.mean, nothing.std], [[0, 0], [1, 1]])


def test_a_step_of_adam():
    """Its first step is the rate times the gradient's sign; the second has both moments in it."""
    optimiser = optax.adam(0.1)
    params = {"x": jnp.array([1.0, -2.0])}
    gradients = [np.array([0.5, -3.0]), np.array([-1.0, -1.0])]
    state, m, v, x = optimiser.init(params), 0.0, 0.0, np.array([1.0, -2.0])
    for t, g in enumerate(gradients, start=1):
        params, state = descend(optimiser, {"x": jnp.asarray(g, jnp.float32)}, state, params)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(params["x"], x, rtol=1e-5)
