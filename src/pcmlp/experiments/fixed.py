"""The settings of the results that are older than `bonus_scale=auto`.

These results were made with a weight of the bonus that was tuned by hand, for the task's own rewards. The default now
finds the weight by itself, in units of the reward (`scale`), and has shorter iterations. So the jobs of `sparse`,
`dense`, `controls`, `held_out` and `wall_clock` name the settings that were the default. `preset=paper` and the rivals
have settings of their own, which did not change.
"""

from collections.abc import Sequence

from pcmlp.runs.keys import split_settings

_STARTS = "replay_starts=0.5"
FIXED = ("bonus_scale=0.05", "rescales=off", "deploys=newest", "samples_per_policy=200", _STARTS)  # classic, the maze
FIXED_GYM = ("bonus_scale=0.05", "rescales=off", "deploys=imagined", _STARTS)  # gym:ID
FIXED_ROBOT = ("bonus_scale=0.01", "rescales=off", "deploys=imagined")  # robots, and preset=dense


def change(settings: Sequence[str], *changes: str) -> tuple[str, ...]:
    """Return the settings with some of them replaced, and others added."""
    return tuple(f"{key}={text}" for key, text in {**split_settings(settings), **split_settings(changes)}.items())
