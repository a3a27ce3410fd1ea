"""The output of `pcmlp list`: names with a line each, and the settings of one, read from the classes that use them."""

import inspect
from collections.abc import Iterable
from typing import Any

from rich.table import Column, Table

from pcmlp.algorithms import METHODS
from pcmlp.algorithms.method import Method
from pcmlp.errors import ConfigError
from pcmlp.models import OutcomeNet
from pcmlp.parts import NAMES, PARTS, find_known, methods_for
from pcmlp.runs.config import DEFAULT_EPISODES, DEFAULT_EVERY, DEFAULT_STEPS
from pcmlp.settings import Limits, Part, Setting, show, walk
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask, find_environment
from pcmlp.types import FeatureMap, Task
from pcmlp.usercode import is_place, load_object

ANY_GYM = f"{PREFIX}ID"
ALL_TASKS: dict[str, type[Task]] = {**TASKS, ANY_GYM: GymnasiumTask}
GROUPS = {"features" if kind is FeatureMap else kind.__name__.lower(): kind for kind in PARTS}  # group -> kind of part
_PRESET_HORIZON = 1000  # where a preset depends on the horizon, it is shown for this one

Row = tuple[str, str, str, str]  # key, default, limits, meaning


def name_lines() -> list[str]:
    """Return the lines about all tasks, algorithms, experiments and parts."""
    from pcmlp.experiments.paper import EXPERIMENTS  # imported here, because it takes seconds

    lines = ["Tasks are grouped by kind, with the algorithms for each kind; the first is the default."]
    for kind in dict.fromkeys(task.kind for task in ALL_TASKS.values()):
        tasks = {name: _task_line(name, task) for name, task in ALL_TASKS.items() if task.kind == kind}
        lines += _section(f"{kind} tasks, for {', '.join(methods_for('', kind))}", tasks)
    lines += _section("algorithms", {name: method.about for name, method in METHODS.items()})
    lines += _section("experiments", {name: f"{made.shows} ({made.place})" for name, made in EXPERIMENTS.items()})
    parts = {group: ", ".join(PARTS[kind]) for group, kind in GROUPS.items() if kind is not Task}
    lines += _section("parts of algorithms", parts)
    return [
        *lines,
        "pcmlp list NAME shows the settings of a task, an algorithm, a part such as planner.trpo, or FILE.py:NAME",
    ]


def _section(title: str, entries: dict[str, str]) -> list[str]:
    return [f"{title}:", *(f"  {name:<18}{line}" for name, line in entries.items())]


def _task_line(name: str, task: type[Task]) -> str:
    usual, own = methods_for("", task.kind), methods_for(name, task.kind)
    missing, added = [m for m in usual if m not in own], [m for m in own if m not in usual]
    notes = [f"{word} {', '.join(names)}" for word, names in (("not for", missing), ("also for", added)) if names]
    return " ".join([describe(task), *(f"({note})" for note in notes)])


def describe(documented: type) -> str:
    """Return the first line of a class's docstring."""
    return (documented.__doc__ or documented.__name__).strip().splitlines()[0]


def find(name: str) -> Method | Part:
    """Return the method, or the task or part with its defaults, that a name stands for.

    A part is named by its group, as in planner.trpo, or by its own name if nothing else has it.
    """
    if name != ANY_GYM and (environment := find_environment(name, "name")) is not None:
        return environment
    if is_place(name):
        loaded = load_object("name", name)
        kind = next((kind for kind in PARTS if inspect.isclass(loaded) and issubclass(loaded, kind)), Part)
        return loaded if isinstance(loaded, Method) else NAMES.find("name", kind, name)()
    parts = {f"{group}.{own}": part for group, kind in GROUPS.items() for own, part in PARTS[kind].items()}
    short = {full.partition(".")[2]: part for full, part in parts.items()}
    same = [full for full in parts if full.partition(".")[2] == name]
    if len(same) > 1:
        raise ConfigError(f"name={name}: several parts have this name; give {' or '.join(same)}")
    known: dict[str, Method | type[Part]] = {**short, **parts, **ALL_TASKS, **METHODS}
    remedy = "a task, gym:ID, an algorithm, a part or FILE.py:NAME; pcmlp list shows them all"
    found = known[find_known("name", name, known, remedy)]
    return found if isinstance(found, Method) else found()


def settings_of_name(name: str) -> Iterable[str | Table]:
    """Yield what the terminal shows about a method, a task or a part: its settings, and for a method its presets."""
    found = find(name)
    if isinstance(found, Method):
        yield found.about
        yield _settings_table(settings_rows(found))
        yield from _preset_lines(found)
        return
    group = next(group for group, kind in GROUPS.items() if isinstance(found, kind))
    rows = part_rows(found, f"{group}.")
    yield describe(type(found))
    yield _settings_table(rows) if rows else "It has no settings."
    if isinstance(found, Task):
        if isinstance(found, GymnasiumTask) and found.id and found.time_limit is None:
            yield "It has no time limit: give task.horizon."
        yield f"Its kind is {found.kind}, for {', '.join(methods_for(name, found.kind)) or 'algorithms of your own'}."
    else:
        yield f"Chosen by --set {group}.name={NAMES.name_of(found)}, in algorithms that it fits."


def _settings_table(rows: list[Row]) -> Table:
    table = Table("key=default", "meaning", box=None, pad_edge=False)
    for before, (key, default, limits, meaning) in zip([None, *rows], rows, strict=False):
        if before and _group(before[0]) != _group(key):
            table.add_row()
        table.add_row(f"{key}={default}" if default else key, f"{meaning} ({limits})" if limits else meaning)
    return table


