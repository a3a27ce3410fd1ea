"""Algorithm 1 in the whole setting of the theorems (paper: sections 3 to 5, appendices A and B).

Each module measures one part of the theory and has the same three names:

    jobs()          its runs
    tables(done)    the tables that are made of them
    MEASURED        the tables that need no run
"""

from types import ModuleType

from pcmlp.experiments import gains, growth
from pcmlp.experiments.experiment import Done, Experiment, Tables
from pcmlp.experiments.job import Job

PARTS: tuple[ModuleType, ...] = (gains, growth)


def theory_jobs() -> list[Job]:
    """Return the runs of all parts; a run that two parts use is made once."""
    return list(dict.fromkeys(job for part in PARTS for job in part.jobs()))


def theory_tables(done: Done) -> Tables:
    """Yield the tables of all parts."""
    for part in PARTS:
        yield from part.tables(done)


THEORY = Experiment(
    name="theory",
    title="Algorithm 1 in the whole setting of the theorems",
    place="sections 3 to 5, appendices A and B",
    shows="information gain and sum of bonuses against their bounds; how the steps to a near-optimal policy grow",
    jobs=theory_jobs,
    tables=theory_tables,
    measured={name: measure for part in PARTS for name, measure in part.MEASURED.items()},
)
