"""Networks, Gaussians and normalisers as pytrees of arrays (paper: section 6 and the tables of appendix D).

    net        h_0 = x,  h_k = act(h_{k-1} W_k + b_k),  y = h_last W + b
    Gaussian   a ~ N(mean, diag(exp(2 log_std)))
    normaliser x -> (x - mean) / std

Only arrays change, so a network passes through `jit`, `vmap`, `scan` and an optimiser unchanged. All are functions
of one input. Weights are [inputs, outputs]: under `vmap` a layer is then one product without a transposed copy.
"""

import math
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.errors import ConfigError

Activation = Literal["relu", "tanh", "silu"]
# 1 / E[act'(x)^2], for tanh at small x, so that a layer keeps the scale of its input
_GAIN = {"relu": 2.0, "tanh": 1.0, "silu": 2.6}
_LARGEST_NORM = 1e18  # of a gradient: the square of a larger one is not finite in single precision
_MOST_WEIGHTS = 2**31 - 1  # arrays are indexed by 32 bits


class MLP(eqx.Module):
    """A multilayer perceptron, with layer norm (Ba et al. 2016) before the activation if it is `normed`."""

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: Activation = eqx.field(static=True)
    normed: bool = eqx.field(static=True, default=False)

    @staticmethod
    def of(
        key: Key[Array, ""],
        sizes: tuple[int, ...],
        activation: Activation,
        *,
        last: float = 1.0,
        bias: float = 0.0,
        normed: bool = False,
    ) -> "MLP":
        """Draw Gaussian weights of variance gain / inputs (He et al. 2015), those of the last layer times `last`, and
        biases of std `bias`.

        Weights are not orthogonal: that would take a QR factorisation per layer, which must not be vmapped (`linalg`).
        """
        if len(sizes) < 2 or min(sizes) < 1:
            raise ConfigError(f"a network of sizes {sizes}: give at least an input and an output, all 1 or more")
        pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
        if sum((i + 1) * o for i, o in pairs) > _MOST_WEIGHTS:
            raise ConfigError(f"a network of sizes {sizes}: has more than {_MOST_WEIGHTS} weights; give smaller sizes")
        std = [math.sqrt(_GAIN[activation] / i) for i, _ in pairs[:-1]] + [last / math.sqrt(pairs[-1][0])]
        # One draw for all layers: separate draws take longer to compile than the rest of a network.
        numbers = jr.normal(key, (sum((i + 1) * o for i, o in pairs),))
        ends = np.cumsum([(i + 1) * o for i, o in pairs])
        layers = [x.reshape(i + 1, o) for x, (i, o) in zip(jnp.split(numbers, ends[:-1]), pairs, strict=True)]
        weights = tuple(s * x[:-1] for s, x in zip(std, layers, strict=True))
        biases = tuple(bias * x[-1] for x in layers)
        return MLP(weights, biases, activation, normed)

    def hidden(self, x: Float[Array, " i"], precision: str | None = None) -> Float[Array, " h"]:
        """Return the last hidden layer. Give precision="highest" where a GPU's TF32 products are not precise enough."""
        act = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": silu}[self.activation]
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.matmul(x, W, precision=precision) + b
            x = act(layer_norm(x) if self.normed else x)
        return x

    def __call__(self, x: Float[Array, " i"], precision: str | None = None) -> Float[Array, " o"]:
        """Return the output for one input."""
        return jnp.matmul(self.hidden(x, precision), self.weights[-1], precision=precision) + self.biases[-1]


def silu(x: Float[Array, " h"]) -> Float[Array, " h"]:
    """Return x / (1 + exp(-x)), by the tanh, which takes half as long on a CPU."""
    return 0.5 * x * (1.0 + jnp.tanh(0.5 * x))


def layer_norm(x: Float[Array, " h"]) -> Float[Array, " h"]:
    """Shift and scale a vector to mean 0 and variance 1."""
    x = x - jnp.mean(x)
    return x * jax.lax.rsqrt(jnp.mean(x**2) + 1e-5)