def _group(key: str) -> str:
    return key.rpartition(".")[0]


def _preset_lines(method: Method) -> Iterable[str | Table]:
    """Yield the presets of a method, and how to list the settings of the other parts that it can use."""
    yield "\npresets by kind or name of the task (--set preset=NAME, ours if not given; steps is the flag --steps):"
    table = Table("preset", Column("tasks", max_width=14), "settings", box=None, pad_edge=False)
    for row in preset_rows(method):
        table.add_row(*row)
    yield table
    own = {key: NAMES.name_of(value) for key, _, value in walk(method.algorithm) if isinstance(value, Part)}
    for group, names in method.choices.items():
        for name in names:
            if name != own.get(f"{group}.name"):
                kind = group.rpartition(".")[2]
                yield f"{group}.name={name} has other keys; pcmlp list {kind}.{name} shows them"


def preset_rows(method: Method) -> list[tuple[str, str, str]]:
    """Return preset, kinds or names of tasks, and settings of each preset; tasks with the same settings share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for preset, by_task in method.presets.items():
        for task in by_task:
            found = TASKS.get(task) or (GymnasiumTask if task.startswith(PREFIX) else None)
            kind = found.kind if found else task
            settings = method.preset(preset, task, kind, _PRESET_HORIZON)
            text = "none"
            if settings is not None:
                every = DEFAULT_EVERY.get(kind, 0)
                usual = {"steps": DEFAULT_STEPS, "eval_episodes": DEFAULT_EPISODES, "eval_every": every}
                settings = {**usual, **settings}
                text = " ".join(f"{key}={show(value)}" for key, value in settings.items())
            if any(callable(by_task.get(name)) for name in (task, kind)):
                text += f" (for a horizon of {_PRESET_HORIZON})"
            rows.setdefault((preset, text), []).append(task)
    return [(preset, ", ".join(tasks), text) for (preset, text), tasks in rows.items()]


def settings_rows(method: Method, *, brief: bool = False) -> list[Row]:
    """Return the settings of a method, with a row for each of its parts; if `brief`, without settings of its parts
    that have the part's own default."""
    rows = [(key, field, value) for key, field, value in walk(method.algorithm) if not method.unused_reason(key)]
    if brief:
        rows = [row for row in rows if "." not in row[0] or row[2] != row[1].default or isinstance(row[2], Part)]
    return [_row(key, field, value, method.choices) for key, field, value in rows]


def part_rows(part: Part, path: str) -> list[Row]:
    """Return the settings of a part."""
    return [_row(key, field, value) for key, field, value in walk(part, path)]


def _row(key: str, field: Setting, value: Any, choices: Any = None) -> Row:
    if not isinstance(value, Part):
        tune = f"; tune: {field.tune}" if field.tune else ""
        return key, show(value), str(field.limits) if field.limits != Limits() else "", f"{field.help}{tune}"
    group, own = key.removesuffix(".name"), NAMES.name_of(value)
    if own is None:  # a part that cannot be chosen
        return f"{group}.*", "", "", field.help
    known = next((PARTS[kind] for kind in PARTS if isinstance(value, kind)), {})
    fitting = (choices or {}).get(group, (own,))
    about = "; ".join(f"{name}: {describe(known[name]).rstrip('.')}" for name in fitting if name in known)
    return key, own, "", f"{field.help}; {about}" if about else field.help


def settings_page() -> str:
    """Return docs/settings.md: the settings of every method, task and part. `python -m pcmlp.listing` prints it."""
    lines = [
        "# Settings",
        "",
        "All keys of `--set` and `config.json`, printed by `python -m pcmlp.listing` from the classes that use them.",
        "A run also takes `preset` (`ours`, and for some methods `dense`, `goals` or `paper`), `eval_episodes`",
        "(episodes of an evaluation), and `eval_every` (env steps between evaluations; 0: every iteration is",
        "evaluated). A preset changes some defaults for a kind of task. Settings of a method's parts are below, under",
        "Parts; a method's own table has only those whose default it changes. `pcmlp list NAME` prints all settings",
        "and presets of a method, and the settings of a task or a part. Where a meaning ends in `tune`, `pcmlp tune`",
        "searches this range, unless `--space` gives another.",
        "",
        "## Methods",
    ]
    for name, method in METHODS.items():
        lines += _page_entry(name, method.about, settings_rows(method, brief=True))
    lines += ["", "## Tasks"]
    for name, task in ALL_TASKS.items():
        lines += _page_entry(name, describe(task), part_rows(task(), "task."))
    lines += ["", "## Parts", "", "The parts of methods, each with its own defaults. A part with a name can be chosen."]
    for group, kind in GROUPS.items():
        for name, part in PARTS[kind].items() if kind is not Task else ():
            lines += _page_entry(f"{group}.name={name}", describe(part), part_rows(part(), f"{group}."))
    lines += _page_entry("outcome.*", describe(OutcomeNet), part_rows(OutcomeNet(), "outcome."))
    return "\n".join(lines) + "\n"


def _page_entry(title: str, about: str, rows: list[Row]) -> list[str]:
    lines = ["", f"### {title}", "", about, ""]
    if not rows:
        return [*lines, "It has no settings."]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    table = [f"| `{key}` | {default} | {limits} | {meaning} |" for key, default, limits, meaning in cells]
    return [*lines, "| key | default | limits | meaning |", "|---|---|---|---|", *table]


if __name__ == "__main__":
    print(settings_page(), end="")
