"""A hand that is to bring an egg to a goal: hand-egg (paper: section 7.1, after Plappert et al. 2018).

    r(s, a, s') = 10 if |p' - g| < 0.01 and angle(q', k) < 0.1 else -1

with p, q the place and the rotation of the egg, a unit quaternion, and g, k those of the goal; metres and radians. The
goal does not end the episode. As in the original, the angle is 2 arccos(q . k), which a whole turn of the egg makes
2 pi and not 0.

Every episode has a new goal: the place of the egg at first plus an offset from [-0.04, 0.04] x [-0.06, 0.02] x
[0, 0.06], and the rotation of the egg at first, which is the paper's relaxation (the original draws another). Observed
are the joints of the hand and the egg, 61 numbers, then p, q again and g, k, so that the goal is part of the state and
the reward is known from it.

An episode of H steps that is never at its goal returns -H, and 11 more for each step that is: one is a success.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pcmlp.settings import setting
from pcmlp.tasks.checks import import_robotics
from pcmlp.tasks.mujoco.robot import SteppedTask
from pcmlp.types import Problem, never

_EGG, _GOAL = slice(61, 68), slice(68, 75)  # a place and a quaternion each
_DISTANCE, _ANGLE = 0.01, 0.1


class HandEgg(SteppedTask):
    """A hand of 20 motors in MuJoCo that is to bring an egg to a goal in its palm; nothing pays on the way."""

    horizon: int = setting(100, "steps of an episode", least=1, tiny=20)

    def build(self) -> Problem:
        """Return the task's world."""
        import_robotics()
        from pcmlp.tasks.mujoco.hand import EggInHand

        world = self.host_world(EggInHand, hand_egg_reward, never)
        return Problem(world, success_return=5.0 - self.horizon)


def at_goal(state: Float[Array, "75"]) -> Bool[Array, ""]:
    """Return whether the egg is at its goal, in place and rotation."""
    egg, goal = state[_EGG], state[_GOAL]
    near = jnp.linalg.norm(egg[:3] - goal[:3]) < _DISTANCE
    # An imagined quaternion may have any length, which must not pass for a rotation.
    lengths = jnp.linalg.norm(egg[3:]) * jnp.linalg.norm(goal[3:])
    cosine = jnp.sum(egg[3:] * goal[3:]) / jnp.maximum(lengths, 1e-6)
    return near & (2.0 * jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) < _ANGLE)


def hand_egg_reward(
    state: Float[Array, "75"], action: Float[Array, "20"], next_state: Float[Array, "75"]
) -> Float[Array, ""]:
    """Return 10 at the goal, else -1."""
    return jnp.where(at_goal(next_state), 10.0, -1.0)
