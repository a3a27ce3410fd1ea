"""The finite-horizon linear-quadratic regulator: the exact planner where the MDP is linear-quadratic.

With z = (s, 1), mean dynamics z' = A z + B a and reward 1/2 (z, a)^T R (z, a), the value is 1/2 z^T P_h z + const and

    M = R_zz + A^T P A,   U = R_az + B^T P A,   D = R_aa + B^T P B,   K_h = -D^-1 U,   P_{h-1} = M + U^T K_h,   P_H = 0

(the Riccati recursion). A, B and R are read off the MDP by differentiation at the origin, so the planner does not know
whether it is real; zero-mean noise does not change the best action.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from pcmlp import linalg
from pcmlp.rollout import estimate_promise
from pcmlp.types import MDP, Metrics, Planner, Policy


@runtime_checkable
class MeanTransition(Protocol):
    """A transition whose expected next state is known."""

    def mean(self, state: Float[Array, " s"], action: Float[Array, " a"]) -> Float[Array, " s"]:
        """Return the expected next state."""
        ...


class LinearPolicy(Policy):
    """a = K_h (s, 1)"""

    gain: Float[Array, "H a s_plus_1"]

    def init(self) -> Int[Array, ""]:
        return jnp.array(0)

    def __call__(
        self, key: Key[Array, ""], carry: Int[Array, ""], state: Float[Array, " s"]
    ) -> tuple[Int[Array, ""], Float[Array, " a"]]:
        return carry + 1, self.gain[carry] @ jnp.append(state, 1.0)

    def deterministic(self) -> "LinearPolicy":
        return self


class LQR(Planner):
    """The regulator. It does not know of bounds."""

    def init(self, key: Key[Array, ""], mdp: MDP) -> LinearPolicy:
        return LinearPolicy(jnp.zeros((mdp.horizon, mdp.actions.size, mdp.states.size + 1)))

    def plan(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> tuple[LinearPolicy, Metrics]:
        A, B, R = linear_quadratic(mdp, mdp.states.size, mdp.actions.size)
        n = A.shape[0]
        R_zz, R_az, R_aa = R[:n, :n], R[n:, :n], R[n:, n:]

        def back(P, _):
            U = R_az + B.T @ P @ A
            D = R_aa + B.T @ P @ B
            factor = linalg.cholesky(-D)
            whitened = linalg.whitener(factor)
            K = whitened.T @ (whitened @ U)
            return R_zz + A.T @ P @ A + U.T @ K, K

        P, gain = jax.lax.scan(back, jnp.zeros((n, n)), None, length=mdp.horizon, reverse=True)
        message = "LQR needs a reward that is strictly concave in the action: add a cost on actions, or use CEM or MPPI"
        gain = eqx.error_if(gain, ~jnp.all(jnp.isfinite(gain)), message)
        z = jnp.append(mdp.initial(key), 1.0)
        return LinearPolicy(gain), {"planned_value": 0.5 * z @ P @ z}

    def promise(self, key: Key[Array, ""], mdp: MDP, policy: Policy) -> Float[Array, ""]:
        return estimate_promise(key, mdp, policy)


def linear_quadratic(
    mdp: MDP, size: int, action_size: int
) -> tuple[Float[Array, "z z"], Float[Array, "z a"], Float[Array, "za za"]]:
    """A, B and R of the expansion of an MDP at the origin, exact where it is linear-quadratic."""
    transition = mdp.transition
    if not isinstance(transition, MeanTransition):
        raise TypeError(f"{type(transition).__name__} has no mean(s, a): LQR needs the mean dynamics; use CEM or MPPI")

    def step(x: Float[Array, " sa"]) -> Float[Array, " s"]:
        return transition.mean(x[:size], x[size:])

    def reward(x: Float[Array, " sa"]) -> Float[Array, ""]:
        return mdp.reward(x[:size], x[size:], step(x))

    zero = jnp.zeros(size + action_size)
    slope, drift = jax.jacobian(step)(zero), step(zero)
    A = jnp.zeros((size + 1, size + 1)).at[:size, :size].set(slope[:, :size]).at[:size, size].set(drift)
    A = A.at[size, size].set(1.0)
    B = jnp.zeros((size + 1, action_size)).at[:size].set(slope[:, size:])
    # 1/2 (z, a)^T R (z, a) with the constant coordinate between s and a
    old = jnp.concatenate([jnp.arange(size), size + 1 + jnp.arange(action_size)])
    hessian, gradient = jax.hessian(reward)(zero), jax.grad(reward)(zero)
    R = jnp.zeros((size + 1 + action_size,) * 2).at[old[:, None], old[None, :]].set(hessian)
    R = R.at[size, old].set(gradient).at[old, size].set(gradient).at[size, size].set(2.0 * reward(zero))
    return A, B, R
