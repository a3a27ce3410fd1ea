"""Monomials of the state and action up to a degree, over one constant.

    phi_j(s, a) = (1/C) prod_i ((s, a)_i / u_i)^e_ji,     sum_i e_ji <= degree

u_i is the bound of coordinate i. Monomials of coordinates within their bounds are at most 1, so C = sqrt(d) keeps the
norm at most 1; a KNR with these features has polynomial dynamics, at degree 1 without the constant linear ones.
"""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcmlp.types import Box, ConfigError


def exponents(variables: int, degree: int, constant: bool) -> tuple[tuple[int, ...], ...]:
    """Of every monomial, by total degree: choosing `total` of the variables, with repetition, is a monomial."""
    return tuple(
        tuple(chosen.count(i) for i in range(variables))
        for total in range(0 if constant else 1, degree + 1)
        for chosen in itertools.combinations_with_replacement(range(variables), total)
    )


class Polynomial(eqx.Module):
    units: Float[Array, " n"]  # u, a bound for each coordinate of (s, a)
    powers: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    scale: float  # 1/C

    @staticmethod
    def of(
        states: Box, actions: Box, *, degree: int, constant: bool = True, scale: float | None = None
    ) -> "Polynomial":
        if degree < 1:
            raise ConfigError(f"features.degree={degree}: give 1 or more")
        bound = jnp.concatenate([jnp.maximum(-b.low, b.high) for b in (states, actions)])
        powers = exponents(bound.shape[0], degree, constant)
        return Polynomial(bound, powers, 1.0 / math.sqrt(len(powers)) if scale is None else scale)

    def __call__(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " d"]:
        x = jnp.concatenate([state, action]) / self.units
        degree = max(max(p) for p in self.powers)
        ladder = jnp.stack([x**k for k in range(degree + 1)])  # [degree + 1, n]
        chosen = ladder[np.array(self.powers), np.arange(x.shape[0])]  # [d, n]
        return self.scale * jnp.prod(chosen, axis=1)
