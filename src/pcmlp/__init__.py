"""pcmlp: model-based reinforcement learning that explores (PC-MLP and Deep PC-MLP, Song & Sun, ICML 2021).

Names are imported when they are first used, so that `import pcmlp` is quick and does not import JAX.
"""

# ruff: noqa: F401 (`__all__` is made from the names below)
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from pcmlp.agent import DeepPCMLP
    from pcmlp.algorithms.deep import Deep
    from pcmlp.algorithms.framework import PCMLP
    from pcmlp.algorithms.method import Method
    from pcmlp.boundary import observation_index
    from pcmlp.errors import ConfigError, EnvironmentFault, RunStopped
    from pcmlp.replay import Transitions
    from pcmlp.runs.config import RunConfig, resolve
    from pcmlp.runs.train import train
    from pcmlp.settings import Part, setting
    from pcmlp.spaces import Box, Finite
    from pcmlp.tasks.host import GymnasiumWorld
    from pcmlp.types import (
        MDP,
        Algorithm,
        Bonus,
        FeatureMap,
        Learner,
        Model,
        Planner,
        Policy,
        Problem,
        Task,
        World,
    )
    from pcmlp.world import JaxWorld

__version__ = "0.1.0"

_PARTS = ("Algorithm", "Bonus", "FeatureMap", "Model", "Planner")
_PLACES = {
    "pcmlp.agent": ("DeepPCMLP",),
    "pcmlp.algorithms.deep": ("Deep",),
    "pcmlp.algorithms.framework": ("PCMLP",),
    "pcmlp.algorithms.method": ("Method",),
    "pcmlp.boundary": ("observation_index",),
    "pcmlp.errors": ("ConfigError", "EnvironmentFault", "RunStopped"),
    "pcmlp.replay": ("Transitions",),
    "pcmlp.runs.config": ("RunConfig", "resolve"),
    "pcmlp.runs.train": ("train",),
    "pcmlp.settings": ("Part", "setting"),
    "pcmlp.spaces": ("Box", "Finite"),
    "pcmlp.tasks.host": ("GymnasiumWorld",),
    "pcmlp.types": ("MDP", "Problem", "Task", "World", "Policy", "Learner", *_PARTS),
    "pcmlp.world": ("JaxWorld",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
__all__ = [*_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pcmlp' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, and those that were imported so far."""
    return sorted({*globals(), *__all__})
