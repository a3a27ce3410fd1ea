"""`protocol.json` of an experiment's folder: the settings, seeds and steps of its runs, fixed before they are made.

A result that was not made by its protocol could have been chosen among several. So it is not read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pcmlp.errors import ConfigError
from pcmlp.runs.checkpoint import describe_differences, differences
from pcmlp.runs.durable import Damaged, check_type, read_sealed
from pcmlp.runs.source import VARIABLE

FILE = "protocol.json"

Configs = dict[str, dict[str, Any]]  # EXPERIMENT/TASK/LABEL -> the contents of `config.json`


class Protocol(NamedTuple):
    """The protocol of an experiment."""

    file: Path
    runs: Configs

    def compare(self, where: str, config: Mapping[str, Any]) -> str:
        """Return a description of how a run differs from the protocol; empty if it does not."""
        if where not in self.runs:
            return "it is not in the protocol"
        return describe_differences(differences(self.runs[where], config))


def read_protocol(folder: Path) -> Protocol | None:
    """Read the protocol in an experiment's folder, if it has one."""
    file = folder / FILE
    if not os.path.lexists(file):
        return None
    try:
        return Protocol(file, check_type(read_sealed(file).get("runs"), Configs, "runs"))
    except (OSError, Damaged) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); restore the one that was committed") from error


def check_protocol(run: Path, config: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Raise if the experiment of a run folder has a protocol, and the run is not one of the protocol's or has no
    revision. `summary` is empty if the run has none yet."""
    folder = run.resolve().parent.parent
    if (protocol := read_protocol(folder)) is None:
        return
    if differs := protocol.compare(run.resolve().relative_to(folder.parent).as_posix(), config):
        raise ConfigError(f"{run}: not of {protocol.file} ({differs}); remove it, and run it by its protocol")
    if summary:
        check_revision(run, summary)


def check_revision(run: Path, summary: Mapping[str, Any]) -> None:
    """Raise if the summary of a reported run does not say which revision made it."""
    if not summary.get("revision"):
        missing = "its summary.json has no git revision, which a result with a protocol needs"
        raise ConfigError(f"{run}: {missing}; remove it, and run it in a checkout or with {VARIABLE}=REVISION")
