"""Environments that misbehave in some of their steps, and in the same ones again if an episode is repeated: only then
is a run that was killed and resumed the same as another. Imports no JAX: workers make them too.

They misbehave at the strongest action, which hardly occurs but in the noise of exploring: an evaluation is repeated
with the same seed, so it would fail for ever. A hang and a crash are for worker processes only.
"""

import multiprocessing
import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces


def reward(state, action, next_state):
    return next_state[1] - 0.1 * action[0] ** 2


class Calm(gymnasium.Env):
    """Observes the time in its episode, and a number that is drawn at the reset and that actions move."""

    def __init__(self):
        self.observation_space = spaces.Box(np.array([0.0, -50.0]), np.array([1000.0, 50.0]), dtype=np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.luck = 0, self.np_random.uniform()
        self.place = self.luck
        return np.array([self.time, self.place]), {}

    def step(self, action):
        self.time += 1
        self.place += 0.1 * float(action[0])
        observation = np.array([self.time, self.place])
        in_worker = multiprocessing.parent_process() is not None
        if in_worker and action[0] >= 1.0 and (1e3 * self.luck + self.time) % 1 < 0.4:
            self.misbehave(observation)
        return observation, 0.0, False, False, {}

    def misbehave(self, observation):
        """Do nothing bad."""


class NaN(Calm):
    """Returns NaN."""

    def misbehave(self, observation):
        observation[1] = np.nan


class Hanging(Calm):
    """Never returns."""

    def misbehave(self, observation):
        while True:
            time.sleep(3600)


class Crashing(Calm):
    """Kills its process."""

    def misbehave(self, observation):
        os.kill(os.getpid(), signal.SIGKILL)
