"""The search: trials one after another. Each is trained, scored and written down before the next is chosen."""

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from pcmlp.errors import ConfigError, RunStopped
from pcmlp.runs.callbacks import say
from pcmlp.runs.config import build
from pcmlp.runs.durable import Damaged
from pcmlp.runs.metrics import read_rows
from pcmlp.runs.summary import read_summary
from pcmlp.runs.train import open_run, train_runs
from pcmlp.tasks.host import GymnasiumWorld
from pcmlp.tuning.folder import TABLE, StudyFolder
from pcmlp.tuning.space import describe
from pcmlp.tuning.study import ABOUT, Objective, Study, Trial, best, import_optuna, score
from pcmlp.types import Problem

_MOST = 10_000  # trials


def tune(study: Study, out: Path, number: int, console: Console) -> str:
    """Run the remaining trials of a study; return "finished", or the status of the trial that was stopped. Bad input
    raises before anything is written."""
    if not 1 <= number <= _MOST:
        raise ConfigError(f"trials={number}: give 1 to {_MOST}")
    import_optuna()
    study.check()
    problem, _ = build(study.config())
    if study.objective == "success" and problem.success_return is None:
        raise ConfigError(f"objective=success: {study.task} does not say what a success is; give objective=return")
    with StudyFolder(out, study) as folder:
        say(console, opening_line(study, number, out))
        trials = [replace(trial, reports=reports_of(study, out / trial.name)) for trial in folder.read()]
        started = trials.pop() if trials and trials[-1].state == "running" else None
        if trials:
            say(console, f"{len(trials)} trials have ended already")
        while len(trials) < number:
            trial, asked = study.ask(trials, started)
            started = None
            folder.write([*trials, trial])
            with showing(console, f"trial {trial.number + 1} of {number}: ") as show:
                trial, ended = run_trial(study, trial, asked, out / trial.name, problem, console, show)
            folder.write([*trials, trial])
            if ended is not None:
                say(console, f"{trial.name} was stopped; the same command continues the search")
                return ended
            trials.append(trial)
            say(console, trial_line(study, trial, trials, number))
        for line in closing_lines(study, trials, out):
            say(console, line)
    return "finished"


@contextlib.contextmanager
def showing(console: Console, before: str) -> Iterator[Callable[[str], object]]:
    """Yield a function that shows the progress of a trial: on a terminal, in a line that disappears; else nowhere."""
    if not console.is_terminal:
        yield lambda line: None
        return
    with console.status(f"{before}compiling") as status:
        yield lambda line: status.update(before + line)


class Listener:
    """A callback of a trial's run: it reports evaluations to Optuna, shows them, and stops the run if it is pruned."""

    def __init__(self, asked: Any, study: Study, show: Callable[[str], object]):
        self._asked, self._study, self._show = asked, study, show
        self._told: set[int] = set()
        self.pruned = False

    def __call__(self, run: Any, metrics: dict[str, float]) -> bool:
        """Report new evaluations (in a resumed run, all of them); return whether the trial continues."""
        found = evaluations(run.rows, self._study.objective)
        for step in found.keys() - self._told:
            self._asked.report(found[step], step)
        self._told |= found.keys()
        latest = f", {self._study.objective} {[*found.values()][-1]:.4g}" if found else ""
        self._show(f"iteration {metrics['iteration']:.0f} of {run.num_iterations}{latest}")
        self.pruned = self._study.prunes and run.done not in (None, run.num_iterations) and self._asked.should_prune()
        return not self.pruned


def evaluations(rows: Iterable[Mapping[str, Any]], objective: Objective) -> dict[int, float]:
    """Return the mean over seeds of every evaluation in `metrics.csv`; its key is the mean over seeds of env steps."""
    column = {"return": "eval_return_mean", "success": "eval_success"}[objective]
    found: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        if row[column] not in (None, ""):
            found.setdefault(row["iteration"], []).append((float(row["env_steps"]), float(row[column])))
    means = [np.mean(pairs, axis=0) for pairs in found.values()]
    return {int(step): float(value) for step, value in means}


