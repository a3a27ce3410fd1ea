"""`dock` as a user would write it: a Gymnasium class, computed by NumPy. tasks/dock.py describes the task."""

from typing import Any

import gymnasium as gym
import numpy as np

from pcmlp.tasks.dock import DOCK, FASTEST, NEAR, SLOW, STEP, WALL


class DockEnv(gym.Env):
    """A double integrator that must arrive at a place and be slow there. An episode has no limit of its own."""

    def __init__(self, goal_reward: float = 1.0) -> None:
        self.goal_reward = goal_reward
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.place, self.speed = np.zeros(2), np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode: at rest near (0, 0)."""
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Accelerate for one step."""
        self.speed = np.clip(self.speed + STEP * np.clip(action, -1.0, 1.0), -FASTEST, FASTEST)
        moved = self.place + STEP * self.speed
        self.speed = np.where(np.abs(moved) >= WALL, 0.0, self.speed)
        self.place = np.clip(moved, -WALL, WALL)
        docked = bool(np.linalg.norm(self.place - DOCK) <= NEAR and np.linalg.norm(self.speed) < SLOW)
        return self.observe(), self.goal_reward * docked, docked, False, {}

    def observe(self) -> np.ndarray:
        """Return position and velocity."""
        return np.concatenate([self.place, self.speed]).astype(np.float32)
