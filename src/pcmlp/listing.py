"""What `pcmlp list` shows: names with a line each, and the settings of one, straight from the classes that use them."""

from typing import Any

from rich.table import Table

from pcmlp.algorithms import METHODS
from pcmlp.parts import NAMES, PARTS, find_known, methods_for
from pcmlp.settings import Limits, Part, Setting, show, walk
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask


def name_lines() -> list[str]:
    """Return the lines about all tasks, algorithms and experiments."""
    from pcmlp.experiments.paper import EXPERIMENTS  # takes seconds, which a table of settings need not wait for

    tasks = {name: _task_line(name, task) for name, task in TASKS.items()}
    tasks[f"{PREFIX}ID"] = _task_line("", GymnasiumTask)
    algorithms = {name: method.about for name, method in METHODS.items()}
    experiments = {name: f"{made.shows} ({made.place})" for name, made in EXPERIMENTS.items()}
    lines = []
    for title, entries in (("tasks", tasks), ("algorithms", algorithms), ("experiments", experiments)):
        lines += [f"{title}:", *(f"  {name:<18}{line}" for name, line in entries.items())]
    return [*lines, "pcmlp list NAME shows the settings of a task or an algorithm"]


def _task_line(name: str, task: type) -> str:
    return f"{describe(task)} [{', '.join(methods_for(name, task.kind))}]"


def describe(documented: type) -> str:
    """Return the first line of a class's docstring."""
    return (documented.__doc__ or "").strip().splitlines()[0]


def settings_table(name: str) -> Table:
    """Return the settings of an algorithm or a task as a table for the terminal."""
    find_known("name", name, [*METHODS, *TASKS], "an algorithm or a task; pcmlp list shows them all")
    table = Table("key=default", "meaning", box=None, pad_edge=False)
    for key, default, limits, meaning in settings_rows(name):
        table.add_row(f"{key}={default}", f"{meaning} ({limits})" if limits else meaning)
    return table


def settings_rows(name: str, *, brief: bool = False) -> list[tuple[str, str, str, str]]:
    """Return key, default, limits and meaning of every setting of an algorithm or a task; if `brief`, without settings
    of its parts that have the part's own default."""
    if name in TASKS:
        return [_row(key, field, value) for key, field, value in walk(TASKS[name](), "task.")]
    method = METHODS[name]
    rows = [(key, field, value) for key, field, value in walk(method.algorithm) if not method.unused_reason(key)]
    shown = [(key, field, value) for key, field, value in rows if not isinstance(value, Part) or NAMES.name_of(value)]
    if brief:
        shown = [row for row in shown if "." not in row[0] or row[2] != row[1].default or isinstance(row[2], Part)]
    return [_row(key, field, value, method.choices) for key, field, value in shown]


def part_rows(part: type[Part], path: str) -> list[tuple[str, str, str, str]]:
    """Return key, default, limits and meaning of every setting of a part, with its own defaults."""
    return [_row(key, field, value) for key, field, value in walk(part(), path)]


def _row(key: str, field: Setting, value: Any, choices: Any = None) -> tuple[str, str, str, str]:
    if not isinstance(value, Part):
        return key, show(value), str(field.limits) if field.limits != Limits() else "", field.help
    own = NAMES.name_of(value) or ""
    group = key.removesuffix(".name")
    fitting = (choices or {}).get(group, (own,))
    kind = next((kind for kind in PARTS if isinstance(value, kind)), None)
    known = PARTS[kind] if kind else {}
    about = "; ".join(f"{name}: {describe(known[name]).rstrip('.')}" for name in fitting if name in known)
    return key, own, "", f"{field.help}; {about}" if about else field.help


def settings_page() -> str:
    """Return docs/settings.md: the settings of every method, task and part. `python -m pcmlp.listing` prints it."""
    lines = [
        "# Settings",
        "",
        "All keys of `--set` and `config.json`, printed by `python -m pcmlp.listing` from the classes that use them.",
        "A run also takes `preset` (`ours`, and for some methods `dense` or `paper`) and `eval_episodes`; a preset",
        "changes some defaults for a kind of task. Settings of a method's parts are below, under Parts; a method's",
        "own table has only those whose default it changes. `pcmlp list NAME` prints all of a method's or a task's.",
    ]
    for title, names in (("Methods", METHODS), ("Tasks", {**TASKS, f"{PREFIX}ID": GymnasiumTask})):
        lines += ["", f"## {title}"]
        for name in names:
            rows = part_rows(GymnasiumTask, "task.") if name == f"{PREFIX}ID" else settings_rows(name, brief=True)
            about = METHODS[name].about if name in METHODS else describe(TASKS.get(name, GymnasiumTask))
            lines += ["", f"### {name}", "", f"{about}", *_markdown(rows)]
    lines += ["", "## Parts", "", "The parts that can be chosen by name, each with its own defaults."]
    for kind, parts in PARTS.items():
        group = "features" if kind.__name__ == "FeatureMap" else kind.__name__.lower()
        for name, part in parts.items() if group != "task" else ():
            lines += ["", f"### {group}.name={name}", "", describe(part), *_markdown(part_rows(part, f"{group}."))]
    return "\n".join(lines) + "\n"


def _markdown(rows: list[tuple[str, str, str, str]]) -> list[str]:
    if not rows:
        return ["", "It has no settings."]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    table = [f"| `{key}` | {default} | {limits} | {meaning} |" for key, default, limits, meaning in cells]
    return ["", "| key | default | limits | meaning |", "|---|---|---|---|", *table]


if __name__ == "__main__":
    print(settings_page(), end="")
