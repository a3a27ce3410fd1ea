"""The rivals on the sparse tasks, beside Deep PC-MLP: who reaches a goal that nothing on the way to it pays for.

(paper: section 7.1, figure 2, with SLBO, MBPO and PETS-GT. Here all that it compares with or builds on, each with the
settings of its own preset but for what is said below: 30,000 env steps, the paper's four seeds.)

    python -m pcmlp.experiments.rivals                      # all of it; a GPU is wanted
    python -m pcmlp.experiments.rivals mountain-car/slbo    # one run
"""

import argparse
from typing import Any

from pcmlp.experiments.kept import PAPER_SEEDS, Asked, parser, run_asked, solved_row

NAME = "rivals"
TASKS = ("mountain-car", "acrobot", "point-umaze")
# What each needs so that 30,000 steps take minutes: five episodes a policy or more, with as many rounds or updates for
# a sample as in its preset, or nearly, and smaller plans for who plans at every step.
_FIVE = ("samples_per_policy=1000",)
_FEW = ("eval_episodes=5",)
SETTINGS: dict[str, tuple[str, ...]] = {
    "pcmlp": (*_FIVE, "rounds=4"),
    "rnd": (*_FIVE, "rounds=4"),
    "slbo": (*_FIVE, "rounds=5"),
    "mbpo": (*_FIVE, "rounds=5"),
    "pets": ("samples_per_policy=2000", "planner.num_plans=200", "planner.elites=20", "planner.particles=5", *_FEW),
    "lc3": ("samples_per_policy=3000", *_FEW),
    "pc-pg": (),
    "trpo": (),
    "sac": (),
    "random": _FIVE,
}

RUNS: dict[str, Asked] = {
    **{
        f"{task}/{algo}": Asked(30_000, settings, algo, PAPER_SEEDS)
        for algo, settings in SETTINGS.items()
        for task in TASKS
    },
    # It is given the dynamics, so there is nothing to learn: an iteration tells all.
    **{f"{task}/pets-gt": Asked(200, algo="pets-gt", seeds=PAPER_SEEDS) for task in TASKS},
}


def run_one(places: argparse.Namespace, name: str) -> dict[str, Any]:
    summary = RUNS[name].kept(places, NAME, name)[1]
    return {**solved_row(name, summary), "wall_s": round(summary["wall_s"]), "device": summary["device"]}


def main() -> None:
    run_asked(parser(__doc__ or ""), NAME, RUNS, run_one)


if __name__ == "__main__":
    main()
