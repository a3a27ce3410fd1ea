"""The heads of soft actor-critic: they turn the output of the actor into an action, and define its gradient.

    Box        u = tanh(x), x ~ N(mean(s), std(s)^2);  the gradient of Q(s, u) goes through u
    Choices    a ~ softmax(logits(s)) for each choice;  the gradient is that of the expectation of Q:

        grad E[Q(s, a)] = sum_k E[ sum_i grad pi_k(i|s) Q(s, a with option i for choice k) ]

With one choice, this is the exact expectation over its options (Christodoulou 2019). With several choices, it is
unbiased and evaluates the critic once for each option of each choice; an exact expectation would evaluate it for each
combination of options. A straight-through Gumbel softmax would need one evaluation, but it takes the gradient of the
critic between one-hot vectors, where the critic was never fitted. The entropy of choices is computed exactly. Its
target is a share of the entropy of uniformly drawn choices.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from pcmlp.choices import Choices
from pcmlp.heads import Categorical
from pcmlp.spaces import Vectors

LOG_STD = (-5.0, 2.0)
KEPT = 0.3  # the target entropy of a policy over choices, as a share of the largest entropy

Critic = Callable[[Float[Array, "n pair"]], Float[Array, " n"]]


class SquashedHead(eqx.Module):
    """A squashed Gaussian; the actor's output is its mean and log std."""

    size: int = eqx.field(static=True)

    @property
    def outputs(self) -> int:
        """The numbers that the actor returns."""
        return 2 * self.size

    def draw_noise(self, key: Key[Array, ""], *rows: int) -> Float[Array, "*rows a"]:
        """Draw standard normal noise."""
        return jr.normal(key, (*rows, self.size))

    def sample(
        self, output: Float[Array, " outputs"], noise: Float[Array, " a"]
    ) -> tuple[Float[Array, " a"], Float[Array, ""]]:
        """Return u in (-1, 1) and log pi(u|s), given the actor's output and noise."""
        return squash(output, noise)

    def expect(self, critic: Critic, pairs: Float[Array, "n pair"], output: Float[Array, "n _"]) -> Float[Array, " n"]:
        """Return the values of pairs of a state and an action; the gradient goes through the actions."""
        return critic(pairs)

    def target_entropy(self, per_dimension: float | Float[Array, ""]) -> float | Float[Array, ""]:
        """Return the target entropy."""
        return per_dimension * self.size

    def measure(self, output: Float[Array, "n outputs"]) -> dict[str, Float[Array, ""]]:
        """Return the mean std of x, as a measure of the policy's randomness."""
        return {"noise_std": jnp.mean(jnp.exp(jnp.clip(output[:, self.size :], *LOG_STD)))}


class ChoosingHead(eqx.Module):
    """A categorical distribution for each choice; the actor's output is the logits."""

    choices: Choices

    @property
    def outputs(self) -> int:
        """The numbers that the actor returns."""
        return self.choices.size

    def draw_noise(self, key: Key[Array, ""], *rows: int) -> Float[Array, "*rows a"]:
        """Draw Gumbel noise."""
        return jr.gumbel(key, (*rows, self.choices.size))

    def sample(
        self, output: Float[Array, " a"], noise: Float[Array, " a"]
    ) -> tuple[Float[Array, " a"], Float[Array, ""]]:
        """Return one-hot choices, and the expectation of log pi over all choices (not log pi of these choices)."""
        categorical = Categorical(output, self.choices)
        return jax.lax.stop_gradient(categorical.at(noise)), -categorical.entropy()

    def expect(self, critic: Critic, pairs: Float[Array, "n pair"], output: Float[Array, "n a"]) -> Float[Array, " n"]:
        """Return the expected values of pairs if one choice is drawn again. The value is the mean over the choices, its
        gradient their sum."""
        size, count = self.choices.size, len(self.choices.sizes)
        chances = jnp.exp(jax.vmap(lambda row: Categorical(row, self.choices).log_probs())(output))
        choice = jnp.repeat(jnp.arange(count), jnp.array(self.choices.sizes), total_repeat_length=size)
        other = (choice[:, None] != choice[None, :]).astype(jnp.float32)
        action = pairs[:, -size:]
        anew = action[:, None, :] * other[None] + jnp.eye(size)[None]  # [n, option, a]
        states = jnp.broadcast_to(pairs[:, None, :-size], (*anew.shape[:2], pairs.shape[1] - size))
        rows = jnp.concatenate([states, anew], axis=2).reshape(-1, pairs.shape[1])
        worth = jax.lax.stop_gradient(critic(rows).reshape(chances.shape))
        total = jnp.sum(chances * worth, axis=1)  # of `count` expectations: their mean has a gradient `count` too small
        return total - jax.lax.stop_gradient((1.0 - 1.0 / count) * total)

    def target_entropy(self, per_dimension: float | Float[Array, ""]) -> float:
        """Return the target entropy; `per_dimension` is for densities, whose entropy may be negative."""
        return KEPT * self.choices.largest_entropy

    def measure(self, output: Float[Array, "n a"]) -> dict[str, Float[Array, ""]]:
        """Return the mean entropy of the policy, divided by that of uniformly drawn choices."""
        entropy = jax.vmap(lambda row: Categorical(row, self.choices).entropy())(output)
        return {"noise_entropy": jnp.mean(entropy) / self.choices.largest_entropy}


SoftHead = SquashedHead | ChoosingHead


def soft_head(actions: Vectors) -> SoftHead:
    """Return the head for a space of actions."""
    return ChoosingHead(actions) if isinstance(actions, Choices) else SquashedHead(actions.size)


def squash(output: Float[Array, " two_a"], noise: Float[Array, " a"]) -> tuple[Float[Array, " a"], Float[Array, ""]]:
    """Return u in (-1, 1) and log pi(u|s), given the actor's output and standard normal numbers."""
    mean, log_std = jnp.split(output, 2)
    log_std = jnp.clip(log_std, *LOG_STD)
    x = mean + jnp.exp(log_std) * noise
    gaussian = -jnp.sum(0.5 * noise**2 + log_std + 0.5 * math.log(2 * math.pi))
    # log(1 - tanh(x)^2), in a form that avoids cancellation
    correction = 2.0 * jnp.sum(math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
    return jnp.tanh(x), gaussian - correction
