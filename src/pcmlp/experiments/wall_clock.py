"""The seconds that each method takes for 1,000 env steps of mountain-car, one after another on one machine.

paper: appendix C.2, whole runs of PC-MLP in 148 min 43 s, PETS-GT in 132 min 50 s, MBPO in 153 min 30 s / here: every
method with the sizes of its preset, the paper's four seeds in parallel. The third of three iterations is timed,
because the first is random play in some methods, and everything is compiled by the third. Steps are those of one seed,
an evaluation has one episode, and the compilation cache is not used.
"""

from dataclasses import replace
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.experiments.experiment import Done, Experiment, Tables
from pcmlp.experiments.job import PAPER_SEEDS, Job
from pcmlp.experiments.section7 import CLIPPED
from pcmlp.experiments.tables import Row
from pcmlp.parts import methods_for
from pcmlp.runs.folder import read_metrics
from pcmlp.tasks import TASKS

TASK = "mountain-car"
ITERATIONS = 3
PAPER_MINUTES = {"pcmlp": 148.7, "pets-gt": 132.8, "mbpo": 153.5}  # minutes of a whole run


def methods() -> list[str]:
    """Return the methods with a preset for the task."""
    return methods_for(TASK, TASKS[TASK].kind)


def jobs() -> list[Job]:
    """Return the runs: every method, and the two that search with plans that are only clipped to the bounds."""

    def job(label: str, algo: str, settings: tuple[str, ...]) -> Job:
        probe = Job("wall_clock", TASK, label, algo, 30_000, ("eval_episodes=1", *settings), PAPER_SEEDS)
        return replace(probe, steps=int(ITERATIONS * probe.config().steps_per_iteration))

    clipped = [job(f"{algo}-clipped", algo, CLIPPED) for algo in ("pets", "pets-gt")]
    return [*(job(algo, algo, ()) for algo in methods()), *clipped]


def _row(job: Job, metrics: dict[str, list[float]], summary: dict[str, Any]) -> Row:
    """Return the row of the last iteration; the metrics have a row for each seed."""
    before = -1 - len(job.seeds)
    steps, wall = (metrics[name][-1] - metrics[name][before] for name in ("env_steps", "wall_s"))
    return {
        "algorithm": job.label,
        "s_per_1000_steps": round(1_000 * wall / steps, 2),
        "steps_timed": int(steps),
        "compile_s": round(summary["compile_s"], 1),
        "paper_min_of_a_whole_run": PAPER_MINUTES.get(job.algo, ""),
        "device": summary["device"],
        "versions": " ".join(f"{name} {version}" for name, version in summary["versions"].items()),
    }


def tables(done: Done) -> Tables:
    """Yield the table of seconds; raise if they were measured on several machines."""
    summaries = {job: done.summary(job) for job in done.jobs}
    if len(machines := sorted({summary["device"] for summary in summaries.values()})) > 1:
        folder = done.results / "wall_clock"
        raise ConfigError(f"{folder}: timed on several machines ({', '.join(machines)}); remove it to time all on one")
    rows = [_row(job, read_metrics(done.result(job)), summary) for job, summary in summaries.items()]
    yield "wall_clock", sorted(rows, key=lambda row: row["s_per_1000_steps"])


WALL_CLOCK = Experiment(
    name="wall_clock",
    title="Wall-clock time",
    place="appendix C.2",
    shows="the time that each algorithm takes for 1,000 env steps of mountain-car",
    jobs=jobs,
    tables=tables,
    alone=True,
)
