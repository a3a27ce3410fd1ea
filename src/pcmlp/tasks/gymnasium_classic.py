"""The classic tasks of `classic.py` on Gymnasium's own simulators: the same rewards, ends, starts and horizons, but
real steps are taken by Gymnasium on the host."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx

from pcmlp.tasks.checks import import_gymnasium
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import Problem


def on_gymnasium(name: str, problem: Problem) -> Problem:
    """Return the problem with Gymnasium's simulator in place of the JAX world."""
    known = problem.world.mdp
    world = GymnasiumWorld.of(_simulator(name), reward=known.reward, terminal=known.terminal, horizon=known.horizon)
    # All three tasks have Gymnasium's starts, so starts need not be sampled.
    world = eqx.tree_at(lambda w: w.mdp.initial, world, known.initial)
    return dataclasses.replace(problem, world=world)


def _simulator(name: str) -> Callable[[], Any]:
    """Return the bare class, without a time limit: the task sets the horizon."""
    import_gymnasium()
    from gymnasium import spaces
    from gymnasium.envs import classic_control

    class MountainCarToTheTask(classic_control.Continuous_MountainCarEnv):
        """Gymnasium's mountain car without its own end: the task decides when an episode ends."""

        def step(self, action):
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, False, truncated, info

    class ContinuousAcrobot(classic_control.AcrobotEnv):
        """Gymnasium's acrobot with any torque between its two extremes."""

        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-1.0, 1.0, (1,))

        def step(self, action):
            self.AVAIL_TORQUE = [float(action[0])]
            observation, reward, _, truncated, info = super().step(0)
            # The task decides the end from the observation: Gymnasium's own test, in 64 bits, may round differently.
            return observation, reward, False, truncated, info

    return {
        "mountain-car": MountainCarToTheTask,
        "acrobot": ContinuousAcrobot,
        "pendulum": classic_control.PendulumEnv,
    }[name]
