"""`make demo`: the combination lock by PC-MLP, by random play and by PC-MLP without its bonus, in one picture.

The lock pays only for a whole code, so whoever does not look for what has not been tried finds nothing.
"""

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pcmlp.report.curves import compare, learning_curve
from pcmlp.report.maps import visit_map
from pcmlp.runs.config import resolve
from pcmlp.runs.train import train
from pcmlp.types import ConfigError

HORIZON = 15
STEPS = 2_000
SEEDS = (0, 1, 2, 3)
RUNS = {  # label -> algorithm and settings
    "PC-MLP": ("pcmlp-linear", ()),
    "random actions": ("random", ()),
    "PC-MLP without its bonus": ("pcmlp-linear", ("bonus_scale=0",)),
}


def folder_name(label: str) -> str:
    return label.lower().replace(" ", "-")


def run_all(out: Path, horizon: int, steps: int, console: Console) -> dict[str, dict[str, Any]]:
    """The summary of each run, by label; an earlier demo in the same place is replaced."""
    summaries = {}
    for label, (algo, settings) in RUNS.items():
        run = out / folder_name(label)
        if (run / "config.json").exists():
            shutil.rmtree(run)
        chosen = (f"task.horizon={horizon}", *settings)
        config = resolve("combination-lock", algo, SEEDS, steps, chosen)
        again = ["pcmlp", "train", "combination-lock", "--algo", algo, "--steps", str(steps), "--set", *chosen]
        console.print(f"\n{label}: {shlex.join(again)}", highlight=False, soft_wrap=True)
        summaries[label] = train(config, run, command=shlex.join(again), console=console)
        if summaries[label]["status"] != "finished":
            raise KeyboardInterrupt
        learning_curve(run)
        visit_map(run)
    return summaries


def table_of(summaries: dict[str, dict[str, Any]]) -> Table:
    table = Table("", "seeds that opened the lock", "env steps to open it", "return", "seconds")
    for label, summary in summaries.items():
        seeds = summary["seeds"]
        steps = sorted(s["env_steps_to_success"] for s in seeds if s["env_steps_to_success"] is not None)
        spread = f"{steps[0]} to {steps[-1]}" if steps else "-"
        mean = sum(s["final_return"] for s in seeds) / len(seeds)
        table.add_row(label, f"{len(steps)} of {len(seeds)}", spread, f"{mean:.2f}", f"{summary['wall_s']:.1f}")
    return table


def opened_by(summaries: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many seeds of each run opened the lock."""
    return {
        label: sum(s["env_steps_to_success"] is not None for s in summary["seeds"])
        for label, summary in summaries.items()
    }


def only_ours(opened: dict[str, int]) -> bool:
    return opened["PC-MLP"] > 0 and sum(opened.values()) == opened["PC-MLP"]


def sentence(summaries: dict[str, dict[str, Any]], horizon: int, actions: int = 5) -> str:
    """What the reader sees, from what happened."""
    opened = opened_by(summaries)
    first = f"PC-MLP opens the lock in {opened['PC-MLP']} of {len(SEEDS)} seeds"
    rest = ", ".join(f"{label} in {count}" for label, count in opened.items() if label != "PC-MLP")
    if not only_ours(opened):
        return f"{first} ({rest}); give a longer lock or more steps to see them differ."
    return (
        f"{first} ({rest}): one code of {actions}^{horizon} = {actions**horizon:,} pays, so chance does not find it, "
        "and only the bonus for what the policy cover has not seen leads from one right digit to the next."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pcmlp.experiments.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--horizon", type=int, default=HORIZON)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    console = Console()
    try:
        summaries = run_all(given.out, given.horizon, given.steps, console)
    except ConfigError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    title = f"A combination lock of {given.horizon} digits"
    if only_ours(opened := opened_by(summaries)) and opened["PC-MLP"] == len(SEEDS):
        title += ": only PC-MLP opens it"
    picture = compare({label: given.out / folder_name(label) for label in RUNS}, given.out / "curves.png", title)
    console.print(table_of(summaries))
    console.print(f"{sentence(summaries, given.horizon)}\nThe three curves: {picture}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
