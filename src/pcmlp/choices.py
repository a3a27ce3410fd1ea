"""Discrete actions as vectors: choices among options, one-hot.

    x = (e_i1, ..., e_ik),    e_i is the unit vector of option i;  k = 1: Discrete,  k > 1: MultiDiscrete, MultiBinary

Model, bonus, replay and reward functions take every action as a vector of floats, so they have no special case for
choices. Only the parts that make actions have one: policies, planners, noise, and the boundary to an environment.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.errors import ConfigError

Number = float | Float[Array, ""]

_TINY = 1e-20  # least probability, so that its logarithm is finite


class Choices(eqx.Module):
    """One or more choices among options. An action is the vector that joins the one-hot vectors of all choices.

    Everything that learns takes this vector; the environment takes the integers of the chosen options.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)  # the number of options of each choice
    firsts: tuple[int, ...] = eqx.field(static=True, default=())  # the environment's integers of the first options
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)  # of the environment's integers
    dtype: str = eqx.field(static=True, default="int64")  # of these integers

    def __check_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError(f"choices of {self.sizes} options: give at least one choice, each of 1 option or more")
        count = len(self.sizes)
        if len(self.firsts) not in (0, count) or math.prod(self.integer_shape) != count:
            raise ConfigError(f"choices of {self.sizes} options: give firsts and a shape for {count} integers")

    @property
    def size(self) -> int:
        """The number of coordinates, which is the number of options of all choices."""
        return sum(self.sizes)

    @property
    def integer_shape(self) -> tuple[int, ...]:
        """The shape of the environment's integers."""
        return (len(self.sizes),) if self.shape is None else self.shape

    @property
    def low(self) -> Float[Array, " n"]:
        """The lower bounds."""
        return jnp.zeros(self.size)

    @property
    def high(self) -> Float[Array, " n"]:
        """The upper bounds."""
        return jnp.ones(self.size)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Both bounds as NumPy arrays."""
        return np.zeros(self.size, np.float32), np.ones(self.size, np.float32)

    @property
    def middle(self) -> Float[Array, " n"]:
        """The vector that prefers no option: the mean of uniformly drawn choices."""
        return jnp.concatenate([jnp.full(size, 1.0 / size) for size in self.sizes])

    @property
    def half(self) -> Float[Array, " n"]:
        """Half of the range of each coordinate."""
        return jnp.full(self.size, 0.5)

    @property
    def largest_entropy(self) -> float:
        """The entropy of uniformly drawn choices, in nats; at least a tiny number, so that one can divide by it."""
        return max(sum(math.log(size) for size in self.sizes), _TINY)

    def is_bounded(self) -> bool:
        """Return True: one-hot vectors have bounds."""
        return True

    def split(self, x: Float[Array, " n"]) -> list[Float[Array, " options"]]:
        """Return the part of each choice."""
        return jnp.split(x, np.cumsum(self.sizes)[:-1].tolist())

    def sample(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Draw every choice uniformly."""
        return self.clip(jr.uniform(key, (self.size,)))

    def clip(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the nearest choices: for each, the option with the largest number; the first one if some are equal."""
        return jnp.concatenate([jax.nn.one_hot(jnp.argmax(part), part.shape[0]) for part in self.split(x)])

    def redraw(self, shares: Float[Array, " n"], new: Number, noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Draw choices with probability `shares`, or uniformly with probability `new`.

        `noise` is standard normal; noise of 0 gives the most probable options. A monotone function turns it into Gumbel
        noise g, with which option i has the largest log p_i + g_i with probability p_i. So noise that is correlated in
        time gives choices that stay the same for some steps, and the probabilities of each single step are right.
        """
        probability = (1.0 - new) * shares + new * self.middle
        gumbel = -jnp.log(-jax.scipy.special.log_ndtr(noise))
        return self.clip(jnp.log(jnp.maximum(probability, _TINY)) + gumbel)

    def disturb(self, shares: Float[Array, " n"], std: Number, noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Draw choices again with the probability for noise of this std, in half ranges (`share_redrawn`)."""
        return self.redraw(shares, share_redrawn(std), noise)

    def from_unit(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the vector unchanged: one-hot vectors are not scaled."""
        return u

    def to_unit(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the vector unchanged."""
        return x

    def to_integers(self, x: np.ndarray) -> np.ndarray | np.integer:
        """Return the environment's integers of the nearest choices; vectors lie along the last axis."""
        parts = np.split(x, np.cumsum(self.sizes)[:-1], axis=-1)
        chosen = np.stack([part.argmax(axis=-1) for part in parts], axis=-1) + np.array(self.firsts or 0)
        # The empty index makes a single integer of an array of one.
        return chosen.astype(self.dtype).reshape((*x.shape[:-1], *self.integer_shape))[()]

    def to_vectors(self, integers: np.ndarray | np.integer) -> np.ndarray:
        """Return the vectors of the environment's integers."""
        leading = integers.shape[: integers.ndim - len(self.integer_shape)]
        chosen = integers.reshape((*leading, len(self.sizes))) - np.array(self.firsts or 0)
        parts = [np.eye(size, dtype=np.float32)[chosen[..., i]] for i, size in enumerate(self.sizes)]
        return np.concatenate(parts, axis=-1)


def share_redrawn(std: Number) -> Number:
    """Return the probability of drawing a choice again for noise of this std: 0, 1/2 and 1 for a std of 0, 1 and
    infinity. So a planner's settings of noise mean nearly the same for choices as for a box."""
    return std / (1.0 + std)
