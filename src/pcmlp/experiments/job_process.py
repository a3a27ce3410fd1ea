"""A job, or a group of jobs, in a process of its own on this machine: it reports to the scheduler (`pool`) by a pipe.

The process ends with the scheduler, however that ends. What a run prints goes to `LABEL.log` beside its folder. Modules
that need JAX are imported after the output is redirected.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from pcmlp import signals
from pcmlp.errors import RunStopped, first_line
from pcmlp.experiments.outcome import Outcome, attempt
from pcmlp.workers import exit_with_parent

_LOCK_S = 15.0  # time for a process that is ending to release its run


class Progress(NamedTuple):
    """An iteration of a run that has ended."""

    iteration: int
    iterations: int  # of the whole run
    env_steps: float
    result: float | None  # mean return over seeds, if the iteration was evaluated


def log_of(run: Path) -> Path:
    """Return the file for the output of a run."""
    return run.with_name(f"{run.name}.log")


def serve(log: Path, jobs: list[dict[str, Any]], runs: Path, results: Path, pipe: Connection, on_gpu: bool) -> None:
    """Run a group of jobs (the fields of each `Job`), report their iterations and outcomes by number, and end. What all
    of them print, such as a library's messages, goes to `log`."""
    if hasattr(os, "setsid"):
        os.setsid()  # the scheduler passes Ctrl-C on
    redirect_output(log)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    for number in set(signals.SIGNALS) - {signal.SIGINT}:  # the scheduler gets them too, and answers by SIGINT
        signal.signal(number, signal.SIG_IGN)
    with signals.handled(ends_process=True, at_once=False, numbers=[signal.SIGINT]):
        allow_signals()
        for number, outcome in enumerate(attempt_jobs(jobs, runs, results, pipe, on_gpu)):
            pipe.send((number, outcome))


def attempt_jobs(
    fields: list[dict[str, Any]], runs: Path, results: Path, pipe: Connection, on_gpu: bool
) -> list[Outcome]:
    """Run the jobs and return their outcomes."""
    from pcmlp.experiments.job import Job, run_job
    from pcmlp.experiments.job_group import run_group
    from pcmlp.runs.cache import check_device, prepare

    jobs = [Job(**each) for each in fields]

    def tell(number: int, source: Any, metrics: dict[str, float]) -> None:
        numbers = int(metrics["iteration"]), source.num_iterations, metrics["env_steps"]
        pipe.send((number, Progress(*numbers, metrics.get("eval_return_mean"))))

    def attempt_one(job: Job, do: Callable[[], object]) -> Outcome:
        return attempt_job(job.where, runs, do, alone=len(jobs) == 1)

    def begin() -> None:
        prepare()
        if check_device() == "cpu" and on_gpu:
            raise RunStopped("JAX finds no GPU in the process of a run; give --jobs 1 to see why")

    ready = attempt_one(jobs[0], begin)
    if ready.status != "finished":
        return [ready] * len(jobs)
    callbacks = {job: partial(tell, number) for number, job in enumerate(jobs)}
    if len(jobs) > 1:
        return run_group(jobs, runs, results, callbacks, attempt_one)
    [job] = jobs
    run = partial(run_job, job, runs, results, callbacks=[callbacks[job]], shared_device=True)
    return [attempt_one(job, run)]


def attempt_job(where: Path, runs: Path, do: Callable[[], object], *, alone: bool = True) -> Outcome:
    """Do something for a job, once its run is free, and return the outcome; the log has the traceback of an unexpected
    error. An error of the device is raised: the process ends without an outcome and begins again, because the GPU or
    MPS may be there again. So does a group that lacks memory, because its jobs alone may have enough."""
    import jax

    from pcmlp.runs.folder import InUse, once_free

    try:
        return attempt("", lambda: once_free(runs / where, do, _LOCK_S, lambda: ()))
    except InUse as error:
        return Outcome("", "refused", str(error))
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # JAX's name for this error
            if not alone:
                raise
            return Outcome("", "failed", f"{where}: not enough memory ({first_line(error)}); give a smaller --jobs")
        if isinstance(error, jax.errors.JaxRuntimeError):
            raise
        traceback.print_exception(error)
        what = f"{type(error).__name__}: {first_line(error)}; {log_of(runs / where)} has the details"
        return Outcome("", "failed", f"{where}: unexpected error, {what}")


def redirect_output(log: Path) -> None:
    """Append all output of this process to a file, also that of libraries which are not written in Python."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def allow_signals() -> None:
    """Receive the signals that were held back while this process started."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
