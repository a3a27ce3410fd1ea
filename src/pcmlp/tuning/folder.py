"""The folder of a study: its definition (`study.json`), its trials (`tune.csv`), and the run of each trial."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pcmlp.errors import ConfigError, first_line
from pcmlp.runs.checkpoint import describe_differences, differences
from pcmlp.runs.durable import Damaged, read_json, write_text
from pcmlp.runs.folder import Lock
from pcmlp.runs.metrics import read_table
from pcmlp.tuning.study import Study, Trial

_STATES = ("running", "finished", "pruned", "failed")
TABLE, _RECORD = "tune.csv", "study.json"


class StudyFolder:
    """The folder of a study; a context manager that holds its lock."""

    def __init__(self, path: Path, study: Study):
        """Open the folder; raise if it contains another study or other files."""
        self.path, self._study = path, study
        record = path / _RECORD
        if not record.exists() and path.is_dir() and any(path.iterdir()):
            raise ConfigError(f"out={path}: this folder has files, but no study; give a new or empty folder")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(path)
            if not record.exists():
                write_text(record, json.dumps(study.record, indent=2) + "\n")
            changed = differences(read_json(record), study.record)
        except OSError as error:
            raise ConfigError(f"out={path}: cannot be written ({error.strerror}); give another folder") from error
        except Damaged as error:
            raise ConfigError(f"{record}: {first_line(error)}; give another out folder") from error
        if changed:
            self._lock.close()
            shown = describe_differences(changed)
            raise ConfigError(f"out={path}: has another study ({shown}); give the same one, or another folder")

    def __enter__(self) -> "StudyFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def read(self) -> list[Trial]:
        """Return the trials in order; only the last one may be running."""
        if not (self.path / TABLE).exists():
            return []
        try:
            trials = [self._trial(i, row) for i, row in enumerate(read_table(self.path / TABLE))]
            if any(trial.state == "running" for trial in trials[:-1]):
                raise Damaged("a trial in the middle is running")
        except (Damaged, KeyError, ValueError) as error:
            raise ConfigError(f"{self.path / TABLE}: edited ({first_line(error)}); give another out folder") from error
        return trials

    def _trial(self, number: int, row: Mapping[str, str]) -> Trial:
        if row["trial"] != str(number) or row["state"] not in _STATES:
            raise Damaged(f"row {number}")
        settings = {each.key: row[each.key] for each in self._study.dimensions}
        for each in self._study.dimensions:
            each.read(settings[each.key])
        value = float(row["value"]) if row["value"] else None
        return Trial(number, row["state"], settings, value)

    def write(self, trials: Sequence[Trial]) -> None:
        """Replace `tune.csv` as a whole."""
        self._lock.check()
        text = io.StringIO()
        keys = [each.key for each in self._study.dimensions]
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", "state", "value", *keys])
        for trial in trials:
            value = "" if trial.value is None else repr(trial.value)
            table.writerow([trial.number, trial.state, value, *(trial.settings[key] for key in keys)])
        write_text(self.path / TABLE, text.getvalue())
