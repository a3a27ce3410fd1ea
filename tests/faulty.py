"""An environment that misbehaves when it is told to. Imports no JAX: workers make it too.

It counts every call of every copy, in whatever process, by the length of files in a folder, and does what the schedule
there says for it: {"step 9": "nan", "reset 1": "raise", "make *": "die"}, from 1 on, * for every one.
"""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class FaultyEnv(gymnasium.Env):
    """Observes the time in its episode, a number drawn at the reset, and the last action."""

    def __init__(self, folder, length=1000, ignore_seed=False, ignore_in_steps=False):
        self.folder, self.length = Path(folder), length
        self.ignore_seed, self.ignore_in_steps = ignore_seed, ignore_in_steps
        self.observation_space = spaces.Box(np.array([0.0, 0.0, -1.0]), np.array([1000.0, 1.0, 1.0]), dtype=np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.misbehave("make", None)

    def observe(self, action):
        return np.array([self.time, self.luck, action])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = np.random.default_rng() if self.ignore_seed else self.np_random
        self.time, self.luck = 0, rng.uniform()
        return self.misbehave("reset", (self.observe(0.0), {}))

    def step(self, action):
        self.time += 1
        if self.ignore_in_steps:
            self.luck = np.random.default_rng().uniform()
        return self.misbehave("step", (self.observe(float(action[0])), 0.0, self.time == self.length, False, {}))

    def misbehave(self, what, returned):
        number = count(self.folder, what)
        try:
            schedule = json.loads((self.folder / "schedule").read_text())
        except FileNotFoundError:
            return returned
        fault = schedule.get(f"{what} {number}", schedule.get(f"{what} *"))
        return FAULTS[fault](returned) if fault else returned


def count(folder, what):
    """Appends to the file, which only one process at a time can do, and says how long it is."""
    file = os.open(Path(folder) / what, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(file, b".")
    number = os.lseek(file, 0, os.SEEK_CUR)
    os.close(file)
    return number


def calls(folder, what):
    path = Path(folder) / what
    return path.stat().st_size if path.exists() else 0


def arm(folder, **schedule):
    """From now on: arm(folder, step_9="nan")."""
    for what in ("make", "reset", "step"):
        (Path(folder) / what).unlink(missing_ok=True)
    told = {name.replace("_", " ").replace("every", "*"): fault for name, fault in schedule.items()}
    (Path(folder) / "schedule").write_text(json.dumps(told))


def fail(returned):
    raise ValueError("the joint broke\nin two places")


def hang(returned):
    while True:
        time.sleep(3600)


def slow(returned):
    time.sleep(0.9)
    return returned


def hang_deaf(returned):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(returned)


def die(returned):
    if multiprocessing.parent_process() is not None:  # not the tests
        os._exit(3)


def crash(returned):
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def with_value(value):
    def change(returned):
        returned[0][1] = value
        return returned

    return change


FAULTS = {
    "raise": fail,
    "nan": with_value(np.nan),
    "inf": with_value(np.inf),
    "overflow": with_value(1e300),
    "outside": with_value(2.5),
    "rounding": with_value(1.0 + 5e-4),
    "shape": lambda returned: (returned[0][:2], *returned[1:]),
    "scalar": lambda returned: (0.5, *returned[1:]),
    "none": lambda returned: None,
    "old api": lambda returned: returned[:-1],
    "words": lambda returned: (["far", "left", "slow"], *returned[1:]),
    "slow": slow,
    "hang": hang,
    "hang deaf": hang_deaf,
    "die": die,
    "crash": crash,
}
