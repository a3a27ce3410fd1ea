"""The files of an experiment's folder: its description, `experiment.json`, and its tables."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.runs.durable import Damaged, check_type, read_bytes, read_sealed
from pcmlp.runs.metrics import FILE, read_table


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
    tables: tuple[str, ...]  # the tables that it made, by their place in the folder


def read_experiment(folder: Path) -> Experiment | None:
    """Read the folder's `experiment.json`, if it has one."""
    file = folder / "experiment.json"
    if not os.path.lexists(file):
        return None
    try:
        content = read_sealed(file)
        order = check_type(content.pop("order", None), int, "order")
        names = check_type(content.pop("runs", None), list[str], "runs")
        tables = check_type(content.pop("tables", None), dict[str, str], "tables")
        if changed := _changed(folder, tables):
            there = (folder / changed[0]).exists()
            raise Damaged(f"{changed[0]} {'was edited; remove it' if there else 'is missing'}")
        texts = {name: check_type(text, str, name) for name, text in content.items()}
        return Experiment(**texts, order=order, runs=tuple(_beside(folder, names)), tables=tuple(tables))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run its experiment again") from error


def check_tables(folder: Path) -> None:
    """Raise if a table was edited since its experiment made it; one that was removed is made again."""
    try:
        tables = check_type(read_sealed(folder / "experiment.json").get("tables"), dict[str, str], "tables")
    except (OSError, Damaged):
        return  # its description is made again
    for name, known in tables.items():
        try:
            edited = hash_file(folder / name) != known
        except FileNotFoundError:
            continue
        except (OSError, Damaged):
            edited = True
        if edited:
            raise ConfigError(f"{folder / name}: edited; remove it to make it again")


def _changed(folder: Path, tables: Mapping[str, str]) -> list[str]:
    found = hash_tables(folder)
    return [name for name, known in tables.items() if found.get(name) != known]


def hash_tables(folder: Path) -> dict[str, str]:
    """Return the hash of each table of an experiment and of its runs, by its place in the folder."""
    files = sorted(file for file in folder.rglob("*.csv") if file.name != FILE)
    return {file.relative_to(folder).as_posix(): hash_file(file) for file in files}


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(read_bytes(file)).hexdigest()


def _beside(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the runs of an experiment that exist; raise for a place outside of the results, and for a link or a file
    in the place of a folder."""
    results = folder.parent
    for name in names:
        path = results / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(results)):
            raise ValueError(f"{name} is outside of {results}")
        for place in (path, *path.parents[: len(Path(name).parts) - 1]):
            if place.is_symlink():
                raise ValueError(f"{place} is a link; put the folder itself there")
            if place.exists() and not place.is_dir():
                raise ValueError(f"{place} is not a folder; put the folder there")
        if (path / FILE).exists():
            yield path


def read_tables(folder: Path, experiment: Experiment | None) -> dict[str, list[dict[str, str]]]:
    """Read the CSV files of an experiment's folder by file name, without those that have no row. If the experiment has
    a description, a table that it does not name is left out."""
    paths = [path for path in sorted(folder.glob("*.csv")) if experiment is None or path.name in experiment.tables]
    tables = {path.name: read_table(path) for path in paths}
    return {name: rows for name, rows in tables.items() if rows}
