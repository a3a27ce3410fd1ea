"""What `pcmlp list` and `pcmlp theory` show: names with a line each, and the parameters of the two theorems."""

from typing import Any

from rich.console import Console
from rich.table import Table

from pcmlp import theory
from pcmlp.arguments import KNR, LinearMDP
from pcmlp.runs.parse import parse_float, parse_int
from pcmlp.runs.presets import ALGORITHMS, DEEP_PRESETS, FREE_PRESETS, algorithms_for
from pcmlp.tasks import TASKS
from pcmlp.tasks.registered import PREFIX, GymnasiumTask


def names() -> int:
    from pcmlp.experiments.catalogue import EXPERIMENTS  # takes seconds, which `theory` need not wait for

    tasks = {name: f"{first_line(options)} [{', '.join(algorithms_for(name))}]" for name, options in TASKS.items()}
    tasks[f"{PREFIX}ID"] = f"{first_line(GymnasiumTask)} [{', '.join((*DEEP_PRESETS, *FREE_PRESETS))}]"
    experiments = {name: f"{made.shows} ({made.place})" for name, made in EXPERIMENTS.items()}
    for title, lines in (("tasks", tasks), ("algorithms", ALGORITHMS), ("experiments", experiments)):
        print(f"{title}:")
        for name, line in lines.items():
            print(f"  {name:<18}{line}")
    return 0


def first_line(documented: type) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def theory_of(setting: LinearMDP | KNR) -> int:
    def whole(*names: str) -> list[int]:
        return [parse_int(name, getattr(setting, name)) for name in names]

    def real(*names: str) -> list[float]:
        return [parse_float(name, getattr(setting, name)) for name in names]

    if isinstance(setting, LinearMDP):
        title = "linear MDP"
        rows = theory.linear_mdp_table(*whole("horizon", "dim"), *real("epsilon", "delta"), *whole("members"))
    else:
        title = "KNR"
        scale = real("epsilon", "delta", "radius", "sigma")
        rows = theory.knr_table(*whole("horizon", "dim"), *scale, *whole("state_dim"))
    table = Table("symbol", "stated", "corrected", "what it is", title=f"{title}, {given(setting)}")
    for name, stated, corrected, meaning in rows:
        table.add_row(name, f"{stated:.4g}", f"{corrected:.4g}", meaning)
    Console().print(table)
    return 0


def given(setting: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in vars(setting).items())
