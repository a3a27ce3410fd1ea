"""A verdict on each of the paper's claims: it follows from kept results by a rule, and nobody writes it by hand.

    holds                       the rule is met with the paper's settings
    holds with another setting  it is not, but it is with the setting that is named
    does not hold               it is not met with any setting that was run
    not tested                  some of the runs with the paper's settings are missing

A claim has one or more readings. Each is a setting, the results that it needs, and the rule. The first reading has the
paper's settings where there are such runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pcmlp.experiments.experiment import Experiment, write_csv
from pcmlp.experiments.job import Job, is_finished
from pcmlp.report.experiment import check_tables
from pcmlp.report.reading import Run, load
from pcmlp.report.verdict import ELSEWHERE, FAILS, FILE, HOLDS, UNTESTED, Verdict, seal_verdicts
from pcmlp.runs.metrics import read_table

Table = list[dict[str, str]]


class Finding(NamedTuple):
    """The outcome of a rule."""

    holds: bool
    figures: str  # the numbers that decide it, in words


@dataclass(frozen=True)
class Kept:
    """The kept results. Each is named by its place in their folder: the folder of a run, or a table, NAME.csv."""

    results: Path
    jobs: Mapping[str, Job]

    @classmethod
    def of(cls, results: Path, experiments: Iterable[Experiment]) -> "Kept":
        """Return the kept results of some experiments."""
        return cls(results, {job.where.as_posix(): job for made in experiments for job in made.jobs()})

    def has(self, place: str) -> bool:
        """Return whether a result is there. A run must be finished, and have the settings that its job has now."""
        if place.endswith(".csv"):
            return (self.results / place).exists()
        folder = self.results / place
        return (
            (folder / "summary.json").exists() and place in self.jobs and is_finished(self.jobs[place].config(), folder)
        )

    def file(self, place: str) -> str:
        """Return the file of a result in which a reader finds its numbers."""
        return place if place.endswith(".csv") else f"{place}/summary.json"

    def run(self, place: str) -> Run:
        """Return a run."""
        return load(self.results / place)

    def table(self, place: str) -> Table:
        """Return the rows of a table; raise if it was edited."""
        check_tables(self.results / place.split("/")[0])
        return [dict(row) for row in read_table(self.results / place)]


Rule = Callable[[Kept, Sequence[str]], Finding]  # is given the results that the reading needs


class Reading(NamedTuple):
    """One way to test a claim."""

    setting: str
    needs: tuple[str, ...]
    rule: Rule


class Claim(NamedTuple):
    """A claim of the paper."""

    text: str
    place: str  # its section, figure or table
    rule: str  # when it holds
    readings: tuple[Reading, ...] = ()  # none: nothing can test it yet
    why_not: str = ""  # why there is none


def judge(claim: Claim, kept: Kept) -> Verdict:
    """Return the verdict on a claim."""
    found: list[Finding | None] = []
    figures: list[str] = [claim.why_not] if claim.why_not else []
    for reading in claim.readings:
        missing = [place for place in dict.fromkeys(reading.needs) if not kept.has(place)]
        finding = None if missing else reading.rule(kept, reading.needs)
        found.append(finding)
        figures.append(f"{reading.setting}: {finding.figures if finding else f'missing {_name(missing)}'}")
    there = [place for reading in claim.readings for place in reading.needs if kept.has(place)]
    experiments = dict.fromkeys(place.split("/")[0] for reading in claim.readings for place in reading.needs)
    return Verdict(
        claim=claim.text,
        place=claim.place,
        rule=claim.rule,
        verdict=_decide(claim, found),
        figures="; ".join(figures),
        command=f"pcmlp paper {' '.join(experiments)}" if experiments else "",
        file=kept.file(there[0]) if there else "",
    )


def _name(places: Sequence[str]) -> str:
    """Return the names of results, with each experiment named once, before the first of its results."""
    names: dict[str, list[str]] = {}
    for place in places:
        if str(Path(place).parent) not in places:  # a table of a run that is missing itself
            experiment, _, name = place.partition("/")
            names.setdefault(experiment, []).append(name)
    return ", ".join(f"{experiment}/{', '.join(of)}" for experiment, of in names.items())


def _decide(claim: Claim, found: Sequence[Finding | None]) -> str:
    """Return the verdict that follows from what each reading found; a reading whose results are missing found None."""
    if not found or found[0] is None:
        return UNTESTED
    if found[0].holds:
        return HOLDS
    others = zip(claim.readings[1:], found[1:], strict=True)
    named = [reading.setting for reading, finding in others if finding is not None and finding.holds]
    return f"{ELSEWHERE}: {', '.join(named)}" if named else FAILS


def write_verdicts(claims: Sequence[Claim], kept: Kept) -> list[Verdict]:
    """Judge all claims, and write `verdict.csv` into the results, with its hash beside it."""
    verdicts = [judge(claim, kept) for claim in claims]
    write_csv(kept.results / FILE, [verdict._asdict() for verdict in verdicts])
    seal_verdicts(kept.results)
    return verdicts
