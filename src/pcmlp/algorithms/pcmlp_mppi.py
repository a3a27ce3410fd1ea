"""Deep PC-MLP with random Fourier features and MPPI, which replans at every step (paper: appendices C.1 and D.1).

Fourier features have norm 1 everywhere, so the bonus of a step is at most 2 c / sqrt(lambda) = 0.6, and the goal is
worth more to a plan than a hundred steps of novelty. Plans are for the start of episodes, so no imagined episode starts
at a replayed state. Where only a goal is rewarded, a plan that narrowly misses it is no better than doing nothing. So
much of the noise is full throttle in one direction for some steps, which finds the goal from anywhere, and much of it
is small, which corrects a plan. This needs more plans, and a better model, than the paper's table has.
"""

from typing import Any

from pcmlp.algorithms.deep import Deep
from pcmlp.algorithms.method import SEARCHES, Method
from pcmlp.algorithms.pcmlp import PAPER
from pcmlp.features import Fourier
from pcmlp.models import Neural
from pcmlp.planners import MPPI

_PAPER: dict[str, Any] = {
    **{key: value for key, value in PAPER.items() if not key.startswith(("features.", "planner."))},
    "bonus_scale": 1.0,
    "replay_starts": 0.0,
    "samples_per_policy": 1_000,
    "rounds": 1,
    "eval_episodes": 20,
    "replay_size": 10_000,
    "features.dim": 20,
    "features.bandwidth": None,
    "features.action_weight": 1.0,
    "model.sizes": (64,),
    "model.rate": 5e-3,
    "model.steps": 1_000,
    "planner.num_plans": 200,
    "planner.plan_length": 30,
    "planner.temperature": 0.2,
    "planner.noise_cov": 0.3,
    "planner.least_noise": 1.0,
    "planner.correlation": 0.0,
    "planner.warmup": 10,
    "planner.restarts": 0,
}

METHOD = Method(
    about="Deep PC-MLP with random Fourier features and MPPI, which replans at every step",
    algorithm=Deep(
        features=Fourier(dim=100, bandwidth=1.0, action_weight=0.2),
        model=Neural(sizes=(128, 128), steps=4_000),
        planner=MPPI(
            num_plans=500,
            plan_length=150,
            temperature=1.0,
            noise_cov=25.0,
            least_noise=0.03,
            correlation=0.85,
            warmup=50,
            restarts=14,
        ),
        samples_per_policy=400,
        bonus_scale=0.01,
        rounds=1,
        fresh=False,  # the planner itself keeps the better of the last plan and new ones
        replay_size=10_000,
        replay_starts=0.0,
    ),
    presets={
        "ours": {
            "small": {"steps": 4_000, "eval_episodes": 20},
            "point-umaze": {"steps": 10_000},
            "gym": {"steps": 30_000, "eval_episodes": 20, "outcome.steps": 16_000},
        },
        "paper": dict.fromkeys(("mountain-car", "acrobot", "point-umaze", "pendulum"), _PAPER),
    },
    choices={"features": ("fourier", "random-network")},
    unused=SEARCHES,
)
