"""Rewards at every step: Deep PC-MLP on the nine robots and the pendulum, one set of hyperparameters for all of them.

(paper: section 7.2, the dense table and the ranks; 200,000 env steps, the paper's four seeds. The pendulum, of which
4,000 steps are enough, has the same settings for a smaller budget.)

    pcmlp paper dense                                       # all of it; a GPU is wanted
    pcmlp paper dense --only half-cheetah/pcmlp             # one run
"""

from typing import Any

from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row, Rows, machine_of, return_row
from pcmlp.published import MODEL_BASED, PAPER, dense_table
from pcmlp.report.statistics import ranks
from pcmlp.tasks.mujoco import DENSE_TASKS

NAME = "dense"
OURS = "pcmlp (here)"
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
    others = [published[name].mean for name in MODEL_BASED if name in published]
    quoted = {
        "paper": published[PAPER].mean if PAPER in published else "",
        "best_of_benchmark": max(others) if others else "",
    }
    return {**return_row(job, summary), **quoted, **machine_of(summary)}


def rank_rows(ours: dict[str, float]) -> Rows:
    """Among the algorithms with a model that the paper ranks itself among, its own row and ours, on the tasks that we
    have; others' returns are quoted, of other simulators."""
    table = {task: row for task, row in dense_table().items() if task in ours}
    compared = (*MODEL_BASED, PAPER)
    means = {task: {name: row[name].mean for name in compared if name in row} for task, row in table.items()}
    with_ours = {task: {**row, OURS: ours[task]} for task, row in means.items()}
    found = ranks(with_ours)
    return [
        {"algorithm": name, "mean_rank": round(rank.mean, 2), "median_rank": rank.median, "tasks": len(table)}
        for name, rank in sorted(found.items(), key=lambda item: item[1].mean)
    ]


def tables(done: Done) -> Tables:
    rows = [row_of(job, done.summary(job)) for job in done.jobs]
    yield NAME, rows
    ours = {row["task"]: row["final_return"] for row in rows if row["run"] == "pcmlp"}
    yield "ranks", rank_rows(ours)


EXPERIMENT = Experiment(
    name=NAME,
    title="Dense rewards",
    place="section 7.2, the dense table and its ranks",
    shows="Deep PC-MLP on nine robots and the pendulum, where every step pays, beside what others have published",
    jobs=jobs,
    tables=tables,
)

if __name__ == "__main__":
    main(EXPERIMENT)
