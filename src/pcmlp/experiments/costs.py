"""What a bonus costs where every step is rewarded: the default settings against two controls on three robots.

    no-bonus          c = 0
    covariance-off    a bonus of the same size that ignores the cover

Returns are normalised for each task, so that random play has 0 and the mean without a bonus has 1. `pooled` has the
difference from each control, averaged over the tasks, with its 95 % bootstrap interval over seeds. The two numbers by
which returns are normalised are taken as exact: random play has its published return, as everywhere on the page of all
results, and the mean without a bonus is not resampled.

paper: c is tuned for each task / here: `bonus_scale=auto`, with seeds that nothing was tuned on.
"""

import numpy as np

from pcmlp.experiments.as_printed import CHEETAH, WALKER
from pcmlp.experiments.experiment import Done, Experiment, Rows, Tables, known, machine_columns, per_run, return_columns
from pcmlp.experiments.job import NO_BONUS, NO_COVER, Job
from pcmlp.published import dense_table
from pcmlp.report.statistics import mean_difference, normalise

OURS, WITHOUT, CONTROL = "pcmlp", "no-bonus", "covariance-off"
TASKS = (CHEETAH, "hopper-et", WALKER)
SEEDS = (10, 11, 12, 13)


def jobs() -> list[Job]:
    """Return the runs; those of a task share their compiled programs. There are few evaluations, because they would
    take longer than learning, and do not change it."""
    runs = {OURS: (), WITHOUT: (NO_BONUS,), CONTROL: (NO_COVER,)}
    return [
        Job("costs", task, label, "pcmlp", 200_000, (*settings, "eval_every=50000"), SEEDS)
        for task in TASKS
        for label, settings in runs.items()
    ]


def tables(done: Done) -> Tables:
    """Yield `costs`, with a row for each run, and `pooled`, with one for each control."""
    yield from per_run("costs", return_columns, machine_columns)(done)
    yield "pooled", pooled_rows({task: returns_of(done, task) for task in TASKS})


def returns_of(done: Done, task: str) -> dict[str, np.ndarray]:
    """Return the final returns of a task's runs, by label."""
    return {
        label: np.array([seed["final_return"] for seed in done.summary(job)["seeds"]])
        for label, job in done.jobs_of(task).items()
    }


def pooled_rows(returns: dict[str, dict[str, np.ndarray]]) -> Rows:
    """Return how much higher our normalised return is than that of each control, given task -> label -> returns. A task
    counts only if both runs are finished, and if the runs without a bonus are better than random play."""
    scores: dict[str, dict[str, np.ndarray]] = {}
    for task, runs in returns.items():
        random = dense_table()[task]["Random"].mean
        if WITHOUT in runs and (best := float(runs[WITHOUT].mean())) > random:
            scores[task] = {label: normalise(of, random, best) for label, of in runs.items()}
    rows: Rows = []
    for control in (WITHOUT, CONTROL):
        both = [task for task, runs in scores.items() if OURS in runs and control in runs]
        if not both:
            continue
        found = mean_difference([scores[task][OURS] for task in both], [scores[task][control] for task in both])
        rows.append(
            {
                "compared": f"{OURS} - {control}",
                "tasks": " ".join(both),
                "seeds": min(len(scores[task][label]) for task in both for label in (OURS, control)),
                "difference": round(found.value, 3),
                "low": known(found.low, 3),
                "high": known(found.high, 3),
            }
        )
    return rows


COSTS = Experiment(
    "costs",
    "What a bonus costs",
    "deviation BR",
    "the default settings, no bonus, and one that ignores the cover, on three robots",
    jobs,
    tables,
    needs_protocol=True,
)
