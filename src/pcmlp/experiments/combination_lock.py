"""The combination lock: who opens it, and how the steps it takes grow with its length.

(paper: section 5, polynomial sample complexity. Uniform play opens a lock of H digits with probability A^-H.)

    pcmlp paper combination_lock
"""

from typing import Any

import numpy as np

from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import Job
from pcmlp.experiments.tables import Row, slope, solved_row, steps_to_success
from pcmlp.tasks import CombinationLock

NAME = "combination_lock"
TASK, ALGO = "combination-lock", "pcmlp-linear"
BUDGET = 200_000
HORIZONS = (5, 10, 20, 40)
ACTIONS = 5
# The controls get the whole budget, fifty episodes a policy, so that it makes two hundred policies.
_MANY = ("samples_per_policy=1000",)
CONTROLS = {
    "random": ("random", _MANY),
    "no-bonus": (ALGO, ("bonus_scale=0", *_MANY)),
    "covariance-off": (ALGO, ("covariance=off", *_MANY)),
}


def jobs() -> list[Job]:
    return [
        *(lock_of(horizon) for horizon in HORIZONS),
        *(Job(NAME, TASK, label, algo, BUDGET, settings) for label, (algo, settings) in CONTROLS.items()),
    ]


def label_of(horizon: int) -> str:
    return ALGO if horizon == CombinationLock.horizon else f"horizon-{horizon}"


def lock_of(horizon: int) -> Job:
    settings = () if horizon == CombinationLock.horizon else (f"task.horizon={horizon}",)
    return Job(NAME, TASK, label_of(horizon), ALGO, 2 * ACTIONS * horizon**2, settings)


def growth_row(horizon: int, summary: dict[str, Any]) -> Row:
    needed = steps_to_success(summary)
    return {
        "horizon": horizon,
        "seeds_opened": int(np.isfinite(needed).sum()),
        "median_steps": np.median(needed),
        "least_steps": needed.min(),
        "most_steps": needed.max(),
        "steps_of_uniform_play": float(ACTIONS) ** horizon * horizon,
    }


def tables(done: Done) -> Tables:
    """The slope of the steps' logarithms is the degree of the polynomial."""
    found = done.of(TASK)
    yield "who_opens_it", [solved_row(found[x], done.summary(found[x])) for x in (ALGO, *CONTROLS) if x in found]
    rows = [growth_row(h, done.summary(found[label_of(h)])) for h in HORIZONS if label_of(h) in found]
    degree = slope(rows, "horizon", "median_steps")
    yield "growth", [{**row, "log_log_slope": degree} for row in rows]


EXPERIMENT = Experiment(
    name=NAME,
    title="The combination lock",
    place="section 5, polynomial sample complexity",
    shows="who opens a lock of 20 digits, and how the steps grow with its length",
    jobs=jobs,
    tables=tables,
)

if __name__ == "__main__":
    main(EXPERIMENT)
