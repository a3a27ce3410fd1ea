"""Rewards at every step: Deep PC-MLP on the nine robots and the pendulum, one set of hyperparameters for all of them.

(paper: section 7.2, the dense table and the ranks; 200,000 env steps, the paper's four seeds. The pendulum, of which
4,000 steps are enough, has the same settings for a smaller budget.)

    pcmlp paper dense                                       # all of it; a GPU is wanted
    pcmlp paper dense --only half-cheetah/pcmlp             # one run
"""

from typing import Any

from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row, machine_of, return_row
from pcmlp.published import PAPER, best_published, dense_table
from pcmlp.tasks.mujoco import DENSE_TASKS

NAME = "dense"
_FIRST = ("half-cheetah", "slim-humanoid-et", "hopper-et", "walker2d-et")  # those the paper gains most on
_ORDER = (*_FIRST, *(task for task in DENSE_TASKS if task not in _FIRST))


def job(name: str, settings: tuple[str, ...] = (), steps: int = 200_000, seeds: tuple[int, ...] = PAPER_SEEDS) -> Job:
    task, label = name.split("/")
    return Job(NAME, task, label, "pcmlp", steps, settings, seeds)


def jobs() -> list[Job]:
    return [
        *(job(f"{task}/pcmlp") for task in _ORDER),
        job("pendulum/pcmlp", ("preset=dense",), 4_000),
        # what each part of the preset changes
        job("half-cheetah/plain-critics", ("planner.normed=false", "margin=3", "keeps_better=false")),
        job("half-cheetah/no-bonus", ("bonus_scale=0",)),
        job("half-cheetah/covariance-off", ("covariance=off",)),
        job("half-cheetah/ensemble", ("model.members=5",)),
        # reward and termination learned, in environments that we know nothing of
        job("gym:InvertedPendulum-v5/pcmlp", (), 8_000, (0, 1, 2)),
        job("gym:Pusher-v5/pcmlp", ("preset=dense",), 8_000, (0, 1, 2)),
    ]


def row_of(job: Job, summary: dict[str, Any]) -> Row:
    published = dense_table().get(job.task, {})
    quoted = {
        "paper": published[PAPER].mean if published else "",
        "best_of_benchmark": best_published(job.task)[1].mean if published else "",
    }
    return {**return_row(job, summary), **quoted, **machine_of(summary)}


EXPERIMENT = Experiment(
    name=NAME,
    title="Dense rewards",
    place="section 7.2, the dense table and its ranks",
    shows="Deep PC-MLP on nine robots and the pendulum, where every step pays, beside what others have published",
    jobs=jobs,
    tables=per_run(row_of, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
