"""A job in a process of its own on this machine: it reports to the scheduler (`pool`) through a pipe.

The process ends with the scheduler, however that ends. What a run prints goes to `LABEL.log` beside its folder. Modules
that need JAX are imported after the output is redirected.
"""

import os
import signal
import sys
import threading
import traceback
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


def serve(job: dict[str, Any], runs: Path, results: Path, pipe: Connection, on_gpu: bool) -> None:
    """Run a job (the fields of a `Job`), report its iterations and its outcome, and end."""
    if hasattr(os, "setsid"):
        os.setsid()  # the scheduler passes Ctrl-C on
    run = runs / job["experiment"] / job["task"].replace(":", "-") / job["label"]
    redirect_output(log_of(run))
    threading.Thread(target=exit_with_parent, daemon=True).start()
    for number in set(signals.SIGNALS) - {signal.SIGINT}:  # the scheduler gets them too, and answers by SIGINT
        signal.signal(number, signal.SIG_IGN)
    with signals.handled(ends_process=True, at_once=False, numbers=[signal.SIGINT]):
        allow_signals()
        outcome = attempt_job(job, runs, results, pipe, on_gpu)
        pipe.send(outcome)


def attempt_job(fields: dict[str, Any], runs: Path, results: Path, pipe: Connection, on_gpu: bool) -> Outcome:
    """Run the job and return its outcome; the log has the traceback of an unexpected error. An error of the device is
    raised: the process ends without an outcome and begins again, because the GPU or MPS may be there again."""
    import jax

    from pcmlp.experiments.job import Job, run_job
    from pcmlp.runs.cache import check_device, prepare
    from pcmlp.runs.folder import InUse, once_free

    job = Job(**fields)

    def tell(source: Any, metrics: dict[str, float]) -> None:
        numbers = int(metrics["iteration"]), source.num_iterations, metrics["env_steps"]
        pipe.send(Progress(*numbers, metrics.get("eval_return_mean")))

    def do() -> None:
        prepare()
        if check_device() == "cpu" and on_gpu:
            raise RunStopped(f"{job.where}: JAX finds no GPU in the process of a run; give --jobs 1 to see why")
        run_job(job, runs, results, callbacks=[tell], shared_device=True)

    try:
        return attempt("", lambda: once_free(runs / job.where, do, _LOCK_S, lambda: ()))
    except InUse as error:
        return Outcome("", "refused", str(error))
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # JAX's name for this error
            return Outcome("", "failed", f"{job.where}: not enough memory ({first_line(error)}); give a smaller --jobs")
        if isinstance(error, jax.errors.JaxRuntimeError):
            raise
        traceback.print_exc()
        what = f"{type(error).__name__}: {first_line(error)}; {log_of(runs / job.where)} has the details"
        return Outcome("", "failed", f"{job.where}: unexpected error, {what}")


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
