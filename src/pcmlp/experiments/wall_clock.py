"""Seconds that each algorithm takes for 1,000 env steps of mountain-car, one after another on one machine.

(paper: appendix C.2: whole runs of PC-MLP in 148 min 43 s, PETS-GT in 132 min 50 s, MBPO in 153 min 30 s / here every
algorithm with the sizes of its preset, the paper's four seeds side by side, the third iteration of three: the first
plays at random in some, and whatever is compiled is compiled by then. Steps are those of one seed. Evaluation has one
episode. The time to compile is apart, and nothing that was compiled before is used.)

    pcmlp paper wall_clock
"""

from typing import Any

from pcmlp.experiments.experiment import Done, Experiment, Tables, main
from pcmlp.experiments.job import CLIPPED_PLANS, PAPER_SEEDS, Job
from pcmlp.experiments.tables import Row
from pcmlp.runs.folder import read_metrics
from pcmlp.runs.presets import algorithms_for
from pcmlp.types import ConfigError

NAME = "wall_clock"
TASK = "mountain-car"
ITERATIONS = 3
_CLIPPED = ("pets", "pets-gt")  # whose kept times are from before their plans were held back
PAPER_MINUTES = {"pcmlp": 148.7, "pets-gt": 132.8, "mbpo": 153.5}  # of a whole run


def jobs() -> list[Job]:
    return [job(algo) for algo in algorithms_for(TASK)]


def job(algo: str) -> Job:
    settings = ("eval_episodes=1", *(CLIPPED_PLANS if algo in _CLIPPED else ()))
    one = Job(NAME, TASK, algo, algo, 30_000, settings, PAPER_SEEDS)
    return Job(NAME, TASK, algo, algo, int(ITERATIONS * one.config().steps_per_iteration), settings, PAPER_SEEDS)


def row_of(job: Job, metrics: dict[str, list[float]], summary: dict[str, Any]) -> Row:
    """Of the last iteration; the metrics have a row for each seed."""
    before = -1 - len(job.seeds)
    steps, wall = (metrics[name][-1] - metrics[name][before] for name in ("env_steps", "wall_s"))
    return {
        "algorithm": job.algo,
        "s_per_1000_steps": round(1_000 * wall / steps, 2),
        "steps_timed": int(steps),
        "compile_s": round(summary["compile_s"], 1),
        "paper_min_of_a_whole_run": PAPER_MINUTES.get(job.algo, ""),
        "device": summary["device"],
        "versions": " ".join(f"{name} {version}" for name, version in summary["versions"].items()),
    }


def tables(done: Done) -> Tables:
    summaries = {job: done.summary(job) for job in done.jobs}
    if len(machines := sorted({summary["device"] for summary in summaries.values()})) > 1:
        folder = done.results / NAME
        raise ConfigError(f"{folder}: timed on several machines ({', '.join(machines)}); remove it to time all on one")
    rows = [row_of(job, read_metrics(done.result(job)), summary) for job, summary in summaries.items()]
    yield NAME, sorted(rows, key=lambda row: row["s_per_1000_steps"])


EXPERIMENT = Experiment(
    name=NAME,
    title="Wall-clock time",
    place="appendix C.2",
    shows="the time that each algorithm takes for 1,000 env steps of mountain-car",
    jobs=jobs,
    tables=tables,
    alone=True,
)

if __name__ == "__main__":
    main(EXPERIMENT)
