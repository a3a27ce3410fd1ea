"""A hand that must bring an egg to a goal: hand-egg (paper: section 7.1, after Plappert et al. 2018).

    r(s, a, s') = 10 if |p' - g| < 0.01 and angle(q', k) < 0.1 else -1

where p is the position and q the rotation (a unit quaternion) of the egg, and g and k are those of the goal, in metres
and radians. The goal does not end the episode. As in the original, the angle is 2 arccos(q . k), which is 2 pi and not
0 after a whole turn of the egg.

Every episode has a new goal: the first position of the egg plus an offset from [-0.04, 0.04] x [-0.06, 0.02] x
[0, 0.06], and the first rotation of the egg, which is the paper's relaxation (the original draws a new rotation). The
observation has the joints of the hand and the egg, 61 numbers, then p, q again and g, k, so that the goal is part of
the state and the reward can be computed from it.

The simulator is Gymnasium-Robotics', with two changes: the goals, and a reset that clears all of MuJoCo's state. The
original's reset keeps the warning that a simulation has diverged, so that every later step would count as diverged.

An episode of H steps returns -H plus 11 for each step at the goal. It is a success if there is at least one such step.
"""

from functools import cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from pcmlp.settings import setting
from pcmlp.spaces import Body, Coordinates
from pcmlp.successes import Groups
from pcmlp.tasks.checks import import_robotics
from pcmlp.tasks.registered import SteppedTask
from pcmlp.types import Action, Problem, State, never

_EGG, _GOAL = slice(61, 68), slice(68, 75)  # a position and a quaternion each
_JOINT = 54  # where the egg's position and quaternion are among the joints, after its velocity and spin
_COORDINATES = Coordinates(
    bodies=(Body("egg", place=_JOINT, rotation=_JOINT + 3, spin=_JOINT - 3, axis=2),),
    copies=tuple((_EGG.start + i, _JOINT + i) for i in range(7)),
    goals=tuple((_GOAL.start + i, _JOINT + i) for i in range(7)),
)
_DISTANCE, _ANGLE = 0.01, 0.1
# Random play reaches about 1 % of the goals by chance and hardly ever lifts the egg, so success is told apart by the
# height of the goal above the egg, over enough episodes to tell 1 % from 5 %.
_THIRD = 0.02
_HEIGHTS = ("goals 0 to 20 mm higher", "goals 20 to 40 mm higher", "goals 40 to 60 mm higher")
_JUDGED = 300


class HandEgg(SteppedTask):
    """A hand in MuJoCo that must bring an egg to a goal; no step on the way pays."""

    kind: ClassVar[str] = "robot"
    horizon: int = setting(100, "steps of an episode", least=1, tiny=20)

    def build(self) -> Problem:
        """Return the task's world."""
        import_robotics()
        world = self.host_world(egg_in_hand, hand_egg_reward, never, coordinates=_COORDINATES)
        return Problem(world, success_return=5.0 - self.horizon, groups=Groups(_HEIGHTS, height_group, _JUDGED))


def height_group(state: State) -> Int[Array, ""]:
    """Return which third of the heights the goal is in, given the first state of an episode."""
    third = jnp.floor((state[_GOAL.start + 2] - state[_EGG.start + 2]) / _THIRD)
    return jnp.clip(third, 0, len(_HEIGHTS) - 1).astype(int)


def at_goal(state: State) -> Bool[Array, ""]:
    """Return whether the egg is at its goal, in position and rotation."""
    egg, goal = state[_EGG], state[_GOAL]
    near = jnp.linalg.norm(egg[:3] - goal[:3]) < _DISTANCE
    # Divide by the lengths: an imagined quaternion may have any length, which must not count as a rotation.
    lengths = jnp.linalg.norm(egg[3:]) * jnp.linalg.norm(goal[3:])
    cosine = jnp.sum(egg[3:] * goal[3:]) / jnp.maximum(lengths, 1e-6)
    return near & (2.0 * jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) < _ANGLE)


def hand_egg_reward(state: State, action: Action, next_state: State) -> Float[Array, ""]:
    """Return 10 at the goal, else -1."""
    return jnp.where(at_goal(next_state), 10.0, -1.0)


def egg_in_hand() -> Any:
    """Return the hand as an environment with vectors as observations. This function can be sent to worker processes."""
    return _define_environment()()


@cache
def _define_environment() -> type:
    """Return the class, which can be defined only where Gymnasium-Robotics is installed."""
    import_robotics()
    import gymnasium
    from gymnasium.spaces import Box
    from gymnasium_robotics.envs.shadow_dexterous_hand.manipulate_egg import MujocoHandEggEnv

    from pcmlp.tasks.mujoco.simulator import check_divergence, mujoco

    parts = ("observation", "achieved_goal", "desired_goal")

    def flat(seen):
        return np.concatenate([seen[part] for part in parts])

    class Egg(MujocoHandEggEnv):
        """The original environment with the two changes above."""

        def _reset_sim(self) -> bool:
            mujoco.mj_resetData(self.model, self.data)
            return bool(super()._reset_sim())

        def _sample_goal(self) -> np.ndarray:
            # The original's option target_rotation="fixed" calls a function that MuJoCo's bindings do not have.
            goal, egg = super()._sample_goal(), self._get_achieved_goal()
            return np.concatenate([goal[:3], egg[3:] / np.linalg.norm(egg[3:])])

    class EggInHand(gymnasium.Env):
        """The hand with vectors as observations; the reward uses the original's own test for success."""

        def __init__(self) -> None:
            self.egg = Egg()
            self.model, self.data = self.egg.model, self.egg.data
            self.action_space = self.egg.action_space
            size = sum(np.prod(self.egg.observation_space[part].shape, dtype=int) for part in parts)
            self.observation_space = Box(-np.inf, np.inf, (int(size),), np.float64)

        def __str__(self) -> str:
            return "HandManipulateEgg"

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
            """Begin an episode with a new goal."""
            super().reset(seed=seed)
            return flat(self.egg.reset(seed=seed)[0]), {}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
            """Take one step."""
            seen, _, _, _, info = self.egg.step(action)
            check_divergence(self.data)
            return flat(seen), 10.0 if info["is_success"] else -1.0, False, False, {}

    return EggInHand
