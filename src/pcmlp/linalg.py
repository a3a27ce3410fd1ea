"""Matrix factorisations that are safe inside a program that is vmapped over seeds.

jaxlib 0.10 runs a *batched* LAPACK call on the threads that execute the program and blocks one of them meanwhile: two
such calls at once can deadlock on a machine with two cores. So these functions process a batch one matrix at a time.
They run once per iteration; the planner's inner loop uses matrix products only.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


@sequential_vmap
def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return the lower Cholesky factor, NaN where the matrix is not positive definite."""
    return jnp.linalg.cholesky(matrix)


@sequential_vmap
def whitener(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return L^-1 of a lower triangular L, by forward substitution: |L^-1 x|^2 = x^T (L L^T)^-1 x."""
    return solve_triangular(factor, jnp.eye(factor.shape[0]), lower=True)


@sequential_vmap
def eigh(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return the eigenvalues in ascending order, and the eigenvectors as columns."""
    values, vectors = jax.lax.linalg.eigh(matrix)[::-1]
    return values, vectors
