"""A study: trials of one method on one task, each an ordinary run, in one folder.

    OUT/study.json            the definition: task, method, ranges, objective
    OUT/tune.csv              a row for each trial: its state, its value, its settings
    OUT/trial-0007/           the run of a trial

These files are the whole state of a study. The settings of a trial depend only on its number and the rows before it, so
a study that was killed continues with the same settings as an uninterrupted one. Its interrupted trial resumes as any
run does. Nothing is pickled: Optuna only chooses settings, and an Optuna study is built anew in memory for each trial.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pcmlp.errors import ConfigError
from pcmlp.runs.config import RunConfig, resolve
from pcmlp.tuning.space import Dimension, own_values

Objective = Literal["return", "success"]
ABOUT = {
    "return": "mean final return of the deployed policies",
    "success": "mean share of the steps that are left once all evaluations succeed",
}
REPORTED = range(40)  # the seeds of reported results
_UNTIL = 3  # a trial is pruned in its first third at the earliest


@dataclass(frozen=True)
class Trial:
    """A row of `tune.csv`."""

    number: int
    state: str
    settings: Mapping[str, str]  # as `--set` takes them
    value: float | None = None
    reports: Mapping[int, float] = field(default_factory=dict)  # env steps -> the result of an evaluation

    @property
    def name(self) -> str:
        """The name of its run's folder."""
        return f"trial-{self.number:04d}"


@dataclass(frozen=True)
class Study:
    """The definition of a search: the task, the method, the ranges and the objective."""

    task: str
    algo: str
    seeds: tuple[int, ...]
    steps: int
    fixed: tuple[str, ...]  # settings of all trials
    dimensions: tuple[Dimension, ...]
    objective: Objective
    prunes: bool

    def config(self, settings: Mapping[str, str] | None = None) -> RunConfig:
        """Return the configuration of a trial; without settings, that of the method's own settings."""
        items = [*self.fixed, *(f"{key}={text}" for key, text in (settings or {}).items())]
        return resolve(self.task, self.algo, self.seeds, self.steps, items)

    def check(self) -> None:
        """Raise if a seed is reserved, or if the end of a range is no value that its setting may have."""
        if reported := [seed for seed in self.seeds if seed in REPORTED]:
            raise ConfigError(
                f"seeds={reported[0]}: seeds {REPORTED[0]} to {REPORTED[-1]} are reserved for reported "
                "results; give others, such as seeds=100 101"
            )
        if not self.dimensions:
            raise ConfigError(f"space: {self.algo} declares nothing to search here; give it, such as KEY=LOW:HIGH:log")
        for each in self.dimensions:
            for end in each.ends():
                self.config({each.key: end})

    @property
    def record(self) -> dict[str, Any]:
        """The study as JSON values."""
        return {
            "task": self.task,
            "algo": self.algo,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "set": list(self.fixed),
            "space": list(map(str, self.dimensions)),
            "objective": self.objective,
            "prune": self.prunes,
            "code": dict(self.config().code),
        }

    def own(self) -> dict[str, Any] | None:
        """Return the method's own values, which the first trial has; None if one of them is not in its range."""
        return own_values(self.dimensions, self.config())

    def ask(self, trials: Sequence[Trial], started: Trial | None) -> tuple[Trial, Any]:
        """Return the next trial and Optuna's object for it, given those that have ended. A trial that was started keeps
        its settings."""
        optuna = import_optuna()
        # The seed is the trial's number, so its settings depend only on the number and the trials before it.
        sampler = optuna.samplers.TPESampler(seed=len(trials))
        pruner = optuna.pruners.MedianPruner(n_warmup_steps=self.steps // _UNTIL)
        study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        study.add_trials([self._of_optuna(trial) for trial in trials])
        known = self.own() if not trials else None
        if started is not None:
            known = {each.key: each.read(started.settings[each.key]) for each in self.dimensions}
        if known is not None:
            study.enqueue_trial(known)
        asked = study.ask()
        settings = {each.key: each.suggest(asked) for each in self.dimensions}
        return started or Trial(len(trials), "running", settings), asked

    def _of_optuna(self, trial: Trial) -> Any:
        from optuna.trial import TrialState, create_trial

        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        return create_trial(
            state=states[trial.state],
            value=trial.value if trial.state == "finished" else None,
            params={each.key: each.read(trial.settings[each.key]) for each in self.dimensions},
            distributions={each.key: each.distribution() for each in self.dimensions},
            intermediate_values=dict(trial.reports),
        )


def score(study: Study, summary: Mapping[str, Any]) -> float | None:
    """Return the value of a trial that has finished; None if it is not a number."""
    if study.objective == "return":
        values = [seed["final_return"] for seed in summary["seeds"]]
    else:
        from_steps = [seed["env_steps_to_sustained_success"] for seed in summary["seeds"]]
        values = [0.0 if steps is None else max(0.0, 1.0 - steps / study.steps) for steps in from_steps]
    if any(value is None or not np.isfinite(value) for value in values):
        return None
    return float(np.mean(values))


def best(trials: Sequence[Trial]) -> Trial | None:
    """Return the finished trial with the highest value, the first of equals."""
    finished = [trial for trial in trials if trial.state == "finished" and trial.value is not None]
    return max(finished, key=lambda trial: trial.value or 0.0, default=None)


def import_optuna() -> Any:
    """Return Optuna; raise one line if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("tune: needs optuna; pip install 'pcmlp[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
