"""The fit of a value net: a step of Adam on the squared error of each of many small batches.

    g = grad of mean (net(x) - y)^2,    m = .9 m + .1 g,    v = .999 v + .001 g^2
    theta = theta - rate (m / (1 - .9^t)) / (sqrt(v / (1 - .999^t)) + 1e-8)

On a GPU each step is a dozen kernels that take longer to start than to compute, and an update of TRPO with the paper's
batches has 310 steps: about four fifths of all its kernels. So there one kernel (Pallas) takes all steps. Weights and
moments of a net with two hidden layers of 64 units stay in the registers of one multiprocessor, and only the batches
are read. Each seed has a multiprocessor of its own.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, PyTree

from pcmlp.nets import MLP, descend
from pcmlp.trees import short_scan

_ROWS = 64  # rows of a batch that are processed together
_MOST_UNITS, _MOST_INPUTS = 64, 128  # what fits into registers
_LEAST = 16  # least side of a matrix product of the kernel
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # the constants of optax.adam
_WARPS = 8

Fitted = tuple[MLP, PyTree, Float[Array, " steps"]]


def fit_values(
    net: MLP,
    state: PyTree,
    rate: float | Float[Array, ""],
    x: Float[Array, "steps batch i"],
    y: Float[Array, "steps batch"],
) -> Fitted:
    """Return the net after a step of Adam on each batch, the state of `optax.adam`, and the loss of each batch."""
    fits = jax.default_backend() == "gpu" and is_small(net, x.shape[1])
    return (fit_in_one_kernel if fits else fit_step_by_step)(net, state, rate, x, y)


def is_small(net: MLP, batch: int) -> bool:
    """Return whether one kernel can fit the net."""
    inputs, *hidden, outputs = (net.weights[0].shape[0], *(weights.shape[1] for weights in net.weights))
    powers = all(units in (16, 32, 64) for units in hidden) and max(hidden, default=0) <= _MOST_UNITS
    plain = net.activation == "tanh" and not net.normed and outputs == 1
    return plain and len(hidden) == 2 and powers and inputs <= _MOST_INPUTS and batch % _ROWS == 0


def fit_step_by_step(
    net: MLP,
    state: PyTree,
    rate: float | Float[Array, ""],
    x: Float[Array, "steps batch i"],
    y: Float[Array, "steps batch"],
) -> Fitted:
    """Fit by a loop over the batches."""
    arrays, rest = eqx.partition(net, eqx.is_array)

    def loss(arrays, x, y):
        return jnp.mean((jax.vmap(eqx.combine(arrays, rest))(x)[:, 0] - y) ** 2)

    def step(carry, batch):
        arrays, state = carry
        value, gradient = jax.value_and_grad(loss)(arrays, *batch)
        return descend(optax.adam(rate), gradient, state, arrays), value

    (arrays, state), losses = short_scan(step, (arrays, state), (x, y))
    return eqx.combine(arrays, rest), state, losses


def fit_in_one_kernel(
    net: MLP,
    state: PyTree,
    rate: float | Float[Array, ""],
    x: Float[Array, "steps batch i"],
    y: Float[Array, "steps batch"],
    *,
    interpret: bool = False,
) -> Fitted:
    """Fit by one kernel; `interpret` runs it without a GPU, slowly."""
    adam, *others = state
    steps, batch, inputs = x.shape
    columns = max(_LEAST, 1 << (inputs - 1).bit_length())  # sides of matrices in a kernel are powers of two
    x = jnp.pad(x, ((0, 0), (0, 0), (0, columns - inputs)))
    arrays = [part for tree in (net, adam.mu, adam.nu) for part in flatten(tree, columns)]
    shapes = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in arrays]
    call = pl.pallas_call(
        functools.partial(kernel, steps=steps, batch=batch),
        out_shape=[*shapes, jax.ShapeDtypeStruct((steps,), x.dtype)],
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=1),
    )
    *fitted, losses = call(jnp.reshape(jnp.float32(rate), (1,)), jnp.reshape(adam.count, (1,)), x, y, *arrays)
    weights, mu, nu = (unflatten(tree, fitted[6 * i : 6 * i + 6]) for i, tree in enumerate((net, adam.mu, adam.nu)))
    return weights, (adam._replace(count=adam.count + steps, mu=mu, nu=nu), *others), losses


def flatten(tree: MLP, columns: int) -> list[Array]:
    """Return the arrays of a net, or of a moment, as the kernel takes them: more rows of zeros in the first layer, and
    vectors in the last."""
    (first, second, last), (*biases, final) = tree.weights, tree.biases
    first = jnp.pad(first, ((0, columns - first.shape[0]), (0, 0)))
    return [first, biases[0], second, biases[1], last[:, 0], jnp.pad(final, (0, _LEAST - 1))]


def unflatten(tree: MLP, arrays: list[Array]) -> MLP:
    """Return the tree with the arrays of the kernel."""
    first, bias, second, other, last, final = arrays
    weights = (first[: tree.weights[0].shape[0]], second, last[:, None])
    return eqx.tree_at(lambda t: (t.weights, t.biases), tree, (weights, (bias, other, final[:1])))


def kernel(rate_ref, count_ref, x_ref, y_ref, *refs, steps: int, batch: int) -> None:
    """Take all steps. `refs` are weights, first and second moments, before and after, and the losses."""
    *arrays, loss_ref = refs
    before, after = arrays[:18], arrays[18:]
    rate, count = rate_ref[0], count_ref[0].astype(jnp.float32)

    def add_rows(start, sums, weights, t):
        """Add the gradient and the squared errors of some rows of batch t."""
        first, bias, second, other, last, final = weights
        rows = pl.ds(start, _ROWS)
        x = x_ref[t, rows, :]
        lower = jnp.tanh(triton.dot(x, first) + bias[None, :])
        upper = jnp.tanh(triton.dot(lower, second) + other[None, :])
        error = jnp.sum(upper * last[None, :], axis=1) + jnp.sum(final) - y_ref[t, rows]
        slope = error * (2.0 / batch)
        to_upper = slope[:, None] * last[None, :] * (1.0 - upper * upper)
        to_lower = triton.dot(to_upper, second, trans_b=True) * (1.0 - lower * lower)
        gradient = (
            triton.dot(x, to_lower, trans_a=True),
            jnp.sum(to_lower, axis=0),
            triton.dot(lower, to_upper, trans_a=True),
            jnp.sum(to_upper, axis=0),
            jnp.sum(upper * slope[:, None], axis=0),
            jnp.where(jnp.arange(_LEAST) == 0, jnp.sum(slope), 0.0),
        )
        return tuple(a + b for a, b in zip(sums, (*gradient, jnp.sum(error * error)), strict=True))

    def take_step(t, carry):
        weights, mu, nu = carry
        nothing = (*(jnp.zeros(part.shape, jnp.float32) for part in weights), jnp.float32(0.0))
        *gradient, square = jax.lax.fori_loop(
            0, batch // _ROWS, lambda i, sums: add_rows(i * _ROWS, sums, weights, t), nothing
        )
        loss_ref[t] = square / batch
        time = count + t.astype(jnp.float32) + 1.0
        share, other = (1.0 - jnp.exp(time * math.log(decay)) for decay in (_FIRST, _SECOND))
        mu = tuple(_FIRST * m + (1.0 - _FIRST) * g for m, g in zip(mu, gradient, strict=True))
        nu = tuple(_SECOND * v + (1.0 - _SECOND) * g * g for v, g in zip(nu, gradient, strict=True))
        weights = tuple(
            w - rate * (m / share) / (jnp.sqrt(v / other) + _TINY) for w, m, v in zip(weights, mu, nu, strict=True)
        )
        return weights, mu, nu

    carry = tuple(tuple(ref[...] for ref in before[i : i + 6]) for i in (0, 6, 12))
    fitted = jax.lax.fori_loop(0, steps, take_step, carry)
    for ref, value in zip(after, [part for tree in fitted for part in tree], strict=True):
        ref[...] = value
