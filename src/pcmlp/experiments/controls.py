"""What each part of Deep PC-MLP changes: its controls and our deviations on mountain-car, acrobot and the U-maze.

(paper: section 7.1; here ten seeds. The maze stands for the question that the two classic tasks leave open, since going
far is all they ask: whether it matters where the cover has been. There an imagination without bounds, one that begins
at the world's own starts alone, one exploring policy that goes on from iteration to iteration, and all three at once
show what each of our deviations changes.)

    pcmlp paper controls                                    # all of it; a GPU is wanted
    pcmlp paper controls --only point-umaze/unbounded       # one run
"""

from pcmlp.experiments.experiment import Experiment, main, per_run
from pcmlp.experiments.job import Job
from pcmlp.experiments.tables import solved_row

NAME = "controls"
_NO_BONUS, _NO_COVER = ("bonus_scale=0",), ("covariance=off",)
# The controls of the classic tasks draw fifteen episodes a policy, so that thirty thousand steps make ten policies.
_MANY = ("samples_per_policy=3000",)


def job(name: str, steps: int, settings: tuple[str, ...] = (), algo: str = "pcmlp") -> Job:
    task, label = name.split("/")
    return Job(NAME, task, label, algo, steps, settings)


def jobs() -> list[Job]:
    return [
        job("point-umaze/pcmlp", 10_000),
        job("point-umaze/no-bonus", 20_000, _NO_BONUS),
        job("point-umaze/covariance-off", 20_000, _NO_COVER),
        job("point-umaze/unbounded", 10_000, ("bounded=false",)),
        job("point-umaze/own-starts", 10_000, ("replay_starts=0",)),
        job("point-umaze/one-policy", 10_000, ("fresh=false",)),
        job("point-umaze/plain", 10_000, ("bounded=false", "replay_starts=0", "fresh=false")),
        job("mountain-car/pcmlp", 3_000),
        job("acrobot/pcmlp", 2_000),
        job("mountain-car/no-bonus", 30_000, (*_NO_BONUS, *_MANY)),
        job("mountain-car/covariance-off", 30_000, (*_NO_COVER, *_MANY)),
        job("acrobot/no-bonus", 30_000, (*_NO_BONUS, *_MANY)),
        job("acrobot/covariance-off", 30_000, (*_NO_COVER, *_MANY)),
        job("mountain-car/pcmlp-mppi", 4_000, algo="pcmlp-mppi"),
        job("acrobot/pcmlp-mppi", 4_000, algo="pcmlp-mppi"),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="What each part of Deep PC-MLP changes",
    place="section 7.1; our deviations",
    shows="Deep PC-MLP on mountain-car, acrobot and a maze behind a detour, and what each of its parts changes there",
    jobs=jobs,
    tables=per_run(solved_row, NAME),
)

if __name__ == "__main__":
    main(EXPERIMENT)
