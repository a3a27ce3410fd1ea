"""All parts that can be chosen by name, and parts of the user as FILE.py:NAME."""

import inspect
import re
from collections.abc import Iterable, Mapping

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.method import Method
from pcmlp.algorithms.rnd import Distillation
from pcmlp.bonus import Elliptical, NoBonus
from pcmlp.errors import ConfigError, first_line, nearest
from pcmlp.features import FEATURES
from pcmlp.models import MODELS
from pcmlp.planners import PLANNERS
from pcmlp.settings import Part
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import GymnasiumTask
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
_GYM_ID = re.compile(r"([\w.-]+/)?[A-Z][\w.-]*-v\d+")  # an ID of Gymnasium, such as Pendulum-v1


def find_known(key: str, name: str, names: Iterable[str], remedy: str) -> str:
    """Return a name that is known, or raise with the nearest one."""
    if name in names:
        return name
    if name.endswith(".py"):
        raise ConfigError(f"{key}={name}: this names only a file; add the class, as in {name}:NAME")
    if key in ("task", "name") and _GYM_ID.fullmatch(name):
        raise ConfigError(f"{key}={name}: unknown; did you mean gym:{name}? ({remedy})")
    raise ConfigError(f"{key}={name}: unknown; the nearest is {nearest(name, names)} ({remedy})")


class PartNames:
    """The names of all parts (`settings.Names`)."""

    def find(self, key: str, kind: type[Part], name: str) -> type[Part]:
        """Return the part of a kind with this name, or from FILE.py:NAME."""
        if is_place(name):
            found = load_object(key, name)
            if not (inspect.isclass(found) and issubclass(found, kind)):
                wanted = [kind] if kind in PARTS else [*PARTS, Method]
                classes = " or ".join(f"{known.__module__}.{known.__name__}" for known in wanted)
                classes += " or gymnasium.Env" if kind is Task else ""
                raise ConfigError(f"{key}={name}: is not a subclass of {classes}; give one")
            missing = sorted(found.__abstractmethods__) if inspect.isabstract(found) else []
            if missing or (kind is Task and not hasattr(found, "kind")):
                raise ConfigError(f"{key}={name}: has no {', '.join(missing or ['kind'])}; define it in the class")
            try:
                found()
            except TypeError as error:  # a field without a default
                raise ConfigError(f"{key}={name}: {first_line(error)}; give each setting a default") from error
            return found
        names = PARTS[kind]
        return names[find_known(key, name, names, f"one of {', '.join(names)}, or FILE.py:NAME")]

    def name_of(self, part: Part) -> str | None:
        """Return the name of a part; None for one that cannot be chosen."""
        if isinstance(part, GymnasiumTask):
            return part.name
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
