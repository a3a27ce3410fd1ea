"""Features of finite MDPs: a coordinate for each (s, a), or any table of them.

With one-hot phi the covariance is diagonal and its entries are visit frequencies, so the elliptical bonus is the
count-based one (paper: section 4, after Eq. 2).
"""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int


class OneHot(eqx.Module):
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, " d"]:
        return jax.nn.one_hot(state * self.num_actions + action, self.num_states * self.num_actions)


class Table(eqx.Module):
    """phi(s, a) read from a table: the features of a linear MDP."""

    phi: Float[Array, "S A d"]

    @property
    def sizes(self) -> tuple[int, int]:
        return self.phi.shape[0], self.phi.shape[1]

    def __call__(self, state: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, " d"]:
        return self.phi[state, action]
