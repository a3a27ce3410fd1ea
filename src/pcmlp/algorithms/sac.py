"""Model-free SAC (Haarnoja et al. 2018), with the settings of stable-baselines3.

Each iteration collects one episode, then makes as many updates as it has steps, on a replay of all steps.
"""

from pcmlp.algorithms.method import FREE_BUDGET, NO_IMAGINATION, ONE_EPISODE, Method
from pcmlp.algorithms.model_free import ModelFree
from pcmlp.planners import SAC

METHOD = Method(
    about="model-free SAC: one update on a replay of real steps for each real step",
    algorithm=ModelFree(planner=SAC(entropy=-1.0, normed=False), samples_per_policy=ONE_EPISODE, normalise=False),
    presets={
        "ours": {
            "small": {"steps": 20_000},
            "robot": {**FREE_BUDGET, "replay_size": 200_000},
            "gym": {"steps": 30_000, "eval_episodes": 20},
        }
    },
    unused=NO_IMAGINATION,
)
