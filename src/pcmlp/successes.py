"""The share of episodes that succeed, with its 95 % interval, over all episodes and in groups of them.

The interval of a share p of n episodes is Wilson's (1927), which is also right for few successes and for none:

    (p + z^2/2n ± z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n),    z = 1.96
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

_Z = 1.959964


class Groups(eqx.Module):
    """Kinds of episodes that differ in how hard they are, such as near and far goals; the first state decides."""

    names: tuple[str, ...] = eqx.field(static=True)
    number: Callable  # the first state -> the number of its group's name
    episodes: int = eqx.field(static=True)  # how many an evaluation needs to show the success in each group


class Score(NamedTuple):
    """The outcome of evaluation episodes."""

    returns: Any  # [seeds, episodes]
    succeeded: np.ndarray | None = None  # [seeds, episodes], as the environment reports it; None without reports


def summarise(succeeded: np.ndarray | None) -> dict[str, Any]:
    """Return the share of episodes that succeeded and its interval; both None if there is no success, or no episode."""
    if succeeded is None or not succeeded.size:
        return {"success": None, "success_interval": None}
    low, high = interval(int(succeeded.sum()), succeeded.size)
    return {"success": float(succeeded.mean()), "success_interval": [low, high]}


def summarise_groups(succeeded: np.ndarray | None, names: tuple[str, ...], numbers: np.ndarray) -> list[dict[str, Any]]:
    """Return the share and its interval for each group; `numbers` has the number of each episode's group."""
    return [
        {"name": name, "episodes": int(mine.sum()), **summarise(None if succeeded is None else succeeded[mine])}
        for name, mine in ((name, numbers == i) for i, name in enumerate(names))
    ]


def describe_success(together: dict[str, Any]) -> list[str]:
    """Return a line for the success over all episodes, and one for each group; none if the task has no success."""
    parts = [{"name": "success", **together}, *together.get("groups", ())]
    return [
        f"{part['name']}: {100 * part['success']:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
        for part in parts
        if part["success"] is not None
        for low, high in [part["success_interval"]]
    ]


def interval(successes: int, episodes: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval."""
    share, square = successes / episodes, _Z**2 / episodes
    middle = share + 0.5 * square
    half = math.sqrt(share * (1.0 - share) * square + 0.25 * square**2)
    return max(0.0, (middle - half) / (1.0 + square)), min(1.0, (middle + half) / (1.0 + square))
