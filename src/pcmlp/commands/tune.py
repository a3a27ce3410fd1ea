"""`pcmlp tune`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from pcmlp.commands import INTERRUPTED, STOPPED, Ints, Switch, prepare_device, unset
from pcmlp.signals import finish_iterations


@dataclass(frozen=True)
class Tune:
    """Search for good settings with Optuna; every trial is a run. The same command continues an interrupted search.

    For example:
      pcmlp tune mountain-car --trials 20
      pcmlp tune acrobot --trials 20 --space bonus_scale=0.01:1:log rounds=1:4
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """A task of `pcmlp list`, gym:ID, or FILE.py:NAME of your own."""
    trials: Annotated[str, arg(metavar="INT")] = "20"
    """The number of trials of the whole search, including those that have ended."""
    algo: Annotated[str | None, unset("ALGO", "the first that `pcmlp list` names for the task")] = None
    """An algorithm of `pcmlp list`, or FILE.py:NAME of your own method."""
    space: Annotated[
        UseAppendAction[tuple[tuple[str, ...], ...]],
        unset("KEY[=LOW:HIGH[:log]|=A,B] [...]", "all settings for which `pcmlp list ALGO` shows tune"),
    ] = ()
    """Search only these settings; a key without values has its declared range."""
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE [KEY=VALUE ...]")] = ()
    """Settings that are the same in all trials."""
    seeds: Ints = ("100", "101")
    """Seeds of each trial; not 0 to 39, which are reserved for reported results."""
    steps: Annotated[str | None, unset("INT", "the preset's, as for train")] = None
    """Env steps of each seed in each trial."""
    objective: Annotated[str, arg(metavar="return|success")] = "return"
    """return: the final return. success: the share of the steps that are left once all evaluations succeed."""
    prune: Switch = False
    """After a third of its steps, stop a trial that is worse than the median of the earlier trials."""
    out: Annotated[Path | None, unset("DIR", "runs/TASK-ALGO-tune")] = None
    """The folder of the search: new, empty, or that of the same search."""

    def run(self, command: str) -> int:
        """Search, and show the best settings as a command."""
        finish_iterations()
        prepare_device(f"tuning {self.task}")
        from pcmlp.errors import ConfigError
        from pcmlp.runs.config import resolve
        from pcmlp.runs.keys import split_settings
        from pcmlp.settings import parse_int
        from pcmlp.tuning import search, space
        from pcmlp.tuning.study import ABOUT, Study

        settings = [item for items in self.set for item in items]
        config = resolve(self.task, self.algo, self.seeds, self.steps, settings)
        if self.objective not in ABOUT:
            raise ConfigError(f"objective={self.objective}: give {' or '.join(ABOUT)}")
        fixed, items = list(split_settings(settings)), [item for items in self.space for item in items]
        study = Study(
            task=self.task,
            algo=config.algo,
            seeds=config.seeds,
            steps=config.steps,
            fixed=tuple(settings),
            dimensions=tuple(space.given(items, config, fixed) if items else space.declared(config, fixed)),
            objective="return" if self.objective == "return" else "success",
            prunes=self.prune,
        )
        out = self.out or Path("runs") / re.sub("[:/]", "-", f"{self.task}-{config.algo}-tune")
        status = search.tune(study, out, parse_int("trials", self.trials), Console())
        return {"finished": 0, "stopped": STOPPED}.get(status, INTERRUPTED)
