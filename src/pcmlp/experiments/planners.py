"""Two planners of Deep PC-MLP: TRPO with features of a random network, MPPI with random Fourier features.

(paper: appendix C.1, the settings of section 7.1 on mountain-car and acrobot. TRPO's runs are those of `sparse`.)

    pcmlp paper planners                                    # a GPU is wanted
    pcmlp paper planners --only acrobot/pcmlp-mppi          # one run
"""

from typing import Any

from pcmlp.experiments import sparse
from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row, machine_of, solved_row

NAME = "planners"
TASKS = ("mountain-car", "acrobot")
_FIVE = ("samples_per_policy=1000",)  # as for TRPO


def jobs() -> list[Job]:
    return [
        *(sparse.job(task, label) for task in TASKS for label in ("pcmlp", "covariance-off")),
        *(Job(NAME, task, "pcmlp-mppi", "pcmlp-mppi", 30_000, _FIVE, PAPER_SEEDS) for task in TASKS),
        *(
            Job(NAME, task, "mppi-covariance-off", "pcmlp-mppi", 30_000, (*_FIVE, "covariance=off"), PAPER_SEEDS)
            for task in TASKS
        ),
    ]


def row_of(job: Job, summary: dict[str, Any]) -> Row:
    planner = "mppi" if job.algo == "pcmlp-mppi" else "trpo"
    return {**solved_row(job, summary), "planner": planner, **machine_of(summary)}


EXPERIMENT = Experiment(
    name=NAME,
    title="TRPO against MPPI",
    place="appendix C.1",
    shows="TRPO against MPPI as the planner of Deep PC-MLP on mountain-car and acrobot",
    jobs=jobs,
    tables=per_run(row_of, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
