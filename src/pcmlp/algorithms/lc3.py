"""LC3 (Kakade et al. 2020): a regulator of Fourier features, drawn from its posterior; MPPI plans in it; no bonus.

The planner is the same as in pcmlp-mppi. The first episodes are random play. The posterior is fitted to all steps.
"""

import dataclasses

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.method import NO_BONUS, SEARCHES, Method
from pcmlp.algorithms.pcmlp_mppi import METHOD as PCMLP_MPPI
from pcmlp.bonus import NoBonus
from pcmlp.features import NoFeatures
from pcmlp.models import Thompson

assert isinstance(PCMLP_MPPI.algorithm, Deep)

METHOD = Method(
    about="LC3: a regulator of Fourier features drawn from its posterior; MPPI plans in it; no bonus",
    algorithm=dataclasses.replace(
        PCMLP_MPPI.algorithm,
        features=NoFeatures(),
        bonus=NoBonus(),
        model=Thompson(),
        planner=dataclasses.replace(PCMLP_MPPI.algorithm.planner, random_first=True),
        bounded=False,
        replay_size=100_000,
    ),
    presets={
        "ours": {
            "small": {"steps": 4_000, "eval_episodes": 20},
            "point-umaze": {"steps": 10_000},
            "gym": {"steps": 30_000, "eval_episodes": 20},
        }
    },
    choices={"features": ("none",), "bonus": ("none",), "model.features": ("fourier",)},
    unused={**NO_BONUS, **SEARCHES},
)
