"""The rivals on the sparse tasks, beside Deep PC-MLP: who reaches a goal that nothing on the way to it pays for.

(paper: section 7.1, figure 2, with SLBO, MBPO and PETS-GT. Here all that it compares with or builds on, each with the
settings of its own preset: 30,000 env steps, the paper's four seeds.)

    python -m pcmlp.experiments.rivals                      # all of it; a GPU is wanted
    python -m pcmlp.experiments.rivals mountain-car/slbo    # one run
"""

import argparse
from typing import Any

from pcmlp.experiments.kept import PAPER_SEEDS, Asked, parser, run_asked, solved_row

NAME = "rivals"
TASKS = ("mountain-car", "acrobot", "point-umaze")
ALGORITHMS = (
    "pcmlp",
    "pcmlp-mppi",
    "rnd",
    "pc-pg",
    "slbo",
    "mbpo",
    "pets",
    "pets-gt",
    "lc3",
    "trpo",
    "sac",
    "random",
)

RUNS: dict[str, Asked] = {
    f"{task}/{algo}": Asked(30_000, algo=algo, seeds=PAPER_SEEDS) for algo in ALGORITHMS for task in TASKS
}


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    summary = RUNS[name].kept(places, NAME, name)[1]
    return {**solved_row(name, summary), "wall_s": round(summary["wall_s"]), "device": summary["device"]}


def main() -> None:
    run_asked(parser(__doc__ or ""), NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
