"""A method: an algorithm with its presets and its choices. A file in `algorithms` exports one as `METHOD`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pcmlp.types import Algorithm

Settings = Mapping[str, Any]  # dotted key -> value, as in config.json
Presets = Mapping[str, Settings | Callable[[int], Settings] | None]  # kind or name of a task -> settings


@dataclass(frozen=True)
class Method:
    """All that the library knows about one method."""

    about: str  # its line in `pcmlp list`
    algorithm: Algorithm  # with the settings that hold for every task
    presets: Mapping[str, Presets]  # "ours", and others that `--set preset=NAME` chooses
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # group -> parts of the library that fit
    unused: Mapping[str, str] = field(default_factory=dict)  # key, or group with a dot -> why it means nothing here

    def preset(self, name: str, task: str, kind: str, horizon: int) -> dict[str, Any] | None:
        """Return the settings of a preset for a task: those of its kind, then its own. None: not made for the task."""
        presets = self.presets.get(name, {})
        own = presets.get(task, {})
        if own is None or (kind not in presets and task not in presets):
            return None
        general = presets.get(kind, {})
        return {**_resolve(general, horizon), **_resolve(own, horizon)}

    def unused_reason(self, key: str) -> str | None:
        """Return why a setting means nothing to the method, or None if it does."""
        for name, why in self.unused.items():
            if key == name or (name.endswith(".") and key.startswith(name)):
                return why
        return None


def _resolve(settings: Settings | Callable[[int], Settings] | None, horizon: int) -> Settings:
    return (settings(horizon) if callable(settings) else settings) or {}


# The paper's budget of samples and replay for robots. An evaluation takes as long as learning, so it is short.
BUDGET: Settings = {"steps": 200_000, "samples_per_policy": 4_000, "replay_size": 100_000, "eval_episodes": 20}
FREE_BUDGET: Settings = {"steps": 200_000, "eval_episodes": 20}

# The steps of an iteration are whole episodes: 1 is one episode, whatever its length.
ONE_EPISODE = 1

_NO_BONUS = "it plans for the reward alone, without a bonus"
NO_COVARIANCE: dict[str, str] = dict.fromkeys(("ridge", "covariance"), "its bonus has no covariance")
NO_BONUS: dict[str, str] = dict.fromkeys(
    ("bonus_scale", "ridge", "covariance", "reward_free", "features.", "bonus."), _NO_BONUS
)
SEARCHES: dict[str, str] = {
    "keeps_better": "it searches for each action and deploys no network",
    "noise": "it searches for each action, which noise would undo",
}
NO_IMAGINATION: dict[str, str] = dict.fromkeys(
    ("planner.updates", "planner.streams", "planner.length"), "it learns from real steps and imagines none"
)
