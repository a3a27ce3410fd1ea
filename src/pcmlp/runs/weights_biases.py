"""Weights & Biases (`--wandb PROJECT`): one run at W&B for each run folder.

    seed-N/NAME    column NAME of `metrics.csv` for seed N, against env steps
    NAME           the mean of this column over the seeds

The id of the W&B run is in `wandb.json`, so a resumed run continues it. A resumed run may send some iterations again,
with the same numbers; W&B drops the iterations that it has already.

If W&B cannot be used, a line says so before the run begins. Later, no error of W&B ends the run.
"""

import contextlib
import json
import re
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from pcmlp.errors import ConfigError, first_line
from pcmlp.runs.callbacks import AXES, say
from pcmlp.runs.config import RunConfig, to_json
from pcmlp.runs.durable import Damaged, check_type, read_json, write_json

_PLACE = "wandb.json"
_PROJECT = re.compile(r"[^/\\#?%:]{1,128}")  # what W&B accepts as a name
_INIT_S = 30.0  # seconds within which W&B must answer
_FINISH_S = 60.0  # seconds for the last upload; `wandb sync` can upload the rest later
_REMEDY = "run wandb login, or set the environment variable WANDB_MODE=offline and use wandb sync later"


def check_wandb(project: str) -> None:
    """Raise unless W&B can be used: it is installed, and either offline, or logged in and reachable."""
    if not _PROJECT.fullmatch(project):
        raise ConfigError(f"wandb={project}: not a name for a project; leave out / \\ # ? % and :")
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(f"wandb={project}: needs wandb; pip install 'pcmlp[wandb]'") from error
    try:
        settings = wandb.setup(settings=wandb.Settings(silent=True)).settings
        if settings.mode in ("offline", "disabled"):
            return
        known = wandb.login(prompt=False, verify=True)  # without a network it gives up after ten seconds
    except Exception as error:  # W&B raises many kinds
        raise ConfigError(f"wandb={project}: {first_line(error)}; {_REMEDY}") from error
    if not known:
        raise ConfigError(f"wandb={project}: nobody is logged in to Weights & Biases; {_REMEDY}")


class WeightsAndBiases(contextlib.AbstractContextManager):
    """A callback of a run that sends the numbers of each iteration."""

    def __init__(self, folder: Path, config: RunConfig, project: str, console: Console):
        """Begin the W&B run, or continue it."""
        import wandb

        self._console = console
        settings = wandb.Settings(
            silent=True,
            console="off",
            symlink=False,  # a run folder holds no links
            init_timeout=_INIT_S,
            finish_timeout=_FINISH_S,
        )
        try:
            self._run: Any = wandb.init(
                project=project,
                id=find_id(folder, project),
                name=folder.resolve().name,
                resume="allow",
                dir=str(folder),
                config=json.loads(to_json(config)),
                settings=settings,
            )
            self._run.define_metric("*", step_metric="env_steps")
        except ConfigError:
            raise
        except Exception as error:  # W&B raises many kinds
            remedy = "set WANDB_MODE=offline, or leave --wandb out, and give resume=True"
            raise ConfigError(f"wandb={project}: {first_line(error)}; {remedy}") from error

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Send the newest rows of the run, and their means."""
        if self._run is None:
            return
        each = {
            f"seed-{row['seed']}/{name}": value
            for row in source.latest
            for name, value in row.items()
            if name not in AXES and value is not None
        }
        means = {name: value for name, value in metrics.items() if name != "iteration"}
        try:
            self._run.log({**means, **each}, step=int(metrics["iteration"]))
        except Exception as error:  # of any kind; none may end the run
            self._give_up(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is None:
            return
        try:
            self._run.finish(exit_code=0 if error is None else 1)
        except Exception as failure:
            self._give_up(failure)

    def _give_up(self, error: Exception) -> None:
        self._run = None
        say(self._console, f"wandb: {first_line(error)}, continuing without; metrics.csv has it all")


def find_id(folder: Path, project: str) -> str:
    """Return the id of the W&B run: the id in the folder, or a new id, which is written into the folder."""
    place = folder / _PLACE
    try:
        record = check_type(read_json(place), dict[str, str], _PLACE)
        if record["project"] != project:
            raise ConfigError(f"wandb={project}: this run is in the project {record['project']}; give that one")
        return record["id"]
    except FileNotFoundError:
        name = re.sub("[^a-zA-Z0-9-]", "-", folder.resolve().name)[:80]
        own = f"{name}-{uuid.uuid4().hex[:8]}"  # a new folder of the same name gets another id
        write_json(place, {"project": project, "id": own})
        return own
    except (Damaged, KeyError) as error:
        raise ConfigError(f"{place}: {first_line(error)}; remove it to begin another run at W&B") from error
