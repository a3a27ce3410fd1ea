"""SLBO (Luo et al. 2018): Algorithm 2 without a bonus; an entropy term and noise on the real actions explore.

The numbers are those of the authors' release: 20 rounds for 4,000 samples; other budgets keep this ratio.
"""

from typing import Any

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.method import BUDGET, NO_BONUS, Method
from pcmlp.bonus import NoBonus
from pcmlp.features import NoFeatures
from pcmlp.planners import TRPO


def _any(horizon: int) -> dict[str, Any]:
    return {"steps": 30_000, "eval_episodes": 20, "rounds": min(max(2, horizon // 200), 20)}


METHOD = Method(
    about="SLBO: neural dynamics and TRPO in the model, no bonus; noise on actions and entropy explore",
    algorithm=Deep(
        features=NoFeatures(),
        bonus=NoBonus(),
        planner=TRPO(entropy=0.005, value_rate=1e-3, value_batch=64),
        samples_per_policy=400,
        fresh=False,
        replay_starts=0.0,
        bounded=False,
        noise=0.3,
    ),
    presets={
        "ours": {
            "small": {"steps": 4_000},
            "point-umaze": {"steps": 10_000},
            "robot": {**BUDGET, "rounds": 20},
            "gym": _any,
        }
    },
    choices={"features": ("none",), "bonus": ("none",)},
    unused=NO_BONUS,
)
