"""Settings that mean nothing to an algorithm in the loop of Algorithm 2: who gives one expects what will not happen.

They are in its configuration all the same, because the loop has them, so only what a user gives is refused.
"""

from collections.abc import Sequence

from pcmlp.runs.options import DeepConfig, RunConfig
from pcmlp.runs.parse import split_settings
from pcmlp.types import ConfigError

_COVARIANCE = ("ridge", "covariance")
_BONUS = (*_COVARIANCE, "features.")
_IMAGINED = ("rounds", "fresh", "num_starts", "replay_starts", "margin", "bounded", "keeps_better")

_NO_BONUS = "it plans for the reward alone, with no bonus"
_SEARCHES = "it searches for each action and deploys no net"
_OTHER_BONUS = "its bonus is of a distilled network, not of a covariance"
_PLANS_NOTHING = "it plays at random, whatever it has seen"

# why -> keys, or the beginning of a group's
MEANINGLESS: dict[str, dict[str, tuple[str, ...]]] = {
    "pcmlp-mppi": {_SEARCHES: ("keeps_better",)},
    "pets": {_NO_BONUS: _BONUS, _SEARCHES: ("keeps_better",)},
    "pets-gt": {_NO_BONUS: _BONUS, _SEARCHES: ("keeps_better",)},
    "lc3": {_NO_BONUS: _COVARIANCE, _SEARCHES: ("keeps_better",)},  # its features are the model's
    "mbpo": {_NO_BONUS: _BONUS},
    "slbo": {_NO_BONUS: _BONUS},
    "rnd": {_OTHER_BONUS: _COVARIANCE},
    "random": {_PLANS_NOTHING: ("bonus_scale", *_BONUS, *_IMAGINED, "replay_size", "model.")},
}


def meaningless(algo: str, key: str) -> str | None:
    """Why the setting means nothing to the algorithm, if so."""
    for why, keys in MEANINGLESS.get(algo, {}).items():
        if any(key == name or (name.endswith(".") and key.startswith(name)) for name in keys):
            return why
    return None


def check_meant(config: RunConfig, settings: Sequence[str]) -> None:
    """That each of the settings a user gave means something to the algorithm they were resolved for."""
    if not isinstance(config, DeepConfig):
        return
    for key, text in split_settings(settings).items():
        if why := meaningless(config.algo, key):
            raise ConfigError(
                f"{key}={text}: {config.algo} has no such setting: {why}; leave it out, or give --algo pcmlp"
            )
        if key == "margin" and not config.bounded:
            raise ConfigError(f"{key}={text}: imagined states have no bounds here; leave it out, or give bounded=true")
