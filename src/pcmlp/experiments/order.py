"""The groups and the order of jobs.

Jobs with equal programs run as one group in one process, where more seeds are nearly free (`runs.group`). The longest
group begins first. Compiling is work for the CPU, and eight compilers at once take eight times as long as one. So only
a few groups compile at a time, while the others run. If several groups have the same programs, one of them compiles
these, and the others then find them in the cache on disk.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from pcmlp.experiments.budget import expected_seconds
from pcmlp.experiments.job import Job
from pcmlp.runs.compiling import program_key
from pcmlp.runs.group import group_key

Group = tuple[Job, ...]  # jobs that run together


def form_groups(jobs: Sequence[Job], most_seeds: int) -> list[Group]:
    """Return groups of jobs that can run together. A group has at most `most_seeds` seeds in all, unless it is a single
    job."""
    open_groups: dict[str, list[Group]] = {}  # the last one of each list may take another job
    for job in jobs:
        groups = open_groups.setdefault(group_key(job.config()) or str(job.where), [()])
        if groups[-1] and count_seeds((*groups[-1], job)) > most_seeds:
            groups.append(())
        groups[-1] += (job,)
    return [group for groups in open_groups.values() for group in groups]


def count_seeds(group: Group) -> int:
    """Return the number of seeds of all jobs."""
    return sum(len(job.seeds) for job in group)


class Queue:
    """The groups of jobs that wait."""

    def __init__(self, groups: Sequence[Group], results: Path, *, compilers: int, has_cache: bool):
        """Sort the groups. `compilers` of them may compile at a time; without a cache, each compiles for itself."""
        seconds = {group: _longest(group, results) for group in groups}
        self._compilers, self._has_cache = compilers, has_cache
        self.waiting = sorted(groups, key=lambda group: seconds[group], reverse=True)
        self._compiling: dict[str, Group] = {}  # programs -> the group that compiles them
        self._compiled: set[str] = set()

    def take(self) -> Group | None:
        """Return the next group that may begin; None if all that are left wait for a compiler, or none is left."""
        for group in self.waiting:
            programs = self._programs(group)
            if programs not in self._compiled:
                if programs in self._compiling or len(self._compiling) == self._compilers:
                    continue
                self._compiling[programs] = group
            self.waiting.remove(group)
            return group
        return None

    def put_back(self, groups: Sequence[Group]) -> None:
        """Let the groups be the next ones."""
        self.waiting[:0] = groups

    def note_iteration(self, group: Group) -> None:
        """Note that a group has finished an iteration, so its programs are compiled."""
        self._compiled.add(self._programs(group))
        self.note_end(group)

    def note_end(self, group: Group) -> None:
        """Note that a group no longer compiles."""
        if self._compiling.get(self._programs(group)) == group:
            del self._compiling[self._programs(group)]

    def _programs(self, group: Group) -> str:
        """Return a text that is the same for groups with the same programs."""
        return f"{len(group)} {program_key(group[0].config())}" if self._has_cache else str(group[0].where)


def _longest(group: Group, results: Path) -> float:
    """Return the expected seconds of the longest job; infinite if those of a job are unknown."""
    known = [expected_seconds(job, results) for job in group]
    return max(math.inf if each is None else each for each in known)
