"""`report.html`: what happened in one run or in several, in one file that opens without a network."""

import os
from pathlib import Path

from pcmlp.report.page.compose import compose
from pcmlp.report.reading import Run, find_runs, load
from pcmlp.types import ConfigError


def report(paths: list[Path], out: Path | None = None) -> Path:
    """Of run folders, or folders of them; written to `out`, a folder or an .html file, or to the folder that was given,
    or that those given have in common."""
    page = compose(read_runs(paths))
    place = Path(os.path.commonpath([path.resolve() for path in paths])) if out is None else out
    file = place if place.suffix == ".html" else place / "report.html"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); give another place") from error
    return file


def read_runs(paths: list[Path]) -> list[Run]:
    if not paths:
        raise ConfigError("report: no folder was given; give a run folder or a folder of runs")
    return [load(folder) for folder in find_runs(paths)]
