"""Algorithm 1 in the whole setting of the theorems (paper: sections 3 to 5, appendices A and B).

Each module measures one part of the theory and has the same three names:

    jobs()          its runs
    tables(done)    the tables that are made of them
    MEASURED        the tables that need no run
"""

from functools import partial
from types import ModuleType

from pcmlp.experiments import chain, gains, growth, kernels, linear_core, oracle
from pcmlp.experiments.chain_figures import PICTURES, draw_pictures
from pcmlp.experiments.experiment import Done, Experiment, Tables
from pcmlp.experiments.job import Job
from pcmlp.experiments.theory_figures import THEORY_PICTURES

PARTS: tuple[ModuleType, ...] = (chain, gains, growth, kernels, linear_core, oracle)


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
    place="section 5, appendices A and B",
    shows="each inequality of the proof, growth, kernels, an optimistic oracle",
    jobs=theory_jobs,
    tables=theory_tables,
    measured={name: measure for part in PARTS for name, measure in part.MEASURED.items()},
    draw=partial(draw_pictures, (*PICTURES, *THEORY_PICTURES)),
)
