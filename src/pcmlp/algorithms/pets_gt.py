"""PETS-GT (paper: section 7.1): CEM in the true dynamics, which are given to it. It shows what planning alone achieves.

Nothing is learned, so one episode per policy is enough; the model adds no noise of its own, so one particle is enough.
"""

import dataclasses

from pcmlp.algorithms.method import Method
from pcmlp.algorithms.pets import LONG_PLANS, SEARCH
from pcmlp.algorithms.pets import METHOD as PETS
from pcmlp.models import Known

METHOD = Method(
    about="CEM in the true dynamics: shows what planning alone can do; no bonus",
    algorithm=dataclasses.replace(
        PETS.algorithm, model=Known(), planner=dataclasses.replace(SEARCH, particles=1, random_first=False)
    ),
    presets={
        "ours": {
            "small": {"steps": 200, "eval_episodes": 20},
            "robot": {**LONG_PLANS, "steps": 1_000, "eval_episodes": 1},
            "hand-egg": None,  # its simulator cannot be set to a given state
        }
    },
    choices={"features": ("none",), "bonus": ("none",)},
    unused={**PETS.unused, "outcome.": "it needs reward and end as functions"},
)
