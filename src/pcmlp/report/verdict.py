"""`verdict.csv` of a folder of results: what became of each of the paper's claims. The report only reads it."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pcmlp.errors import ConfigError
from pcmlp.report.experiment import hash_file
from pcmlp.runs.durable import Damaged, check_type, read_sealed, write_sealed
from pcmlp.runs.metrics import read_table

FILE, SEAL = "verdict.csv", "verdict.json"


HOLDS, ELSEWHERE, FAILS, UNTESTED = "holds", "holds with another setting", "does not hold", "not tested"


class Verdict(NamedTuple):
    """A row of the table."""

    claim: str
    place: str  # its place in the paper
    rule: str  # when it holds
    verdict: str  # one of the four; the second is followed by ": SETTING"
    figures: str
    command: str  # makes the results that decide it
    file: str  # one of them, by its place in the results; empty if there is none


def count_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have each of the four verdicts, as "3 “holds”, 1 “not tested”"."""
    found = Counter(verdict.verdict.partition(":")[0] for verdict in verdicts)
    return ", ".join(f"{found[of]} “{of}”" for of in (HOLDS, ELSEWHERE, FAILS, UNTESTED) if found[of])


def link_verdicts(verdicts: Sequence[Verdict], results: Path, page: Path) -> list[Verdict]:
    """Return the rows with the address of each file for a page in the folder `page`; empty where no file is in the
    results."""

    def link(verdict: Verdict) -> str:
        file = (results / verdict.file).resolve()
        inside = file.is_file() and file.is_relative_to(results.resolve())
        return quote(Path(os.path.relpath(file, page.resolve())).as_posix()) if inside else ""

    return [verdict._replace(file=link(verdict)) for verdict in verdicts]


def seal_verdicts(results: Path) -> None:
    """Write the hash of the table."""
    write_sealed(results / SEAL, {"tables": {FILE: hash_file(results / FILE)}})


def read_verdicts(results: Path) -> Sequence[Verdict]:
    """Read the table of a folder of results; empty if there is none. One that was edited is refused."""
    file = results / FILE
    if not file.exists():
        return ()
    try:
        known = check_type(read_sealed(results / SEAL).get("tables"), dict[str, str], "tables")
        if known.get(FILE) != hash_file(file):
            raise Damaged("edited")
        return [Verdict(**row) for row in read_table(file)]
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); remove it, and pcmlp paper makes it again") from error
