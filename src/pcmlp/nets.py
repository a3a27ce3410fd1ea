"""Networks, Gaussian heads and normalisers as records of arrays (paper: section 6 and the tables of appendix D).

    net        h_0 = x,  h_k = act(h_{k-1} W_k + b_k),  y = h_last W + b
    Gaussian   a ~ N(mean(s), diag(exp(2 log_std))), log_std the same for every s
    normaliser x -> (x - mean) / std

Nothing but arrays changes, so a network goes through `jit`, `vmap`, `scan` and an optimiser as it is. All are functions
of one input. Weights are [inputs, outputs]: under `vmap` a layer is then one product with no transposed copy.
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
from jaxtyping import Array, Bool, Float, Key, PyTree

from pcmlp.types import ConfigError

Activation = Literal["relu", "tanh", "silu"]
# 1 / E[act'(x)^2], at small x for tanh: a layer keeps the scale of its input
_GAIN = {"relu": 2.0, "tanh": 1.0, "silu": 2.6}


class MLP(eqx.Module):
    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: Activation = eqx.field(static=True)
    normed: bool = eqx.field(static=True, default=False)  # whether hidden layers are (Ba et al. 2016), before `act`

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
        """Gaussian weights of variance gain / inputs (He et al. 2015), the last layer's times `last`^2; biases of std
        `bias`.

        Not orthogonal: that takes a QR factorisation for each layer, which `linalg` says not to vmap.
        """
        if len(sizes) < 2 or min(sizes) < 1:
            raise ConfigError(f"a network of sizes {sizes}: give at least an input and an output, all 1 or more")
        pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
        std = [math.sqrt(_GAIN[activation] / i) for i, _ in pairs[:-1]] + [last / math.sqrt(pairs[-1][0])]
        # One draw for all layers: a draw for each takes longer to compile than the rest of a network.
        drawn = jr.normal(key, (sum((i + 1) * o for i, o in pairs),))
        ends = np.cumsum([(i + 1) * o for i, o in pairs])
        layers = [x.reshape(i + 1, o) for x, (i, o) in zip(jnp.split(drawn, ends[:-1]), pairs, strict=True)]
        weights = tuple(s * x[:-1] for s, x in zip(std, layers, strict=True))
        biases = tuple(bias * x[-1] for x in layers)
        return MLP(weights, biases, activation, normed)

    def hidden(self, x: Float[Array, " i"], precision: str | None = None) -> Float[Array, " h"]:
        """The last hidden layer. Where a GPU's shortened products (TF32) are not enough, precision="highest"."""
        act = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": silu}[self.activation]
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.matmul(x, W, precision=precision) + b
            x = act(layer_norm(x) if self.normed else x)
        return x

    def __call__(self, x: Float[Array, " i"], precision: str | None = None) -> Float[Array, " o"]:
        return jnp.matmul(self.hidden(x, precision), self.weights[-1], precision=precision) + self.biases[-1]


def silu(x: Float[Array, " h"]) -> Float[Array, " h"]:
    """x / (1 + exp(-x)), by the tanh, which takes half as long on a CPU."""
    return 0.5 * x * (1.0 + jnp.tanh(0.5 * x))


def layer_norm(x: Float[Array, " h"]) -> Float[Array, " h"]:
    x = x - jnp.mean(x)
    return x * jax.lax.rsqrt(jnp.mean(x**2) + 1e-5)


class Gaussian(eqx.Module):
    """N(mean, diag(exp(2 log_std)))."""

    mean: Float[Array, " a"]
    log_std: Float[Array, " a"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        return self.mean + jnp.exp(self.log_std) * jr.normal(key, self.mean.shape)

    def log_prob(self, x: Float[Array, " a"]) -> Float[Array, ""]:
        z = (x - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi))

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(self.log_std + 0.5 * (1.0 + math.log(2 * math.pi)))

    def kl(self, other: "Gaussian") -> Float[Array, ""]:
        """KL(self | other), written so that small ones do not drown in the rounding of terms that cancel."""
        ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * jnp.sum(jnp.expm1(ratio) - ratio + z**2)


