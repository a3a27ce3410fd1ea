"""A group of jobs in one process: their runs are iterated together (`runs.group`), each with its own folder and log."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from pcmlp.experiments.job import Job, check_run, is_finished, keep
from pcmlp.experiments.job_process import log_of
from pcmlp.experiments.outcome import Outcome
from pcmlp.runs.callbacks import Callback, say
from pcmlp.runs.checkpoint import ENDED
from pcmlp.runs.run import Run
from pcmlp.runs.train import announce, open_run, tell_outcome, train_runs

Attempt = Callable[[Job, Callable[[], object]], Outcome]


class Begun(NamedTuple):
    """A run that has begun, and the console that writes its log."""

    run: Run
    console: Console


def run_group(
    jobs: Sequence[Job], runs: Path, results: Path, callbacks: Mapping[Job, Callback], attempt: Attempt
) -> list[Outcome]:
    """Run jobs of equal programs together, keep the results of those that finish, and return the outcome of each. A job
    that is refused or fails leaves the group; the others continue."""
    begun: dict[Job, Begun] = {}
    outcomes: dict[Job, Outcome] = {}

    def begin(job: Job) -> None:
        run = runs / job.where
        run.parent.mkdir(parents=True, exist_ok=True)
        console = Console(file=stack.enter_context(log_of(run).open("a")))
        check_run(job.config(), run)
        problem = next((each.run.problem for each in begun.values()), None)  # one world for all
        opened = None if is_finished(job.config(), run) else open_run(job.config(), run, resume=True, problem=problem)
        if opened is None:
            keep(run, results / job.where)
            return
        opened.command, opened.shared_device = job.command, True
        begun[job] = Begun(opened, console)

    def end(job: Job) -> None:
        run, console = begun[job]
        tell_outcome(run, console)
        if run.summary["status"] not in ENDED:  # asked to stop
            raise KeyboardInterrupt
        keep(run.folder.path, results / job.where)

    with contextlib.ExitStack() as stack:
        for job in jobs:
            outcomes[job] = attempt(job, partial(begin, job))
        for job, (run, console) in begun.items():
            say(console, f"\n{job.where}: {job.command}")
            if len(begun) > 1:
                say(console, f"together with {', '.join(str(other.where) for other in begun if other != job)}")
            announce(run, console, [callbacks[job]], len(begun))
        if begun:
            everything = list(begun.values())
            train_runs([each.run for each in everything], everything[0].console)
        outcomes |= {job: attempt(job, partial(end, job)) for job in begun}
    return [outcomes[job] for job in jobs]
