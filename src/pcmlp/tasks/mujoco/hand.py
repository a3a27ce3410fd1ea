"""Gymnasium-Robotics' hand with an egg as an environment whose observations are vectors.

It has the paper's goals, and a reset clears all of MuJoCo's state. A reset of the original keeps the warning that a
simulation has diverged, so that every later step would count as diverged.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from pcmlp.tasks.checks import import_robotics
from pcmlp.tasks.mujoco.simulator import check_divergence, mujoco

import_robotics()

from gymnasium_robotics.envs.shadow_dexterous_hand.manipulate_egg import MujocoHandEggEnv  # noqa: E402

_PARTS = ("observation", "achieved_goal", "desired_goal")


class Egg(MujocoHandEggEnv):
    """The original environment with the two changes above."""

    def _reset_sim(self) -> bool:
        mujoco.mj_resetData(self.model, self.data)
        return bool(super()._reset_sim())

    def _sample_goal(self) -> np.ndarray:
        # The original's option for this, target_rotation="fixed", calls a function that MuJoCo's bindings do not have.
        goal, egg = super()._sample_goal(), self._get_achieved_goal()
        return np.concatenate([goal[:3], egg[3:] / np.linalg.norm(egg[3:])])


class EggInHand(gymnasium.Env):
    """The hand with vectors as observations; the reward uses the original's own test for success."""

    def __init__(self) -> None:
        self.egg = Egg()
        self.model, self.data = self.egg.model, self.egg.data
        self.action_space = self.egg.action_space
        size = sum(np.prod(self.egg.observation_space[part].shape, dtype=int) for part in _PARTS)
        self.observation_space = Box(-np.inf, np.inf, (int(size),), np.float64)

    def __str__(self) -> str:
        return "HandManipulateEgg"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with a new goal."""
        super().reset(seed=seed)
        return _flat(self.egg.reset(seed=seed)[0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one step."""
        seen, _, _, _, info = self.egg.step(action)
        check_divergence(self.data)
        return _flat(seen), 10.0 if info["is_success"] else -1.0, False, False, {}


def _flat(seen: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([seen[part] for part in _PARTS])
