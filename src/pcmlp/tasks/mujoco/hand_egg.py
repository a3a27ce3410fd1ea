"""A hand that must bring an egg to a goal: hand-egg (paper: section 7.1, after Plappert et al. 2018).

    r(s, a, s') = 10 if |p' - g| < 0.01 and angle(q', k) < 0.1 else -1

where p is the position and q the rotation (a unit quaternion) of the egg, and g and k are those of the goal, in metres
and radians. The goal does not end the episode. As in the original, the angle is 2 arccos(q . k), which is 2 pi and not
0 after a whole turn of the egg.

Every episode has a new goal: the first position of the egg plus an offset from [-0.04, 0.04] x [-0.06, 0.02] x
[0, 0.06], and the first rotation of the egg, which is the paper's relaxation (the original draws a new rotation). The
observation has the joints of the hand and the egg, 61 numbers, then p, q again and g, k, so that the goal is part of
the state and the reward can be computed from it.

An episode of H steps returns -H plus 11 for each step at the goal. It is a success if there is at least one such step.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pcmlp.settings import setting
from pcmlp.tasks.checks import import_robotics
from pcmlp.tasks.mujoco.robot import SteppedTask
from pcmlp.types import Problem, never

_EGG, _GOAL = slice(61, 68), slice(68, 75)  # a position and a quaternion each
_DISTANCE, _ANGLE = 0.01, 0.1


class HandEgg(SteppedTask):
    """A hand in MuJoCo that must bring an egg to a goal; no step on the way pays."""

    horizon: int = setting(100, "steps of an episode", least=1, tiny=20)

    def build(self) -> Problem:
        """Return the task's world."""
        import_robotics()
        from pcmlp.tasks.mujoco.hand import EggInHand

        world = self.host_world(EggInHand, hand_egg_reward, never)
        return Problem(world, success_return=5.0 - self.horizon)


def at_goal(state: Float[Array, "75"]) -> Bool[Array, ""]:
    """Return whether the egg is at its goal, in position and rotation."""
    egg, goal = state[_EGG], state[_GOAL]
    near = jnp.linalg.norm(egg[:3] - goal[:3]) < _DISTANCE
    # Divide by the lengths: an imagined quaternion may have any length, which must not count as a rotation.
    lengths = jnp.linalg.norm(egg[3:]) * jnp.linalg.norm(goal[3:])
    cosine = jnp.sum(egg[3:] * goal[3:]) / jnp.maximum(lengths, 1e-6)
    return near & (2.0 * jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) < _ANGLE)


def hand_egg_reward(
    state: Float[Array, "75"], action: Float[Array, "20"], next_state: Float[Array, "75"]
) -> Float[Array, ""]:
    """Return 10 at the goal, else -1."""
    return jnp.where(at_goal(next_state), 10.0, -1.0)
