"""The files of an experiment's folder: its description, `experiment.json`, and its tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.runs.durable import check_type, read_json
from pcmlp.runs.metrics import read_table


@dataclass(frozen=True)
class Experiment:
    """The description of an experiment, from `experiment.json`."""

    title: str
    place: str  # its place in the paper
    shows: str
    command: str
    scale: str  # only the numbers of scale "full" are results
    order: int  # position on the page
    runs: tuple[Path, ...]  # existing runs; some may belong to another experiment


def read_experiment(folder: Path) -> Experiment | None:
    """Read the folder's `experiment.json`, if it has one."""
    file = folder / "experiment.json"
    if not file.exists():
        return None
    try:
        content = read_json(file)
        order = check_type(content.pop("order", None), int, "order")
        names = check_type(content.pop("runs", None), list[str], "runs")
        texts = {name: check_type(text, str, name) for name, text in content.items()}
        return Experiment(**texts, order=order, runs=tuple(_beside(folder, names)))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run its experiment again") from error


def _beside(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the runs of an experiment that exist; raise for a place outside of the results."""
    results = folder.parent
    for name in names:
        path = results / name
        if not path.resolve().is_relative_to(results.resolve()):
            raise ValueError(f"{name} is outside of {results}")
        if (path / "metrics.csv").exists():
            yield path


def read_tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Read the CSV files of an experiment's folder by file name, without those that have no row."""
    tables = {path.name: read_table(path) for path in sorted(folder.glob("*.csv"))}
    return {name: rows for name, rows in tables.items() if rows}
