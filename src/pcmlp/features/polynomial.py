"""Monomials of the state and action up to a degree.

    phi_j(s, a) = (1/C) prod_i ((s, a)_i / u_i)^e_ji,     sum_i e_ji <= degree

u_i is the bound of coordinate i. Monomials of coordinates within their bounds are at most 1, so C = sqrt(d) keeps the
norm at most 1; a KNR with these features has polynomial dynamics; with degree 1 and no constant, linear
dynamics.
"""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from pcmlp.errors import ConfigError
from pcmlp.replay import Transitions
from pcmlp.settings import SettingError, setting
from pcmlp.spaces import Box
from pcmlp.types import MDP, FeatureMap

_MOST = 5_000  # largest number of monomials: a larger covariance takes too long to factorise


class PolynomialFeatures(eqx.Module):
    """phi as scaled monomials."""

    units: Float[Array, " n"]  # u, a bound for each coordinate of (s, a)
    powers: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    scale: float  # 1/C

    @staticmethod
    def of(
        states: Box, actions: Box, *, degree: int, constant: bool = True, scale: float | None = None
    ) -> "PolynomialFeatures":
        """Return the monomials of degree 1 or more, and the constant one if asked for."""
        bound = jnp.concatenate([jnp.maximum(-b.low, b.high) for b in (states, actions)])
        powers = exponents(bound.shape[0], degree, constant)
        return PolynomialFeatures(bound, powers, 1.0 / math.sqrt(len(powers)) if scale is None else scale)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        x = jnp.concatenate([state, action]) / self.units
        degree = max(max(p) for p in self.powers)
        ladder = jnp.stack([x**k for k in range(degree + 1)])  # [degree + 1, n]
        chosen = ladder[np.array(self.powers), np.arange(x.shape[0])]  # [d, n]
        return self.scale * jnp.prod(chosen, axis=1)


class Polynomial(FeatureMap):
    """Monomials of the state and action up to a degree."""

    degree: int = setting(2, "largest total degree", least=1)
    scale: float | None = setting(None, "1/C; none: one over the square root of the number of monomials", above=0)

    def draw(self, key: Key[Array, ""], mdp: MDP, samples: Transitions) -> PolynomialFeatures:
        """Return the monomials of the MDP's states and actions."""
        if not (isinstance(mdp.states, Box) and isinstance(mdp.actions, Box)):
            raise ConfigError("features.name=polynomial: needs states and actions that are vectors; give one-hot")
        count = math.comb(mdp.states.size + mdp.actions.size + self.degree, self.degree)
        if count > _MOST:
            raise SettingError("degree", self.degree, f"{count} monomials; give a lower degree")
        return PolynomialFeatures.of(mdp.states, mdp.actions, degree=self.degree, scale=self.scale)


def exponents(variables: int, degree: int, constant: bool) -> tuple[tuple[int, ...], ...]:
    """Return the exponents of every monomial, by total degree."""
    return tuple(
        tuple(chosen.count(i) for i in range(variables))
        for total in range(0 if constant else 1, degree + 1)
        for chosen in itertools.combinations_with_replacement(range(variables), total)
    )
