"""The tasks by name: each is a record of options whose `build` gives the task."""

from pcmlp.tasks.finite import CombinationLock, LowRank

TASKS = {
    "combination-lock": CombinationLock,
    "low-rank": LowRank,
}
