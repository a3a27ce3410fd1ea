"""Model-free TRPO (Schulman et al. 2015), with the settings of sb3-contrib, whose KL is a mean over action dimensions.

Each update uses whole episodes with about 2,000 steps in total.
"""

from pcmlp.algorithms.method import FREE_BUDGET, NO_IMAGINATION, Method
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.planners import TRPO

REAL_TRPO = TRPO(
    per_dimension=True,
    conjugate_steps=15,
    policy_sizes=(64, 64),
    value_rate=1e-3,
    value_epochs=10,
    value_batch=128,
)

METHOD = Method(
    about="model-free TRPO: each update uses about two thousand real steps",
    algorithm=ModelFree(planner=REAL_TRPO),
    presets={"ours": {"small": {"steps": 20_000}, "robot": FREE_BUDGET, "gym": {"steps": 30_000, "eval_episodes": 20}}},
    unused={
        **NO_IMAGINATION,
        "planner.entropy": "sb3-contrib's TRPO has no entropy term",
        "replay_size": "TRPO does not keep steps after an update",
        "updates_per_step": "TRPO takes one update per iteration",
    },
)