class Gaussian(eqx.Module):
    """The distribution N(mean, diag(exp(2 log_std)))."""

    mean: Float[Array, " a"]
    log_std: Float[Array, " a"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        """Draw a vector."""
        return self.at(jr.normal(key, self.mean.shape))

    def at(self, noise: Float[Array, " a"]) -> Float[Array, " a"]:
        """Return the vector for standard normal noise; with noise 0, the mean."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Float[Array, " a"]) -> Float[Array, ""]:
        """Return the log-density at x."""
        z = (x - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi))

    def entropy(self) -> Float[Array, ""]:
        """Return the differential entropy, in nats."""
        return jnp.sum(self.log_std + 0.5 * (1.0 + math.log(2 * math.pi)))

    def kl(self, other: "Gaussian") -> Float[Array, ""]:
        """Return KL(self | other), in a form that stays precise where it is small."""
        ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * jnp.sum(jnp.expm1(ratio) - ratio + z**2)


class Normaliser(eqx.Module):
    """Units for vectors: x -> (x - mean) / std."""

    mean: Float[Array, " n"]
    std: Float[Array, " n"]

    @staticmethod
    def identity(size: int) -> "Normaliser":
        """Return the normaliser that changes nothing."""
        return Normaliser(jnp.zeros(size), jnp.ones(size))

    @staticmethod
    def fit(x: Float[Array, "m n"], valid: Bool[Array, " m"], floor: Float[Array, " n"] | None = None) -> "Normaliser":
        """Take mean and std of the valid rows. A std below `floor` becomes `floor`; without a floor, a coordinate that
        does not vary keeps std 1, because a tiny std would turn its first change into noise."""
        count = jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
        mean = jnp.sum(jnp.where(valid[:, None], x, 0.0), axis=0) / count
        std = jnp.sqrt(jnp.sum(jnp.where(valid[:, None], (x - mean[None, :]) ** 2, 0.0), axis=0) / count)
        if floor is None:
            return Normaliser(mean, jnp.where(std > 1e-6 * (1.0 + jnp.abs(mean)), std, 1.0))
        return Normaliser(mean, jnp.maximum(std, floor))

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return x in these units."""
        return (x - self.mean) / self.std

    def inverse(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the x whose normalised value is z."""
        return self.mean + self.std * z


class RunningMoments(eqx.Module):
    """Mean and spread of all vectors so far, updated a batch at a time (Chan et al. 1983)."""

    count: Float[Array, ""]
    mean: Float[Array, " n"]
    squares: Float[Array, " n"]  # the sum of squared distances from the mean

    @staticmethod
    def empty(size: int) -> "RunningMoments":
        """Return the moments of no vectors."""
        return RunningMoments(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))

    def add(self, x: Float[Array, "m n"], valid: Bool[Array, " m"]) -> "RunningMoments":
        """Include the valid rows of a batch."""
        added = jnp.sum(valid, dtype=jnp.float32)
        count = jnp.maximum(self.count + added, 1.0)
        middle = jnp.sum(jnp.where(valid[:, None], x, 0.0), axis=0) / jnp.maximum(added, 1.0)
        around = jnp.sum(jnp.where(valid[:, None], (x - middle[None, :]) ** 2, 0.0), axis=0)
        step = middle - self.mean
        squares = self.squares + around + step**2 * (self.count * added / count)
        return RunningMoments(self.count + added, self.mean + step * (added / count), squares)

    def normaliser(self) -> Normaliser:
        """Return the units of all vectors so far; a coordinate that has not varied keeps 1, as in `Normaliser.fit`."""
        std = jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))
        return Normaliser(self.mean, jnp.where(std > 1e-6 * (1.0 + jnp.abs(self.mean)), std, 1.0))


def renormalise_inputs(net: MLP, old: Normaliser, new: Normaliser) -> MLP:
    """Return the net that computes from `new(x)` what `net` computes from `old(x)`; inputs after x stay as they are."""
    W, b = net.weights[0], net.biases[0]
    size = old.mean.shape[0]
    scaled = jnp.concatenate([W[:size] * (new.std / old.std)[:, None], W[size:]])
    moved = b + ((new.mean - old.mean) / old.std) @ W[:size]
    return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), net, (scaled, moved))


def descend(
    optimiser: optax.GradientTransformation, gradient: PyTree, state: PyTree, params: PyTree
) -> tuple[PyTree, PyTree]:
    """Take one step of an optimiser; return the new parameters and its new state."""
    with jax.numpy_dtype_promotion("standard"):  # optax raises floats to the power of integer step counts
        update, state = optimiser.update(gradient, state, params)
    return optax.apply_updates(params, update), state


def adam_with_decay(rate: float | Float[Array, ""], decay: float | Float[Array, ""]) -> optax.GradientTransformation:
    """Return Adam with L2 decay in the gradient. Decoupled decay, as in AdamW, would have no effect at 1e-5."""
    return optax.chain(optax.add_decayed_weights(decay), optax.adam(rate))


def guarded_sgd(
    loss: Callable[[PyTree, PyTree], tuple[Float[Array, ""], PyTree]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    state: PyTree,
    batches: PyTree,
    *,
    clip: float | Float[Array, ""] = math.inf,
    largest: float = math.inf,
) -> tuple[PyTree, PyTree, tuple[Float[Array, " steps"], PyTree, Bool[Array, " steps"]]]:
    """Take an optimiser step on each batch, with the gradient clipped to norm `clip`. A step is skipped if the loss is
    not finite or the unclipped norm is above `largest`. `loss(params, batch)` returns the loss and anything to report.

    Returns the parameters, the optimiser's state, and for each step the loss, the report and whether it was taken.
    optax.apply_if_finite is not used, because it accepts a NaN after several in a row.
    """
    params, rest = eqx.partition(params, eqx.is_array)

    def step(carry, batch):
        params, state = carry
        (value, report), gradient = jax.value_and_grad(lambda p: loss(eqx.combine(p, rest), batch), has_aux=True)(
            params
        )
        flat, _ = ravel_pytree(gradient)  # one sum for all layers: separate ones take long to compile
        square = flat @ flat
        sound = jnp.isfinite(value) & (square <= min(largest, _LARGEST_NORM) ** 2)
        shrink = jnp.minimum(1.0, clip * jax.lax.rsqrt(square))
        gradient = jax.tree.map(lambda g: shrink * g, gradient)
        carry = jax.lax.cond(sound, lambda: descend(optimiser, gradient, state, params), lambda: (params, state))
        return carry, (value, report, sound)

    (params, state), reports = jax.lax.scan(step, (params, state), batches)
    return eqx.combine(params, rest), state, reports


def tail_mean(values: Float[Array, " steps"], part: int) -> Float[Array, ""]:
    """Return the mean over the last 1 / `part` of the steps."""
    count = values.shape[0]
    return jnp.mean(values[count - -(-count // part) :])
