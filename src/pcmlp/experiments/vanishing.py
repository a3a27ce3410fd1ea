"""The bonus vanishes once the world is known: its mean over the visited states, iteration by iteration.

(paper: section 7.5, figure 5, on mountain-car / here on acrobot and the maze as well. The runs are those of `sparse`:
30 iterations of 1,000 env steps. Beside them those whose covariance stays at its ridge, so that nothing can vanish.)

    pcmlp paper vanishing                                   # a GPU is wanted
    pcmlp paper vanishing --only mountain-car/pcmlp         # one run
"""

import numpy as np

from pcmlp.experiments import sparse
from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import Job
from pcmlp.report.reading import load

NAME = "vanishing"


def jobs() -> list[Job]:
    return [sparse.job(task, label) for task in sparse.TASKS for label in ("pcmlp", "covariance-off")]


def tables(done: Done) -> Tables:
    """`bonus`: a row for each iteration, mean and standard deviation over seeds; `vanishing`: how far it fell."""
    curves = {job: load(done.result(job)).curve("bonus_mean") for job in done.jobs}
    yield (
        "bonus",
        [
            {
                "task": job.task,
                "run": job.label,
                "iteration": int(iteration),
                "env_steps": int(steps),
                "bonus_mean": float(f"{np.mean(values):.6g}"),
                "bonus_std": float(f"{np.std(values):.6g}"),
            }
            for job, curve in curves.items()
            for iteration, steps, values in zip(curve.iteration, curve.env_steps, curve.values, strict=True)
        ],
    )
    yield (
        NAME,
        [
            {
                "task": job.task,
                "run": job.label,
                "iterations": len(curve.mean),
                "peak": float(f"{curve.mean.max():.4g}"),
                "last": float(f"{curve.mean[-1]:.4g}"),
                "fall": round(curve.fold_below_peak(), 2),
            }
            for job, curve in curves.items()
            if curve
        ],
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="The vanishing bonus",
    place="section 7.5, figure 5",
    shows="the bonus of the visited states falls as the cover grows; where it does not know the cover it stays",
    jobs=jobs,
    tables=tables,
)

if __name__ == "__main__":
    main(EXPERIMENT)
