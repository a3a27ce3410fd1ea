"""The order of jobs: the longest first; of jobs with the same programs, only one runs until it has compiled them.

The others then find the programs in the cache on disk. Compiling is work for the CPU, and several that compile the same
at once take several times as long.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from pcmlp.experiments.budget import expected_seconds
from pcmlp.experiments.job import Job
from pcmlp.runs.compiling import program_key


class Queue:
    """The jobs that wait."""

    def __init__(self, jobs: Sequence[Job], results: Path, *, has_cache: bool):
        """Sort the jobs; without a cache, each compiles for itself and none waits for another."""
        known = {job: expected_seconds(job, results) for job in jobs}
        seconds = {job: math.inf if each is None else each for job, each in known.items()}
        self.waiting = sorted(jobs, key=lambda job: seconds[job], reverse=True)
        self._programs = {job: program_key(job.config()) if has_cache else str(job.where) for job in jobs}
        self._compiling: dict[str, Job] = {}  # programs -> the job that compiles them
        self._compiled: set[str] = set()

    def take(self) -> Job | None:
        """Return the next job that may begin; None if all others wait for a compiler, or none is left."""
        for job in self.waiting:
            if self._programs[job] not in self._compiling:
                self.waiting.remove(job)
                if self._programs[job] not in self._compiled:
                    self._compiling[self._programs[job]] = job
                return job
        return None

    def put_back(self, job: Job) -> None:
        """Let a job that has died be the next one."""
        self.waiting.insert(0, job)

    def note_iteration(self, job: Job) -> None:
        """Note that a job has learned for an iteration, so that its programs are compiled."""
        self._compiled.add(self._programs[job])
        self.note_end(job)

    def note_end(self, job: Job) -> None:
        """Note that a job compiles no longer."""
        if self._compiling.get(self._programs[job]) == job:
            del self._compiling[self._programs[job]]