class GaussianHead(eqx.Module):
    """A Gaussian for each input: what a stochastic policy is made of."""

    net: MLP
    log_std: Float[Array, " a"]

    @staticmethod
    def of(
        key: Key[Array, ""], inputs: int, outputs: int, *, sizes: tuple[int, ...] = (32, 32), std: float = 1.0
    ) -> "GaussianHead":
        """Means near 0 at first, whatever the input: the first policy is noise and prefers nothing."""
        if not std > 0:
            raise ConfigError(f"policy.std={std}: give a positive number")
        net = MLP.of(key, (inputs, *sizes, outputs), "tanh", last=0.01)
        return GaussianHead(net, jnp.full(outputs, math.log(std), jnp.float32))

    def __call__(self, x: Float[Array, " i"]) -> Gaussian:
        return Gaussian(self.net(x), self.log_std)


class Normaliser(eqx.Module):
    """Units for vectors. It moves only when it is fitted again: a frozen one is one that nobody refits."""

    mean: Float[Array, " n"]
    std: Float[Array, " n"]

    @staticmethod
    def identity(size: int) -> "Normaliser":
        return Normaliser(jnp.zeros(size), jnp.ones(size))

    @staticmethod
    def fit(x: Float[Array, "m n"], valid: Bool[Array, " m"], floor: Float[Array, " n"] | None = None) -> "Normaliser":
        """From the rows that are `valid`. A std below `floor` becomes that; without one, a coordinate that does not
        vary has no unit and keeps 1: a tiny std would make noise of its first change."""
        count = jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
        mean = jnp.sum(jnp.where(valid[:, None], x, 0.0), axis=0) / count
        std = jnp.sqrt(jnp.sum(jnp.where(valid[:, None], (x - mean[None, :]) ** 2, 0.0), axis=0) / count)
        if floor is None:
            return Normaliser(mean, jnp.where(std > 1e-6 * (1.0 + jnp.abs(mean)), std, 1.0))
        return Normaliser(mean, jnp.maximum(std, floor))

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return (x - self.mean) / self.std

    def inverse(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.mean + self.std * z


class Running(eqx.Module):
    """Mean and spread of all vectors so far, a batch at a time (Chan et al. 1983)."""

    count: Float[Array, ""]
    mean: Float[Array, " n"]
    squares: Float[Array, " n"]  # the sum of squared distances from the mean

    @staticmethod
    def nothing(size: int) -> "Running":
        return Running(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))

    def add(self, x: Float[Array, "m n"], valid: Bool[Array, " m"]) -> "Running":
        added = jnp.sum(valid, dtype=jnp.float32)
        count = jnp.maximum(self.count + added, 1.0)
        middle = jnp.sum(jnp.where(valid[:, None], x, 0.0), axis=0) / jnp.maximum(added, 1.0)
        around = jnp.sum(jnp.where(valid[:, None], (x - middle[None, :]) ** 2, 0.0), axis=0)
        step = middle - self.mean
        squares = self.squares + around + step**2 * (self.count * added / count)
        return Running(self.count + added, self.mean + step * (added / count), squares)

    def units(self) -> Normaliser:
        """A coordinate that has not varied keeps 1, as in `Normaliser.fit`."""
        std = jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))
        return Normaliser(self.mean, jnp.where(std > 1e-6 * (1.0 + jnp.abs(self.mean)), std, 1.0))


def in_units(net: MLP, old: Normaliser, new: Normaliser) -> MLP:
    """The net that gives of `new`(x) what `net` gives of `old`(x); inputs after those of x are left as they are."""
    W, b = net.weights[0], net.biases[0]
    size = old.mean.shape[0]
    scaled = jnp.concatenate([W[:size] * (new.std / old.std)[:, None], W[size:]])
    moved = b + ((new.mean - old.mean) / old.std) @ W[:size]
    return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), net, (scaled, moved))


def descend(
    optimiser: optax.GradientTransformation, gradient: PyTree, state: PyTree, params: PyTree
) -> tuple[PyTree, PyTree]:
    """One step of an optimiser: the new parameters and its new state."""
    with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in integers and raises floats to them
        update, state = optimiser.update(gradient, state, params)
    return optax.apply_updates(params, update), state


def one_by_one(function: Callable, inputs: PyTree) -> PyTree:
    """function(x) for each x along the leading axis of all arrays: one after another on a CPU, whose products of
    several nets' matrices take longer than the same products alone, side by side elsewhere."""
    mapped = jax.lax.map if jax.default_backend() == "cpu" else lambda f, xs: jax.vmap(f)(xs)
    return mapped(function, inputs)
