"""Sparse rewards: who reaches a goal that nothing on the way to it pays for. Deep PC-MLP, its controls, all rivals.

(paper: section 7.1, figure 2, with SLBO, MBPO and PETS-GT. Here all that it compares with or builds on, each with the
settings of its own preset but for what is said below: 30,000 env steps, the paper's four seeds.)

    pcmlp paper sparse                                      # all of it; a GPU is wanted
    pcmlp paper sparse --only mountain-car/slbo             # one run
"""

from typing import Any

from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import CLIPPED_PLANS, PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row, machine_of, solved_row

NAME = "sparse"
TASKS = ("mountain-car", "acrobot", "point-umaze")
# What each needs so that 30,000 steps take minutes: five episodes a policy or more, with as many rounds or updates for
# a sample as in its preset, or nearly, and smaller plans for who plans at every step.
_FIVE = ("samples_per_policy=1000",)
_FEW = ("eval_episodes=5",)
OURS = (*_FIVE, "rounds=4")
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {  # label -> algorithm, settings
    "pcmlp": ("pcmlp", OURS),
    "no-bonus": ("pcmlp", (*OURS, "bonus_scale=0")),
    "covariance-off": ("pcmlp", (*OURS, "covariance=off")),
    "rnd": ("rnd", (*_FIVE, "rounds=4")),
    "slbo": ("slbo", (*_FIVE, "rounds=5")),
    "mbpo": ("mbpo", (*_FIVE, "rounds=5")),
    "mbpo-one-episode": ("mbpo", ()),  # its preset: its entropy has not been trained away before the next try
    "pets": (
        "pets",
        (
            *("samples_per_policy=2000", "planner.num_plans=200", "planner.elites=20", "planner.particles=5"),
            *CLIPPED_PLANS,
            *_FEW,
        ),
    ),
    "lc3": ("lc3", ("samples_per_policy=3000", *_FEW)),
    "pc-pg": ("pc-pg", ()),
    "trpo": ("trpo", ()),
    "sac": ("sac", ()),
    "random": ("random", _FIVE),
}


def jobs() -> list[Job]:
    return [
        *(job(task, label) for label in RUNS for task in TASKS),
        # It is given the dynamics, so there is nothing to learn: an iteration tells all.
        *(Job(NAME, task, "pets-gt", "pets-gt", 200, (), PAPER_SEEDS) for task in TASKS),
        Job(NAME, "hand-egg", "pcmlp", "pcmlp", 60_000, (), PAPER_SEEDS),
        Job(NAME, "hand-egg", "no-bonus", "pcmlp", 60_000, ("bonus_scale=0",), PAPER_SEEDS),
    ]


def job(task: str, label: str) -> Job:
    """Of the classic tasks and the maze."""
    algo, settings = RUNS[label]
    return Job(NAME, task, label, algo, 30_000, settings, PAPER_SEEDS)


def row_of(job: Job, summary: dict[str, Any]) -> Row:
    return {**solved_row(job, summary), **machine_of(summary)}


EXPERIMENT = Experiment(
    name=NAME,
    title="Sparse rewards",
    place="section 7.1, figure 2",
    shows="success and return of all algorithms on mountain-car, acrobot, a maze and the hand, where only a goal pays",
    jobs=jobs,
    tables=per_run(row_of, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
