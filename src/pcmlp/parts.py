"""All parts that can be chosen by name, and parts of the user as FILE.py:NAME."""

import difflib
import inspect
from collections.abc import Iterable, Mapping

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.method import Method
from pcmlp.algorithms.rnd import Distillation
from pcmlp.bonus import Elliptical, NoBonus
from pcmlp.errors import ConfigError
from pcmlp.features import FEATURES
from pcmlp.models import MODELS
from pcmlp.planners import PLANNERS
from pcmlp.settings import Part
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask
from pcmlp.types import Bonus, FeatureMap, Model, Planner, Task
from pcmlp.usercode import is_place, load_object, place_of

BONUSES: dict[str, type[Bonus]] = {"elliptical": Elliptical, "distillation": Distillation, "none": NoBonus}
PARTS: dict[type[Part], Mapping[str, type[Part]]] = {
    FeatureMap: FEATURES,
    Model: MODELS,
    Planner: PLANNERS,
    Bonus: BONUSES,
    Task: TASKS,
}


def find_known(key: str, name: str, names: Iterable[str], remedy: str) -> str:
    """Return a name that is known, or raise with the nearest one."""
    if name not in names:
        raise ConfigError(f"{key}={name}: unknown; the nearest is {nearest(name, names)} ({remedy})")
    return name


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the most similar word."""
    return difflib.get_close_matches(word, list(words), n=1, cutoff=0.0)[0]


class PartNames:
    """The names of all parts (`settings.Names`)."""

    def find(self, key: str, kind: type[Part], name: str) -> type[Part]:
        """Return the part of a kind with this name, or from FILE.py:NAME."""
        if is_place(name):
            found = load_object(key, name)
            if not (inspect.isclass(found) and issubclass(found, kind)):
                raise ConfigError(f"{key}={name}: is not a subclass of pcmlp.types.{kind.__name__}; give one")
            missing = sorted(found.__abstractmethods__) if inspect.isabstract(found) else []
            if missing or (kind is Task and not hasattr(found, "kind")):
                raise ConfigError(f"{key}={name}: has no {', '.join(missing or ['kind'])}; define it in the class")
            return found
        names = PARTS[kind]
        return names[find_known(key, name, names, f"one of {', '.join(names)}, or FILE.py:NAME")]

    def name_of(self, part: Part) -> str | None:
        """Return the name of a part; None for one that cannot be chosen."""
        if isinstance(part, GymnasiumTask):
            return f"{PREFIX}{part.id}"
        known = {made: name for names in PARTS.values() for name, made in names.items()}
        return known.get(type(part)) or place_of(type(part))


NAMES = PartNames()


def find_method(name: str) -> Method:
    """Return the method with this name, or from FILE.py:NAME."""
    if is_place(name):
        found = load_object("algo", name)
        if not isinstance(found, Method):
            raise ConfigError(f"algo={name}: is not a pcmlp.algorithms.method.Method; give one")
        return found
    return METHODS[find_known("algo", name, METHODS, "pcmlp list shows them all, or give FILE.py:NAME")]


def methods_for(task: str, kind: str) -> list[str]:
    """Return the names of the methods with a preset for a task, its default first."""
    return [name for name, method in METHODS.items() if method.preset("ours", task, kind, 1) is not None]
