"""`make demo`: Deep PC-MLP on mountain-car with its bonus and without, in one page.

Only the flag on the hill is rewarded, and a car that does not explore never finds the flag.
"""

import argparse
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pcmlp.errors import ConfigError
from pcmlp.experiments.job import NO_BONUS, Job
from pcmlp.report.curves import plot_curves
from pcmlp.report.figures import draw
from pcmlp.report.page import report
from pcmlp.report.reading import Run, load
from pcmlp.report.words import final_return, headline, median_steps
from pcmlp.runs.cache import prepare
from pcmlp.runs.train import train

TASK = "mountain-car"
STEPS = 400
WITH, WITHOUT = "with-bonus", "without-bonus"
RUNS = {WITH: (), WITHOUT: (NO_BONUS,)}  # folder -> settings


def run_all(out: Path, steps: int, console: Console) -> dict[str, Run]:
    """Make both runs, replacing those of an earlier demo, and return them by folder."""
    runs = {}
    for name, settings in RUNS.items():
        job = Job("demo", TASK, name, "pcmlp", steps, settings, (0, 1))
        config = job.config()
        if (out / name / "config.json").exists():
            shutil.rmtree(out / name)
        console.print(f"\n{name}: {job.command}", highlight=False, soft_wrap=True)
        if train(config, out / name, command=job.command, console=console)["status"] != "finished":
            raise KeyboardInterrupt
        draw(out / name)
        runs[name] = load(out / name)
    return runs


def make_table(runs: dict[str, Run]) -> Table:
    """Return the table that compares the runs."""
    table = Table("", "seeds solved", "env steps to success (median)", "return", "seconds", title=TASK)
    for name, run in runs.items():
        solved = f"{run.num_solved} of {len(run.seeds)}"
        table.add_row(name, solved, median_steps(run), final_return(run), f"{run.wall_s or 0.0:.1f}")
    return table


def verdict(solved: dict[str, int]) -> str:
    """Return a sentence about the effect of the bonus, given how many seeds each run solved."""
    if solved[WITH] > solved[WITHOUT]:
        only = "Only" if solved[WITHOUT] == 0 else "More often"
        return f"{only} the bonus for what the policy cover has not seen leads the car out of the valley."
    if solved[WITH] == solved[WITHOUT]:
        return "The bonus made no difference here; other --steps may show one."
    return "The bonus did harm here, which is not what this demo is for; please report it."


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pcmlp.experiments.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    console = Console()
    prepare()
    try:
        runs = run_all(given.out, given.steps, console)
        page = report([given.out / name for name in runs])
    except ConfigError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    plot_curves(runs).savefig(given.out / "curves.png")
    console.print(make_table(runs))
    said = f"{headline(runs)} {verdict({name: run.num_solved for name, run in runs.items()})}"
    where = given.out / page.name  # the path as it was given
    console.print(f"{said}\nCurves, maps and how to run it again: {where}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
