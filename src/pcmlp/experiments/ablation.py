"""How large the bonus should be: mountain-car and Walker2D with several coefficients c, and one that knows no cover.

(paper: section 7.4, figure 4: c in {0, 1, 5} on mountain-car, where 5 is needed, and in {0, 0.1, 1} on Walker2D, where
0.1 is best. Its phi has no scale / here phi has norm 1, and our own c is 0.05 and 0.01: those are run as well. The
control has the paper's c, and a covariance that stays at its ridge.)

    pcmlp paper ablation                                    # all of it; a GPU is wanted
    pcmlp paper ablation --only mountain-car/c-5            # one run
"""

from typing import Any

import numpy as np

from pcmlp.experiments import dense, sparse
from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row, return_row

NAME = "ablation"
CAR, WALKER = "mountain-car", "walker2d-et"
STEPS = {CAR: 10_000, WALKER: 200_000}
SETTINGS = {CAR: sparse.OURS, WALKER: ()}
SCALES = {CAR: ("0", "0.05", "1", "5"), WALKER: ("0", "0.1", "1")}
PAPERS = {CAR: "5", WALKER: "0.1"}  # the c that it chose


def job(task: str, label: str, *settings: str) -> Job:
    return Job(NAME, task, label, "pcmlp", STEPS[task], (*SETTINGS[task], *settings), PAPER_SEEDS)


def jobs() -> list[Job]:
    return [
        *(job(task, f"c-{c}", f"bonus_scale={c}") for task in STEPS for c in SCALES[task]),
        *(job(task, "covariance-off", f"bonus_scale={c}", "covariance=off") for task, c in PAPERS.items()),
        dense.job(f"{WALKER}/pcmlp"),  # our own c, 0.01
    ]


def row_of(job: Job, summary: dict[str, Any]) -> Row:
    config, success = job.config(), [seed["final_success"] for seed in summary["seeds"]]
    return {
        **return_row(job, summary),
        "bonus_scale": config.bonus_scale,
        "covariance": config.covariance,
        "final_success": "" if None in success else round(float(np.mean(success)), 3),
    }


EXPERIMENT = Experiment(
    name=NAME,
    title="How large a bonus",
    place="section 7.4, figure 4",
    shows="mountain-car and Walker2D with bonuses of several sizes, and with one that does not know the cover",
    jobs=jobs,
    tables=per_run(row_of, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
