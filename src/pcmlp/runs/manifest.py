"""The manifest of a run: hashes of its files, in each checkpoint and in `summary.json`, which reveal changes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from pcmlp.runs import episodes
from pcmlp.runs.durable import Damaged, hash_record, show_size
from pcmlp.runs.metrics import FILE, Seal, Text, matches


class Damage(NamedTuple):
    """Damage of an episode log."""

    line: str
    is_edited: bool  # complete, but not what was written


@dataclass(frozen=True)
class Manifest:
    """The hashes of a run's files. The files may have grown since, but must still begin with what was hashed."""

    config_sha256: str  # of all settings except `steps`, which may grow
    metrics_rows: int
    metrics_sha256: str
    log_bytes: int | None  # None: the log was not kept
    log_sha256: str | None

    @property
    def record(self) -> dict[str, Any]:
        """The manifest alone, as JSON values."""
        everything = asdict(self)
        return {field.name: everything[field.name] for field in fields(Manifest)}

    def check_config(self, record: Mapping[str, Any]) -> None:
        """Raise `Damaged` unless this is the JSON of the run's configuration."""
        if hash_config(record) != self.config_sha256:
            raise Damaged("config.json was edited")

    def check_metrics(self, rows: Sequence[Text]) -> None:
        """Raise `Damaged` unless the rows begin with those of the run."""
        if len(rows) < self.metrics_rows:
            raise Damaged(f"{FILE} is half-written: it has {len(rows)} of {self.metrics_rows} rows")
        if not matches(rows, Seal(self.metrics_rows, self.metrics_sha256)):
            raise Damaged(f"{FILE} was edited")

    def has_log(self, folder: Path) -> bool:
        """Return whether the log still begins with that of the run."""
        return self.log_bytes is None or episodes.is_unchanged(folder, self.log_bytes, str(self.log_sha256))

    def find_damage(self, folder: Path) -> "Damage | None":
        """Return what is wrong with the log and what it costs; None if nothing is, or there is no log."""
        if not episodes.log_path(folder).exists() or self.has_log(folder):
            return None
        readable, last = episodes.measure(folder)
        size = self.log_bytes or 0
        if readable >= size:
            return Damage(f"{episodes.log_path(folder)}: edited; its episodes are not used; restore the file", True)
        lost = f"{show_size(size - readable)} of {show_size(size)}"
        kept = "no episodes" if last is None else f"only episodes up to iteration {last}"
        remedy = "restore the file to use all"
        return Damage(f"{episodes.log_path(folder)}: damaged: {lost} cannot be read; {kept} are used; {remedy}", False)


def hash_config(record: Mapping[str, Any]) -> str:
    """Return the hash of a configuration's JSON without its number of steps."""
    return hash_record({key: value for key, value in record.items() if key != "steps"})
