"""The fit of a value net: one kernel and a loop over batches give the same net."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from pcmlp.nets import MLP
from pcmlp.planners.value_fit import fit_in_one_kernel, fit_step_by_step, fit_values, is_small

STEPS, RATE = 12, 1e-3


def batches(inputs, batch, steps=STEPS, key=0):
    """Batches of a smooth function."""
    x = jr.normal(jr.key(key), (steps, batch, inputs))
    return x, jnp.sin(x[..., 0]) + 0.5 * x[..., 1]


def begin(inputs, units=(64, 64), key=1):
    """A net that has taken some steps of Adam."""
    net = MLP.of(jr.key(key), (inputs, *units, 1), "tanh", bias=0.1)
    return fit_step_by_step(net, optax.adam(RATE).init(net), RATE, *batches(inputs, 32, 5))[:2]


@pytest.mark.parametrize(("inputs", "units", "batch"), [(3, (64, 64), 64), (17, (64, 64), 256), (45, (16, 32), 128)])
def test_one_kernel_takes_the_steps_of_the_loop(inputs, units, batch):
    net, state = begin(inputs, units)
    x, y = batches(inputs, batch)
    slow, fast = fit_step_by_step(net, state, RATE, x, y), fit_in_one_kernel(net, state, RATE, x, y, interpret=True)
    assert jax.tree.structure(fast) == jax.tree.structure(slow)
    assert fast[1][0].count == 5 + STEPS
    for ours, its in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert ours.shape == its.shape
        np.testing.assert_allclose(ours, its, rtol=2e-5, atol=2e-6)
    change = np.abs(np.asarray(slow[0].weights[0] - net.weights[0])).max()
    assert change > 1e-3  # far above the tolerance


def test_one_kernel_for_each_seed():
    seeds = [begin(5, key=key) for key in (1, 2)]
    data = [batches(5, 64, key=key) for key in (3, 4)]
    stacked = jax.tree.map(
        lambda *parts: jnp.stack(parts), *[(*start, *rows) for start, rows in zip(seeds, data, strict=True)]
    )
    together = jax.vmap(lambda net, state, x, y: fit_in_one_kernel(net, state, RATE, x, y, interpret=True))(*stacked)
    for i in range(2):
        alone = fit_in_one_kernel(*seeds[i], RATE, *data[i], interpret=True)
        for ours, its in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[i], its, rtol=1e-5, atol=1e-6)


def test_numbers_that_are_not_finite_are_seen():
    net, state = begin(3)
    x, y = batches(3, 64)
    _, (adam, *_), _ = fit_in_one_kernel(net, state, RATE, x, y.at[0, 0].set(jnp.inf), interpret=True)
    assert not all(np.isfinite(part).all() for part in jax.tree.leaves(adam.nu))


@pytest.mark.parametrize(
    ("sizes", "activation", "normed", "batch", "fits"),
    [
        ((3, 64, 64, 1), "tanh", False, 64, True),
        ((128, 32, 64, 1), "tanh", False, 256, True),
        ((376, 64, 64, 1), "tanh", False, 64, False),
        ((3, 128, 64, 1), "tanh", False, 64, False),
        ((3, 60, 64, 1), "tanh", False, 64, False),
        ((3, 64, 64, 64, 1), "tanh", False, 64, False),
        ((3, 64, 64, 2), "tanh", False, 64, False),
        ((3, 64, 64, 1), "relu", False, 64, False),
        ((3, 64, 64, 1), "tanh", True, 64, False),
        ((3, 64, 64, 1), "tanh", False, 100, False),
    ],
)
def test_which_nets_are_small(sizes, activation, normed, batch, fits):
    assert is_small(MLP.of(jr.key(0), sizes, activation, normed=normed), batch) == fits


def test_without_a_gpu_there_is_a_loop():
    net, state = begin(3)
    x, y = batches(3, 64)
    for ours, its in zip(
        jax.tree.leaves(fit_values(net, state, RATE, x, y)),
        jax.tree.leaves(fit_step_by_step(net, state, RATE, x, y)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, its)
