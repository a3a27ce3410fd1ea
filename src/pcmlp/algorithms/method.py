"""A method: an algorithm with its presets and its choices. A file in `algorithms` exports one as `METHOD`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pcmlp.types import Algorithm

Settings = Mapping[str, Any]  # dotted key -> value, as in config.json
Presets = Mapping[str, Settings | Callable[[int], Settings] | None]  # kind or name of a task -> settings


@dataclass(frozen=True)
class Method:
    """A method: its algorithm, its presets and the parts that fit it."""

    about: str  # the description that `pcmlp list` shows
    algorithm: Algorithm  # with the settings that hold for every task
    presets: Mapping[str, Presets]  # "ours", and others that `--set preset=NAME` chooses
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # group -> parts that the method can use
    unused: Mapping[str, str] = field(default_factory=dict)  # key, or group ending in a dot -> why it has no effect

    def preset(self, name: str, task: str, kind: str, horizon: int) -> dict[str, Any] | None:
        """Return the settings of a preset for a task (its own override its kind's), or None if there are none."""
        presets = self.presets.get(name, {})
        own = presets.get(task, {})
        if own is None or (kind not in presets and task not in presets):
            return None
        general = presets.get(kind, {})
        return {**_resolve(general, horizon), **_resolve(own, horizon)}

    def unused_reason(self, key: str) -> str | None:
        """Return why a setting has no effect in the method, or None if it has one."""
        for name, why in self.unused.items():
            if key == name or (name.endswith(".") and key.startswith(name)):
                return why
        return None


def _resolve(settings: Settings | Callable[[int], Settings] | None, horizon: int) -> Settings:
    return (settings(horizon) if callable(settings) else settings) or {}


# The paper's budget of samples and replay for robots. Evaluation episodes are as long as those of
# training, so there are few of them.
BUDGET: Settings = {"steps": 200_000, "samples_per_policy": 4_000, "replay_size": 100_000, "eval_episodes": 20}
FREE_BUDGET: Settings = {"steps": 200_000, "eval_episodes": 20}

# A value for `samples_per_policy`. It is rounded up to whole episodes, so 1 means one episode, whatever its length.
ONE_EPISODE = 1

_NO_BONUS = "it plans for the reward alone, without a bonus"
NO_COVARIANCE: dict[str, str] = dict.fromkeys(("ridge", "covariance"), "its bonus has no covariance")
NO_BONUS: dict[str, str] = dict.fromkeys(
    ("bonus_scale", "ridge", "covariance", "reward_free", "features.", "bonus."), _NO_BONUS
)
SEARCHES: dict[str, str] = {
    "deploys": "it searches for each action and deploys no network",
    "noise": "it searches for each action, which noise would undo",
}
NO_IMAGINATION: dict[str, str] = dict.fromkeys(
    ("planner.updates", "planner.streams", "planner.length"), "it learns from real steps and imagines none"
)
