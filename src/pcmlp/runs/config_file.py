"""`config.json` of a run folder, which may come from anywhere."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.runs.config import RunConfig, choose_task, from_json, parse_record, settings_of_record
from pcmlp.runs.durable import Damaged, read_text
from pcmlp.runs.folder import check_folder
from pcmlp.tasks.registered import GymnasiumTask
from pcmlp.types import Task
from pcmlp.usercode import check_code


def load_config(run: Path, *, trust_code: bool = False) -> RunConfig:
    """Return the configuration of a run folder."""
    return from_json(_read(run), trust_code=trust_code, where=str(run))


def load_task(run: Path, *, trust_code: bool = False) -> tuple[Task, Mapping[str, Any]]:
    """Return the task of a run without its reward and end, so that their code is not needed, and the JSON of the
    configuration."""
    record = parse_record(_read(run))
    kept = {key: value for key, value in record["task"].items() if key not in ("name", "reward", "terminal")}
    name, given = record["task"]["name"], settings_of_record({"task": kept})
    check_code({"task": name}, record.get("code", {}), trust_code, str(run))
    task = choose_task(name, given)
    return dataclasses.replace(task, reward=None, terminal=None) if isinstance(task, GymnasiumTask) else task, record


def _read(run: Path) -> str:
    check_folder(run)
    try:
        return read_text(run / "config.json")
    except (OSError, Damaged) as error:
        why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else f"config.json: {error}"
        remedy = "give one that train made, such as runs/TASK-ALGO"
        raise ConfigError(f"{run}: not a run folder ({why}); {remedy}") from error
