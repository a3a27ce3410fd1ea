"""The combination lock: who opens it, and how the steps it takes grow with its length.

(paper: section 5, polynomial sample complexity. Uniform play opens a lock of H digits with probability A^-H.)

    python -m pcmlp.experiments.combination_lock
"""

import argparse

import numpy as np

from pcmlp.experiments.kept import arguments, kept_run, slope, write_table
from pcmlp.tasks import CombinationLock

NAME = "combination-lock"
BUDGET = 200_000
HORIZONS = (5, 10, 20, 40)
ACTIONS = 5
# The controls get the whole budget, fifty episodes a policy, so that it makes two hundred policies.
CONTROLS = {
    "random": ("random", ()),
    "no-bonus": ("pcmlp-linear", ("bonus_scale=0",)),
    "covariance-off": ("pcmlp-linear", ("covariance=off",)),
}


def who_opens_it(places: argparse.Namespace) -> None:
    runs = {"pcmlp-linear": kept_run(places, NAME, NAME, "pcmlp-linear", algo="pcmlp-linear", steps=4_000)[1]}
    for label, (algo, settings) in CONTROLS.items():
        settings = (*settings, "samples_per_policy=1000")
        runs[label] = kept_run(places, NAME, NAME, label, algo=algo, steps=BUDGET, settings=settings)[1]
    rows = []
    for label, summary in runs.items():
        steps = [seed["env_steps_to_success"] for seed in summary["seeds"]]
        opened = sorted(s for s in steps if s is not None)
        rows.append(
            {
                "algorithm": label,
                "opened": f"{len(opened)} of {len(steps)}",
                "median_steps": int(np.median(opened)) if opened else "",
                "most_steps": opened[-1] if opened else "",
                "final_return": np.mean([seed["final_return"] for seed in summary["seeds"]]),
            }
        )
    write_table(places.results / NAME / "who_opens_it.csv", rows)


def growth(places: argparse.Namespace) -> None:
    """Steps to open locks of several lengths; the slope of their logarithms is the degree of the polynomial."""
    rows = []
    for horizon in HORIZONS:
        label = "pcmlp-linear" if horizon == CombinationLock.horizon else f"horizon-{horizon}"
        steps = 2 * ACTIONS * horizon**2
        settings = () if horizon == CombinationLock.horizon else (f"task.horizon={horizon}",)
        _, summary = kept_run(places, NAME, NAME, label, algo="pcmlp-linear", steps=steps, settings=settings)
        needed = np.array([seed["env_steps_to_success"] or np.inf for seed in summary["seeds"]])
        rows.append(
            {
                "horizon": horizon,
                "seeds_opened": int(np.isfinite(needed).sum()),
                "median_steps": np.median(needed),
                "least_steps": needed.min(),
                "most_steps": needed.max(),
                "steps_of_uniform_play": float(ACTIONS) ** horizon * horizon,
            }
        )
    degree = slope(rows, "horizon", "median_steps")
    write_table(places.results / NAME / "growth.csv", [{**row, "log_log_slope": degree} for row in rows])


if __name__ == "__main__":
    chosen = arguments(__doc__ or "")
    who_opens_it(chosen)
    growth(chosen)
