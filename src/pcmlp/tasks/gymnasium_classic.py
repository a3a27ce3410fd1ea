"""The classic tasks of `classic.py` on Gymnasium's own simulators: the same rewards, ends, starts and horizons.

What is known of them is what `classic.py` knows apart from the dynamics: real steps are Gymnasium's, on the host.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx

from pcmlp.tasks.checks import import_gymnasium
from pcmlp.tasks.classic import Acrobot, MountainCar, Pendulum
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.types import ConfigError, Task

_CLASSIC = {"mountain-car": MountainCar, "acrobot": Acrobot, "pendulum": Pendulum}


def build(name: str, horizon: int = 200, seeds: int = 1) -> Task:
    if name not in _CLASSIC:
        raise ConfigError(f"task={name}: Gymnasium has no simulator of it; choose one of {', '.join(_CLASSIC)}")
    twin = _CLASSIC[name](horizon).build()
    known = twin.world.mdp
    world = GymnasiumWorld.of(
        _simulator(name), reward=known.reward, terminal=known.terminal, horizon=horizon, seeds=seeds
    )
    # All three start as Gymnasium's do, so there is no need to know it from samples.
    world = eqx.tree_at(lambda w: w.mdp.initial, world, known.initial)
    return dataclasses.replace(twin, world=world)


def _simulator(name: str) -> Callable[[], Any]:
    """The bare classes: they have no time limit, which is the task's business."""
    import_gymnasium()
    from gymnasium import spaces
    from gymnasium.envs import classic_control

    class MountainCarToTheTask(classic_control.Continuous_MountainCarEnv):
        """Gymnasium's, ended by the task, which may want to go on."""

        def step(self, action):
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, False, truncated, info

    class ContinuousAcrobot(classic_control.AcrobotEnv):
        """Gymnasium's, with any torque between its two extremes."""

        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-1.0, 1.0, (1,))

        def step(self, action):
            self.AVAIL_TORQUE = [float(action[0])]
            observation, reward, _, truncated, info = super().step(0)
            # The task ends it, by what is observed: its own end, in 64 bits, could come a rounding before the goal.
            return observation, reward, False, truncated, info

    return {
        "mountain-car": MountainCarToTheTask,
        "acrobot": ContinuousAcrobot,
        "pendulum": classic_control.PendulumEnv,
    }[name]


__all__ = ["build"]