def reports_of(study: Study, folder: Path) -> dict[int, float]:
    """Return the evaluations of a trial's run; none if the run does not exist."""
    try:
        return evaluations(read_rows(folder), study.objective)
    except (Damaged, OSError):
        return {}


def run_trial(
    study: Study,
    trial: Trial,
    asked: Any,
    folder: Path,
    problem: Problem,
    console: Console,
    show: Callable[[str], object],
) -> tuple[Trial, str | None]:
    """Train the run of a trial, or resume it; return the trial, and the run's status if the search has to end."""
    listener = Listener(asked, study, show)
    try:
        run = open_run(study.config(trial.settings), folder, resume=True, problem=problem)
    except ConfigError as error:
        if folder.exists():
            raise
        say(console, f"{trial.name}: {error}")  # for example, settings that contradict each other
        return replace(trial, state="failed"), None
    if run is not None:  # None: it has finished, but the process died before `tune.csv` said so
        run.command = f"{train_command(study, trial, study.seeds)} --out {shlex.quote(str(folder))}"
        run.callbacks = [listener]
        if isinstance(problem.world, GymnasiumWorld):  # all trials share it, and each may have `max_faults`
            problem.world.environments.forget_faults()
        train_runs([run], console)
        if isinstance(run.failure, RunStopped):
            say(console, f"{trial.name}: {run.failure}")
            return replace(trial, state="failed"), None
        if run.failure is not None:
            raise run.failure
    summary = read_summary(folder)
    trial = replace(trial, reports=reports_of(study, folder))
    if summary["status"] == "finished":
        value = score(study, summary)
        return replace(trial, state="failed" if value is None else "finished", value=value), None
    return (replace(trial, state="pruned"), None) if listener.pruned else (trial, summary["status"])


def train_command(study: Study, trial: Trial, seeds: Sequence[int] = ()) -> str:
    """Return the command that trains with the settings of a trial."""
    words = ["pcmlp", "train", study.task, "--algo", study.algo, "--steps", str(study.steps)]
    words += ["--seeds", *map(str, seeds)] if seeds else []
    return shlex.join([*words, "--set", *study.fixed, *(f"{key}={text}" for key, text in trial.settings.items())])


def opening_line(study: Study, number: int, out: Path) -> str:
    """Return the first line of a search."""
    seeds = " ".join(map(str, study.seeds))
    return (
        f"{study.task}, {study.algo}: {number} trials of {study.steps:,} env steps, seeds {seeds}, into {out}; "
        f"searches {describe(study.dimensions)} for the highest {ABOUT[study.objective]}"
    )


def trial_line(study: Study, trial: Trial, trials: Sequence[Trial], number: int) -> str:
    """Return the line of a trial that has ended."""
    found = f"{study.objective} {trial.value:.4g}" if trial.value is not None else trial.state
    leader = best(trials)
    leading = f", best {leader.value:.4g} ({leader.name})" if leader and leader.value is not None else ""
    settings = " ".join(f"{key}={text}" for key, text in trial.settings.items())
    return f"{trial.name} of {number}: {found}{leading}; {settings}"


def closing_lines(study: Study, trials: Sequence[Trial], out: Path) -> list[str]:
    """Return the result: the best settings as a command, and the value of the method's own settings for comparison."""
    leader, first = best(trials), trials[0]
    if leader is None:
        return [f"no trial has finished; {out / TABLE} has their states"]
    is_own = study.own() is not None and first.value is not None
    own = f"; the method's own settings: {first.value:.4g} ({first.name})" if is_own else ""
    return [
        f"best of {len(trials)}: {study.objective} {leader.value:.4g} ({leader.name}){own}",
        f"{out / TABLE} has all trials; the best one was chosen on {len(study.seeds)} seeds, so test it on others:",
        train_command(study, leader),
    ]
