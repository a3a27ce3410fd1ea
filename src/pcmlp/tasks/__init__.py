"""The tasks by name: each is a record of options whose `build` gives the task."""

from pcmlp.tasks.finite import CombinationLock, LowRank
from pcmlp.tasks.knr import DoubleWell, LinearSystem

TASKS = {
    "combination-lock": CombinationLock,
    "low-rank": LowRank,
    "knr-lds": LinearSystem,
    "knr-poly": DoubleWell,
}
