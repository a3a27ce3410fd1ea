"""The action distribution of a stochastic policy: a head turns a state into a distribution (paper: section 6).

    Box        u ~ N(mean(s), diag(exp(2 log_std)))                          log_std is the same for every s
    Choices    option i of a choice with probability softmax(logits(s))_i    the choices of an action are independent

Both are used in the same way: noise is drawn before the state is known, and `at` turns it into an action. With noise 0,
the action is the mode: the mean, or the most probable option of every choice. The metric is the Hessian of the KL at
equal distributions. TRPO measures a change of the parameters with it: 1 / std^2 for a mean, diag(p) - p p^T for logits.

paper: Gaussian policies / here: also categorical policies, for discrete actions [BT].
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from pcmlp.choices import Choices
from pcmlp.errors import ConfigError
from pcmlp.nets import MLP, Gaussian
from pcmlp.spaces import Vectors


class GaussianHead(eqx.Module):
    """The network of a stochastic policy: it gives a Gaussian for each input; the std is the same for all inputs."""

    net: MLP
    log_std: Float[Array, " a"]

    @staticmethod
    def of(
        key: Key[Array, ""], inputs: int, outputs: int, *, sizes: tuple[int, ...] = (32, 32), std: float = 1.0
    ) -> "GaussianHead":
        """Draw a network whose means are near 0 for every input, so that the first policy prefers no direction."""
        if not std > 0:
            raise ConfigError(f"std={std}: give a number above 0")
        net = MLP.of(key, (inputs, *sizes, outputs), "tanh", last=0.01)
        return GaussianHead(net, jnp.full(outputs, math.log(std), jnp.float32))

    def __call__(self, x: Float[Array, " i"]) -> Gaussian:
        return Gaussian(self.net(x), self.log_std)

    @property
    def dims(self) -> int:
        """The number of dimensions of an action."""
        return self.log_std.shape[0]

    def draw_noise(self, key: Key[Array, ""]) -> Float[Array, " a"]:
        """Draw standard normal noise."""
        return jr.normal(key, self.log_std.shape)

    def parameters(self, x: Float[Array, "m i"]) -> tuple[Float[Array, "m a"], Float[Array, " a"]]:
        """Return the means of rows, and the log std of all of them."""
        return jax.vmap(self.net)(x), self.log_std

    def apply_metric(
        self, change: tuple[Float[Array, "m a"], Float[Array, " a"]], at: PyTree, share: Float[Array, " m"] | None
    ) -> tuple[Float[Array, "m a"], Float[Array, " a"]]:
        """Return the product of the metric at the parameters `at` and a change of them: its mean over rows, weighted by
        `share`."""
        shift, log = change
        scaled = shift * jnp.exp(-2.0 * at[1])[None, :] / shift.shape[0]
        return scaled if share is None else scaled * share[:, None], 2.0 * log

    def measure(self, x: Float[Array, "m i"]) -> dict[str, Float[Array, ""]]:
        """Return the mean std of the policy's noise, as a measure of its randomness."""
        return {"noise_std": jnp.mean(jnp.exp(self.log_std))}


class Categorical(eqx.Module):
    """Independent categorical distributions, one for each choice."""

    logits: Float[Array, " n"]
    choices: Choices

    def at(self, noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the options that Gumbel noise gives; with noise 0, the most probable options."""
        return self.choices.clip(self.logits + noise)

    def log_probs(self) -> Float[Array, " n"]:
        """Return the logarithms of the probabilities of all options."""
        return jnp.concatenate([jax.nn.log_softmax(part) for part in self.choices.split(self.logits)])

    def log_prob(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """Return the log-probability of the options x."""
        return jnp.sum(x * self.log_probs())

    def entropy(self) -> Float[Array, ""]:
        """Return the entropy, in nats."""
        log = self.log_probs()
        return -jnp.sum(jnp.exp(log) * log)

    def kl(self, other: "Categorical") -> Float[Array, ""]:
        """Return KL(self | other). Each term is at least 0, so that a small KL is precise."""
        ours, theirs = self.log_probs(), other.log_probs()
        p, ratio = jnp.exp(ours), theirs - ours
        # q - p; where the two are close, p (q / p - 1) is more precise
        difference = jnp.where(ratio < 1, p * jnp.expm1(jnp.minimum(ratio, 1.0)), jnp.exp(theirs) - p)
        return jnp.sum(difference - p * ratio)


class CategoricalHead(eqx.Module):
    """The network of a stochastic policy over choices."""

    net: MLP
    choices: Choices

    @staticmethod
    def of(key: Key[Array, ""], inputs: int, choices: Choices, *, sizes: tuple[int, ...]) -> "CategoricalHead":
        """Draw a network whose logits are near 0 for every input, so that the first policy prefers no option."""
        return CategoricalHead(MLP.of(key, (inputs, *sizes, choices.size), "tanh", last=0.01), choices)

    def __call__(self, x: Float[Array, " i"]) -> Categorical:
        return Categorical(self.net(x), self.choices)

    @property
    def dims(self) -> int:
        """The number of choices."""
        return len(self.choices.sizes)

    def draw_noise(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Draw Gumbel noise."""
        return jr.gumbel(key, (self.choices.size,))

    def parameters(self, x: Float[Array, "m i"]) -> Float[Array, "m n"]:
        """Return the logits of rows."""
        return jax.vmap(self.net)(x)

    def apply_metric(
        self, change: Float[Array, "m n"], at: Float[Array, "m n"], share: Float[Array, " m"] | None
    ) -> Float[Array, "m n"]:
        """Return the product of the metric at the logits `at` and a change of them: its mean over rows, weighted by
        `share`."""

        def one(change: Float[Array, " n"], logits: Float[Array, " n"]) -> Float[Array, " n"]:
            p = jnp.exp(Categorical(logits, self.choices).log_probs())
            means = [jnp.full_like(part, jnp.sum(part)) for part in self.choices.split(p * change)]
            return p * (change - jnp.concatenate(means))

        scaled = jax.vmap(one)(change, at) / at.shape[0]
        return scaled if share is None else scaled * share[:, None]

    def measure(self, x: Float[Array, "m i"]) -> dict[str, Float[Array, ""]]:
        """Return the mean entropy of the policy, divided by that of uniformly drawn choices."""
        entropy = jax.vmap(lambda row: self(row).entropy())(x)
        return {"noise_entropy": jnp.mean(entropy) / self.choices.largest_entropy}


Head = GaussianHead | CategoricalHead


def head_of(key: Key[Array, ""], inputs: int, actions: Vectors, sizes: tuple[int, ...]) -> Head:
    """Return an untrained head for a space of actions."""
    if isinstance(actions, Choices):
        return CategoricalHead.of(key, inputs, actions, sizes=sizes)
    return GaussianHead.of(key, inputs, actions.size, sizes=sizes)
