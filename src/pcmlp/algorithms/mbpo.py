"""MBPO (Janner et al. 2019): a probabilistic ensemble and SAC on short imagined episodes from real states; no bonus.

As in the paper: 7 nets, of which 5 predict; imagined episodes of one step at first; 20 policy updates per real step.
"""

from typing import Any

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.method import BUDGET, NO_BONUS, Method
from pcmlp.bonus import NoBonus
from pcmlp.features import NoFeatures
from pcmlp.models import Probabilistic
from pcmlp.planners import SAC

# For MuJoCo and gym:ID. With twenty updates for each of the first thousand real steps, values of plain critics grow
# without bound (hopper: 3,000 to 14,000, where about 400 is possible). Layer norm in the critics and bounds on
# imagined states, as in our planner, prevent this.
_STEADY: dict[str, Any] = {"bounded": True, "margin": 0.1, "planner.normed": True}


def _any(horizon: int) -> dict[str, Any]:
    """Return the settings for 20 updates per step, whatever the length of an episode."""
    rounds = max(1, horizon // 250)
    updates = max(1, 20 * horizon // rounds)
    outcome = {"outcome.steps": 2_000, "outcome.batch": 256}
    return {**_STEADY, **outcome, "steps": 30_000, "eval_episodes": 20, "rounds": rounds, "planner.updates": updates}


METHOD = Method(
    about="probabilistic ensemble and SAC on short imagined episodes; no bonus (Janner et al. 2019)",
    algorithm=Deep(
        features=NoFeatures(),
        bonus=NoBonus(),
        model=Probabilistic(members=7, elites=5, steps=500, batch=256),
        planner=SAC(updates=4_000, streams=20_000, length=1, normed=False),
        rounds=1,
        fresh=False,
        bounded=False,
        replay_size=100_000,
        num_starts=20_000,
        replay_starts=1.0,
    ),
    presets={
        "ours": {
            "small": {"steps": 2_000, "eval_episodes": 20},
            "point-umaze": {"steps": 10_000},
            "pendulum": {"steps": 4_000},
            "robot": {**_STEADY, **BUDGET, "samples_per_policy": 1_000, "rounds": 4, "planner.updates": 5_000},
            "gym": _any,
        }
    },
    choices={"features": ("none",), "bonus": ("none",)},
    unused=NO_BONUS,
)
